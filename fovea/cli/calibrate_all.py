"""`fovea calibrate grid` and `all`: from recorded answers to policies, from frames to a whole calibrated bundle."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fovea.core.errors import Malformed

if TYPE_CHECKING:
    from fovea.bench.calibrating_all import Note
    from fovea.bench.cascade_recording import Trio
    from fovea.bench.gate_grid import GridResult

_Bundle = Annotated[str, typer.Argument(help="What the camera runs: a .fovea file, or zoo:NAME.")]
_Edge = Annotated[str, typer.Option(help="What the edge runs.")]
_Cloud = Annotated[str, typer.Option(help="What the cloud runs.")]
_Folder = Annotated[
    Path,
    typer.Option(
        help="Keep recordings and finished points here; a run that was broken off goes on from them."
    ),
]
_Out = Annotated[Path, typer.Option(help="Write the calibrated bundles into this folder.")]
_Version = Annotated[str, typer.Option(help="Version of the calibrated bundles; empty: the one they have.")]
_Report = Annotated[Path | None, typer.Option("--report", help="Write the report here, as one HTML file.")]
_Json = Annotated[Path | None, typer.Option("--json", help="Also write front and policies here.")]
_FitClips = Annotated[int, typer.Option(min=5, help="Clips of each condition to fit on.")]
_ValClips = Annotated[
    int, typer.Option(min=1, max=12, help="Clips of each condition to find prices and policies on.")
]
_TestClips = Annotated[int, typer.Option(min=1, help="Clips of each condition to judge policies by.")]
_MostPoints = Annotated[int, typer.Option(min=1, help="Ways of asking to measure at most.")]
_Workers = Annotated[int, typer.Option(min=1, max=64, help="Processes that record.")]


def grid(
    bundle: _Bundle = "zoo:street-student-int8",
    edge: _Edge = "zoo:street-edge",
    cloud: _Cloud = "zoo:street-cloud",
    folder: _Folder = Path("out/gate"),
    val_clips: _ValClips = 8,
    test_clips: _TestClips = 12,
    workers: _Workers = 1,
    most_points: _MostPoints = 4000,
    out: Annotated[
        Path | None, typer.Option(help="Write the bundle with its policies into this folder.")
    ] = None,
    version: _Version = "",
    report: _Report = None,
    json_file: _Json = None,
) -> None:
    """Search thresholds, budgets and weights for the Pareto front of AP, latency, bytes and energy, on the street."""
    from fovea.bench.calibrating_all import Effort, grid_on_street, with_policies
    from fovea.bench.calibration_report import write_report
    from fovea.bench.gate_fit import GateSample
    from fovea.bench.gate_grid_report import grid_part

    trio, console = _trio(bundle, edge, cloud), Console()
    with _noting() as note:
        sample = GateSample(val_clips=val_clips, test_clips=test_clips, workers=workers)
        found = grid_on_street(trio, sample, folder, note, Effort(most_points=most_points))
    _print(console, found.result)
    if report is not None:
        write_report(report, "Policies", [grid_part(found.result, found.on)])
        console.print(f"report in {report}", highlight=False)
    _write_json(json_file, found.result)
    if out is not None:
        console.print(f"written to {with_policies(trio.camera, found.result, out, version)}", highlight=False)


def every(
    bundle: _Bundle,
    out: _Out,
    data: Annotated[
        Path | None, typer.Option(help="Your own images; without them the street is looked at.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Their labels, a YOLO text file for each; usually beside them.")
    ] = None,
    label_names: Annotated[
        str, typer.Option(help="What the label files count: coco, or model for the classes of the bundle.")
    ] = "model",
    frames_a_clip: Annotated[int, typer.Option(min=1, help="So many images in a row are of one clip.")] = 1,
    edge: _Edge = "zoo:street-edge",
    cloud: _Cloud = "zoo:street-cloud",
    folder: _Folder = Path("out/gate"),
    fit_clips: _FitClips = 25,
    val_clips: _ValClips = 8,
    test_clips: _TestClips = 12,
    workers: _Workers = 1,
    resamples: Annotated[int, typer.Option(min=10, help="Resamples of the clips, for intervals.")] = 300,
    most_points: _MostPoints = 4000,
    version: _Version = "",
    report: _Report = None,
    json_file: _Json = None,
) -> None:
    """Fit all that a bundle carries, on the street or on your own images: scores, gates, policies. Writes the bundles
    and one report."""
    from fovea.bench.calibrating_all import Effort, calibrate_on_images, calibrate_on_street
    from fovea.bench.calibration_report import write_report
    from fovea.bench.gate_fit import GateSample
    from fovea.bench.own_images import labels_beside, see_images
    from fovea.core.labels import LabelSet
    from fovea.runtime.bundle import Bundle

    trio, console = _trio(bundle, edge, cloud), Console()
    if label_names not in ("model", "coco"):
        raise Malformed(f"--label-names: expected model or coco, got {label_names!r:.80}")
    out.mkdir(parents=True, exist_ok=True)
    effort = Effort(resamples, most_points)
    with _noting() as note:
        if data is None:
            sample = GateSample(fit_clips, val_clips, test_clips, workers)
            done = calibrate_on_street(trio, sample, folder, out, version, note, effort)
        else:
            own = Bundle.open(trio.camera).manifest.label_set
            seen = see_images(
                data,
                labels or labels_beside(data),
                LabelSet.coco() if label_names == "coco" else own,
                trio,
                folder / "images",
                frames_a_clip,
                lambda number, count: note(f"looking at images: {number} of {count}"),
            )
            done = calibrate_on_images(trio, seen, folder, out, version, note, effort)
    for part in done.parts:
        console.print(f"{part.title}: {escape(part.text[0])}", highlight=False)
    _print(console, done.grid)
    page = report or out / "calibration.html"
    write_report(page, f"Calibration of {done.camera.stem}", done.parts)
    _write_json(json_file, done.grid)
    console.print(f"written to {done.camera} and {done.edge}, report in {page}", highlight=False)


def _trio(camera: str, edge: str, cloud: str) -> Trio:
    from fovea.bench.cascade_recording import Trio
    from fovea.process.config_parts import bundle_path

    return Trio(*(bundle_path(name) for name in (camera, edge, cloud)))


@contextmanager
def _noting() -> Iterator[Note]:
    with Console(stderr=True).status("starting") as status:
        yield lambda text: status.update(escape(text))


def _print(console: Console, result: GridResult) -> None:
    from fovea.bench.gate_grid_report import (
        FRONT_HEADINGS,
        POLICY_HEADINGS,
        alone_rows,
        front_rows,
        policy_row,
    )

    front = front_rows(result)
    console.print(
        _table(f"Worth having: {len(result.front)} of {len(result.points)} points", FRONT_HEADINGS, front)
    )
    policies = [*alone_rows(result), *map(policy_row, result.policies)]
    console.print(_table("Policies on frames that had no part in choosing them", POLICY_HEADINGS, policies))


def _table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title)
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", no_wrap=not place)
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _write_json(path: Path | None, result: GridResult) -> None:
    from fovea.runtime.atomic_file import write_atomically

    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (json.dumps(result.to_json(), indent=2, allow_nan=False) + "\n").encode())
