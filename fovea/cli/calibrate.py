"""`fovea calibrate ...`: what is fitted offline and carried by a bundle."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fovea.cli.calibrate_all import every, grid
from fovea.core.errors import BrokenError, Malformed

if TYPE_CHECKING:
    from calibration.align_models import ClipFrames
    from calibration.align_report import AlignmentReport
    from fovea.bench.calibration_report import ReportPart
    from fovea.bench.scores import FittedScores
    from fovea.runtime.bundle import Bundle

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Compare and align models, and fit what a bundle carries.",
)


app.command("grid")(grid)
app.command("all")(every)


@app.callback()
def calibrate() -> None:
    """Compare and align models, and fit what a bundle carries."""


@app.command()
def align(
    weak: Annotated[
        str, typer.Argument(metavar="A", help="The weaker or new model: a .fovea file, or zoo:NAME.")
    ],
    strong: Annotated[str, typer.Argument(metavar="B", help="The model that its scores are mapped onto.")],
    images: Annotated[
        Path | None, typer.Option(help="Folder of JPEG or PNG images, each taken for a clip of its own.")
    ] = None,
    suite: Annotated[str, typer.Option(help="Or a suite of the street: street-v1.")] = "",
    split: Annotated[str, typer.Option(help="Of the suite: train, val or test.")] = "val",
    frames: Annotated[int, typer.Option(min=1, max=14, help="Frames of each clip.")] = 3,
    clips: Annotated[int, typer.Option(min=0, help="Clips of each condition; 0: all of the split.")] = 0,
    frames_folder: Annotated[
        Path | None,
        typer.Option("--frames-folder", help="Keep the rendered frames here, for the next run too."),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes that render.")] = 1,
    threads: Annotated[int, typer.Option(min=1, max=64, help="Threads of each model.")] = 1,
    device: Annotated[str, typer.Option(help="cpu or cuda:N.")] = "cpu",
    out: Annotated[
        Path | None, typer.Option(help="Write the corrected bundle of A into this folder.")
    ] = None,
    version: Annotated[str, typer.Option(help="Version of the corrected bundle.")] = "",
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the report here.")] = None,
) -> None:
    """Find out whether two models disagree in distribution, and correct the scores of the first where that helps."""
    from calibration.align_models import align_bundles, corrected_bundle
    from fovea.process.config_parts import bundle_path
    from fovea.runtime.bundle import Bundle

    if (images is None) == (not suite):
        raise Malformed("fovea calibrate align: expected either --images FOLDER or --suite street-v1")
    if out is not None and not version:
        raise Malformed("fovea calibrate align: expected a --version for the bundle that goes to --out")
    first, second = (Bundle.open(bundle_path(name)) for name in (weak, strong))
    console = Console()
    with (
        Console(stderr=True).status("looking at frames") as status,
        _frames(images, suite, split, (frames, clips), frames_folder, workers) as seen,
    ):
        report = align_bundles(
            first,
            second,
            seen,
            device=device,
            threads=threads,
            progress=lambda done: status.update(f"looked at {done} frames"),
        )
    _print(console, report)
    if json_file is not None:
        _write(json_file, report)
    if out is None:
        return
    if report.correction is None:
        console.print("no bundle was written: there is no correction", highlight=False)
        return
    out.mkdir(parents=True, exist_ok=True)
    console.print(f"written to {corrected_bundle(first, report, version).write(out)}", highlight=False)


_Folder = Annotated[
    Path, typer.Option(help="Keep recordings here; a run that was broken off goes on from them.")
]
_Out = Annotated[Path, typer.Option(help="Write the calibrated bundles into this folder.")]
_Report = Annotated[Path | None, typer.Option("--report", help="Also write a report, as one HTML file.")]
_Version = Annotated[str, typer.Option(help="Version of the calibrated bundles; empty: the one they have.")]
_Workers = Annotated[int, typer.Option(min=1, max=64, help="Processes that record.")]
_FitClips = Annotated[int, typer.Option(min=5, help="Clips of each condition to fit on.")]
_ValClips = Annotated[int, typer.Option(min=1, max=12, help="Clips of each condition to find prices on.")]
_Bundle = Annotated[str, typer.Argument(help="A .fovea file, or zoo:NAME.")]
_Edge = Annotated[str, typer.Option(help="What the edge runs.")]
_Cloud = Annotated[str, typer.Option(help="What the cloud runs.")]


@app.command()
def scores(
    bundle: _Bundle,
    out: _Out,
    images: Annotated[Path | None, typer.Option(help="Your own images, instead of the street.")] = None,
    labels: Annotated[Path | None, typer.Option(help="Their labels, a YOLO text file for each.")] = None,
    clips: _FitClips = 20,
    version: _Version = "",
    report: _Report = None,
) -> None:
    """Fit what the scores of a bundle mean: how often a box with that score is right."""
    from fovea.bench.calibrating import scores_part, with_scores
    from fovea.bench.calibration_report import write_report
    from fovea.process.config_parts import bundle_path
    from fovea.runtime.bundle import Bundle

    if (images is None) != (labels is None):
        raise Malformed("fovea calibrate scores: expected both --images and --labels, or neither")
    own = Bundle.open(bundle_path(bundle))
    console = Console()
    with Console(stderr=True).status("looking at frames"):
        fitted = _fitted_scores(own, images, labels, clips)
    part = scores_part(own, fitted)
    console.print(escape(part.text[0]), highlight=False)
    if report is not None:
        write_report(report, f"Calibration of {own.ref.name}", [part])
    _write_bundle(console, with_scores(own, fitted, version), out)


@app.command()
def gate(
    bundle: _Bundle,
    out: _Out,
    edge: _Edge = "zoo:street-edge",
    cloud: _Cloud = "zoo:street-cloud",
    folder: _Folder = Path("out/gate"),
    fit_clips: _FitClips = 30,
    val_clips: _ValClips = 10,
    workers: _Workers = 1,
    version: _Version = "",
    report: _Report = None,
) -> None:
    """Fit when the camera asks the edge, and when the edge asks the cloud, on the street."""
    from fovea.bench.calibration_report import write_report

    console = Console()
    sample = (fit_clips, val_clips, workers)
    parts = _gates(console, (bundle, edge, cloud), sample, folder, out, version)
    if report is not None:
        write_report(report, "Calibration of the gates", parts)


def _fitted_scores(own: Bundle, images: Path | None, labels: Path | None, clips: int) -> FittedScores:
    """Of two sets of frames: the street's, or one half and the other of somebody's own."""
    from fovea.bench.scores import fit_bundle_scores, street_frames_of
    from fovea.bench.yolo_folder import labelled_images

    if images is None or labels is None:
        return fit_bundle_scores(own, street_frames_of("train", clips), street_frames_of("val", 6))
    frames = list(labelled_images(images, labels, own.manifest.label_set))
    return fit_bundle_scores(own, frames[::2], frames[1::2])


def _gates(
    console: Console,
    names: tuple[str, str, str],
    sample: tuple[int, int, int],
    folder: Path,
    out: Path,
    version: str,
) -> list[ReportPart]:
    from fovea.bench.calibrating import fit_gates, with_gate
    from fovea.bench.cascade_recording import Trio
    from fovea.bench.gate_fit import GateSample
    from fovea.process.config_parts import bundle_path
    from fovea.runtime.bundle import Bundle

    trio = Trio(*(bundle_path(name) for name in names))
    fit_clips, val_clips, workers = sample
    with Console(stderr=True).status("recording") as status:
        pairs = fit_gates(
            trio,
            GateSample(fit_clips, val_clips, workers=workers),
            folder,
            lambda split, done, every: status.update(f"recording {split}: {done} of {every} clips"),
            status.update,
        )
    for pair, path in zip(pairs, (trio.camera, trio.edge), strict=True):
        console.print(f"the {pair.asks} asks: {escape(pair.part.text[0])}", highlight=False)
        _write_bundle(console, with_gate(Bundle.open(path), pair, version), out)
    return [pair.part for pair in pairs]


def _write_bundle(console: Console, bundle: Bundle, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    console.print(f"written to {bundle.write(out)}", highlight=False)


@contextmanager
def _frames(
    images: Path | None, suite: str, split: str, counts: tuple[int, int], folder: Path | None, workers: int
) -> Iterator[ClipFrames]:
    """The frames with their clips, one in memory at a time."""
    from fovea.bench.street_frames import SUITE, Wanted, stored_frames
    from fovea.bench.yolo_folder import image_files
    from fovea.runtime.images import decode_image

    if images is not None:
        yield ((path.name, decode_image(path.read_bytes())) for path in image_files(images))
        return
    if suite != SUITE:
        raise Malformed(f"--suite: expected {SUITE}, got {suite!r:.80}")
    if split not in ("train", "val", "test"):
        raise Malformed(f"--split: expected train, val or test, got {split!r:.80}")
    if split == "train" and not counts[1]:
        raise Malformed("--split train: expected --clips, since it has no end")
    with tempfile.TemporaryDirectory(prefix="fovea-align-") as kept:
        wanted = Wanted(split, *counts)
        stored = stored_frames(folder or Path(kept), wanted, workers, lambda done, every: None)
        yield ((frame.group, frame.pixels) for frame in stored)


def _print(console: Console, report: AlignmentReport) -> None:
    table = Table(title=f"{report.weak} against {report.strong}")
    for heading in ("what", "KL divergence", "by chance up to", ""):
        table.add_column(heading, justify="left" if heading in ("what", "") else "right")
    rows = [
        ("classes", report.class_kl, report.class_kl_threshold),
        ("scores", report.score_kl, report.score_kl_threshold),
        *((f"scores of {shift.label}", shift.score_kl, shift.threshold) for shift in report.class_shifts),
    ]
    for name, value, limit in rows:
        table.add_row(escape(name), f"{value:.4f}", f"{limit:.4f}", "differ" if value > limit else "")
    console.print(table)
    console.print(
        f"{report.pairs} boxes that both see in {report.frames} frames, {report.agreement:.1%} of one class",
        highlight=False,
    )
    for each in report.confusions:
        console.print(
            f"  {each.share:.0%} of what A calls {escape(each.weak_says)} is {escape(each.strong_says)} to B "
            f"({each.count} boxes)",
            highlight=False,
        )
    console.print(f"{report.verdict}: {escape(report.summary)}", highlight=False)


def _write(path: Path, report: AlignmentReport) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report.to_json(), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise BrokenError(f"cannot write {path}: {error.strerror}") from error
