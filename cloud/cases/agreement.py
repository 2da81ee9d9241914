"""How far two looks at one frame agree: what the higher one has added, and whether two frames show the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fovea.core.arrays import FloatArray
from fovea.core.detections import TOLD_FROM, Detections
from fovea.core.frame import ImageSize
from fovea.core.geometry import iou_matrix
from fovea.core.hard_case import TierAnswer

_SAME_PLACE_IOU = 0.7
_STILL_SEEN_SHARE = 0.6
"""A box that was told may have lost so much of its score, down to this share, and still be the same box."""


def agreement(weak: TierAnswer, strong: TierAnswer, iou: float = 0.5, min_score: float = TOLD_FROM) -> float:
    """F1 of the boxes of two answers to one frame, 0 to 1: a pair overlaps by `iou` or more and is of one class, each
    box in one pair at most, best first. Nothing and nothing agree. Classes that `weak` cannot see are left out: it is
    blind to them, not wrong."""
    known = np.array(weak.labels.ids)
    a, b = weak.detections.above(min_score), strong.detections.above(min_score)
    theirs = np.isin(b.class_ids, known)
    boxes, classes = _scaled(b, a.image_size)[theirs], b.class_ids[theirs]
    if not len(a) and not len(boxes):
        return 1.0
    pairs = (iou_matrix(a.boxes_xyxy, boxes) >= iou) & (a.class_ids[:, None] == classes[None, :])
    return 2 * _matched(pairs) / (len(a) + len(boxes))


def measured_gain(answers: Sequence[TierAnswer]) -> float | None:
    """What the highest look added to the lowest: 1 minus their agreement. None where fewer than two looked."""
    if len(answers) < 2:
        return None
    ordered = sorted(answers, key=lambda answer: answer.tier)
    return 1.0 - agreement(ordered[0], ordered[-1])


def is_covered(answers: Sequence[TierAnswer], by: Sequence[TierAnswer]) -> bool:
    """True when each of `answers` (to one frame) says the same as an answer of the same tier and model in `by` (to
    another frame): every box that is told has its counterpart in the same place. Without an answer nothing is known,
    so nothing is covered."""
    others = {answer.tier: answer for answer in by}
    return bool(answers) and all(
        answer.tier in others and _say_the_same(answer, others[answer.tier]) for answer in answers
    )


def _say_the_same(one: TierAnswer, other: TierAnswer) -> bool:
    a, b = one.detections, other.detections
    if a.model.sha256 != b.model.sha256 or a.image_size != b.image_size:
        return False
    return _all_found(a.above(TOLD_FROM), b) and _all_found(b.above(TOLD_FROM), a)


def _all_found(told: Detections, among: Detections) -> bool:
    """A box just below the threshold is a counterpart, too: one that flickers around it is no news."""
    found = among.above(TOLD_FROM * _STILL_SEEN_SHARE)
    pairs = iou_matrix(told.boxes_xyxy, found.boxes_xyxy) >= _SAME_PLACE_IOU
    pairs &= told.class_ids[:, None] == found.class_ids[None, :]
    return _matched(pairs) == len(told)


def _matched(pairs: np.ndarray) -> int:
    """How many rows find a column of their own, in order; bool[N, M]."""
    is_free, count = np.ones(pairs.shape[1], bool), 0
    for row in pairs:
        places = np.flatnonzero(row & is_free)
        if places.size:
            is_free[places[0]] = False
            count += 1
    return count


def _scaled(seen: Detections, wanted: ImageSize) -> FloatArray:
    given = seen.image_size
    if given == wanted:
        return seen.boxes_xyxy
    x, y = wanted.width / given.width, wanted.height / given.height
    scaled: FloatArray = (seen.boxes_xyxy * np.array([x, y, x, y])).astype(np.float32)
    return scaled
