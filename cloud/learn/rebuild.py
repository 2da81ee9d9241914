"""A trainable torch model out of a bundle: our own architecture with the weights of the bundle's ONNX graph.

The exporter folds each batch norm into its convolution. Here the convolution gets the folded weights and the norm
becomes the identity; `restore_statistics` then gives the norms the statistics of real images without changing what
the model answers, so that it can be trained with batch statistics again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloud.train_plan import ARCHITECTURES
from fovea.core.errors import Incompatible
from fovea.core.yolo import Layout
from fovea.runtime.bundle import Bundle
from fovea.runtime.manifest import BundleManifest, Precision
from fovea.serving.vendor_env import load_ultralytics

_PREFIX, _HALF = "detector.", ".f16"  # of `cloud.export_cut`
LOSS_GAINS: Final = {"box": 7.5, "cls": 0.5, "dfl": 1.5}
Weights = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True, eq=False)
class Rebuilt:
    """A torch detection model f32[N, 3, H, W] -> boxes and logits as in the cut graph, and the file of its layers."""

    model: Any
    architecture: Path
    manifest: BundleManifest


def rebuild(bundle: Bundle) -> Rebuilt:
    """The torch model of a bundle that `cloud.export_cut` wrote, in evaluation mode, on the CPU.

    Raises Incompatible for what cannot be rebuilt: another output layout, 8-bit weights, weights that fit none of
    our architectures.
    """
    manifest, name = bundle.manifest, f"{bundle.manifest.name} {bundle.manifest.version}"
    if manifest.precision is Precision.INT8:
        raise Incompatible(f"{name}: has 8-bit weights; a student is trained from its FP32 parent")
    if manifest.output.layout is not Layout.CUT:
        raise Incompatible(f"{name}: expected our cut graph, got the layout {manifest.output.layout}")
    weights = _weights_of(bundle.model)
    architectures = sorted(ARCHITECTURES.glob("*.yaml"))
    for architecture in architectures:
        model = _build(architecture, manifest)
        if model is not None and _load(model, weights):
            return Rebuilt(model.eval(), architecture, manifest)
    known = ", ".join(path.stem for path in architectures)
    raise Incompatible(
        f"{name}: its weights fit none of our architectures ({known}); it cannot be trained on"
    )


def restore_statistics(model: Any, batches: Iterable[Any]) -> None:
    """Give every identity norm of a rebuilt model the mean and variance of its input over `batches` f32[N, 3, H, W].

    Scale and offset are set to undo the normalisation, so answers in evaluation mode stay what they were, and with
    batch statistics they hardly move. Channels that are constant keep the identity.
    """
    import torch

    sums: dict[str, list[Any]] = {}
    handles = [
        norm.register_forward_pre_hook(_summing(sums.setdefault(name, [])))
        for name, _, norm in _normed(model)
    ]
    model.eval()
    with torch.no_grad():
        for images in batches:
            model(images)
    for handle in handles:
        handle.remove()
    for name, _, norm in _normed(model):
        if sums[name]:
            _undo(norm, *(sum(parts) for parts in zip(*sums[name], strict=True)))


def _summing(into: list[Any]) -> Any:
    def hook(_: Any, inputs: Any) -> None:
        values = inputs[0].double()
        count = values.numel() / values.shape[1]
        into.append((count, values.sum((0, 2, 3)), values.square().sum((0, 2, 3))))

    return hook


def _undo(norm: Any, count: float, total: Any, squares: Any) -> None:
    """Set the statistics, and the scale and offset under which the norm still is what it was."""
    mean = total / count
    variance = (squares / count - mean.square()).clamp(min=0.0)
    alive = variance > 1e-8
    mean, variance = (
        mean.float() * alive,
        variance.float().where(alive, variance.new_tensor(1.0 - norm.eps).float()),
    )
    norm.running_mean.copy_(mean)
    norm.running_var.copy_(variance)
    norm.weight.data.copy_((variance + norm.eps).sqrt())
    norm.bias.data.add_(mean)


def _weights_of(graph: bytes) -> Weights:
    """The float constants of a graph by the name of the torch parameter that they were."""
    import onnx
    from onnx import numpy_helper

    weights: Weights = {}
    for constant in onnx.load_from_string(graph).graph.initializer:
        if constant.name.startswith(_PREFIX):
            name = constant.name.removeprefix(_PREFIX).removesuffix(_HALF)
            weights[name] = np.array(numpy_helper.to_array(constant), np.float32)
    return weights


def _build(architecture: Path, manifest: BundleManifest) -> Any:
    """An untrained model with the manifest's channels, or None where the head is another one."""
    import yaml

    load_ultralytics()
    from ultralytics.nn.tasks import DetectionModel

    layers = yaml.safe_load(architecture.read_text(encoding="utf-8"))
    if layers.get("reg_max", 16) != manifest.output.reg_max:
        return None
    model = DetectionModel({**layers, "scale": "n"}, ch=3, nc=len(manifest.labels), verbose=False)
    if tuple(int(stride) for stride in model.stride) != manifest.output.strides:
        return None
    model.names = dict(enumerate(manifest.labels))
    model.args = SimpleNamespace(**LOSS_GAINS)
    return model


def _load(model: Any, weights: Weights) -> bool:
    """Copies the folded weights into the model; False, and a useless model, unless they are exactly its own."""
    import torch

    wanted: dict[str, Any] = {}
    for name, block, norm in _normed(model):
        norm.running_mean.zero_()
        norm.running_var.fill_(1.0 - norm.eps)
        torch.nn.init.ones_(norm.weight)
        wanted[f"{name}.conv.weight"], wanted[f"{name}.conv.bias"] = block.conv.weight, norm.bias
    for name, module in model.named_modules():
        is_plain = isinstance(module, torch.nn.Conv2d) and f"{name}.weight" not in wanted
        if is_plain and not name.endswith(".dfl.conv"):
            wanted[f"{name}.weight"] = module.weight
            if module.bias is not None:
                wanted[f"{name}.bias"] = module.bias
    if {name: tuple(p.shape) for name, p in wanted.items()} != {name: w.shape for name, w in weights.items()}:
        return False
    with torch.no_grad():
        for name, parameter in wanted.items():
            parameter.copy_(torch.from_numpy(weights[name]))
    return True


def _normed(model: Any) -> Iterator[tuple[str, Any, Any]]:
    """Name, block and batch norm of every convolution that has one."""
    for name, module in model.named_modules():
        if hasattr(module, "conv") and hasattr(module, "bn"):
            yield name, module, module.bn
