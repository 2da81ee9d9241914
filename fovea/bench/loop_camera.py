"""The chain below the loop, in one process: the camera's gate chooses what to send, the edge answers, the cloud where
the edge's gate asks it. What is sent becomes a case, as it does over the wire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from cloud.learn.looked_at import features_of, gate_of, is_asked
from edge_server.second_gate import second_features
from fovea.bench.loop_street import CameraFrame, Role
from fovea.core.arrays import ImageArray
from fovea.core.detections import TOLD_FROM, Inference
from fovea.core.features import FeatureSettings
from fovea.core.gate import Gate, Opinion
from fovea.core.hard_case import HardCase, TierAnswer
from fovea.core.learned_gate import LearnedGate
from fovea.core.routing import Reason, Tier
from fovea.runtime.bundle import Bundle
from fovea.runtime.images import decode_image
from fovea.runtime.onnx_detector import OnnxDetector

AUDIT_SHARE = 0.015


@dataclass(slots=True, eq=False)
class Tiers:
    """The models of the three tiers, open."""

    bundles: dict[Tier, Bundle]
    detectors: dict[Tier, OnnxDetector] = field(default_factory=dict)

    def __enter__(self) -> Tiers:
        self.detectors = {tier: OnnxDetector.open(bundle, "cpu") for tier, bundle in self.bundles.items()}
        return self

    def __exit__(self, *_: object) -> None:
        for detector in self.detectors.values():
            detector.close()

    def look(self, tier: Tier, pixels: ImageArray) -> Inference:
        [inference] = self.detectors[tier].detect([pixels])
        return inference

    def answer(self, tier: Tier, inference: Inference) -> TierAnswer:
        return TierAnswer(tier, inference.detections, self.detectors[tier].labels)


@dataclass(slots=True)
class SentCounts:
    """How many frames the camera saw, and asked about; audits are counted apart."""

    seen: int = 0
    asked: int = 0

    @property
    def asked_share(self) -> float:
        return self.asked / self.seen if self.seen else 0.0


def sent_cases(tiers: Tiers, frames: Iterable[CameraFrame], counts: SentCounts) -> Iterator[HardCase]:
    """What the camera sends of these frames, with what each tier that looked saw alone. Frames of audits are always
    sent, with the probability of one."""
    gate = gate_of(tiers.bundles[Tier.AGENT])
    for frame in frames:
        pixels = decode_image(frame.jpeg)
        own = tiers.look(Tier.AGENT, pixels)
        opinion = _opinion(gate, own, pixels)
        is_audit = frame.frame_id.boot_id.startswith(Role.AUDIT)
        counts.seen += not is_audit
        asked = is_asked(opinion, gate, len(frame.jpeg))
        if not (is_audit or asked):
            continue
        counts.asked += not is_audit
        reasons = (Reason.AUDIT, *opinion.reasons) if is_audit else opinion.reasons
        yield HardCase(
            frame.jpeg, frame.frame_id, frame.captured_at, tuple(_answers(tiers, own, pixels, is_audit)),
            tuple(str(reason) for reason in reasons), AUDIT_SHARE if is_audit else 1.0,
        )  # fmt: skip


def _answers(tiers: Tiers, own: Inference, pixels: ImageArray, is_audit: bool) -> Iterator[TierAnswer]:
    below = tiers.answer(Tier.AGENT, own)
    yield below
    edge = tiers.look(Tier.EDGE, pixels)
    yield tiers.answer(Tier.EDGE, edge)
    gate = gate_of(tiers.bundles[Tier.EDGE])
    weights = gate.class_weights if isinstance(gate, LearnedGate) else None
    labels = tiers.detectors[Tier.EDGE].labels
    features = second_features(edge, labels, [below], pixels, FeatureSettings(class_weights=weights or None))
    if not is_audit and is_asked(gate.judge(features), gate, 1):
        yield tiers.answer(Tier.CLOUD, tiers.look(Tier.CLOUD, pixels))


def _opinion(gate: Gate, own: Inference, pixels: ImageArray) -> Opinion:
    weights = gate.class_weights if isinstance(gate, LearnedGate) else None
    told = own.detections.above(TOLD_FROM)
    settings = FeatureSettings(class_weights=weights or None)
    return gate.judge(features_of(own.candidates, told, own.detections, pixels, settings))
