"""What `fovea review` and `fovea golden` share: the stores behind them, and how they talk."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from fovea.cli.terminal_text import printable
from fovea.core.errors import Malformed, StoreCorrupt

if TYPE_CHECKING:
    from cloud.bootstrap import Look
    from cloud.cases.store import CaseStore
    from cloud.config import CloudConfig
    from cloud.console.desk import Desk
    from cloud.golden.golden_set import GoldenSet
    from cloud.labels.exchange import SheetsReport
    from cloud.labels.review import Reviews, TakeReport
    from cloud.labels.store import LabelStore
    from cloud.labels.teacher import TeachingReport

SHORT_ID = 12


class SheetForm(StrEnum):
    """See `cloud.labels.exchange.Format`."""

    COCO = "coco"
    LABEL_STUDIO = "label-studio"


Config = Annotated[Path | None, typer.Option("--config", "-c", help="The cloud's configuration.")]
Store = Annotated[Path | None, typer.Option("--store", "-s", help="The folder of cases, in its place.")]
Form = Annotated[
    SheetForm, typer.Option("--format", help="coco, or label-studio (tasks with pre-annotations).")
]
ImageUrl = Annotated[
    str, typer.Option(help="Label Studio: what comes before the name of each picture, such as a URL.")
]
By = Annotated[str, typer.Option(help="Who labels; your login name if left out.")]
To = Annotated[Path, typer.Option(help="The folder to write, which must not exist or be empty.")]
FromFile = Annotated[
    Path, typer.Argument(help="COCO or Label Studio JSON as it came back, or the folder that holds it.")
]
AcceptUntouched = Annotated[
    bool,
    typer.Option(help="Also take what is still as the teacher filled it in: somebody has looked at all."),
]
SkipEmpty = Annotated[bool, typer.Option(help="Leave out pictures without a box, which else count as empty.")]
Listen = Annotated[str, typer.Option(help="Where the page is served; 127.0.0.1 keeps it on this machine.")]
Cert = Annotated[Path | None, typer.Option(help="PEM file of a certificate: the page is encrypted.")]
Key = Annotated[Path | None, typer.Option(help="PEM file of its key.")]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """The stores of one cloud, open."""

    config: CloudConfig
    cases: CaseStore
    labels: LabelStore
    reviews: Reviews
    golden: GoldenSet


@contextmanager
def opened_room(config: Path | None, store: Path | None) -> Iterator[Room]:
    """The stores that the options name. Raises Malformed where not exactly one is named, NotFound for no store."""
    from cloud.cases.store import CaseStore, StoreAddress
    from cloud.config import CloudConfig, load_config
    from cloud.golden.golden_set import GoldenSet
    from cloud.golden.sites import Sites
    from cloud.labels.review import Reviews
    from cloud.labels.store import LabelStore

    if (config is None) == (store is None):
        raise Malformed("expected --store FOLDER or --config FILE, to say which cases are meant")
    told = load_config(config) if config else CloudConfig()
    address = StoreAddress.in_folder(store) if store else told.store.address()
    cases = CaseStore.open_existing(address)
    try:
        labels = LabelStore.open(address.database)
        try:
            golden = GoldenSet(labels, Sites.of(told.sites), told.golden.settings())
            yield Room(told, cases, labels, Reviews(cases, labels), golden)
        finally:
            labels.close()
    finally:
        cases.close()


def teach(
    room: Room, case_ids: list[str], opener: Callable[[CloudConfig], Look] | None = None
) -> TeachingReport:
    """Lets the models of the configuration (or those that `opener` opens) label cases. Raises what loading and
    running them raises."""
    from cloud.bootstrap import open_models
    from cloud.labels.teacher import Teacher

    look = (opener or open_models)(room.config)
    try:
        views = "as the bundle says" if room.config.views == "bundle" else room.config.views
        teacher = Teacher(look.detector, room.cases, room.labels, views=views)
        found = (room.cases.find(case_id) for case_id in case_ids)
        return teacher.label_all(case for case in found if case is not None)
    finally:
        look.detector.close()


def told_teaching(report: TeachingReport) -> str:
    """One line about what the teacher did."""
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in sorted(report.verdicts.items()))
    damaged = f"; {len(report.damaged)} pictures are damaged" if report.damaged else ""
    return (
        f"teacher: {report.looked} looked at, {report.reused} answered before, {report.cached} known: "
        f"{verdicts or 'nothing to label'}{damaged}"
    )


def export(room: Room, case_ids: list[str], to: Path, form: SheetForm, image_url: str) -> SheetsReport:
    """Writes sheets of these cases, and says so. Raises StoreCorrupt at the end where pictures are damaged."""
    from cloud.labels.exchange import Format, export_sheets
    from cloud.labels.review import sheet_format

    report = export_sheets(
        room.reviews.sheets(case_ids),
        room.reviews.load_image,
        to,
        sheet_format(Format(form), image_url),
        room.reviews.classes(case_ids),
    )
    typer.echo(f"{report.pictures} pictures with {report.boxes} boxes in {to}")
    if report.damaged:
        raise StoreCorrupt(f"{len(report.damaged)} pictures left out: {'; '.join(report.damaged[:3])}")
    return report


def take(
    room: Room, path: Path, by: str, among: list[str] | None, accept_untouched: bool, skip_empty: bool
) -> TakeReport:
    """Takes what came back in a file, and says what became of it."""
    from cloud.labels.review import TakeSettings, read_sheets

    form, returned = read_sheets(path)
    settings = TakeSettings(by or login_name(), form.value, accept_untouched, skip_empty)
    report = room.reviews.take(returned, settings, None if among is None else set(among))
    parts = [
        f"{len(report.taken)} pictures labelled",
        _some(report.unusable, "of no use"),
        _some(report.unchanged, "said before"),
        _some(report.untouched, "still as the teacher filled them in (--accept-untouched takes them)"),
        _some(report.empty, "without a box left out"),
        _some(report.unknown, "not known here"),
    ]
    typer.echo(", ".join(part for part in parts if part))
    return report


def open_desk(desk: Desk, listen: str, cert: Path | None, key: Path | None) -> None:
    """Serves the labelling page until Ctrl-C."""
    from cloud.console.serve import Listening, Opened, serve

    def say(opened: Opened) -> None:
        if not opened.is_private:
            typer.echo("warning: without --cert and --key others on the network can read along", err=True)
        typer.echo(f"open {opened.url}\nCtrl-C ends it")

    serve(desk, Listening(listen, cert, key), say)


def login_name(user: Callable[[], str] = getpass.getuser) -> str:
    """Who sits here. Raises Malformed where that cannot be said."""
    try:
        return user()
    except (KeyError, OSError):
        raise Malformed("--by: expected a name, as this login has none") from None


def shown(text: str) -> str:
    """Text from elsewhere, so that it cannot speak to the terminal."""
    return escape(printable(text))


def time_of(instant: datetime) -> str:
    """In UTC, to the second."""
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _some(cases: list[str], what: str) -> str:
    return f"{len(cases)} {what}" if cases else ""
