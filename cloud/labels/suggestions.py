"""What may be in a picture beyond what is believed, for a person to take or leave."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cloud.cases.stored_case import StoredCase
from cloud.labels.label import TeacherLabel
from cloud.labels.teacher import in_px_of
from fovea.core.arrays import FloatArray
from fovea.core.geometry import clip_boxes, iou_matrix
from fovea.core.labels import Label

TEACHER_FROM = 0.2
OTHERS_FROM = 0.4
_SAME_IOU = 0.5


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A box that somebody saw; `by` is the teacher or a tier."""

    box_xyxy: tuple[float, float, float, float]
    label: Label
    score: float
    by: str


def suggestions(case: StoredCase, teacher: TeacherLabel | None) -> tuple[Suggestion, ...]:
    """Boxes in px of the case's picture that are not believed: weak ones of the teacher, and what other tiers saw
    where it saw nothing of that class. Each place and class once, the teacher's or else the highest tier's."""
    found: list[Suggestion] = []
    taken: dict[int, list[FloatArray]] = {}
    if teacher is not None:
        for row in range(len(teacher.detections)):
            _offer(found, taken, _of_teacher(teacher, row, case), is_new=not teacher.weights[row])
    for answer in reversed(case.answers):
        if teacher is not None and answer.detections.model == teacher.teacher:
            continue
        names = {label.id: label for label in answer.labels}
        seen = in_px_of(answer.detections, case.image_size).above(OTHERS_FROM)
        for box, score, class_id in zip(
            seen.boxes_xyxy, seen.scores.tolist(), seen.class_ids.tolist(), strict=True
        ):
            if class_id in names:
                offered = _suggestion(case, box, names[class_id], score, answer.tier.name.lower())
                _offer(found, taken, offered, is_new=True)
    return tuple(found)


def _of_teacher(teacher: TeacherLabel, row: int, case: StoredCase) -> Suggestion | None:
    seen = teacher.detections
    score = float(seen.scores[row])
    if not teacher.weights[row] and score < TEACHER_FROM:
        return None
    label = Label(int(seen.class_ids[row]), teacher.names[row])
    return _suggestion(case, seen.boxes_xyxy[row], label, score, "teacher")


def _suggestion(case: StoredCase, box: FloatArray, label: Label, score: float, by: str) -> Suggestion | None:
    x1, y1, x2, y2 = clip_boxes(box[None], case.image_size)[0].tolist()
    return Suggestion((x1, y1, x2, y2), label, score, by) if x1 < x2 and y1 < y2 else None


def _offer(
    found: list[Suggestion], taken: dict[int, list[FloatArray]], offered: Suggestion | None, *, is_new: bool
) -> None:
    if offered is None:
        return
    box = np.array([offered.box_xyxy], np.float32)
    there = taken.setdefault(offered.label.id, [])
    if there and iou_matrix(box, np.array(there, np.float32)).max() >= _SAME_IOU:
        return
    there.append(box[0])
    if is_new:
        found.append(offered)
