"""Makes an INT8 bundle from an FP32 one: calibrates, searches the recipe, checks what the runtime made of it.

The score calibration, the gate and the golden frames of the FP32 model are left out: they describe scores that the
INT8 model no longer gives, and are fitted again on the INT8 bundle itself.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from calibration.quant_graph import expected_qlinear_convs, head_nodes, prepared
from calibration.quant_recipe import Calibration
from calibration.quant_search import SearchResult, SearchSettings, Trial, search
from fovea.core.arrays import ImageArray
from fovea.core.errors import Malformed
from fovea.core.yolo import Layout
from fovea.runtime.bundle import CALIBRATION, GATE, MODEL, Bundle
from fovea.runtime.manifest import ParentRef, Precision
from fovea.runtime.preprocess import Preprocessor

MOST_CALIBRATION_FRAMES = 100


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """The INT8 bundle, the score of the FP32 one by the same measure, and the search behind it."""

    bundle: Bundle
    fp32_score: float
    search: SearchResult


def quantize_bundle(
    bundle: Bundle,
    frames: Iterable[ImageArray],
    score: Callable[[Bundle], float],
    settings: SearchSettings = SearchSettings(),
    progress: Callable[[Trial], None] = lambda trial: None,
    name: str | None = None,
) -> Quantized:
    """Quantizes the model of `bundle` (FP32, cut before the decode).

    frames: up to 100 u8[H, W, 3] BGR images as the camera sees them, not those that `score` looks at. score: how good
    a bundle is, higher is better, as a rule AP on a split of its own. name: of the new bundle; by default the old one
    with int8 in place of (or after) fp32.

    Raises Malformed for a bundle that cannot be quantized, Incompatible when ONNX Runtime does not run as many
    convolutions in 8 bits as were quantized.
    """
    _check(bundle)
    graph = prepared(bundle.model)
    with tempfile.TemporaryDirectory(prefix="fovea-quantize-") as folder:
        calibration = Calibration(
            graph,
            head_nodes(graph),
            bundle.manifest.input.tensor,
            input_tensors(bundle, islice(frames, MOST_CALIBRATION_FRAMES)),
            Path(folder),
        )
        fp32_score = score(bundle)
        result = search(calibration, lambda model: score(_int8(bundle, model, name)), settings, progress)
    kept = calibration.head | result.best.recipe.keep_float
    figures = _figures(result, fp32_score, expected_qlinear_convs(graph, kept), bundle)
    return Quantized(_int8(bundle, result.best.model, name, figures), fp32_score, result)


def input_tensors(bundle: Bundle, frames: Iterable[ImageArray]) -> list[NDArray[Any]]:
    """The input tensor [1, ...] of each frame, made by the code that the detector uses."""
    preprocessor = Preprocessor(bundle.manifest.input)
    return [preprocessor.fill([pixels])[0].copy() for pixels in frames]


def _check(bundle: Bundle) -> None:
    manifest = bundle.manifest
    if manifest.precision is not Precision.FP32:
        raise Malformed(f"quantization: expected an fp32 bundle, {bundle.ref} is {manifest.precision}")
    if manifest.output.layout is not Layout.CUT:
        raise Malformed(
            f"quantization: expected a graph that is cut before the decode, {bundle.ref} has layout "
            f"{manifest.output.layout}: one 8-bit scale over boxes and scores would round the scores to 0"
        )


def _int8(
    bundle: Bundle, model: bytes, name: str | None, figures: dict[str, float | str] | None = None
) -> Bundle:
    plain = bundle.manifest.name
    derived = plain.replace("fp32", "int8") if "fp32" in plain else f"{plain}-int8"
    golden = {part: None for part in bundle.parts if part.startswith("golden/")}
    return bundle.with_parts(
        {MODEL: model, CALIBRATION: None, GATE: None, **golden},
        name=name or derived,
        created_at=datetime.now(UTC),
        precision=Precision.INT8,
        parent=ParentRef.of(bundle.ref),
        report=figures or {},
    )


def _figures(
    result: SearchResult, fp32_score: float, expected: int, bundle: Bundle
) -> dict[str, float | str]:
    best = result.best
    return {
        "quantize.recipe": best.label,
        "quantize.score_fp32": round(fp32_score, 5),
        "quantize.score_int8": round(best.score, 5),
        "quantize.trials": len(result.trials),
        "quantize.qlinear_conv": best.qlinear_convs,
        "quantize.qlinear_conv_expected": expected,
        "quantize.speedup_1_thread": round(best.speedup, 3),
        "quantize.size_ratio": round(len(best.model) / len(bundle.model), 4),
    }
