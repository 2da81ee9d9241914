"""Published rules for what to send to a stronger model, as scores: the higher, the sooner a frame is asked.

Each looks only at what the weak model says about one frame, with calibrated scores. They are what our gate is
measured against; none of them is used at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fovea.core.arrays import FloatArray

_IBT_BOX_THRESHOLD = 0.5
_DCSB_LOW, _DCSB_HIGH = 0.15, 0.5
_DCSB_SMALL_SHARE = 0.003


@dataclass(frozen=True, slots=True, eq=False)
class WeakView:
    """What the weak model says about one frame: every box down to the lowest score, one class each.

    boxes_xyxy f32[N, 4] px, scores f32[N] calibrated; a box is answered from `answer_score` on; `frame_area_px2`.
    """

    boxes_xyxy: FloatArray
    scores: FloatArray
    answer_score: float
    frame_area_px2: float

    @property
    def answered(self) -> FloatArray:
        """Scores of the boxes that are answered."""
        return self.scores[self.scores >= self.answer_score]


Rule = Callable[[WeakView], float]


def threshold(view: WeakView) -> float:
    """Sedna's Threshold filter: a low mean score of the answered boxes is hard, and so is an empty answer."""
    return 1.0 - float(view.answered.mean()) if len(view.answered) else 1.0


def ibt(view: WeakView) -> float:
    """Sedna's image-box threshold: share of answered boxes with a score of 0.5 at most; empty is hard."""
    return float((view.answered <= _IBT_BOX_THRESHOLD).mean()) if len(view.answered) else 1.0


def cross_entropy(view: WeakView) -> float:
    """Sedna's CrossEntropy filter, of a box instead of an image: the mean binary entropy of the answered boxes."""
    return float(binary_entropy(view.answered).mean()) if len(view.answered) else 1.0


def entropy_sum(view: WeakView) -> float:
    """The sum of the binary entropies of all boxes: how many yes-or-no questions are open."""
    return float(binary_entropy(view.scores).sum())


def weak_mass(view: WeakView) -> float:
    """The sum of the scores that stay below the answer threshold: how many objects are likely left out."""
    return float(view.scores[view.scores < view.answer_score].sum())


def dcsb(view: WeakView) -> float:
    """In the manner of DCSB's discriminator (two thresholds): boxes that appear when the threshold is lowered, and
    small ones among them for more: what a small model tends to miss."""
    gained = (view.scores >= _DCSB_LOW) & (view.scores < _DCSB_HIGH)
    sides = view.boxes_xyxy[gained, 2:] - view.boxes_xyxy[gained, :2]
    small = np.prod(sides, axis=1) < _DCSB_SMALL_SHARE * view.frame_area_px2
    return float(gained.sum() + small.sum())


RULES: Mapping[str, Rule] = {
    "threshold": threshold,
    "ibt": ibt,
    "cross_entropy": cross_entropy,
    "dcsb": dcsb,
    "mass": weak_mass,
    "entropy": entropy_sum,
}


def binary_entropy(scores: FloatArray) -> FloatArray:
    """Entropy in bits of a yes or no with these probabilities, 0 to 1."""
    inside = np.clip(scores.astype(np.float64), 1e-9, 1 - 1e-9)
    bits: FloatArray = (-inside * np.log2(inside) - (1 - inside) * np.log2(1 - inside)).astype(np.float32)
    return bits
