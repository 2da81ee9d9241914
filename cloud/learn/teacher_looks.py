"""What a teacher sees in an image, looked at once and kept: its candidates, and what its features say of places."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloud.learn.kd_losses import SEEN_FROM
from fovea.core.arrays import FloatArray, ImageArray
from fovea.core.detections import Candidates
from fovea.core.errors import Incompatible
from fovea.core.labels import LabelSet
from fovea.core.yolo import Layout, candidates_of
from fovea.runtime.atomic_file import write_atomically
from fovea.runtime.bundle import Bundle
from fovea.runtime.manifest import BundleManifest, TensorLayout
from fovea.runtime.onnx_detector import decode
from fovea.runtime.ort import OrtSession, open_session
from fovea.runtime.preprocess import Preprocessor

FEATURE_STRIDE_PX: Final = 16
MOST_CANDIDATES: Final = 100
_FEWEST_CHANNELS = 16
_MOST_PLACES_HW = (16, 32)


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """boxes_xyxy f32[J, 4] px of the frame with scores f32[J, C] in the student's channels, best first; `features`
    f16[F, h, w] of the frame alone (no padding), empty where the graph has none to show."""

    boxes_xyxy: FloatArray
    scores: FloatArray
    features: NDArray[np.float16]


def has_same_head(teacher: BundleManifest, student: BundleManifest) -> bool:
    """True where the two answer anchor by anchor on one input: raw outputs can be compared directly."""
    alike = ("input", "output", "labels")
    return teacher.output.layout is Layout.CUT and all(
        getattr(teacher, name) == getattr(student, name) for name in alike
    )


@dataclass(slots=True, eq=False)
class TeacherLooks:
    """Looks of one teacher for a student with these labels, kept in `folder` by the digest of the image.

    Raises Incompatible when teacher and student have no class in common.
    """

    teacher: Bundle
    labels: LabelSet
    folder: Path
    device: str = "auto"
    _session: OrtSession | None = None
    _prepare: Preprocessor | None = None
    _kept: dict[str, Look] = field(default_factory=dict)
    _feature: str | None = None

    def __post_init__(self) -> None:
        if not set(self.labels.ids) & set(self.teacher.manifest.label_set.ids):
            raise Incompatible(
                f"teacher {self.teacher.manifest.name}: knows {', '.join(self.teacher.manifest.labels)}, "
                f"none of {', '.join(self.labels.names)}"
            )
        self.folder = self.folder / self.teacher.ref.sha256[:16]
        self.folder.mkdir(parents=True, exist_ok=True)

    def look(self, sha256: str, pixels: ImageArray) -> Look:
        """What the teacher sees in `pixels` u8[H, W, 3] BGR, the image with this digest. Raises DetectorFailed."""
        if sha256 not in self._kept:
            path = self.folder / f"{sha256}.npz"
            if not path.is_file():
                write_atomically(path, _packed(self._run(pixels)))
            with np.load(path) as parts:
                self._kept[sha256] = Look(parts["boxes"], parts["scores"], parts["features"])
        return self._kept[sha256]

    def find(self, sha256: str) -> Look | None:
        """The look that is kept already."""
        return self._kept.get(sha256)

    def _run(self, pixels: ImageArray) -> Look:
        manifest = self.teacher.manifest
        if self._session is None or self._prepare is None:
            graph, self._feature = with_features(self.teacher)
            self._session = open_session(graph, self.device)
            self._prepare = Preprocessor(manifest.input)
        tensor, [letterbox] = self._prepare.fill([pixels])
        names = (*manifest.output.tensors, *([self._feature] if self._feature else []))
        outputs = [output[0] for output in self._session.run({manifest.input.tensor: tensor}, names)]
        raw = decode([np.asarray(o, np.float32) for o in outputs[: len(manifest.output.tensors)]], manifest)
        seen = candidates_of(raw, letterbox, manifest.label_set, manifest.nms.settings())
        features = np.zeros((0, 1, 1), np.float16)
        if self._feature:
            grid, whole = outputs[-1], manifest.input.size
            rows, columns = grid.shape[1] / whole.height, grid.shape[2] / whole.width
            top, left = round(letterbox.top * rows), round(letterbox.left * columns)
            bottom = round((letterbox.top + letterbox.resized.height) * rows)
            right = round((letterbox.left + letterbox.resized.width) * columns)
            features = np.asarray(
                grid[:, top : max(bottom, top + 1), left : max(right, left + 1)], np.float16
            )
        boxes, scores = in_channels_of(self.labels, seen)
        return Look(boxes, scores, features)


def in_channels_of(labels: LabelSet, seen: Candidates) -> tuple[FloatArray, FloatArray]:
    """The best candidates with their scores f32[J, C] for the classes of `labels`; those of no such class go."""
    scores = np.zeros((len(seen), len(labels)), np.float32)
    for channel, label_id in enumerate(labels.ids):
        if label_id in seen.labels.ids:
            scores[:, channel] = seen.class_scores[:, seen.labels.ids.index(label_id)]
    best = scores.max(axis=1, initial=0.0)
    order = np.argsort(-best, kind="stable")[:MOST_CANDIDATES]
    order = order[best[order] >= SEEN_FROM]
    return np.array(seen.boxes_xyxy[order]), scores[order]


def with_features(teacher: Bundle) -> tuple[bytes, str | None]:
    """The graph with one more output: the last feature map at stride 16 that more than one node reads (the end of the
    neck, where the branches of a head begin). The graph as it is, and None, where there is no such map."""
    import onnx
    from onnx import shape_inference

    spec = teacher.manifest.input
    if spec.layout is not TensorLayout.NCHW:
        return teacher.model, None
    wanted = (spec.height // FEATURE_STRIDE_PX, spec.width // FEATURE_STRIDE_PX)
    model = shape_inference.infer_shapes(onnx.load_from_string(teacher.model))
    readers: dict[str, int] = {}
    for node in model.graph.node:
        for name in set(node.input):
            readers[name] = readers.get(name, 0) + (node.op_type != "Shape")
    infos = {info.name: info for info in model.graph.value_info}
    produced = [name for node in model.graph.node for name in node.output]
    maps = [n for n in produced if readers.get(n, 0) > 1 and _is_map(infos.get(n), wanted)]
    if not maps:
        return teacher.model, None
    model.graph.output.append(infos[maps[-1]])
    return model.SerializeToString(), maps[-1]


def _is_map(info: Any, wanted_hw: tuple[int, int]) -> bool:
    import onnx

    if info is None or info.type.tensor_type.elem_type != onnx.TensorProto.FLOAT:
        return False
    sides = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
    return len(sides) == 4 and tuple(sides[2:]) == wanted_hw and sides[1] >= _FEWEST_CHANNELS


def _pooled(features: NDArray[Any]) -> NDArray[np.float16]:
    """f16[F, h, w], averaged to at most 16 x 32 places: places, not pixels, are compared."""
    import torch

    sides = (min(features.shape[1], _MOST_PLACES_HW[0]), min(features.shape[2], _MOST_PLACES_HW[1]))
    values = torch.from_numpy(np.array(features, np.float32))
    return np.asarray(torch.nn.functional.adaptive_avg_pool2d(values, sides).numpy(), np.float16)


def _packed(look: Look) -> bytes:
    target = io.BytesIO()
    np.savez(target, boxes=look.boxes_xyxy, scores=look.scores, features=look.features)
    return target.getvalue()
