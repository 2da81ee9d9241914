"""Turns an ONNX detector from elsewhere into a bundle: tried in a child process, understood, then tried again."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from fovea.core.errors import DetectorFailed, Malformed
from fovea.core.labels import LabelSet
from fovea.core.letterbox import Placement
from fovea.core.yolo import Layout
from fovea.runtime.bundle import MODEL, Bundle
from fovea.runtime.dry_run import DryRunReport, dry_run
from fovea.runtime.manifest import (
    ColorOrder,
    InputDtype,
    InputSpec,
    OutputSpec,
    Precision,
    Triple,
    new_manifest,
)
from fovea.runtime.onnx_detector import OnnxDetector
from fovea.runtime.output_guess import check_label_count, guess_input, guess_output

_INT8_OPERATORS = (b"QLinearConv", b"ConvInteger", b"QuantizeLinear")
_MOST_LABELS = 100_000


@dataclass(frozen=True, slots=True)
class Facts:
    """What no graph tells about itself: how it is called, where it comes from, on what terms."""

    name: str
    version: str
    created_at: datetime
    licence: str
    description: str = ""
    dataset: str = ""
    answer_min_score: float = 0.25


@dataclass(frozen=True, slots=True)
class InputOptions:
    """How frames have to be prepared; None leaves the usual choice for the layout.

    YOLOX networks usually take BGR pixels of 0 to 255 placed top left, all others RGB of 0 to 1 in the centre; both
    pad with 114. A uint8 input takes pixels as they are.
    """

    color: ColorOrder | None = None
    scale: float | None = None
    mean: Triple = (0.0, 0.0, 0.0)
    std: Triple = (1.0, 1.0, 1.0)
    placement: Placement | None = None
    pad_value: int = 114
    side_px: int = 640


def import_model(
    path: Path,
    labels: LabelSet | None,
    facts: Facts,
    options: InputOptions = InputOptions(),
    timeout_s: float = 120.0,
    report: DryRunReport | None = None,
) -> Bundle:
    """The bundle of an ONNX detector; `labels` None takes the names that the file itself carries. `report` is that
    of an earlier dry run of the same file; without it there is one now.

    Raises what `dry_run` raises; Incompatible when the graph has no known layout; Malformed when the labels do not
    fit it or it answers with NaN.
    """
    if report is None:
        report = dry_run(path, timeout_s, side_px=options.side_px)
    if not report.is_finite:
        raise Malformed(f"{path.name}: answers noise with NaN or infinity")
    model = path.read_bytes()
    seen = guess_input(report)
    output = guess_output(report, seen.width, seen.height)
    names = (labels or _labels_in(report)).names
    _check_names(report, output.class_count, len(names))
    manifest = new_manifest(
        name=facts.name,
        version=facts.version,
        created_at=facts.created_at,
        licence=facts.licence,
        description=facts.description,
        dataset=facts.dataset,
        answer_min_score=facts.answer_min_score,
        labels=names,
        input=_input_spec(report, output.layout, options),
        output=OutputSpec(
            layout=output.layout, tensors=output.tensors, strides=output.strides, reg_max=output.reg_max
        ),
        precision=_precision(model, seen.dtype),
    )
    bundle = Bundle.build(manifest, {MODEL: model})
    _try(bundle)
    return bundle


def _input_spec(report: DryRunReport, layout: Layout, options: InputOptions) -> InputSpec:
    seen = guess_input(report)
    is_yolox = layout is Layout.YOLOX
    plain_scale = 1.0 if is_yolox or seen.dtype is InputDtype.UINT8 else 1 / 255
    return InputSpec(
        tensor=seen.tensor,
        width=seen.width,
        height=seen.height,
        layout=seen.layout,
        dtype=seen.dtype,
        batch=seen.batch,
        color=options.color or (ColorOrder.BGR if is_yolox else ColorOrder.RGB),
        scale=plain_scale if options.scale is None else options.scale,
        mean=options.mean,
        std=options.std,
        placement=options.placement or (Placement.TOP_LEFT if is_yolox else Placement.CENTER),
        pad_value=options.pad_value,
    )


def _check_names(report: DryRunReport, class_count: int | None, label_count: int) -> None:
    """Where the shape does not tell the number of classes, the names inside the file may."""
    if class_count is None and "names" in report.metadata:
        class_count = len(_labels_in(report))
    if class_count is not None:
        check_label_count(class_count, label_count)


def _labels_in(report: DryRunReport) -> LabelSet:
    """The label names that Ultralytics exports carry: a Python dict of channel to name."""
    text = report.metadata.get("names")
    if text is None:
        raise Malformed("labels: the file carries no names, give a label list")
    try:
        names = ast.literal_eval(text)
        ordered = [names[channel] for channel in range(len(names))]
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError) as error:
        raise Malformed(f"labels: the names in the file cannot be read: {text[:80]!r}") from error
    if len(ordered) > _MOST_LABELS or not all(isinstance(name, str) for name in ordered):
        raise Malformed(f"labels: the names in the file are no list of names: {text[:80]!r}")
    return LabelSet.from_names(ordered)


def _precision(model: bytes, dtype: InputDtype) -> Precision:
    """A guess from the operators that the file names."""
    if any(operator in model for operator in _INT8_OPERATORS):
        return Precision.INT8
    return Precision.FP16 if dtype is InputDtype.FLOAT16 else Precision.FP32


def _try(bundle: Bundle) -> None:
    """Runs the finished bundle on noise; a class beyond the label list shows here."""
    detector = OnnxDetector.open(bundle, device="cpu")
    rng = np.random.default_rng(0)
    size = bundle.manifest.input.size
    try:
        for _ in range(2):
            detector.detect([rng.integers(0, 256, (size.height, size.width, 3), np.uint8)])
    except DetectorFailed as error:
        raise Malformed(f"the model does not fit its labels: {error}") from error
    finally:
        detector.close()
