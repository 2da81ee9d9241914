"""Two policies at once: which one a frame is decided by, and what comes of each."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from edge_agent.escalation import Ended
from edge_agent.frame_walk import Walked
from edge_agent.purse import Purse
from fovea.core.ab import AbPlan, Arm, ArmFigures, BlockedMean, final_agreement
from fovea.core.agreement import agreement_f1
from fovea.core.deciding import DecideSettings
from fovea.core.frame import Frame
from fovea.core.gate import Opinion
from fovea.core.ports import Clock
from fovea.core.routing import Route


@dataclass(frozen=True, slots=True, eq=False)
class ArmParts:
    """What one policy decides with."""

    purse: Purse
    decide: DecideSettings


class ArmedPurse(Purse):
    """The purse of whose turn it is."""

    def __init__(self, first: Purse) -> None:
        self.turn = first

    def allows(self, opinion: Opinion, now_mono_s: float) -> bool:
        return self.turn.allows(opinion, now_mono_s)

    def can_pay(self, now_mono_s: float) -> bool:
        return self.turn.can_pay(now_mono_s)

    def spend_ask(self, now_mono_s: float) -> None:
        self.turn.spend_ask(now_mono_s)

    def spend_bytes(self, now_mono_s: float, size_bytes: int) -> None:
        self.turn.spend_bytes(now_mono_s, size_bytes)


@dataclass(slots=True)
class _Counts:
    frames: int = 0
    asked: int = 0
    audited: int = 0
    asked_share: BlockedMean = field(default_factory=BlockedMean)
    audits: BlockedMean = field(default_factory=BlockedMean)
    latency_ms: BlockedMean = field(default_factory=BlockedMean)
    sent_bytes: BlockedMean = field(default_factory=BlockedMean)


class AbTest:
    """Frames are told by the agent's thread, which begins each with `enter`; figures may be read from any. Policies
    differ in whom they ask and how much; what is told is the same on both sides, so that tracks do not flicker."""

    def __init__(self, plan: AbPlan, arms: Mapping[Arm, ArmParts], tell_from: float, clock: Clock) -> None:
        """`tell_from`: the score from which on a box is told."""
        self.plan = plan
        self.purse = ArmedPurse(arms[Arm.A].purse)
        self.decide = arms[Arm.A].decide
        self._tell_from = tell_from
        self._arms = dict(arms)
        self._clock = clock
        self._lock = threading.Lock()
        self._counts = {arm: _Counts() for arm in Arm}

    def arm_of(self, frame: Frame) -> Arm:
        return self.plan.arm_of(frame.id.camera, frame.id.sequence, frame.captured_at)

    def enter(self, frame: Frame) -> None:
        """From now on it is about this frame: `purse` and `decide` are those of its arm."""
        parts = self._arms[self.arm_of(frame)]
        self.purse.turn, self.decide = parts.purse, parts.decide

    def looked(self, walked: Walked) -> None:
        """A frame was looked at and decided about; one in which nothing moved does not count."""
        decision = walked.result.decision
        if decision.route is Route.SKIP:
            return
        now_s = self._clock.monotonic_s()
        is_asked = decision.is_asked and not decision.is_audit
        with self._lock:
            counts = self._counts[self.arm_of(walked.frame)]
            counts.frames += 1
            counts.asked += is_asked
            counts.asked_share.add(now_s, float(is_asked), 1.0)
            counts.sent_bytes.add(now_s, 0.0, 1.0)
            if not is_asked:
                counts.latency_ms.add(now_s, _since_ms(now_s, walked.frame), 1.0)

    def ended(self, ended: Ended) -> None:
        """A question ended, with an answer or without."""
        errand, answer, now_s = ended.errand, ended.answer, self._clock.monotonic_s()
        arm = self.arm_of(errand.frame)
        with self._lock:
            counts = self._counts[arm]
            if not errand.decision.is_audit:
                counts.sent_bytes.add(now_s, float(ended.sent_bytes))
                counts.latency_ms.add(now_s, _since_ms(now_s, errand.frame), 1.0)
            elif answer is not None:
                own = errand.own.detections.above(self._tell_from)
                upper = answer.detections.above(self._tell_from)
                counts.audited += 1
                counts.audits.add(now_s, agreement_f1(own, upper), 1.0)

    def figures(self) -> dict[str, ArmFigures]:
        """Of both arms, by "a" and "b"."""
        with self._lock:
            return {arm.value: self._figures(arm) for arm in Arm}

    def _figures(self, arm: Arm) -> ArmFigures:
        counts = self._counts[arm]
        asked_share = counts.asked_share.estimate()
        return ArmFigures(
            policy=self.plan.name_of(arm),
            frames=counts.frames,
            asked=counts.asked,
            audited=counts.audited,
            asked_share=asked_share,
            agreement=final_agreement(asked_share, counts.audits.estimate()),
            latency_ms=counts.latency_ms.estimate(),
            bytes_per_frame=counts.sent_bytes.estimate(),
        )


def _since_ms(now_s: float, frame: Frame) -> float:
    return max(now_s - frame.captured_mono_s, 0.0) * 1000
