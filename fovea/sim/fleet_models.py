"""Models of a few kilobytes that really run: what a simulated fleet is given."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from fovea.core.errors import Incompatible
from fovea.core.yolo import Layout
from fovea.runtime.bundle import MODEL, Bundle
from fovea.runtime.manifest import BatchMode, new_manifest

NAME: Final = "fleet"
_SIDE: Final = 64
_STRIDE: Final = 32
_LABELS: Final = ("person", "car", "bicycle")
_CREATED_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)


def tiny_model(version: str, seed: int = 0) -> Bundle:
    """A bundle whose network sees something or other, another one for every version. Raises Incompatible where the
    package `onnx` is not installed."""
    manifest = new_manifest(
        name=NAME,
        version=version,
        created_at=_CREATED_AT,
        licence="AGPL-3.0-or-later",
        labels=_LABELS,
        input={"width": _SIDE, "height": _SIDE, "batch": BatchMode.DYNAMIC},
        output={"layout": Layout.ONE_TO_MANY, "tensors": ("output0",), "strides": (_STRIDE,), "reg_max": 1},
        answer_min_score=0.1,
    )
    return Bundle.build(manifest, {MODEL: _network(seed + sum(version.encode()))})


def _network(seed: int) -> bytes:
    """[N, 3, 64, 64] to [N, 4 + classes, 4]: the mean colour of each quarter, mixed; boxes in px, then scores."""
    try:
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        raise Incompatible("a simulated fleet needs the package onnx: pip install 'fovea[train]'") from error
    rng = np.random.default_rng(seed)

    def constant(name: str, values: Any) -> Any:
        return numpy_helper.from_array(np.asarray(values), name)

    def mixed(channels: int) -> Any:
        return rng.normal(0, 1, (channels, 3, 1, 1)).astype(np.float32)

    nodes = [
        helper.make_node(
            "AveragePool", ["images"], ["colours"], kernel_shape=[_STRIDE] * 2, strides=[_STRIDE] * 2
        ),
        helper.make_node("Conv", ["colours", "box_weights"], ["raw_boxes"]),
        helper.make_node("Conv", ["colours", "class_weights"], ["raw_scores"]),
        helper.make_node("Sigmoid", ["raw_boxes"], ["boxes"]),
        helper.make_node("Mul", ["boxes", "side"], ["boxes_px"]),
        helper.make_node("Sigmoid", ["raw_scores"], ["scores"]),
        helper.make_node("Concat", ["boxes_px", "scores"], ["grid"], axis=1),
        helper.make_node("Reshape", ["grid", "shape"], ["output0"]),
    ]
    constants = [
        constant("box_weights", mixed(4)),
        constant("class_weights", mixed(len(_LABELS))),
        constant("side", np.float32(_SIDE)),
        constant("shape", np.array([0, 4 + len(_LABELS), -1], np.int64)),
    ]
    graph = helper.make_graph(
        nodes,
        NAME,
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, _SIDE, _SIDE])],
        [helper.make_tensor_value_info("output0", TensorProto.FLOAT, ["batch", None, None])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data: bytes = model.SerializeToString()
    return data
