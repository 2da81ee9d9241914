"""Labels of cases, by whomever: the teacher's with its judgement, a person's, and the one that counts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np

from cloud.labels.drawn import DrawnBoxes
from cloud.labels.judging import Doubt, Judgement, Verdict
from fovea.core.arrays import FloatArray, IntArray
from fovea.core.detections import Detections, ModelRef
from fovea.core.errors import Malformed
from fovea.core.labels import Label

LONGEST_NAME = 100


@dataclass(frozen=True, slots=True, eq=False)
class TeacherLabel:
    """What a teacher says about a case, and how far it is believed.

    detections  all that it saw, in px of the case's picture; what is learned from it is `targets`
    names       the name of each box's class
    views       how it looked: `frame`, `frame+hflip`
    is_reused   the cloud had given this answer already
    """

    case_id: str
    detections: Detections
    names: tuple[str, ...]
    judgement: Judgement
    views: str
    is_reused: bool
    labelled_at: datetime

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.detections) == len(self.judgement.weights):
            raise Malformed(
                f"teacher label: expected a name and a weight for each of {len(self.detections)} boxes, "
                f"got {len(self.names)} and {len(self.judgement.weights)}"
            )

    @property
    def teacher(self) -> ModelRef:
        return self.detections.model

    @property
    def agreement(self) -> float:
        """0..1, the best of any other tier; 0 where nobody else looked"""
        return self.judgement.agreement

    @property
    def verdict(self) -> Verdict:
        return self.judgement.verdict

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        return self.judgement.doubts

    @property
    def weights(self) -> FloatArray:
        """f32[N], 0 for a box that is not learned from"""
        return self.judgement.weights

    @property
    def ignore_xyxy(self) -> FloatArray:
        """f32[M, 4]"""
        return self.judgement.ignore_xyxy

    def targets(self) -> Targets:
        """What a student may learn from it."""
        kept = self.weights > 0
        seen = self.detections
        return Targets(
            seen.boxes_xyxy[kept], seen.class_ids[kept], self.weights[kept], self.ignore_xyxy, self.teacher
        )

    def drawn(self) -> DrawnBoxes:
        """The boxes that are believed, for a person to correct."""
        return self._drawn(self.weights > 0)

    def suggested(self, least_score: float) -> DrawnBoxes:
        """Those that are not, down to a score, for a person to take or leave."""
        return self._drawn((self.weights == 0) & (self.detections.scores >= least_score))

    def _drawn(self, kept: np.ndarray) -> DrawnBoxes:
        seen = self.detections
        sides = seen.boxes_xyxy[:, 2:] - seen.boxes_xyxy[:, :2]
        rows = np.flatnonzero(kept & (sides > 0).all(axis=1))
        labels = tuple(Label(int(seen.class_ids[row]), self.names[row]) for row in rows)
        return DrawnBoxes(seen.boxes_xyxy[rows], labels, np.zeros(len(rows), bool), seen.image_size)


@dataclass(frozen=True, slots=True, eq=False)
class PersonLabel:
    """What a person says about a case. `is_usable` False: nobody can tell what is in the picture. `came_by`: console,
    coco, label_studio, or another word for the way it came. Raises Malformed for a name of 0 or over 100 letters."""

    case_id: str
    drawn: DrawnBoxes
    said_by: str
    said_at: datetime
    came_by: str
    is_usable: bool = True

    def __post_init__(self) -> None:
        name = self.said_by.strip()
        if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
            raise Malformed(
                f"who labels: expected a name of 1 to {LONGEST_NAME} printable characters, "
                f"got {self.said_by!r:.120}"
            )
        if self.said_at.tzinfo is None:
            raise Malformed("person label said_at: expected a time with a zone (UTC), got one without")
        object.__setattr__(self, "said_by", name)

    def targets(self) -> Targets:
        """What a student may learn from it: every box in full, and what the person set aside not at all."""
        ignore = self.drawn.ignore
        return Targets(
            self.drawn.boxes_xyxy[~ignore],
            self.drawn.class_ids[~ignore],
            np.ones(int((~ignore).sum()), np.float32),
            self.drawn.boxes_xyxy[ignore],
            None,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """What a student learns of one picture: boxes_xyxy f32[N, 4] px, class_ids i32[N], weights f32[N] in (0, 1],
    ignore_xyxy f32[M, 4] px. `teacher` is None where a person said so."""

    boxes_xyxy: FloatArray
    class_ids: IntArray
    weights: FloatArray
    ignore_xyxy: FloatArray
    teacher: ModelRef | None


def counting(person: PersonLabel | None, teacher: TeacherLabel | None) -> Targets | None:
    """What counts of a case: a person's word before any teacher's, and a teacher's where it is believed. None where
    there is nothing to be learned: the picture is of no use, the case is dropped, or a person has to be asked."""
    if person is not None:
        return person.targets() if person.is_usable else None
    if teacher is not None and teacher.verdict is Verdict.ACCEPT:
        return teacher.targets()
    return None
