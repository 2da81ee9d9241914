"""One way to quantize a graph: ONNX Runtime's QDQ form with U8 activations and S8 weights, and where it is cut."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fovea.core.errors import Malformed
from fovea.runtime.ort import load_ort

if TYPE_CHECKING:
    import onnx

QUANTIZED_OPS = (
    "Conv", "Sigmoid", "Mul", "Relu", "LeakyRelu", "Add", "Concat", "MaxPool", "Resize", "Split", "Slice",
)  # fmt: skip
"""Activations and the plumbing between convolutions are quantized too: a tensor that stays in 8 bits from one
convolution to the next is what makes the whole faster; one that goes through float in between makes it slower."""

MOST_HISTOGRAM_IMAGES = 64
_HISTOGRAM_MEMORY_BYTES = 1 << 30


class Calibrator(StrEnum):
    """How the range of an activation is found: its extremes, a share of its values, or the least lost information
    (Migacz 2017). The last two hold every tensor of every image in memory, so they see 64 images at most."""

    MINMAX = "minmax"
    PERCENTILE_99_99 = "percentile_99.99"
    PERCENTILE_99_999 = "percentile_99.999"
    ENTROPY = "entropy"


@dataclass(frozen=True, slots=True)
class QuantRecipe:
    """`keep_float` names the nodes that are not quantized, besides the head."""

    calibrator: Calibrator = Calibrator.MINMAX
    per_channel: bool = True
    keep_float: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """A prepared graph, the nodes of its head, input tensors to calibrate on, and a folder where the ranges of
    activations are kept from trial to trial."""

    graph: onnx.ModelProto
    head: frozenset[str]
    input_name: str
    samples: Sequence[NDArray[Any]]
    folder: Path


def quantize_graph(calibration: Calibration, recipe: QuantRecipe, only: Sequence[str] | None = None) -> bytes:
    """The quantized graph. `only` quantizes just these nodes (to measure what they cost).

    Raises Malformed without samples.
    """
    if not calibration.samples:
        raise Malformed("quantization: expected frames to calibrate on, got none")
    load_ort()
    import onnx
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    method, options = _method(recipe.calibrator, CalibrationMethod)
    source, target = calibration.folder / "prepared.onnx", calibration.folder / "quantized.onnx"
    if not source.exists():
        onnx.save(calibration.graph, str(source))
    with contextlib.redirect_stdout(io.StringIO()):  # the histogram calibrators print
        quantize_static(
            str(source),
            str(target),
            _Reader(calibration.input_name, _samples_for(calibration, recipe.calibrator)),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=list(QUANTIZED_OPS),
            per_channel=recipe.per_channel,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            nodes_to_quantize=list(only) if only else None,
            nodes_to_exclude=sorted(calibration.head | recipe.keep_float),
            calibrate_method=method,
            extra_options=options,
            calibration_cache_path=str(calibration.folder / f"{recipe.calibrator}.json"),
        )
    return target.read_bytes()


def _method(calibrator: Calibrator, methods: Any) -> tuple[Any, dict[str, Any]]:
    match calibrator:
        case Calibrator.MINMAX:
            # Not with CalibMaxIntermediateOutputs: ONNX Runtime 1.32 then forgets all but the last few images.
            return methods.MinMax, {}
        case Calibrator.ENTROPY:
            return methods.Entropy, {}
        case Calibrator.PERCENTILE_99_99 | Calibrator.PERCENTILE_99_999:
            return methods.Percentile, {"CalibPercentile": float(calibrator.rpartition("_")[2])}


def _samples_for(calibration: Calibration, calibrator: Calibrator) -> Sequence[NDArray[Any]]:
    if calibrator is Calibrator.MINMAX:
        return calibration.samples
    fitting = _HISTOGRAM_MEMORY_BYTES // max(_activation_bytes(calibration.graph), 1)
    return calibration.samples[: int(np.clip(fitting, 1, MOST_HISTOGRAM_IMAGES))]


def _activation_bytes(graph: onnx.ModelProto) -> int:
    """Memory of all activations of one image in float."""
    return sum(
        4 * int(np.prod([max(dim.dim_value, 1) for dim in value.type.tensor_type.shape.dim]))
        for value in graph.graph.value_info
    )


class _Reader:
    """What ONNX Runtime's calibrators read: one dictionary of inputs after the other, then None."""

    def __init__(self, input_name: str, samples: Sequence[NDArray[Any]]) -> None:
        self._feeds = ({input_name: sample} for sample in samples)

    def get_next(self) -> dict[str, NDArray[Any]] | None:
        return next(self._feeds, None)
