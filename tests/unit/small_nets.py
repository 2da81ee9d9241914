"""Small detectors of convolutions and one activation, cut before the decode: what quantization is tried on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.builders import TINY_LABELS, TINY_REG_MAX, TINY_STRIDES

BODY_CONVS = 6
HEAD_CONVS = 2 * len(TINY_STRIDES)


def silu_onnx(seed: int = 0) -> bytes:
    """Stride 2 convolutions down to each stride of the head; the first one has 3 input channels."""
    maker = _Maker(np.random.default_rng(seed))
    return _detector(maker, maker.silu)


def relu_onnx(seed: int = 0) -> bytes:
    """The same net with ReLU."""
    maker = _Maker(np.random.default_rng(seed))
    return _detector(maker, maker.relu)


def _detector(maker: _Maker, activate: Callable[[str], str]) -> bytes:
    tensor, width, stride, levels = "images", 3, 1, []
    while stride < max(TINY_STRIDES):
        tensor, stride = activate(maker.conv(f"body{stride}", tensor, width, 16, 3, 2)), stride * 2
        width = 16
        if stride in TINY_STRIDES:
            levels.append(tensor)
    tensor = activate(maker.conv("extra", tensor, 16, 16, 1, 1))
    levels[-1] = tensor
    for name, channels in (("boxes", 4 * TINY_REG_MAX), ("logits", len(TINY_LABELS))):
        parts = [
            maker.flat(maker.conv(f"{name}{i}", x, 16, channels, 1, 1), channels, levels[0])
            for i, x in enumerate(levels)
        ]
        maker.nodes.append(helper.make_node("Concat", parts, [name], name=f"{name}_concat", axis=2))
    return maker.model()


class _Maker:
    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self.nodes: list[object] = []
        self._weights: list[object] = []

    def conv(self, name: str, tensor: str, inputs: int, outputs: int, kernel: int, stride: int) -> str:
        scale = 1.5 / np.sqrt(inputs * kernel * kernel)
        weight = self._rng.normal(0, scale, (outputs, inputs, kernel, kernel)).astype(np.float32)
        bias = self._rng.normal(0, 0.1, outputs).astype(np.float32)
        self._weights += [
            numpy_helper.from_array(weight, f"{name}.w"),
            numpy_helper.from_array(bias, f"{name}.b"),
        ]
        self.nodes.append(
            helper.make_node(
                "Conv", [tensor, f"{name}.w", f"{name}.b"], [f"{name}.y"], name=name,
                kernel_shape=[kernel, kernel], strides=[stride, stride], pads=[kernel // 2] * 4,
            )
        )  # fmt: skip
        return f"{name}.y"

    def silu(self, tensor: str) -> str:
        self.nodes.append(helper.make_node("Sigmoid", [tensor], [f"{tensor}.s"], name=f"{tensor}.sigmoid"))
        self.nodes.append(
            helper.make_node("Mul", [tensor, f"{tensor}.s"], [f"{tensor}.silu"], name=f"{tensor}.mul")
        )
        return f"{tensor}.silu"

    def relu(self, tensor: str) -> str:
        self.nodes.append(helper.make_node("Relu", [tensor], [f"{tensor}.relu"], name=f"{tensor}.act"))
        return f"{tensor}.relu"

    def flat(self, tensor: str, channels: int, feature: str) -> str:
        """[N, C, H, W] as [N, C, A], with N read from the shape of a tensor of the body, as exporters do it."""
        batch, rest, shape = f"{tensor}.batch", f"{tensor}.rest", f"{tensor}.shape"
        self._weights.append(numpy_helper.from_array(np.array([channels, -1]), rest))
        self.nodes += [
            helper.make_node("Shape", [feature], [batch], name=batch, start=0, end=1),
            helper.make_node("Concat", [batch, rest], [shape], name=shape, axis=0),
            helper.make_node("Reshape", [tensor, shape], [f"{tensor}.flat"], name=f"{tensor}.reshape"),
        ]
        return f"{tensor}.flat"

    def model(self) -> bytes:
        graph = helper.make_graph(
            self.nodes,
            "silu",
            [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, 64, 64])],
            [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", None, None])
                for name in ("boxes", "logits")
            ],
            self._weights,
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        data: bytes = made.SerializeToString()
        return data
