"""Frames with their truth, as a model that would ship sees them: candidates, answers, and what its gate thinks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from calibration.predict import LabelledFrame
from calibration.truth import EvaluatedFrame, GroundTruth
from cloud.cases.stored_case import StoredCase
from cloud.labels.label import Targets
from cloud.learn.dataset import Labelled
from cloud.learn.golden_parts import GoldenCase
from fovea.core.answering import answer
from fovea.core.arrays import ImageArray
from fovea.core.deciding import DecideSettings
from fovea.core.detections import TOLD_FROM, Candidates, Detections
from fovea.core.features import FeatureSettings, FrameFeatures, SceneFacts, contrast_of, frame_features
from fovea.core.gate import Gate, Opinion, RuleGate
from fovea.core.learned_gate import LearnedGate, gate_from_json
from fovea.runtime.bundle import Bundle
from fovea.runtime.images import decode_image
from fovea.runtime.onnx_detector import OnnxDetector

FLOOR = 0.01
"""Calibrated score from which on a box is kept for merging and for AP."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownFrame:
    """An encoded picture with its truth; `group` names frames that resemble each other. `case` is where it comes
    from, with what the upper tiers answered."""

    group: str
    jpeg: bytes
    truth: GroundTruth
    case: StoredCase

    def labelled(self) -> LabelledFrame:
        """With its pixels."""
        return LabelledFrame(self.group, decode_image(self.jpeg), self.truth)


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What a model saw in a frame: `weak` is all that it answers from FLOOR on, `told` what people would be told."""

    frame: KnownFrame
    candidates: Candidates
    weak: Detections
    told: Detections
    features: FrameFeatures
    opinion: Opinion

    @property
    def evaluated(self) -> EvaluatedFrame:
        return EvaluatedFrame(self.frame.group, self.frame.truth, self.candidates)


def truth_of(labels: Labelled | Targets, class_ids: Sequence[int]) -> GroundTruth:
    """Labels as the truth of an evaluation: a place where nothing is known may hold any class, so it stands once for
    each."""
    boxes, ids = [labels.boxes_xyxy], [np.asarray(labels.class_ids, np.int32)]
    for class_id in class_ids:
        boxes.append(labels.ignore_xyxy)
        ids.append(np.full(len(labels.ignore_xyxy), class_id, np.int32))
    known = len(labels.boxes_xyxy)
    together = np.concatenate(ids)
    return GroundTruth(np.concatenate(boxes), together, np.arange(len(together)) >= known)


def truth_of_golden(golden: GoldenCase) -> GroundTruth:
    """What the person said, in full."""
    drawn = golden.label.drawn
    return GroundTruth(drawn.boxes_xyxy, drawn.class_ids, drawn.ignore)


def gate_of(bundle: Bundle) -> Gate:
    """The gate that would run with this model: its own, or the hand-set one where it carries none."""
    found = bundle.find_gate()
    return RuleGate() if found is None else gate_from_json(found)


def look(detector: OnnxDetector, bundle: Bundle, frames: Iterable[KnownFrame]) -> Iterator[Seen]:
    """What `detector`, which runs `bundle`, sees in each frame. The frames stand alone: neither tracks nor motion are
    known, which is so for every model that is compared."""
    gate, calibration = gate_of(bundle), bundle.calibration()
    weights = gate.class_weights if isinstance(gate, LearnedGate) else None
    settings = FeatureSettings(class_weights=weights or None)
    for frame in frames:
        pixels = decode_image(frame.jpeg)
        [inference] = detector.detect([pixels])
        told = inference.detections.above(TOLD_FROM)
        weak = answer(inference.candidates, calibration, FLOOR, bundle.ref).detections
        features = features_of(inference.candidates, told, weak, pixels, settings)
        yield Seen(frame, inference.candidates, weak, told, features, gate.judge(features))


def features_of(
    candidates: Candidates, told: Detections, weak: Detections, pixels: ImageArray, settings: FeatureSettings
) -> FrameFeatures:
    """The features of a frame that stands alone."""
    return frame_features(candidates, told, SceneFacts(contrast=contrast_of(pixels)), None, settings, weak)


def is_asked(opinion: Opinion, gate: Gate, jpeg_bytes: int) -> bool:
    """Whether the next tier would be asked about a frame, at the price with which the gate begins."""
    if opinion.p_ask < DecideSettings().ask_from:
        return False
    if not isinstance(gate, LearnedGate) or opinion.expected_gain is None:
        return True
    return opinion.expected_gain / gate.price.ask_bytes >= gate.price.gain_per_byte
