"""Judges from the shapes of a dry run what kind of detector a graph is. Pure: the importer acts on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fovea.core.errors import Incompatible, Malformed
from fovea.core.yolo import Layout
from fovea.runtime.dry_run import DryRunReport, TensorReport
from fovea.runtime.manifest import BatchMode, InputDtype, TensorLayout

KNOWN_LAYOUTS = (
    "cut: boxes (1, 4R, A) and logits (1, C, A); one_to_many: (1, 4+C, A); end_to_end: (1, N, 6); "
    "yolox: (1, A, 5+C), where A is the number of grid cells"
)
_STRIDE_SETS = (
    (8, 16, 32),
    (8, 16, 32, 64),
    (4, 8, 16, 32),
    (8, 16),
    (16, 32),
    (4, 8, 16),
    (8,),
    (16,),
    (32,),
)


@dataclass(frozen=True, slots=True)
class InputGuess:
    """The input of a graph as far as it can be read off the graph."""

    tensor: str
    width: int
    height: int
    layout: TensorLayout
    dtype: InputDtype
    batch: BatchMode


@dataclass(frozen=True, slots=True)
class OutputGuess:
    """The output of a graph; `class_count` is None where the shape does not tell (end-to-end)."""

    layout: Layout
    tensors: tuple[str, ...]
    strides: tuple[int, ...]
    reg_max: int
    class_count: int | None


def guess_input(report: DryRunReport) -> InputGuess:
    """Raises Incompatible when the graph does not take one image of three channels."""
    if len(report.inputs) != 1:
        raise Incompatible(f"model inputs: expected one image, got {len(report.inputs)} inputs")
    found = report.inputs[0]
    shape = found.shape
    if len(shape) != 4 or shape[0] != 1 or 3 not in (shape[1], shape[3]):
        raise Incompatible(f"model input: expected (1, 3, H, W) or (1, H, W, 3), got {_shown(found)}")
    if found.dtype not in set(InputDtype):
        raise Incompatible(f"model input: expected {', '.join(InputDtype)}, got {_shown(found)}")
    is_nchw = shape[1] == 3
    height, width = (shape[2], shape[3]) if is_nchw else (shape[1], shape[2])
    has_free_batch = found.declared[0] is None and report.is_batch_independent
    return InputGuess(
        tensor=found.name,
        width=width,
        height=height,
        layout=TensorLayout.NCHW if is_nchw else TensorLayout.NHWC,
        dtype=InputDtype(found.dtype),
        batch=BatchMode.DYNAMIC if has_free_batch else BatchMode.FIXED,
    )


def guess_output(report: DryRunReport, width: int, height: int) -> OutputGuess:
    """Raises Incompatible, naming the known layouts, when the outputs fit none of them."""
    if len(report.outputs) == 2:
        cut = _as_cut(report.outputs, width, height)
        if cut is not None:
            return cut
    if len(report.outputs) == 1 and len(report.outputs[0].shape) == 3 and report.outputs[0].shape[0] == 1:
        single = _as_single(report.outputs[0], width, height)
        if single is not None:
            return single
    found = ", ".join(_shown(output) for output in report.outputs)
    raise Incompatible(
        f"model outputs: {found} for an input of {width}x{height} fit no known layout. Known are {KNOWN_LAYOUTS}"
    )


def check_label_count(channels: int, labels: int) -> None:
    """Raises Malformed when a label list does not have one name for each class channel."""
    if channels == labels:
        return
    hint = ""
    if {channels, labels} & {80, 90, 91}:
        hint = (
            ". COCO comes as 80 names in a row and as a list of 90 or 91 with gaps; they cannot be exchanged"
        )
    raise Malformed(
        f"labels: the model has {channels} class channels, the label list has {labels} names{hint}"
    )


def _as_cut(outputs: Sequence[TensorReport], width: int, height: int) -> OutputGuess | None:
    by_name = {output.name: output for output in outputs}
    boxes, logits = by_name.get("boxes", outputs[0]), by_name.get("logits", outputs[1])
    if (
        len(boxes.shape) != 3
        or len(logits.shape) != 3
        or boxes.shape[2] != logits.shape[2]
        or boxes.shape[1] % 4
    ):
        return None
    strides = _strides_for(boxes.shape[2], width, height)
    if strides is None:
        return None
    return OutputGuess(
        Layout.CUT, (boxes.name, logits.name), strides, boxes.shape[1] // 4, class_count=logits.shape[1]
    )


def _as_single(output: TensorReport, width: int, height: int) -> OutputGuess | None:
    _, first, second = output.shape
    strides = _strides_for(second, width, height)
    if strides is not None and first > 4:
        return OutputGuess(Layout.ONE_TO_MANY, (output.name,), strides, 1, first - 4)
    strides = _strides_for(first, width, height)
    if strides is not None and second > 5:
        return OutputGuess(Layout.YOLOX, (output.name,), strides, 1, second - 5)
    if second == 6:
        return OutputGuess(Layout.END_TO_END, (output.name,), _STRIDE_SETS[0], 1, None)
    return None


def _strides_for(anchors: int, width: int, height: int) -> tuple[int, ...] | None:
    for strides in _STRIDE_SETS:
        if sum((width // stride) * (height // stride) for stride in strides) == anchors:
            return strides
    return None


def _shown(tensor: TensorReport) -> str:
    return f"{tensor.name} {tensor.dtype}{tensor.shape}"
