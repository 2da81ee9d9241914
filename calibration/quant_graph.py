"""Reading a detector graph for quantization: what stays float, what belongs together, what the runtime made of it."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fovea.core.errors import Incompatible, Malformed
from fovea.runtime.ort import load_ort

if TYPE_CHECKING:
    import onnx

_ACTIVATIONS = frozenset({"Sigmoid", "Mul", "Relu", "Clip", "HardSwish", "LeakyRelu"})
_INT8_CHANNEL_STEP = 4
"""The 8-bit dot product takes four input channels at a time; a convolution over 3 colour channels falls out of it."""


def prepared(model: bytes) -> onnx.ModelProto:
    """The graph folded, with shapes inferred and every node named: what ONNX Runtime wants before it quantizes.

    Raises Malformed when it is not a graph of convolutions.
    """
    load_ort()
    import onnx
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory(prefix="fovea-quantize-") as folder:
        source, target = Path(folder, "in.onnx"), Path(folder, "out.onnx")
        source.write_bytes(model)
        quant_pre_process(str(source), str(target), skip_symbolic_shape=True)
        graph = onnx.load(str(target))
    for number, node in enumerate(graph.graph.node):
        node.name = node.name or f"{node.op_type}_{number}"
    if not convolutions(graph):
        raise Malformed("quantization: the graph has no convolution")
    return graph


def convolutions(graph: onnx.ModelProto) -> tuple[str, ...]:
    """Names of all convolutions, in the order of the graph."""
    return tuple(node.name for node in graph.graph.node if node.op_type == "Conv")


def head_nodes(graph: onnx.ModelProto) -> frozenset[str]:
    """The last convolution before each output, and everything after it.

    One 8-bit scale over distances or logits costs more accuracy than these few layers cost time.
    """
    producers = {output: node for node in graph.graph.node for output in node.output}
    found: set[str] = set()
    open_tensors = [output.name for output in graph.graph.output]
    while open_tensors:
        node = producers.get(open_tensors.pop())
        if node is not None and node.name not in found:
            found.add(node.name)
            # Through its shape alone a tensor of the body may reach the head: that is no reason to keep its layer.
            if node.op_type not in ("Conv", "Shape"):
                open_tensors.extend(node.input)
    return frozenset(found)


def stem_nodes(graph: onnx.ModelProto) -> frozenset[str]:
    """Convolutions whose input channels do not fill the 8-bit kernels (the first one, over colours), with their
    activations."""
    weights = {tensor.name: tensor.dims for tensor in graph.graph.initializer}
    stem = [
        node.name
        for node in graph.graph.node
        if node.op_type == "Conv"
        and node.input[1] in weights
        and _group_count(node) == 1
        and weights[node.input[1]][1] % _INT8_CHANNEL_STEP
    ]
    blocks = convolution_blocks(graph)
    return frozenset(name for conv in stem for name in blocks[conv])


def convolution_blocks(graph: onnx.ModelProto) -> dict[str, tuple[str, ...]]:
    """Each convolution with the activation nodes that directly follow it."""
    consumers: dict[str, list[Any]] = {}
    for node in graph.graph.node:
        for tensor in node.input:
            consumers.setdefault(tensor, []).append(node)
    blocks = {}
    for node in graph.graph.node:
        if node.op_type == "Conv":
            names, tensors = [node.name], list(node.output)
            while tensors:
                for follower in consumers.get(tensors.pop(), []):
                    if follower.op_type in _ACTIVATIONS and follower.name not in names:
                        names.append(follower.name)
                        # A sigmoid leads on to its product; the product ends the block.
                        tensors.extend(follower.output if follower.op_type == "Sigmoid" else [])
            blocks[node.name] = tuple(names)
    return blocks


def optimised_op_counts(model: bytes) -> Counter[str]:
    """How often each kind of node is left after ONNX Runtime's own optimisation (level EXTENDED) on this machine."""
    import onnx

    ort = load_ort()
    with tempfile.TemporaryDirectory(prefix="fovea-quantize-") as folder:
        target = Path(folder, "optimised.onnx")
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(target)
        ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return Counter(node.op_type for node in onnx.load(str(target)).graph.node)


def expected_qlinear_convs(graph: onnx.ModelProto, keep_float: Iterable[str]) -> int:
    """How many convolutions are meant to run in 8 bits."""
    return len(set(convolutions(graph)) - set(keep_float))


def check_qlinear_convs(model: bytes, expected: int) -> int:
    """The number of QLinearConv nodes that ONNX Runtime makes of a quantized graph.

    Raises Incompatible when it is not `expected`. Fewer: a convolution that is not fused runs in float between
    conversions, slower than before it was quantized. More: one that was to stay in float did not.
    """
    counts = optimised_op_counts(model)
    found = counts["QLinearConv"]
    if found != expected:
        raise Incompatible(
            f"quantized graph: expected {expected} QLinearConv after ONNX Runtime's optimisation, got {found} "
            f"(and {counts['Conv']} Conv in float)"
        )
    return found


def _group_count(node: Any) -> int:
    return next((attribute.i for attribute in node.attribute if attribute.name == "group"), 1)
