"""What is really in a frame, next to what a model saw in it: the input of every evaluation and fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fovea.core.arrays import FloatArray, IntArray, frozen_floats, frozen_ints
from fovea.core.detections import LOWEST_SCORE, Candidates, Detections
from fovea.core.errors import Malformed


@dataclass(frozen=True, slots=True, eq=False)
class GroundTruth:
    """The true objects of one frame.

    boxes_xyxy f32[M, 4] px of the frame, class_ids i32[M] (`fovea.core.labels`), ignore bool[M]: a box that need not
    be found and may be found (COCO's iscrowd = 1): what matches it counts neither for nor against the model.
    """

    boxes_xyxy: FloatArray
    class_ids: IntArray
    ignore: NDArray[np.bool_]

    def __post_init__(self) -> None:
        boxes = frozen_floats("truth boxes_xyxy", self.boxes_xyxy, (None, 4))
        class_ids = frozen_ints("truth class_ids", self.class_ids, (len(boxes),))
        ignore = np.array(self.ignore, dtype=bool).reshape(-1)
        if len(ignore) != len(boxes):
            raise Malformed(f"truth ignore: expected {len(boxes)} flags, got {len(ignore)}")
        if (boxes[:, 2:] < boxes[:, :2]).any():
            raise Malformed("truth boxes_xyxy: expected x1 <= x2 and y1 <= y2")
        ignore.flags.writeable = False
        object.__setattr__(self, "boxes_xyxy", boxes)
        object.__setattr__(self, "class_ids", class_ids)
        object.__setattr__(self, "ignore", ignore)

    def __len__(self) -> int:
        return len(self.boxes_xyxy)

    @classmethod
    def empty(cls) -> GroundTruth:
        """A frame with nothing in it."""
        return cls(np.empty((0, 4), np.float32), np.empty(0, np.int32), np.empty(0, bool))


@dataclass(frozen=True, slots=True, eq=False)
class EvaluatedFrame:
    """One frame: its truth and what a model saw. `group` names the clip (or scene) that the frame was taken from;
    frames of one group are alike, so intervals are drawn over whole groups."""

    group: str
    truth: GroundTruth
    seen: Candidates | Detections


@dataclass(frozen=True, slots=True, eq=False)
class ScoredBoxes:
    """Every (box, class) pair of a frame with its score: boxes_xyxy f32[P, 4], scores f32[P], class_ids i32[P]."""

    boxes_xyxy: FloatArray
    scores: FloatArray
    class_ids: IntArray


def scored_boxes(seen: Candidates | Detections) -> ScoredBoxes:
    """All pairs with a raw score of 0.001 or more of candidates (a box counts once for each class that it has a score
    for); of detections, the boxes as they were answered."""
    if isinstance(seen, Detections):
        return ScoredBoxes(seen.boxes_xyxy, seen.scores, seen.class_ids)
    rows, channels = np.nonzero(seen.class_scores >= LOWEST_SCORE)
    ids = np.array(seen.labels.ids, np.int32)
    return ScoredBoxes(seen.boxes_xyxy[rows], seen.class_scores[rows, channels], ids[channels])
