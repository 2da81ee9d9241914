"""How far the teacher is believed about a frame: accept it, drop it, or ask a person. Values in, verdict out.

The teacher's scores are calibrated, so a box's score is the probability that it is right. Other tiers are witnesses:
one that saw the same thing makes it likelier, one that saw another class there makes it less likely, and one that
saw nothing there says little, as what weaker tiers miss is just what hard cases are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fovea.core.agreement import same_things
from fovea.core.arrays import FloatArray, frozen_boxes, frozen_unit
from fovea.core.detections import Detections
from fovea.core.errors import Malformed
from fovea.core.geometry import iou_matrix


class Verdict(StrEnum):
    """accept: learn from it as it is. drop: nothing to be learned. ask: a person has to look."""

    ACCEPT = "accept"
    DROP = "drop"
    ASK = "ask"


class Doubt(StrEnum):
    """Why a verdict is what it is; counted as they are."""

    NONE = "no_doubt"
    """all that counts is sure"""
    NOTHING_THERE = "nothing_there"
    """nobody saw anything worth a box: an example of an empty frame"""
    CONTRADICTED = "contradicted"
    """others are sure of what the teacher did not see"""
    CLASSES_DIFFER = "classes_differ"
    """others are sure that it is something else"""
    MOSTLY_DOUBTFUL = "mostly_doubtful"
    """more of what may be there is doubtful than sure"""
    LITTLE_AGREEMENT = "little_agreement"
    """the teacher is not very sure, and nobody says the same"""
    NOTHING_SURE = "nothing_sure"
    """a little that may be there, and nothing that is"""


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """Thresholds of the judgement; all but `ask_mass` and `drop_mass` are shares or probabilities, 0 to 1.

    iou           boxes that overlap by this much or more may be the same thing
    ignore_from   from this probability on a box of the teacher is not background: half of such places on the
                  street hold something
    truth_from    from this probability on a box of the teacher is learned from, weighted by it
    support       how much a witness of the same class closes of the gap to certainty, times its score
    conflict      how much a witness of another class takes from a box, times its score
    miss          the probability, times its score, that a witness alone is right against a silent teacher
    unseen_from   from this probability on a place where the teacher saw nothing is not background. On the street a
                  camera's model is right there one time in five, however sure it is: it takes two witnesses
    ask_from      from this probability on such a place is a person's business
    ask_share     share of all that may be there that others contradict so, from which on it is worth asking
    ask_doubt     doubtful share of all that may be there, from which on the frame is mostly doubtful
    ask_mass      expected number of doubtful objects that is worth a person's time
    drop_mass     expected number of them from which on a frame with nothing sure is dropped; below it counts as
                  empty but for the doubtful places
    sure_from     mean probability of the learned boxes from which on the teacher needs no agreement
    agreed_from   agreement that it needs below that
    """

    iou: float = 0.5
    ignore_from: float = 0.15
    truth_from: float = 0.5
    support: float = 0.5
    conflict: float = 0.5
    miss: float = 0.3
    unseen_from: float = 0.35
    ask_from: float = 0.4
    ask_share: float = 0.1
    ask_doubt: float = 0.5
    ask_mass: float = 0.8
    drop_mass: float = 0.3
    sure_from: float = 0.7
    agreed_from: float = 0.2

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            most = np.inf if field.name.endswith("_mass") else 1.0
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
                raise Malformed(f"judge {field.name}: expected 0 to {most:g}, got {value!r:.40}")
        if not 0 < self.ignore_from <= self.truth_from:
            raise Malformed(
                "judge ignore_from: expected more than 0 and at most truth_from "
                f"({self.truth_from}), got {self.ignore_from}"
            )
        if not self.iou:
            raise Malformed("judge iou: expected more than 0, got 0")


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """What follows for a frame of which the teacher saw N boxes.

    agreement   0..1: the best agreement of any witness with the teacher; 0 where nobody else looked
    witnesses   how many others looked
    weights     f32[N]: how much is learned from each box, the probability that it is right; 0: nothing
    ignore_xyxy f32[M, 4] px of the teacher's frame: places that are neither object nor background
    doubts      at least one, the weightiest first
    """

    verdict: Verdict
    doubts: tuple[Doubt, ...]
    agreement: float
    witnesses: int
    weights: FloatArray
    ignore_xyxy: FloatArray

    def __post_init__(self) -> None:
        if not self.doubts:
            raise Malformed("judgement doubts: expected at least one, got none")
        object.__setattr__(
            self, "weights", frozen_unit("judgement weights", self.weights, (len(self.weights),))
        )
        object.__setattr__(self, "ignore_xyxy", frozen_boxes("judgement ignore_xyxy", self.ignore_xyxy))


def judge(
    teacher: Detections, witnesses: Sequence[Detections], settings: JudgeSettings = JudgeSettings()
) -> Judgement:
    """Judges what the teacher saw by what others saw in the same frame, all in px of the same size.

    Raises Malformed where the sizes differ.
    """
    for witness in witnesses:
        if witness.image_size != teacher.image_size:
            raise Malformed(
                f"judge: expected all boxes in px of {teacher.image_size}, got {witness.image_size}"
            )
    likely, differs = _likely(teacher, witnesses, settings)
    unseen_xyxy, unseen = _unseen(teacher, witnesses, settings)
    truth = likely >= settings.truth_from
    # What lies on something that is learned is its weak double, and no place to be set aside.
    sure = teacher.boxes_xyxy[truth]
    doubtful = ~truth & (likely >= settings.ignore_from) & _is_free(teacher.boxes_xyxy, sure, settings.iou)
    differs &= truth | doubtful
    agreement = max((agreement_of(teacher, witness, settings.iou) for witness in witnesses), default=0.0)
    masses = _Masses(
        sure=float(likely[truth].sum()),
        doubtful=float(likely[doubtful].sum() + unseen.sum()),
        contradicted=float(unseen[unseen >= settings.ask_from].sum()),
        differing=float(likely[differs].sum()),
    )
    needs_agreement = bool(truth.any()) and float(likely[truth].mean()) < settings.sure_from
    doubts = _doubts(masses, needs_agreement and agreement < settings.agreed_from, settings)
    return Judgement(
        verdict=_verdict(doubts),
        doubts=doubts,
        agreement=agreement,
        witnesses=len(witnesses),
        weights=np.where(truth, likely, 0).astype(np.float32),
        ignore_xyxy=np.concatenate([teacher.boxes_xyxy[doubtful], unseen_xyxy]),
    )


def agreement_of(a: Detections, b: Detections, iou: float = 0.5) -> float:
    """0..1: twice what both saw over what each saw, boxes counting by their calibrated scores (a soft F1); classes
    have to match. 1 where both saw nothing."""
    total = float(a.scores.sum() + b.scores.sum())
    if not total:
        return 1.0
    pairs = _pairs(a, b, iou)
    return float(sum(a.scores[row] + b.scores[column] for row, column in pairs) / total)


def _pairs(a: Detections, b: Detections, iou: float) -> list[tuple[int, int]]:
    return same_things(a.boxes_xyxy, a.class_ids, b.boxes_xyxy, b.class_ids, iou)


def _likely(
    teacher: Detections, witnesses: Sequence[Detections], settings: JudgeSettings
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """f32[N]: the probability that each box is right; bool[N]: whether others saw another class there, so surely
    that it would be doubtful."""
    likely = teacher.scores.astype(np.float64)
    supported, opposed = np.zeros(len(likely)), np.zeros(len(likely))
    for witness in witnesses:
        support = _support(teacher, witness, settings.iou)
        overlap = iou_matrix(teacher.boxes_xyxy, witness.boxes_xyxy) >= settings.iou
        same = teacher.class_ids[:, None] == witness.class_ids[None, :]
        # Who is seen on a bicycle says nothing against the bicycle, where the teacher saw both.
        other = overlap & ~same & ~(overlap & same).any(axis=0)
        against = np.where(other, witness.scores[None, :], 0).max(axis=1, initial=0)
        supported = np.maximum(supported, support)
        opposed = np.maximum(opposed, np.maximum(against - support, 0))
    likely = likely + (1 - likely) * settings.support * supported
    likely = likely * (1 - settings.conflict * opposed)
    differs = (opposed >= settings.truth_from) & (likely >= settings.ignore_from)
    differs &= likely < settings.sure_from
    return likely.astype(np.float32), differs


def _support(teacher: Detections, witness: Detections, iou: float) -> NDArray[np.float64]:
    """f64[N]: the score of the witness's box that is the same thing, 0 where there is none. A box of the witness
    speaks for one of the teacher, the strongest that it overlaps: not for its weak doubles, too."""
    overlap = iou_matrix(teacher.boxes_xyxy, witness.boxes_xyxy)
    overlap[(teacher.class_ids[:, None] != witness.class_ids[None, :]) | (overlap < iou)] = 0
    support = np.zeros(len(teacher))
    for row in np.argsort(-teacher.scores, kind="stable"):
        if not overlap[row].any():
            continue
        column = int(overlap[row].argmax())
        support[row] = witness.scores[column]
        overlap[:, column] = 0
    return support


def _unseen(
    teacher: Detections, witnesses: Sequence[Detections], settings: JudgeSettings
) -> tuple[FloatArray, FloatArray]:
    """Places f32[M, 4] where witnesses saw something and the teacher nothing at all, with the probability f32[M]
    that they are right, `unseen_from` or more: the noisy-or of what each said."""
    seen = teacher.boxes_xyxy[teacher.scores >= settings.ignore_from]
    places: list[FloatArray] = []
    wrong: list[float] = []
    for witness in witnesses:
        free = _is_free(witness.boxes_xyxy, seen, settings.iou)
        known = len(places)
        for box, score in zip(witness.boxes_xyxy[free], witness.scores[free].tolist(), strict=True):
            # Only against places of earlier witnesses: two boxes of one witness are two things.
            overlap = iou_matrix(box[None], np.array(places[:known], np.float32).reshape(-1, 4))[0]
            at = int(overlap.argmax()) if overlap.size and overlap.max() >= settings.iou else None
            if at is None:
                places.append(box)
                wrong.append(1 - settings.miss * score)
            else:
                wrong[at] *= 1 - settings.miss * score
    likely = 1 - np.array(wrong, np.float32)
    kept = likely >= settings.unseen_from
    return np.array(places, np.float32).reshape(-1, 4)[kept], likely[kept]


def _is_free(boxes_xyxy: FloatArray, taken_xyxy: FloatArray, iou: float) -> NDArray[np.bool_]:
    """bool[N]: the boxes that overlap none of the others so much that they may be the same thing."""
    free: NDArray[np.bool_] = iou_matrix(boxes_xyxy, taken_xyxy).max(axis=1, initial=0) < iou
    return free


@dataclass(frozen=True, slots=True)
class _Masses:
    """Expected numbers of objects: learned from, doubtful, and of those that others contradict or call otherwise."""

    sure: float
    doubtful: float
    contradicted: float
    differing: float


def _doubts(masses: _Masses, agrees_too_little: bool, settings: JudgeSettings) -> tuple[Doubt, ...]:
    total = masses.sure + masses.doubtful
    doubts = []
    if masses.contradicted and masses.contradicted >= settings.ask_share * total:
        doubts.append(Doubt.CONTRADICTED)
    if masses.differing and masses.differing >= settings.ask_share * total:
        doubts.append(Doubt.CLASSES_DIFFER)
    if masses.doubtful and masses.doubtful >= max(settings.ask_doubt * total, settings.ask_mass):
        doubts.append(Doubt.MOSTLY_DOUBTFUL)
    if agrees_too_little:
        doubts.append(Doubt.LITTLE_AGREEMENT)
    if not doubts and not masses.sure:
        is_empty = masses.doubtful < settings.drop_mass or not masses.doubtful
        doubts.append(Doubt.NOTHING_THERE if is_empty else Doubt.NOTHING_SURE)
    return tuple(doubts) or (Doubt.NONE,)


def _verdict(doubts: Sequence[Doubt]) -> Verdict:
    if doubts[0] in (Doubt.NONE, Doubt.NOTHING_THERE):
        return Verdict.ACCEPT
    return Verdict.DROP if doubts[0] is Doubt.NOTHING_SURE else Verdict.ASK


def settings_as_json(settings: JudgeSettings) -> dict[str, Any]:
    """The thresholds by name, to be kept with what was judged by them."""
    return {field.name: getattr(settings, field.name) for field in fields(settings)}
