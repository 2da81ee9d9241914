"""Small real things for tests: images, random ONNX networks of every layout, manifests and bundles."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from fovea.core.arrays import ImageArray
from fovea.core.detections import ModelRef
from fovea.core.letterbox import Placement
from fovea.core.yolo import Layout
from fovea.runtime.bundle import MODEL, Bundle
from fovea.runtime.manifest import (
    BatchMode,
    BundleManifest,
    ColorOrder,
    InputDtype,
    TensorLayout,
    new_manifest,
)

TINY_STRIDES = (8, 16, 32)
TINY_REG_MAX = 4
END_TO_END_ROWS = 50
TINY_LABELS = ("person", "car", "bicycle")
CREATED_AT = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)

_OUTPUTS = {
    Layout.CUT: ("boxes", "logits"),
    Layout.ONE_TO_MANY: ("output0",),
    Layout.END_TO_END: ("output0",),
    Layout.YOLOX: ("output",),
}
_DTYPES = {
    InputDtype.FLOAT32: TensorProto.FLOAT,
    InputDtype.FLOAT16: TensorProto.FLOAT16,
    InputDtype.UINT8: TensorProto.UINT8,
}


def model_ref(name: str = "tiny", version: str = "1", digit: str = "a") -> ModelRef:
    """A ref whose sha256 is one hex digit, 64 times."""
    return ModelRef(name, version, digit * 64)


def scene(height: int = 48, width: int = 64, seed: int = 0) -> ImageArray:
    """A picture u8[H, W, 3] of smooth light and a few coloured blocks, different for every seed."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[0:height, 0:width]
    light = 60 + 60 * np.sin(columns / max(width, 1) * 3 + seed) + 40 * np.cos(rows / max(height, 1) * 2)
    pixels = np.repeat(np.clip(light, 0, 255).astype(np.uint8)[..., None], 3, axis=2)
    for _ in range(3):
        top, left = int(rng.integers(0, height)), int(rng.integers(0, width))
        tall, wide = max(height // 4, 1), max(width // 4, 1)
        pixels[top : top + tall, left : left + wide] = rng.integers(0, 256, 3)
    return pixels


def tiny_onnx(
    layout: Layout = Layout.CUT,
    *,
    classes: int = len(TINY_LABELS),
    input_hw: tuple[int, int] = (64, 64),
    reg_max: int = TINY_REG_MAX,
    batch: BatchMode = BatchMode.DYNAMIC,
    tensor_layout: TensorLayout = TensorLayout.NCHW,
    dtype: InputDtype = InputDtype.FLOAT32,
    opset: int = 17,
    seed: int = 1,
) -> bytes:
    """A network of one convolution per stride with random weights that sees something different in every picture."""
    graph = _GraphMaker(np.random.default_rng(seed), input_hw)
    pixels = graph.input_as_nchw_float(tensor_layout, dtype)
    if layout is Layout.YOLOX and dtype is not InputDtype.UINT8:
        # These networks take pixels of 0 to 255 also as floats.
        pixels = graph.node("Mul", pixels, graph.constant(np.array(1 / 255, np.float32)))
    match layout:
        case Layout.CUT:
            graph.rename(graph.grid(pixels, 4 * reg_max, bias=0.0), "boxes")
            graph.rename(graph.grid(pixels, classes, bias=-2.0), "logits")
        case Layout.ONE_TO_MANY:
            graph.one_to_many(pixels, classes)
        case Layout.END_TO_END:
            graph.end_to_end(pixels, classes)
        case Layout.YOLOX:
            graph.yolox(pixels, classes)
    rows: int | str = "batch" if batch is BatchMode.DYNAMIC else 1
    shape = [rows, 3, *input_hw] if tensor_layout is TensorLayout.NCHW else [rows, *input_hw, 3]
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "tiny",
            [helper.make_tensor_value_info("images", _DTYPES[dtype], shape)],
            [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, None, None])
                for name in _OUTPUTS[layout]
            ],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=8,
    )
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data


def tiny_manifest(layout: Layout = Layout.CUT, **changes: Any) -> BundleManifest:
    """The manifest that goes with `tiny_onnx(layout)`; `input` and `output` are dicts merged over the usual ones."""
    usual: dict[str, Any] = {"width": 64, "height": 64, "batch": BatchMode.DYNAMIC}
    if layout is Layout.YOLOX:
        usual |= {"color": ColorOrder.BGR, "scale": 1.0, "placement": Placement.TOP_LEFT}
    fields: dict[str, Any] = {
        "name": "tiny",
        "version": "1.0",
        "created_at": CREATED_AT,
        "licence": "AGPL-3.0-or-later",
        "labels": TINY_LABELS,
        "input": usual | changes.pop("input", {}),
        "output": {
            "layout": layout,
            "tensors": _OUTPUTS[layout],
            "strides": TINY_STRIDES,
            "reg_max": TINY_REG_MAX,
        }
        | changes.pop("output", {}),
        "answer_min_score": 0.1,
    }
    return new_manifest(**(fields | changes))


def tiny_bundle(
    layout: Layout = Layout.CUT,
    model: bytes | None = None,
    parts: dict[str, bytes] | None = None,
    **changes: Any,
) -> Bundle:
    """A bundle that runs: `tiny_onnx(layout)` (or `model`), its manifest with `changes`, and more parts."""
    onnx_bytes = tiny_onnx(layout) if model is None else model
    return Bundle.build(tiny_manifest(layout, **changes), {MODEL: onnx_bytes, **(parts or {})})


class _GraphMaker:
    """Collects nodes and constants; every method gives the name of its result."""

    def __init__(self, rng: np.random.Generator, input_hw: tuple[int, int]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._rng = rng
        self._input_hw = input_hw

    def input_as_nchw_float(self, tensor_layout: TensorLayout, dtype: InputDtype) -> str:
        name = "images"
        if dtype is not InputDtype.FLOAT32:
            name = self.node("Cast", name, to=TensorProto.FLOAT)
        if dtype is InputDtype.UINT8:
            name = self.node("Mul", name, self.constant(np.array(1 / 255, np.float32)))
        if tensor_layout is TensorLayout.NHWC:
            name = self.node("Transpose", name, perm=[0, 3, 1, 2])
        return name

    def grid(self, pixels: str, channels: int, bias: float) -> str:
        """[N, channels, A]: one convolution per stride, anchors of all levels one after the other."""
        levels = []
        for stride in TINY_STRIDES:
            weights = self._rng.normal(0, 6 / stride, (channels, 3, stride, stride)).astype(np.float32)
            level = self.node(
                "Conv",
                pixels,
                self.constant(weights - weights.mean(axis=(1, 2, 3), keepdims=True)),
                self.constant(np.full(channels, bias, np.float32)),
                strides=[stride, stride],
                kernel_shape=[stride, stride],
            )
            levels.append(self.node("Reshape", level, self.constant(np.array([0, channels, -1], np.int64))))
        return self.node("Concat", *levels, axis=2)

    def one_to_many(self, pixels: str, classes: int) -> None:
        boxes = self.in_pixels(self.grid(pixels, 4, bias=0.0))
        scores = self.node("Sigmoid", self.grid(pixels, classes, bias=-2.0))
        self.rename(self.node("Concat", boxes, scores, axis=1), "output0")

    def end_to_end(self, pixels: str, classes: int) -> None:
        boxes = self.in_pixels(self.grid(pixels, 4, bias=0.0))
        score = self.node("Sigmoid", self.grid(pixels, 1, bias=-2.0))
        wide = self.node("Sigmoid", self.grid(pixels, 1, bias=0.0))
        most = self.constant(np.array(classes - 1, np.float32))
        channel = self.node("Floor", self.node("Add", self.node("Mul", wide, most), self.half()))
        rows = self.node("Concat", boxes, score, channel, axis=1)
        ordered = self.node("Transpose", rows, perm=[0, 2, 1])
        first, last, axis = (
            self.constant(np.array([number], np.int64)) for number in (0, END_TO_END_ROWS, 1)
        )
        self.rename(self.node("Slice", ordered, first, last, axis), "output0")

    def yolox(self, pixels: str, classes: int) -> None:
        boxes = self.grid(pixels, 4, bias=0.0)
        scores = self.node("Sigmoid", self.grid(pixels, 1 + classes, bias=-1.0))
        rows = self.node("Concat", boxes, scores, axis=1)
        self.rename(self.node("Transpose", rows, perm=[0, 2, 1]), "output")

    def in_pixels(self, raw: str) -> str:
        height, width = self._input_hw
        size = np.array([width, height, width, height], np.float32).reshape(1, 4, 1)
        return self.node("Mul", self.node("Sigmoid", raw), self.constant(size))

    def half(self) -> str:
        return self.constant(np.array(0.5, np.float32))

    def constant(self, values: NDArray[Any]) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def rename(self, result: str, name: str) -> None:
        self.nodes.append(helper.make_node("Identity", [result], [name]))
