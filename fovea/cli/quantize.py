"""`fovea bundle quantize` and `fovea bundle calibrate`: INT8 bundles and fitted scores."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from calibration.quant_search import SearchSettings, Trial
    from calibration.quantize import Quantized
    from fovea.runtime.bundle import Bundle

BundleFile = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A .fovea file.")]
Out = Annotated[Path, typer.Option(help="Folder for the new bundle.")]
Name = Annotated[str, typer.Option(help="Name of the new bundle; by default the old one with int8 for fp32.")]
FramesFolder = Annotated[
    Path | None, typer.Option("--frames-folder", help="Keep the rendered frames here, for the next run too.")
]


def quantize(
    bundle: BundleFile,
    images: Annotated[
        str,
        typer.Option(help="sim, or a folder of JPEG or PNG images as the camera takes them (20 or more)."),
    ],
    out: Out = Path(),
    name: Name = "",
    trials: Annotated[int, typer.Option(min=1, help="How many recipes to try at most.")] = 12,
    table: Annotated[Path | None, typer.Option(help="Write the search as a Markdown table here.")] = None,
    frames_folder: FramesFolder = None,
) -> None:
    """Quantize a model to 8 bits, choosing the recipe by measured accuracy.

    With `sim`, by AP on street clips, and scores are fitted on the result. With a folder, two thirds of the images
    set the ranges and the recipe that agrees best with the FP32 model on the others wins; scores stay as they are.
    """
    from calibration.quant_search import SearchSettings
    from fovea.bench.street_quantization import search_table
    from fovea.runtime.bundle import Bundle

    console = Console()
    source, settings = Bundle.open(bundle), SearchSettings(most_trials=trials)
    if images == "sim":
        made, quantized = _on_street(console, source, frames_folder, settings, name or None)
    else:
        made, quantized = _on_images(console, source, Path(images), settings, name or None)
    out.mkdir(parents=True, exist_ok=True)
    console.print(f"written to {made.write(out)}", highlight=False)
    for figure, value in made.manifest.report.items():
        console.print(f"  {figure:32} {escape(str(value))}", highlight=False)
    if table is not None:
        table.write_text(search_table(quantized) + "\n", encoding="utf-8")


def calibrate(bundle: BundleFile, out: Out = Path(), frames_folder: FramesFolder = None) -> None:
    """Fit the score calibration of a street model on validation clips."""
    from fovea.bench.street_quantization import fit_scores_on_street
    from fovea.runtime.bundle import Bundle

    console = Console()
    with tempfile.TemporaryDirectory(prefix="fovea-calibrate-") as folder:
        with console.status("drawing street frames and fitting scores"):
            fitted = fit_scores_on_street(Bundle.open(bundle), frames_folder or Path(folder))
        out.mkdir(parents=True, exist_ok=True)
        path = fitted.bundle.write(out)
    console.print(
        f"calibration error {fitted.error_before:.3f}, now {fitted.error_after:.3f}", highlight=False
    )
    console.print(f"written to {path}", highlight=False)


def _on_street(
    console: Console, source: Bundle, frames_folder: Path | None, settings: SearchSettings, name: str | None
) -> tuple[Bundle, Quantized]:
    from fovea.bench.street_quantization import quantize_on_street

    console.print("drawing street frames (one to three minutes), then trying recipes")
    with tempfile.TemporaryDirectory(prefix="fovea-quantize-") as folder:
        fitted, quantized = quantize_on_street(
            source, frames_folder or Path(folder), settings=settings, progress=_said(console), name=name
        )
    return fitted.bundle, quantized


def _on_images(
    console: Console, source: Bundle, folder: Path, settings: SearchSettings, name: str | None
) -> tuple[Bundle, Quantized]:
    from calibration.predict import ap_score, labelled_by
    from calibration.quantize import quantize_bundle
    from fovea.bench.yolo_folder import image_files
    from fovea.runtime.images import decode_image
    from fovea.runtime.onnx_detector import OnnxDetector

    files = image_files(folder)
    pictures = [decode_image(path.read_bytes()) for path in files[:150]]
    held_out = pictures[::3]
    detector = OnnxDetector.open(source, "cpu")
    score = ap_score(labelled_by(detector, held_out), detector.labels.ids)
    ranges = [picture for index, picture in enumerate(pictures) if index % 3]
    quantized = quantize_bundle(source, ranges, score, settings, _said(console), name)
    return quantized.bundle, quantized


def _said(console: Console) -> Callable[[Trial], None]:
    def say(trial: Trial) -> None:
        console.print(
            f"  score {trial.score:.4f}, {trial.speedup:.2f} times as fast: {escape(trial.label)}",
            highlight=False,
        )

    return say
