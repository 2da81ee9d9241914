"""What a model saw (Candidates) and what is answered (Detections)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from fovea.core.arrays import FloatArray, IntArray, frozen_boxes, frozen_ints, frozen_unit
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from fovea.core.labels import LabelSet

LOWEST_SCORE = 0.001
"""Candidates are kept down to this raw score: the gate, the calibration and AP all need the weak ones."""

TOLD_FROM = 0.25
"""Calibrated score from which on a box is worth telling people, unless they say otherwise. Models may answer weaker
boxes, too: tiers need them of each other when they merge, and AP counts them."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ModelRef:
    """Names one model artefact exactly: `sha256` is the digest of its bundle manifest, in lower-case hex."""

    name: str
    version: str
    sha256: str

    def __post_init__(self) -> None:
        if not self.name or not self.version:
            raise Malformed(f"model ref: expected a name and a version, got {self.name!r} {self.version!r}")
        if not _SHA256.fullmatch(self.sha256):
            raise Malformed(f"model ref: expected a sha256 of 64 hex digits, got {self.sha256!r:.80}")

    def __str__(self) -> str:
        return f"{self.name}@{self.version}#{self.sha256[:12]}"


class ScoreKind(StrEnum):
    """Whether a box has a score for every class, or one score and one class only."""

    PER_CLASS = "per_class"
    ONE_PER_BOX = "one_per_box"


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """What a model saw in one frame, after non-maximum suppression, down to a raw score of 0.001.

    boxes_xyxy   f32[N, 4], px of the original frame, x1 <= x2, y1 <= y2
    class_scores f32[N, C] raw scores in 0..1, C following `labels`. With ScoreKind.PER_CLASS every class of a box
                 has its score, and 0 where a better box of the same class suppressed it. With ONE_PER_BOX each row
                 has one score that is not 0: the model said no more than that.
    """

    boxes_xyxy: FloatArray
    class_scores: FloatArray
    kind: ScoreKind
    labels: LabelSet
    image_size: ImageSize

    def __post_init__(self) -> None:
        boxes = frozen_boxes("candidates boxes_xyxy", self.boxes_xyxy)
        scores = frozen_unit("candidates class_scores", self.class_scores, (len(boxes), len(self.labels)))
        if self.kind is ScoreKind.ONE_PER_BOX and (np.count_nonzero(scores, axis=1) > 1).any():
            raise Malformed("candidates class_scores: expected one score per box, got several in a row")
        object.__setattr__(self, "boxes_xyxy", boxes)
        object.__setattr__(self, "class_scores", scores)

    def __len__(self) -> int:
        return len(self.boxes_xyxy)

    @property
    def best_scores(self) -> FloatArray:
        """f32[N]: the highest raw score of each box."""
        best: FloatArray = self.class_scores.max(axis=1)
        return best

    @property
    def best_channels(self) -> IntArray:
        """i32[N]: the class channel (not the id) that scored highest in each box."""
        channels: IntArray = self.class_scores.argmax(axis=1).astype(np.int32)
        return channels


@dataclass(frozen=True, slots=True, eq=False)
class Detections:
    """What is answered for one frame: calibrated scores only, best first.

    boxes_xyxy f32[N, 4] px of the original frame; scores f32[N] in 0..1, the calibrated probability that the box is
    right; class_ids i32[N], see `fovea.core.labels`.
    """

    boxes_xyxy: FloatArray
    scores: FloatArray
    class_ids: IntArray
    image_size: ImageSize
    model: ModelRef

    def __post_init__(self) -> None:
        boxes = frozen_boxes("detections boxes_xyxy", self.boxes_xyxy)
        scores = frozen_unit("detections scores", self.scores, (len(boxes),))
        class_ids = frozen_ints("detections class_ids", self.class_ids, (len(boxes),))
        if np.count_nonzero(class_ids < 0):
            raise Malformed(f"detections class_ids: expected 0 or more, got {class_ids.min()}")
        object.__setattr__(self, "boxes_xyxy", boxes)
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "class_ids", class_ids)

    def __len__(self) -> int:
        return len(self.boxes_xyxy)

    def above(self, score: float) -> Detections:
        """The boxes with this score or more."""
        kept = self.scores >= score
        if np.count_nonzero(kept) == len(kept):
            return self
        part = object.__new__(Detections)  # of what was checked already, for every frame
        for name in ("boxes_xyxy", "scores", "class_ids"):
            array = getattr(self, name)[kept]
            array.flags.writeable = False
            object.__setattr__(part, name, array)
        object.__setattr__(part, "image_size", self.image_size)
        object.__setattr__(part, "model", self.model)
        return part

    @classmethod
    def empty(cls, image_size: ImageSize, model: ModelRef) -> Detections:
        """An answer with nothing in it."""
        nothing = np.empty(0, np.float32)
        return cls(nothing.reshape(0, 4), nothing, np.empty(0, np.int32), image_size, model)


@dataclass(frozen=True, slots=True, eq=False)
class Inference:
    """All that one run of a detector on one frame gives: the answer, and what stands behind it."""

    detections: Detections
    candidates: Candidates
