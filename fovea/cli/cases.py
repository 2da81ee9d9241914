"""`fovea cases ...`: looks at the cloud's hard cases, exports them, and migrates their store."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fovea.cli.terminal_text import printable
from fovea.core.errors import BrokenError, Malformed, StoreCorrupt
from fovea.core.routing import Tier

if TYPE_CHECKING:
    from cloud.cases.store import CaseStore, StoreAddress
    from cloud.cases.stored_case import CaseFilter, StoredCase

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Look at, export and migrate the cloud's hard cases.",
)

_SHORT_ID = 12
_ROOMY_CELLS = 100
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
    limit: Annotated[int, typer.Option(min=0, help="How many at most, the newest.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for each case and line.")] = False,
) -> None:
    """Say which cases are kept, the newest first, with the boxes that each tier saw, and how many of each camera."""
    wanted = _filter(camera, reason, since, tier, audit)
    with _opened(config, store) as cases:
        if as_json:
            for case in cases.walk(wanted, limit=limit):
                typer.echo(json.dumps(_facts(case), ensure_ascii=False))
            return
        _print_cases(cases, wanted, limit)


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
        typer.echo(json.dumps(_facts(case) | {"answers": _answers(case)}, indent=2, ensure_ascii=False))
    else:
        _print_case(case)
    if save is not None:
        _save(case, image, answers.tier, save)


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
    limit: Annotated[int | None, typer.Option(min=1, help="How many at most, the newest.")] = None,
) -> None:
    """Write cases with their pictures as a data set. Its labels are what models saw, not truth."""
    from cloud.cases.export import ExportSettings, Format, export_cases

    wanted = _filter(camera, reason, since, tier, audit)
    settings = ExportSettings(Format(form), answers.tier, min_score)
    with _opened(config, store) as cases:
        report = export_cases(cases.walk(wanted, limit=limit), cases.load_image, to, settings)
    left_out = f", {report.unanswered} left out without such an answer" if report.unanswered else ""
    typer.echo(f"{report.images} pictures with {report.boxes} boxes in {to}{left_out}")
    if report.damaged:
        raise StoreCorrupt(f"{len(report.damaged)} pictures left out: {'; '.join(report.damaged[:3])}")


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


@contextmanager
def _opened(config: Path | None, store: Path | None) -> Iterator[CaseStore]:
    from cloud.cases.store import CaseStore

    cases = CaseStore.open_existing(_address(config, store))
    try:
        yield cases
    finally:
        cases.close()


def _filter(
    camera: str | None, reason: str | None, since: str | None, tier: TierName | None, audit: bool | None
) -> CaseFilter:
    from cloud.cases.stored_case import CaseFilter

    instant = parsed_since(since, datetime.now(UTC)) if since else None
    return CaseFilter(camera, reason, instant, tier.tier if tier else None, audit)


def _print_cases(cases: CaseStore, wanted: CaseFilter, limit: int) -> None:
    console = Console()
    table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("case", no_wrap=True)
    table.add_column("camera", max_width=12, overflow="fold")
    # Where there is little room the time stands below the date, so that reasons stay whole.
    table.add_column("captured (UTC)", max_width=None if console.width >= _ROOMY_CELLS else 10)
    table.add_column("sent for")
    table.add_column("p", no_wrap=True)
    table.add_column("agent/\nedge/\ncloud", no_wrap=True)
    shown = 0
    for case in cases.walk(wanted, limit=limit):
        table.add_row(*(_shown(cell) for cell in _row(case)))
        shown += 1
    if shown:
        console.print(table)
    console.print(f"{shown} of {cases.count(wanted)} cases", highlight=False)
    for count in cases.count_by_camera():
        audits = f", {count.audits} of them audits" if count.audits else ""
        console.print(
            f"  {_shown(count.camera)}: {count.cases} cases{audits}, {count.image_bytes / 1e6:.1f} MB, "
            f"the newest of {_time(count.newest_at)}",
            highlight=False,
        )


def _row(case: StoredCase) -> list[str]:
    boxes = [case.find_answer(tier) for tier in Tier]
    return [
        case.id[:_SHORT_ID],
        case.frame_id.camera,
        _time(case.captured_at),
        ", ".join(case.reasons),
        f"{case.send_probability:.2g}",
        "/".join("-" if answer is None else str(len(answer.detections)) for answer in boxes),
    ]


def _print_case(case: StoredCase) -> None:
    console = Console()
    facts = Table(box=None, show_header=False)
    for name, value in _facts(case).items():
        facts.add_row(name, _shown(", ".join(value) if isinstance(value, list) else str(value)))
    console.print(facts)
    for answer in case.answers:
        seen = answer.detections
        table = Table(title=f"{answer.tier.name.lower()}: {_shown(str(seen.model))}", box=SIMPLE)
        for heading in ("class", "score", "x1", "y1", "x2", "y2"):
            table.add_column(heading, justify="left" if heading == "class" else "right")
        for box in _boxes(answer):
            cells = [f"{edge:.1f}" for edge in box["box_xyxy"]]
            table.add_row(_shown(box["class"]), f"{box['score']:.3f}", *cells)
        console.print(table if len(seen) else f"{table.title}: nothing")


def _facts(case: StoredCase) -> dict[str, Any]:
    return {
        "id": case.id,
        "camera": case.frame_id.camera,
        "boot_id": case.frame_id.boot_id,
        "sequence": case.frame_id.sequence,
        "captured_at": case.captured_at.isoformat(),
        "received_at": case.received_at.isoformat(),
        "reasons": list(case.reasons),
        "send_probability": case.send_probability,
        "audit": case.is_audit,
        "image": f"{case.image_size}, {case.image_bytes} bytes, {case.image_path}",
        "answered_by": [answer.tier.name.lower() for answer in case.answers],
    }


def _answers(case: StoredCase) -> list[dict[str, Any]]:
    return [
        {
            "tier": answer.tier.name.lower(),
            "model": str(answer.detections.model),
            "image_size": str(answer.detections.image_size),
            "boxes": _boxes(answer),
        }
        for answer in case.answers
    ]


def _boxes(answer: Any) -> list[dict[str, Any]]:
    seen, names = answer.detections, {label.id: label.name for label in answer.labels}
    rows = zip(seen.boxes_xyxy.tolist(), seen.scores.tolist(), seen.class_ids.tolist(), strict=True)
    return [
        {"class": names.get(class_id, str(class_id)), "score": score, "box_xyxy": box}
        for box, score, class_id in rows
    ]


def _save(case: StoredCase, image: bytes, tier: Tier | None, path: Path) -> None:
    from fovea.runtime.drawing import draw_detections
    from fovea.runtime.images import decode_image, encode_jpeg, encode_png

    if path.suffix.lower() not in (".jpg", ".jpeg", ".png"):
        raise Malformed(f"--save: expected a name that ends in .jpg or .png, got {path.name!r:.60}")
    pixels, answer = decode_image(image), case.find_answer(tier)
    if answer is not None and answer.detections.image_size == case.image_size:
        pixels = draw_detections(pixels, answer.detections, answer.labels)
    try:
        path.write_bytes(encode_png(pixels) if path.suffix.lower() == ".png" else encode_jpeg(pixels))
    except OSError as error:
        raise BrokenError(f"cannot write {path}: {error.strerror or error}") from error
    typer.echo(f"picture: {path}")


def _shown(text: str) -> str:
    return escape(printable(text))


def _time(instant: datetime) -> str:
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
