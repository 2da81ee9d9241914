"""How far two looks at one frame agree: what the higher one has added, and whether two frames show the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fovea.core.agreement import agreement_f1, same_things
from fovea.core.arrays import FloatArray
from fovea.core.detections import TOLD_FROM, Detections
from fovea.core.frame import ImageSize
from fovea.core.hard_case import TierAnswer

_SAME_PLACE_IOU = 0.7
_STILL_SEEN_SHARE = 0.6
"""A box that was told may have lost so much of its score, down to this share, and still be the same box."""


def agreement(weak: TierAnswer, strong: TierAnswer, iou: float = 0.5, min_score: float = TOLD_FROM) -> float:
    """F1 of the boxes of two answers to one frame, 0 to 1: a pair overlaps by `iou` or more and is of one class, each
    box in one pair at most, best first. Nothing and nothing agree. Classes that `weak` cannot see are left out: it is
    blind to them, not wrong."""
    a, b = weak.detections.above(min_score), strong.detections.above(min_score)
    b = replace(b, boxes_xyxy=_scaled(b, a.image_size), image_size=a.image_size)
    return agreement_f1(a, b, iou, class_ids=weak.labels.ids)


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
    pairs = same_things(told.boxes_xyxy, told.class_ids, found.boxes_xyxy, found.class_ids, _SAME_PLACE_IOU)
    return len(pairs) == len(told)


def _scaled(seen: Detections, wanted: ImageSize) -> FloatArray:
    given = seen.image_size
    if given == wanted:
        return seen.boxes_xyxy
    x, y = wanted.width / given.width, wanted.height / given.height
    scaled: FloatArray = (seen.boxes_xyxy * np.array([x, y, x, y])).astype(np.float32)
    return scaled
