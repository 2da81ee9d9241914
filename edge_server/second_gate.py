"""Whether a frame is still hard after the edge has looked: what it is unsure of, and what contradicts it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fovea.core.arrays import ImageArray
from fovea.core.detections import TOLD_FROM
from fovea.core.errors import Malformed
from fovea.core.features import FeatureSettings, SceneFacts, contrast_of, frame_features
from fovea.core.gate import Gate, Opinion
from fovea.core.geometry import iou_matrix
from fovea.core.hard_case import TierAnswer
from fovea.core.routing import Reason
from fovea.serving.worker import Looked

_SAME_THING_IOU = 0.5
_DOUBT_OF_ONE = -math.log(1 - 0.7)
"""As in `fovea.core.gate`: a doubt of 1 is a p_ask of 0.7."""


@dataclass(frozen=True, slots=True)
class SecondGateSettings:
    """contradictions: the doubt about one thing that a tier below was sure of and that the edge, which knows its
    class, did not see; 0 turns it off. features: which scores count as what."""

    contradictions: float = 0.1
    features: FeatureSettings = field(default_factory=FeatureSettings)

    def __post_init__(self) -> None:
        if not 0 <= self.contradictions < math.inf:
            raise Malformed(f"second gate contradictions: expected 0 or more, got {self.contradictions}")


class SecondGate:
    """A gate for single frames (see `fovea.core.gate`), with the contradictions of the tiers as one more doubt, that
    grows with their square root."""

    def __init__(self, gate: Gate, settings: SecondGateSettings = SecondGateSettings()) -> None:
        self._gate = gate
        self._settings = settings

    def judge(self, looked: Looked, below: Sequence[TierAnswer], pixels: ImageArray) -> Opinion:
        """What speaks for asking further up; `below` are the answers of other tiers to the same picture."""
        inference = looked.inference
        scene = SceneFacts(contrast=contrast_of(pixels))
        told = inference.detections.above(TOLD_FROM)
        opinion = self._gate.judge(
            frame_features(inference.candidates, told, scene, settings=self._settings.features)
        )
        found = contradictions(looked, below, self._settings.features.sure_from)
        doubt = self._settings.contradictions * math.sqrt(found)
        if not doubt:
            return opinion
        p_ask = 1 - (1 - opinion.p_ask) * math.exp(-_DOUBT_OF_ONE * doubt)
        others = tuple(reason for reason in opinion.reasons if reason is not Reason.SURE)
        return Opinion(p_ask, opinion.expected_gain, (*others, Reason.TIERS_DISAGREE))


def contradictions(looked: Looked, below: Sequence[TierAnswer], sure_from: float) -> int:
    """How many boxes with a score of `sure_from` or more one tier below has, of classes that this server knows, that
    it answers nothing of the same class for in the same place. The most of any one tier: two that see the same thing
    are one contradiction."""
    own = looked.inference.detections.above(TOLD_FROM)
    return max(
        (_unmatched(answer, own.boxes_xyxy, own.class_ids, looked, sure_from) for answer in below), default=0
    )


def _unmatched(
    answer: TierAnswer, boxes: np.ndarray, class_ids: np.ndarray, looked: Looked, sure_from: float
) -> int:
    theirs = answer.detections
    rows = np.flatnonzero((theirs.scores >= sure_from) & np.isin(theirs.class_ids, looked.labels.ids))
    same = iou_matrix(theirs.boxes_xyxy[rows], boxes) >= _SAME_THING_IOU
    same &= theirs.class_ids[rows][:, None] == class_ids[None, :]
    return int((~same.any(axis=1)).sum())
