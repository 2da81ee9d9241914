"""What two models said about the same frames, box by box: the input of an alignment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.truth import ScoredBoxes
from fovea.core.arrays import frozen_boxes, frozen_ints, frozen_unit
from fovea.core.detections import Inference
from fovea.core.errors import Malformed
from fovea.core.geometry import iou_matrix
from fovea.core.labels import LabelSet
from fovea.core.scores import ScoreCalibration


@dataclass(frozen=True, slots=True, eq=False)
class ModelAnswers:
    """All that one model said, in the order of the frames; scores as it answers them (calibrated).

    name    of the model, for the report
    frames  boxes, scores and class ids of each frame; weak boxes are wanted, too
    groups  the clip of each frame: what is cut into halves. Empty: every frame for itself

    Raises Malformed, naming model and frame, for what is no box, no score of 0 to 1, or no class of its labels.
    """

    name: str
    labels: LabelSet
    frames: tuple[ScoredBoxes, ...]
    groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.frames:
            raise Malformed(f"alignment, {self.name}: expected at least one frame, got none")
        if self.groups and len(self.groups) != len(self.frames):
            raise Malformed(
                f"alignment, {self.name}: expected a clip for each of {len(self.frames)} frames, "
                f"got {len(self.groups)}"
            )
        known = set(self.labels.ids)
        checked = []
        for index, frame in enumerate(self.frames):
            where = f"alignment, {self.name}, frame {index}"
            boxes = frozen_boxes(f"{where}, boxes", frame.boxes_xyxy)
            scores = frozen_unit(f"{where}, scores", frame.scores, (len(boxes),))
            class_ids = frozen_ints(f"{where}, class_ids", frame.class_ids, (len(boxes),))
            strange = sorted(set(class_ids.tolist()) - known)
            if strange:
                raise Malformed(
                    f"{where}: expected classes of its labels {list(self.labels.names)}, got {strange}"
                )
            checked.append(ScoredBoxes(boxes, scores, class_ids))
        object.__setattr__(self, "frames", tuple(checked))


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """P boxes that both see: scores f64[P] and classes i32[P] of each, and the group i64[P] of `group_count` that the
    frame belongs to."""

    weak: NDArray[np.float64]
    strong: NDArray[np.float64]
    weak_class: NDArray[np.int32]
    strong_class: NDArray[np.int32]
    group: NDArray[np.intp]
    group_count: int

    def __len__(self) -> int:
        return len(self.weak)

    def rows(self, chosen: NDArray[np.bool_]) -> Pairs:
        return Pairs(
            self.weak[chosen],
            self.strong[chosen],
            self.weak_class[chosen],
            self.strong_class[chosen],
            self.group[chosen],
            self.group_count,
        )


def calibrated_boxes(seen: Inference, calibration: ScoreCalibration, min_score: float) -> ScoredBoxes:
    """The candidates of one frame with calibrated scores, down to `min_score`, in the class that each scores highest
    in."""
    candidates = seen.candidates
    ids = candidates.labels.ids
    scores = calibration.apply(candidates.class_scores, ids)
    if not len(candidates):
        return ScoredBoxes(candidates.boxes_xyxy, np.empty(0, np.float32), np.empty(0, np.int32))
    best = scores.argmax(axis=1)
    top = scores[np.arange(len(scores)), best]
    kept = top >= min_score
    return ScoredBoxes(candidates.boxes_xyxy[kept], top[kept], np.array(ids, np.int32)[best][kept])


def matched_pairs(weak: ModelAnswers, strong: ModelAnswers, iou: float, min_score: float) -> Pairs:
    """The boxes of `weak` and `strong` that overlap by `iou` or more, each in one pair, best overlaps first, whatever
    their class. Classes that only one of the two knows are left out: who cannot see a thing does not disagree on it.

    Raises Malformed when the two are not about the same number of frames or have no class in common.
    """
    if len(weak.frames) != len(strong.frames):
        raise Malformed(
            "alignment: expected answers to the same frames, got "
            f"{len(weak.frames)} of {weak.name} and {len(strong.frames)} of {strong.name}"
        )
    common = np.array(sorted(set(weak.labels.ids) & set(strong.labels.ids)), np.int32)
    if not len(common):
        raise Malformed(
            f"alignment: expected a class that both models know, got {list(weak.labels.names)!r:.120} and "
            f"{list(strong.labels.names)!r:.120}"
        )
    names = weak.groups or strong.groups or tuple(str(index) for index in range(len(weak.frames)))
    rows = [
        (*pair, index)
        for index, (a, b) in enumerate(zip(weak.frames, strong.frames, strict=True))
        for pair in _matches(_known(a, common, min_score), _known(b, common, min_score), iou)
    ]
    columns = list(zip(*rows, strict=True)) or [()] * 5
    # Clips without a pair would count as empty halves: only those with one are numbered.
    used, group = np.unique([names[index] for index in columns[4]], return_inverse=True)
    return Pairs(
        np.array(columns[0], np.float64),
        np.array(columns[1], np.float64),
        np.array(columns[2], np.int32),
        np.array(columns[3], np.int32),
        group.astype(np.intp),
        len(used),
    )


def _known(frame: ScoredBoxes, common: NDArray[np.int32], min_score: float) -> ScoredBoxes:
    kept = np.isin(frame.class_ids, common) & (frame.scores >= min_score)
    return ScoredBoxes(frame.boxes_xyxy[kept], frame.scores[kept], frame.class_ids[kept])


def _matches(a: ScoredBoxes, b: ScoredBoxes, iou: float) -> Iterable[tuple[float, float, int, int]]:
    """(weak score, strong score, weak class, strong class) of each pair, greedily by overlap; of equal overlaps the
    one of equal classes goes first."""
    if not len(a.scores) or not len(b.scores):
        return
    overlap = iou_matrix(a.boxes_xyxy, b.boxes_xyxy)
    rows, columns = np.nonzero(overlap >= iou)
    differs = a.class_ids[rows] != b.class_ids[columns]
    order = np.lexsort((differs, -overlap[rows, columns]))
    free_a, free_b = np.ones(len(a.scores), bool), np.ones(len(b.scores), bool)
    for row, column in zip(rows[order].tolist(), columns[order].tolist(), strict=True):
        if free_a[row] and free_b[column]:
            free_a[row] = free_b[column] = False
            yield (
                float(a.scores[row]),
                float(b.scores[column]),
                int(a.class_ids[row]),
                int(b.class_ids[column]),
            )
