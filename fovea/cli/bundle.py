"""`fovea bundle ...`: make, look into and verify model bundles."""

from __future__ import annotations

import re
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fovea.cli.quantize import calibrate, quantize
from fovea.core.errors import Incompatible, Malformed, NotFound
from fovea.core.labels import LabelSet
from fovea.core.letterbox import Placement

if TYPE_CHECKING:
    from fovea.runtime.bundle import Bundle
    from fovea.runtime.import_onnx import Facts

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Make, look into and verify model bundles."
)

_LARGEST_LABEL_FILE_BYTES = 10_000_000

Name = Annotated[str, typer.Option("--name", help="Name of the model; the file's name if left out.")]
Version = Annotated[str, typer.Option("--version", help="Version of the model.")]
Licence = Annotated[
    str, typer.Option("--licence", help="Licence of the weights (SPDX); NOASSERTION: nobody said.")
]
Out = Annotated[Path, typer.Option("--out", help="Folder for the bundle; made if it is not there.")]
MinScore = Annotated[float, typer.Option("--min-score", help="Score from which a box is answered.")]
Description = Annotated[str, typer.Option("--description", help="One line about the model.")]
Dataset = Annotated[str, typer.Option("--dataset", help="What it was trained on.")]
BundleFile = Annotated[Path, typer.Argument(help="A .fovea file.")]


@app.command("import")
def import_command(
    model: Annotated[Path, typer.Argument(help="An ONNX detector.")],
    licence: Licence = "NOASSERTION",
    labels: Annotated[
        str,
        typer.Option("--labels", help="coco, a text file with a name per line, or file: the names in it."),
    ] = "file",
    out: Out = Path(),
    name: Name = "",
    version: Version = "1",
    description: Description = "",
    dataset: Dataset = "",
    min_score: MinScore = 0.25,
    color: Annotated[str, typer.Option(help="rgb or bgr; guessed if left out.")] = "",
    scale: Annotated[float, typer.Option(help="Factor on pixel values; 0: guessed.")] = 0.0,
    placement: Annotated[str, typer.Option(help="center, top_left or stretch; guessed if left out.")] = "",
    pad: Annotated[int, typer.Option(help="Pixel value of the padding.")] = 114,
    side: Annotated[int, typer.Option(help="Input size where the graph leaves it free, in px.")] = 640,
) -> None:
    """Turn an ONNX detector from elsewhere into a bundle."""
    from fovea.runtime.import_onnx import InputOptions, import_model
    from fovea.runtime.manifest import ColorOrder

    options = InputOptions(
        color=ColorOrder(_one_of("color", color, [*ColorOrder])) if color else None,
        scale=scale or None,
        placement=Placement(_one_of("placement", placement, [*Placement])) if placement else None,
        pad_value=pad,
        side_px=side,
    )
    facts = _facts(name or model.stem, version, licence, description, dataset, min_score)
    bundle = import_model(model, _labels(labels), facts, options)
    _write(bundle, out)


@app.command()
def build(
    weights: Annotated[
        str, typer.Argument(help="An Ultralytics .pt file, or a name that Ultralytics knows.")
    ],
    licence: Licence = "AGPL-3.0-or-later",
    imgsz: Annotated[str, typer.Option(help="Input size in px: a number, or HEIGHTxWIDTH.")] = "640",
    out: Out = Path(),
    name: Name = "",
    version: Version = "1",
    description: Description = "",
    dataset: Dataset = "",
    min_score: MinScore = 0.25,
    half: Annotated[bool, typer.Option("--half", help="Keep large weights as 16-bit floats.")] = False,
) -> None:
    """Export an Ultralytics detector as a graph cut before its decode, in a bundle."""
    from fovea.runtime.import_onnx import import_model

    height, width = _height_width(imgsz)
    facts = _facts(name or Path(weights).stem, version, licence, description, dataset, min_score)
    if weights.endswith(".pt") and ("/" in weights) and not Path(weights).is_file():
        raise NotFound(f"no weights file {weights}")
    try:
        from cloud.export_cut import export_cut
    except ImportError as error:
        raise Incompatible(
            f"building from weights needs the training extra: pip install 'fovea[train]' ({error})"
        ) from error
    with tempfile.TemporaryDirectory(prefix="fovea-build-") as folder:
        try:
            export = export_cut(weights, Path(folder) / "model.onnx", (height, width), half)
        except ValueError as error:
            raise Malformed(f"{weights}: {error}") from error
        bundle = import_model(export.path, LabelSet.from_names(export.labels), facts)
    _write(bundle, out)


app.command()(quantize)
app.command()(calibrate)


@app.command()
def inspect(file: BundleFile) -> None:
    """Show what a bundle says about itself, after checking every digest."""
    from fovea.runtime.bundle import Bundle

    bundle = Bundle.open(file)
    Console().print(_table(bundle, file))


@app.command()
def verify(
    file: BundleFile,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda:N.")] = "auto",
    timeout: Annotated[float, typer.Option(help="Seconds for the dry run.")] = 120.0,
) -> None:
    """Check digests, run the model in a child process, then here, and look at its golden frames."""
    from fovea.runtime.bundle import Bundle
    from fovea.runtime.dry_run import dry_run
    from fovea.runtime.golden import check_golden
    from fovea.runtime.onnx_detector import OnnxDetector

    console = Console()
    bundle = Bundle.open(file)
    console.print(f"digests   {len(bundle.parts)} parts are what the manifest lists", highlight=False)
    report = dry_run(file, timeout, "cpu" if device == "auto" else device)
    if not report.is_finite:
        raise Malformed(f"{file.name}: answers noise with NaN or infinity")
    console.print(
        f"dry run   {report.run_ms:.1f} ms on {report.device}, first {report.first_run_ms:.1f} ms, "
        f"{'the same answer twice' if report.is_deterministic else 'another answer each time'}",
        highlight=False,
    )
    detector = OnnxDetector.open(bundle, device)
    try:
        verdict = check_golden(bundle.parts, detector)
        console.print(f"golden    {escape(verdict.reason)}", highlight=False)
        if not verdict.is_same:
            raise Incompatible(f"{file.name}: {verdict.reason}")
        console.print(f"good      {escape(str(bundle.ref))} on {detector.device}", highlight=False)
    finally:
        detector.close()


def _facts(name: str, version: str, licence: str, description: str, dataset: str, min_score: float) -> Facts:
    from fovea.runtime.import_onnx import Facts

    plain = re.sub(r"[^A-Za-z0-9._+-]+", "-", name).strip("-._+") or "model"
    now = datetime.now(UTC).replace(microsecond=0)
    return Facts(plain, version, now, licence, description, dataset, min_score)


def _labels(source: str) -> LabelSet | None:
    if source == "file":
        return None
    if source == "coco":
        return LabelSet.coco()
    path = Path(source)
    try:
        if path.stat().st_size > _LARGEST_LABEL_FILE_BYTES:
            raise Malformed(f"{path} is too large for a label list")
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError as error:
        raise NotFound(f"labels: expected coco, file or a text file, there is no {source}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise Malformed(f"labels: {source} is no text file ({error})") from error
    return LabelSet.from_names(line for line in lines if line.strip())


def _height_width(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{2,4})(?:x(\d{2,4}))?", text)
    if match is None:
        raise Malformed(f"imgsz: expected a number or HEIGHTxWIDTH, got {text!r}")
    return int(match[1]), int(match[2] or match[1])


def _one_of(name: str, value: str, allowed: list[str]) -> str:
    if value not in allowed:
        raise Malformed(f"{name}: expected {', '.join(allowed)}, got {value!r}")
    return value


def _write(bundle: Bundle, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = bundle.write(folder)
    Console().print(_table(bundle, path))


def _table(bundle: Bundle, path: Path) -> Table:
    manifest, spec = bundle.manifest, bundle.manifest.input
    table = Table(title=escape(str(bundle.ref)), title_justify="left", show_header=False)
    labels = ", ".join(manifest.labels[:8]) + (", ..." if len(manifest.labels) > 8 else "")
    rows = {
        "file": f"{path} ({path.stat().st_size / 1e6:.2f} MB)",
        "about": manifest.description,
        "created": f"{manifest.created_at:%Y-%m-%d %H:%M} UTC, licence {manifest.licence}",
        "parent": str(manifest.parent.ref()) if manifest.parent else "",
        "trained on": manifest.dataset,
        "input": f"{spec.width}x{spec.height} {spec.color} {spec.dtype} {spec.layout}, {spec.placement}, "
        f"batch {spec.batch}",
        "pixels": f"(value * {spec.scale:.6g} - {list(spec.mean)}) / {list(spec.std)}, padding {spec.pad_value}",
        "output": f"{manifest.output.layout}: {', '.join(manifest.output.tensors)}, strides "
        f"{list(manifest.output.strides)}",
        "precision": manifest.precision,
        "labels": f"{len(manifest.labels)}: {labels}",
        "answers from": f"{manifest.answer_min_score:g} (calibrated score), nms iou {manifest.nms.iou:g}",
        "views": ", ".join(["plain", *manifest.tta]),
        "min agent": manifest.min_agent,
        "report": ", ".join(f"{key} {value}" for key, value in manifest.report.items()),
        "parts": "\n".join(f"{name} {part.bytes} bytes" for name, part in manifest.parts.items()),
    }
    for key, value in rows.items():
        if value:
            table.add_row(key, escape(str(value)))
    return table
