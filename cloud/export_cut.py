"""Exports an Ultralytics detector as the product's cut graph: raw boxes and raw class logits, nothing decoded."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fovea.serving.vendor_env import load_ultralytics

OPSET = 17
HALVED_FROM_VALUES = 256  # smaller constants (biases, shapes) are not worth a cast node


@dataclass(frozen=True, slots=True)
class CutExport:
    """A cut ONNX file and what its decoder has to know.

    Input `images` f32[N,3,H,W], RGB, 0 to 1, N free. Outputs `boxes` f32[N,4*reg_max,A] (distances left, top, right,
    bottom in strides; a distribution over `reg_max` bins each, or the distance itself where reg_max is 1) and
    `logits` f32[N,C,A]. Anchors run row by row through the first stride's grid, then the next stride's.
    """

    path: Path
    labels: tuple[str, ...]
    strides: tuple[int, ...]
    reg_max: int
    input_hw: tuple[int, int]


def export_cut(weights: Path | str, out: Path, imgsz: tuple[int, int], half: bool = False) -> CutExport:
    """Write the cut graph of an Ultralytics detector to `out`; convolutions and batch norms are fused.

    `weights` is a local `.pt` or a name that Ultralytics knows and has on disk; `imgsz` is (height, width) in pixels,
    a multiple of every stride. The one-to-many head is exported, also of models that end in a one-to-one head.
    `half` stores large weights as 16-bit floats; inputs, outputs and arithmetic stay 32-bit.
    Raises ValueError for a size that the strides do not divide or a model without a detection head.
    """
    load_ultralytics()
    from ultralytics import YOLO

    return export_module(YOLO(str(weights)).model, out, imgsz, half)


def export_module(model: Any, out: Path, imgsz: tuple[int, int], half: bool = False) -> CutExport:
    """As `export_cut`, for a detection model that is in memory; the model itself is not changed."""
    import torch

    cut, head, labels = _cut(model)
    strides = tuple(int(s) for s in head.stride)
    if any(side % stride for side in imgsz for stride in strides):
        raise ValueError(f"imgsz: expected multiples of strides {strides}, got {imgsz}")
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_suffix(".part")
    # The TorchScript exporter: it needs no further package and its plain Conv nodes suit the quantizer.
    torch.onnx.export(
        cut, (torch.zeros(1, 3, *imgsz),), str(partial), opset_version=OPSET, dynamo=False,
        input_names=["images"], output_names=["boxes", "logits"],
        dynamic_axes={name: {0: "batch"} for name in ("images", "boxes", "logits")},
    )  # fmt: skip
    if half:
        halve_weights(partial)
    partial.replace(out)
    return CutExport(out, labels, strides, int(head.reg_max), imgsz)


def _cut(model: Any) -> tuple[Any, Any, tuple[str, ...]]:
    """A fused copy of `model` that ends before decoding, its head, and its labels in channel order."""
    from copy import deepcopy

    import torch
    from ultralytics.nn.modules.head import Detect

    copy = deepcopy(model).float().cpu().eval()
    head = copy.model[-1]
    if not isinstance(head, Detect):
        raise ValueError(f"model: expected one that ends in a Detect head, got {type(head).__name__}")
    if getattr(head, "end2end", False):
        head.end2end = False  # before fusing, which keeps one branch only
    copy.fuse(verbose=False)

    def raw(features: list[Any]) -> dict[str, Any]:
        outputs: dict[str, Any] = head.forward_head(features, **head.one2many)
        return outputs

    head.forward = raw

    class CutModel(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.detector = copy

        def forward(self, images: Any) -> tuple[Any, Any]:
            outputs = self.detector.predict(images)
            return outputs["boxes"], outputs["scores"]

    names = copy.names
    return CutModel().eval(), head, tuple(str(names[k]) for k in range(head.nc))


def halve_weights(path: Path) -> None:
    """Store the large float constants of an ONNX file as 16 bits, each behind a cast back to 32 bits.

    The casts are folded when a session is made, so every runtime computes in 32 bits as before; the file halves.
    """
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    model = onnx.load(str(path))
    graph = model.graph
    casts = []
    for constant in graph.initializer:
        if constant.data_type != TensorProto.FLOAT:
            continue
        values = numpy_helper.to_array(constant)
        if values.size < HALVED_FROM_VALUES:
            continue
        name, stored = constant.name, f"{constant.name}.f16"
        limit = np.finfo(np.float16).max
        constant.CopyFrom(numpy_helper.from_array(values.clip(-limit, limit).astype(np.float16), stored))
        casts.append(helper.make_node("Cast", [stored], [name], name=f"{name}.widen", to=TensorProto.FLOAT))
    for node in reversed(casts):
        graph.node.insert(0, node)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))


def largest_difference(
    export: CutExport, weights: Path | str, batch: int = 2, seed: int = 0
) -> dict[str, float]:
    """Largest |onnx - torch| of each output over noise and a flat image, as a share of its largest value."""
    load_ultralytics()
    import numpy as np
    import torch
    from ultralytics import YOLO

    from fovea.runtime.ort import open_session

    cut, _, _ = _cut(YOLO(str(weights)).model)
    images = np.random.default_rng(seed).random((batch, 3, *export.input_hw), np.float32)
    images[-1] = 0.45
    with torch.no_grad():
        wanted = [output.numpy() for output in cut(torch.from_numpy(images))]
    got = open_session(export.path, "cpu").run({"images": images}, ("boxes", "logits"))
    return {
        name: float(np.abs(a - b).max() / np.abs(b).max())
        for name, a, b in zip(("boxes", "logits"), got, wanted, strict=True)
    }
