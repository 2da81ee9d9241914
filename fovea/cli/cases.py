"""`fovea cases ...`: looks at the cloud's hard cases, moves them in and out, prunes and migrates their store."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fovea.cli.cases_shown import (
    case_answers,
    case_facts,
    print_case,
    print_cases,
    print_counts,
    save_picture,
)
from fovea.core.errors import Malformed, StoreCorrupt
from fovea.core.routing import Tier

if TYPE_CHECKING:
    from cloud.cases.retention import Retention
    from cloud.cases.store import CaseStore, StoreAddress
    from cloud.cases.stored_case import CaseFilter

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Look at, import, export and prune the cloud's hard cases.",
)

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class TierName(StrEnum):
    """A tier, as it is called on the command line."""

    AGENT = "agent"
    EDGE = "edge"
    CLOUD = "cloud"

    @property
    def tier(self) -> Tier:
        return Tier[self.name]


class Answers(StrEnum):
    """Whose answer is meant: the highest tier that looked, or one of them."""

    HIGHEST = "highest"
    CLOUD = "cloud"
    EDGE = "edge"
    AGENT = "agent"

    @property
    def tier(self) -> Tier | None:
        return None if self is Answers.HIGHEST else Tier[self.name]


class ExportFormat(StrEnum):
    """See `cloud.cases.export.Format`."""

    COCO = "coco"
    YOLO = "yolo"


Config = Annotated[Path | None, typer.Option("--config", "-c", help="The cloud's configuration.")]
Store = Annotated[Path | None, typer.Option("--store", "-s", help="The folder of cases, in its place.")]
Camera = Annotated[str | None, typer.Option(help="Only of this camera.")]
Reason = Annotated[str | None, typer.Option(help="Only with this reason, such as uncertain_boxes.")]
Since = Annotated[
    str | None,
    typer.Option(help="Only captured since: 2025-03-01, 2025-03-01T12:00+01:00, or 30m, 12h, 7d ago."),
]
ByTier = Annotated[TierName | None, typer.Option("--tier", help="Only those that this tier has answered.")]
Audit = Annotated[
    bool | None, typer.Option("--audit/--no-audit", help="Only the random audits, or all but them.")
]
Condition = Annotated[str | None, typer.Option(help="Only of day, dusk, dawn, night or haze.")]
Tag = Annotated[str | None, typer.Option(help="Only with this tag.")]
CaseId = Annotated[str, typer.Argument(help="The id of a case, or its first letters.")]


@app.command("list")
def list_cases(
    config: Config = None,
    store: Store = None,
    camera: Camera = None,
    reason: Reason = None,
    since: Since = None,
    tier: ByTier = None,
    audit: Audit = None,
    condition: Condition = None,
    tag: Tag = None,
    limit: Annotated[int, typer.Option(min=0, help="How many at most, the newest.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for each case and line.")] = False,
) -> None:
    """Say which cases are kept, the newest first, with the boxes that each tier saw, and how many of each camera."""
    wanted = _filter(camera, reason, since, tier, audit, condition, tag)
    with _opened(config, store) as cases:
        if as_json:
            for case in cases.walk(wanted, limit=limit):
                typer.echo(json.dumps(case_facts(case), ensure_ascii=False))
            return
        print_cases(cases, wanted, limit)


@app.command()
def show(
    case_id: CaseId,
    config: Config = None,
    store: Store = None,
    save: Annotated[
        Path | None, typer.Option(help="Also write the picture there, with boxes (.jpg or .png).")
    ] = None,
    answers: Annotated[Answers, typer.Option(help="Whose boxes are drawn.")] = Answers.HIGHEST,
    as_json: Annotated[bool, typer.Option("--json", help="As a JSON object.")] = False,
) -> None:
    """Say all that is known of one case: why it was sent, and what each tier saw. Its picture is checked."""
    with _opened(config, store) as cases:
        case = cases.get(case_id)
        image = cases.load_image(case)
    if as_json:
        typer.echo(
            json.dumps(case_facts(case) | {"answers": case_answers(case)}, indent=2, ensure_ascii=False)
        )
    else:
        print_case(case)
    if save is not None:
        save_picture(case, image, answers.tier, save)


@app.command()
def export(
    to: Annotated[Path, typer.Option(help="The folder to write, which must not exist or be empty.")],
    config: Config = None,
    store: Store = None,
    form: Annotated[
        ExportFormat, typer.Option("--format", help="coco, or a yolo folder.")
    ] = ExportFormat.COCO,
    answers: Annotated[
        Answers, typer.Option(help="Whose boxes become labels; cases without are left out.")
    ] = Answers.HIGHEST,
    min_score: Annotated[float, typer.Option(min=0, max=1, help="Boxes below are left out.")] = 0.0,
    camera: Camera = None,
    reason: Reason = None,
    since: Since = None,
    tier: ByTier = None,
    audit: Audit = None,
    condition: Condition = None,
    tag: Tag = None,
    limit: Annotated[int | None, typer.Option(min=1, help="How many at most, the newest.")] = None,
) -> None:
    """Write cases with their pictures as a data set. Its labels are what models saw, not truth."""
    from cloud.cases.export import ExportSettings, Format, export_cases

    wanted = _filter(camera, reason, since, tier, audit, condition, tag)
    settings = ExportSettings(Format(form), answers.tier, min_score)
    with _opened(config, store) as cases:
        report = export_cases(cases.walk(wanted, limit=limit), cases.load_image, to, settings)
    left_out = f", {report.unanswered} left out without such an answer" if report.unanswered else ""
    typer.echo(f"{report.images} pictures with {report.boxes} boxes in {to}{left_out}")
    if report.damaged:
        raise StoreCorrupt(f"{len(report.damaged)} pictures left out: {'; '.join(report.damaged[:3])}")


@app.command("import")
def import_folder(
    source: Annotated[Path, typer.Option("--from", help="The folder of the data set.")],
    config: Config = None,
    store: Store = None,
    form: Annotated[
        ExportFormat, typer.Option("--format", help="coco (annotations.json), or a yolo folder (data.yaml).")
    ] = ExportFormat.COCO,
    camera: Annotated[
        str, typer.Option(help="Whose pictures these are, where they do not say.")
    ] = "imported",
    tier: Annotated[
        TierName, typer.Option(help="Whose answer their labels are, where they do not say.")
    ] = TierName.CLOUD,
    tag: Annotated[list[str] | None, typer.Option(help="A word for all of them, such as snow.")] = None,
) -> None:
    """Take a data set into the store. Twice adds nothing; what was exported comes back as it was."""
    from cloud.cases.data_set import Format
    from cloud.cases.importing import ImportSettings, import_cases

    settings = ImportSettings(Format(form), camera, tier.tier, tuple(tag or ()))
    with _opened(config, store, makes_it=True) as cases:
        report = import_cases(cases, source, settings)
    skipped = f", {report.skipped_boxes} boxes left out" if report.skipped_boxes else ""
    typer.echo(f"{report.images} pictures with {report.boxes} boxes, {report.new} of them new{skipped}")
    if report.refused:
        raise Malformed(f"{len(report.refused)} pictures refused: {'; '.join(report.refused[:5])}")


@app.command()
def count(
    config: Config = None,
    store: Store = None,
    as_json: Annotated[bool, typer.Option("--json", help="As a JSON object.")] = False,
) -> None:
    """Say how much is kept of each camera under each condition, and with each tag."""
    with _opened(config, store) as cases:
        counts, tags = cases.count_by_condition(), cases.count_by_tag()
    if as_json:
        typer.echo(
            json.dumps({"counts": [asdict(count) for count in counts], "tags": tags}, ensure_ascii=False)
        )
        return
    print_counts(counts, tags)


@app.command()
def prune(
    config: Config = None,
    store: Store = None,
    max_bytes: Annotated[
        int | None,
        typer.Option(min=0, help="Of pictures; beyond, the oldest go. As configured, if not said."),
    ] = None,
    max_age_days: Annotated[
        float | None, typer.Option(min=0, help="Older cases go. As configured, if not said.")
    ] = None,
    keep_audits_days: Annotated[
        float | None, typer.Option(min=0, help="Audits stay so long at least. As configured, if not said.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
) -> None:
    """Delete what is too old or too much; never what is golden, under review or in a data set. The cloud does so by
    itself, too."""
    given = {"max_bytes": max_bytes, "max_age_days": max_age_days, "keep_audits_days": keep_audits_days}
    retention = _retention(config, {name: value for name, value in given.items() if value is not None})
    with _opened(config, store) as cases:
        report = cases.would_prune(retention) if dry_run else cases.prune(retention)
    verb = "would go" if dry_run else "deleted"
    typer.echo(
        f"{report.cases} cases ({report.image_bytes / 1e6:.1f} MB) {verb}, {report.left_bytes / 1e6:.1f} MB left"
    )
    if report.over_bytes:
        typer.echo(f"{report.over_bytes / 1e6:.1f} MB more than allowed: all of it is protected, or an audit")


@app.command()
def migrate(config: Config = None, store: Store = None) -> None:
    """Bring the tables of the store to this version. SQLite files are brought there by themselves."""
    from cloud.database import checked_database, migrate, open_engine, shown

    url = checked_database(_address(config, store).database)
    engine = open_engine(url)
    try:
        before, after = migrate(engine)
    finally:
        engine.dispose()
    said = "is" if before == after else f"was {before or 'empty'}, is now"
    typer.echo(f"{shown(url)}: {said} at revision {after}")


def parsed_since(text: str, now: datetime) -> datetime:
    """An instant: a date or time of ISO 8601 (UTC where no zone is said), or how long ago. Raises Malformed."""
    ago = re.fullmatch(r"(\d{1,6})([mhdw])", text.strip())
    try:
        if ago:
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        instant = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError) as error:
        raise Malformed(f"--since: expected 2025-03-01, 2025-03-01T12:00 or 12h, got {text!r:.60}") from error
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def _address(config: Path | None, store: Path | None) -> StoreAddress:
    from cloud.cases.store import StoreAddress
    from cloud.config import load_config

    if (config is None) == (store is None):
        raise Malformed("expected --store FOLDER or --config FILE, to say which cases are meant")
    return StoreAddress.in_folder(store) if store else load_config(config or Path()).store.address()


def _retention(config: Path | None, given: dict[str, Any]) -> Retention:
    """That of the configuration, but for what was given. A folder alone limits nothing by itself."""
    from cloud.cases.retention import Retention
    from cloud.config import load_config

    configured = load_config(config).store.retention.retention() if config else Retention()
    wanted = replace(configured, **given)
    if not wanted.is_limited:
        raise Malformed("expected --max-bytes or --max-age-days, or a --config that says one of them")
    return wanted


@contextmanager
def _opened(config: Path | None, store: Path | None, *, makes_it: bool = False) -> Iterator[CaseStore]:
    from cloud.cases.store import CaseStore

    address = _address(config, store)
    cases = CaseStore.open(address) if makes_it else CaseStore.open_existing(address)
    try:
        yield cases
    finally:
        cases.close()


def _filter(
    camera: str | None,
    reason: str | None,
    since: str | None,
    tier: TierName | None,
    audit: bool | None,
    condition: str | None,
    tag: str | None,
) -> CaseFilter:
    from cloud.cases.stored_case import CaseFilter

    instant = parsed_since(since, datetime.now(UTC)) if since else None
    return CaseFilter(camera, reason, instant, tier.tier if tier else None, audit, condition, tag)
