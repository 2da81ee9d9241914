"""Whether a frame is still hard after the edge has looked: what it is unsure of, and what contradicts it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from fovea.core.arrays import ImageArray
from fovea.core.detections import TOLD_FROM, Detections, Inference, ModelRef
from fovea.core.errors import Malformed
from fovea.core.features import FeatureSettings, FrameFeatures, SceneFacts, contrast_of, frame_features
from fovea.core.gate import Gate, Opinion
from fovea.core.geometry import iou_matrix
from fovea.core.hard_case import TierAnswer
from fovea.core.labels import LabelSet
from fovea.core.learned_gate import LearnedGate
from fovea.core.routing import Reason
from fovea.serving.worker import Looked

_SAME_THING_IOU = 0.5
_GATES_KEPT = 3
"""Beside the newest: of models that could not be switched to, and of the one that looked before."""
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


class LookJudge(Protocol):
    """Judges a frame after this server has looked at it."""

    def judge(self, looked: Looked, below: Sequence[TierAnswer], pixels: ImageArray) -> Opinion:
        """What speaks for asking further up; `below` are the answers of other tiers to the same picture."""
        ...


class FittedSecondGate:
    """A gate that was fitted for the model of this server, on `second_features`."""

    def __init__(self, gate: LearnedGate) -> None:
        self._gate = gate
        self._features = FeatureSettings(class_weights=gate.class_weights)

    def judge(self, looked: Looked, below: Sequence[TierAnswer], pixels: ImageArray) -> Opinion:
        features = second_features(looked.inference, looked.labels, below, pixels, self._features)
        opinion = self._gate.judge(features)
        if not features.vanished_count:
            return opinion
        others = (each for each in opinion.reasons if each not in (Reason.SURE, Reason.VANISHED_TRACK))
        return replace(opinion, reasons=(*others, Reason.TIERS_DISAGREE))


class GateOfModel:
    """A LookJudge that judges each look by the gate of the model that looked: the last looks of a model may still be
    on their way when another one runs already."""

    def __init__(self, model: ModelRef, judge: LookJudge) -> None:
        self._judges = {model.sha256: judge}

    def add(self, model: ModelRef, judge: LookJudge) -> None:
        """Before the first look of this model."""
        others = {sha256: each for sha256, each in self._judges.items() if sha256 != model.sha256}
        kept = dict(list(others.items())[-_GATES_KEPT:])
        self._judges = {**kept, model.sha256: judge}

    def judge(self, looked: Looked, below: Sequence[TierAnswer], pixels: ImageArray) -> Opinion:
        return self._judges[looked.model.sha256].judge(looked, below, pixels)


def second_features(
    inference: Inference,
    labels: LabelSet,
    below: Sequence[TierAnswer],
    pixels: ImageArray,
    settings: FeatureSettings = FeatureSettings(),
) -> FrameFeatures:
    """The features of a frame on its own: nothing is known of motion or of the frame before. What a tier below was
    sure of and this one does not see is counted as vanished."""
    told = inference.detections.above(TOLD_FROM)
    vanished = contradictions(told, labels, below, settings.sure_from)
    scene = SceneFacts(vanished_count=vanished, contrast=contrast_of(pixels))
    return frame_features(inference.candidates, told, scene, settings=settings, weak=inference.detections)


class SecondGate:
    """A gate for single frames (see `fovea.core.gate`), with the contradictions of the tiers as one more doubt, that
    grows with their square root."""

    def __init__(self, gate: Gate, settings: SecondGateSettings = SecondGateSettings()) -> None:
        self._gate = gate
        self._settings = settings

    def judge(self, looked: Looked, below: Sequence[TierAnswer], pixels: ImageArray) -> Opinion:
        inference = looked.inference
        scene = SceneFacts(contrast=contrast_of(pixels))
        told = inference.detections.above(TOLD_FROM)
        opinion = self._gate.judge(
            frame_features(inference.candidates, told, scene, settings=self._settings.features)
        )
        found = contradictions(told, looked.labels, below, self._settings.features.sure_from)
        doubt = self._settings.contradictions * math.sqrt(found)
        if not doubt:
            return opinion
        p_ask = 1 - (1 - opinion.p_ask) * math.exp(-_DOUBT_OF_ONE * doubt)
        others = tuple(reason for reason in opinion.reasons if reason is not Reason.SURE)
        return Opinion(p_ask, opinion.expected_gain, (*others, Reason.TIERS_DISAGREE))


def contradictions(told: Detections, labels: LabelSet, below: Sequence[TierAnswer], sure_from: float) -> int:
    """How many boxes with a score of `sure_from` or more one tier below has, of classes that this server knows, that
    it tells nothing of the same class for in the same place. The most of any one tier: two that see the same thing
    are one contradiction."""
    return max((_unmatched(answer, told, labels, sure_from) for answer in below), default=0)


def _unmatched(answer: TierAnswer, told: Detections, labels: LabelSet, sure_from: float) -> int:
    theirs = answer.detections
    rows = np.flatnonzero((theirs.scores >= sure_from) & np.isin(theirs.class_ids, labels.ids))
    same = iou_matrix(theirs.boxes_xyxy[rows], told.boxes_xyxy) >= _SAME_THING_IOU
    same &= theirs.class_ids[rows][:, None] == told.class_ids[None, :]
    return int((~same.any(axis=1)).sum())
