"""What happens to a frame of one camera: motion, look, tracks, features, opinion, decision. No thread, no network."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from edge_agent.track.tracker import Tracker
from edge_agent.track.tracking import Tracking
from fovea.core.arrays import frozen_boxes
from fovea.core.deciding import STILL, DecideSettings, Situation, decide
from fovea.core.detections import TOLD_FROM, Detections
from fovea.core.features import FeatureSettings, FrameFeatures, SceneFacts, contrast_of, frame_features
from fovea.core.frame import Frame
from fovea.core.gate import Gate, Opinion
from fovea.core.hard_case import TierAnswer
from fovea.core.ports import Clock, Detector
from fovea.core.result import FrameResult
from fovea.core.routing import Reason, Route, RouteDecision, Tier

if TYPE_CHECKING:
    from edge_agent.capture.motion import Motion
    from fovea.core.arrays import FloatArray, ImageArray
    from fovea.core.detections import Inference

EDGE_LOST = "edge_lost"
"""Why an answer is degraded: asking was meant, and nobody could be asked."""
EDGE_BUSY = "edge_busy"
"""Why an answer is degraded: asking was meant, and who was to be asked is there and has no room."""

Weighing = Callable[[Opinion, Detections], Situation]
"""What is possible for a frame of which the gate has that opinion, and in which that was told."""

_NOWHERE = frozen_boxes("motion", np.empty((0, 4), np.float32))

GATE_OFF = RouteDecision(Route.LOCAL, (Reason.SWITCHED_OFF,))
"""The decision about a frame while asking is switched off."""


class MotionSense(Protocol):
    """Says whether anything moves; `edge_agent.capture.motion.MotionGate` is one."""

    def look(self, pixels: ImageArray, at_mono_s: float) -> Motion: ...


@dataclass(frozen=True, slots=True)
class Judging:
    """How frames are judged; the same for all cameras."""

    gate: Gate
    decide: DecideSettings
    features: FeatureSettings = field(default_factory=FeatureSettings)
    tell_from: float = TOLD_FROM
    """the score from which on a box is told, followed and judged; weaker ones only go up with a question"""
    is_edge_meant: bool = True
    """False where nobody is there to be asked by configuration: an answer alone is all that was meant then"""
    decide_now: Callable[[], DecideSettings] | None = None
    """in place of `decide` where two policies take turns"""


@dataclass(frozen=True, slots=True, eq=False)
class Walked:
    """One frame and all that came of it. `own` is all that this camera's model alone said, the weak boxes too (of a
    frame that was skipped: what is carried on); the decide times are None where there was nothing to decide.
    `motion_xyxy` f32[M, 4] px: where something moves."""

    frame: Frame
    result: FrameResult
    tracking: Tracking
    own: TierAnswer
    decide_cpu_s: float | None = None
    decide_wall_s: float | None = None
    motion_xyxy: FloatArray = field(default_factory=lambda: _NOWHERE)

    @property
    def places_xyxy(self) -> FloatArray:
        """f32[M, 4] px: where things were lost from view just now, and where something moves."""
        lost = np.array([track.box_xyxy for track in self.tracking.vanished], np.float32).reshape(-1, 4)
        return np.concatenate([lost, self.motion_xyxy])


class FrameWalk:
    """The state of one camera between its frames. For one thread at a time.

    Raises what the detector raises; the state is then as it was before the frame, but for the sense of motion.
    """

    def __init__(
        self, detector: Detector, motion: MotionSense | None, tracker: Tracker, judging: Judging, clock: Clock
    ) -> None:
        self._detector = detector
        self._motion = motion
        self._tracker = tracker
        self._judging = judging
        self._clock = clock
        self._features: FrameFeatures | None = None
        self._tracking: Tracking | None = None

    def walk(self, frame: Frame, audit_draw: float, situation: Weighing | None) -> Walked:
        """`audit_draw` is uniform in 0..1; without a `situation` asking is switched off."""
        begun_s = self._clock.monotonic_s()
        stage_ms = {"wait": max(begun_s - frame.captured_mono_s, 0) * 1000}
        motion = None if self._motion is None else self._motion.look(frame.pixels, frame.captured_mono_s)
        seen_s = self._clock.monotonic_s()
        stage_ms["motion"] = (seen_s - begun_s) * 1000
        if motion is not None and not motion.wants_look:
            skipped = self._skipped(frame, stage_ms)
            if skipped is not None:
                return skipped
        [inference] = self._detector.detect([frame.pixels])
        looked_s = self._clock.monotonic_s()
        stage_ms["detect"] = (looked_s - seen_s) * 1000
        return self._judged(frame, inference, motion, stage_ms, looked_s, audit_draw, situation)

    def judge_by(self, judging: Judging) -> None:
        """From the next frame on. For the thread that walks."""
        self._judging = judging

    def carry(self, frame: Frame, late: Detections, tier: Tier) -> Tracking:
        """Takes in what `tier` says about an earlier frame; the tracks as they are now. The frame itself is never
        drawn on: later frames have been published since."""
        self._tracking = self._tracker.carry(late, frame.captured_mono_s, tier)
        return self._tracking

    def forget(self) -> None:
        """Ends every track, as after a pause of which nobody knows how long it was."""
        self._tracker.forget()
        self._tracking, self._features = None, None

    def _skipped(self, frame: Frame, stage_ms: dict[str, float]) -> Walked | None:
        """What was seen still holds: nothing moved. None when nothing has been looked at yet, or the picture has
        another size now."""
        before = self._tracking
        if before is None or before.image_size != frame.size:
            return None
        begun_s = self._clock.monotonic_s()
        tracking = self._tracker.still(frame.captured_mono_s)
        self._tracking = tracking
        detections = _standing(tracking).detections(self._detector.ref)
        stage_ms["track"] = (self._clock.monotonic_s() - begun_s) * 1000
        return Walked(
            frame,
            self._result(frame, detections, STILL, stage_ms),
            tracking,
            TierAnswer(Tier.AGENT, detections, self._detector.labels),
        )

    def _judged(
        self,
        frame: Frame,
        inference: Inference,
        motion: Motion | None,
        stage_ms: dict[str, float],
        looked_s: float,
        audit_draw: float,
        situation: Weighing | None,
    ) -> Walked:
        told = inference.detections.above(self._judging.tell_from)
        tracking = self._tracker.update(told, frame.captured_mono_s)
        self._tracking = tracking
        tracked_s, cpu_s = self._clock.monotonic_s(), time.thread_time()
        stage_ms["track"] = (tracked_s - looked_s) * 1000
        decision = GATE_OFF
        if situation is not None:
            self._features = frame_features(
                inference.candidates,
                told,
                _scene(frame, tracking, motion),
                self._features,
                self._judging.features,
                inference.detections,
            )
            opinion, own = self._judging.gate.judge(self._features), self._judging
            decides = own.decide if own.decide_now is None else own.decide_now()
            decision = decide(opinion, audit_draw, decides, situation(opinion, told))
        decide_cpu_s = time.thread_time() - cpu_s
        decide_s = self._clock.monotonic_s() - tracked_s
        stage_ms["decide"] = decide_s * 1000
        return Walked(
            frame,
            self._result(frame, told, decision, stage_ms),
            tracking,
            TierAnswer(Tier.AGENT, inference.detections, self._detector.labels),
            decide_cpu_s,
            decide_s,
            _NOWHERE if motion is None else motion.boxes_xyxy,
        )

    def _result(
        self, frame: Frame, detections: Detections, decision: RouteDecision, stage_ms: dict[str, float]
    ) -> FrameResult:
        return FrameResult(
            frame_id=frame.id,
            revision=Tier.AGENT.value,
            detections=detections,
            answered_by=Tier.AGENT,
            decision=decision,
            captured_at=frame.captured_at,
            captured_mono_s=frame.captured_mono_s,
            stage_ms=stage_ms,
            degraded=_missed(decision) if self._judging.is_edge_meant else None,
        )


def _missed(decision: RouteDecision) -> str | None:
    if Reason.LINK_DOWN in decision.reasons:
        return EDGE_LOST
    return EDGE_BUSY if Reason.UPPER_BUSY in decision.reasons else None


def _standing(tracking: Tracking) -> Tracking:
    """What is still there when nothing has moved since: the tracks that were seen, not those that were guessed."""
    seen = (track for track in tracking.tracks if track.seen_mono_s >= tracking.at_mono_s)
    return replace(tracking, tracks=tuple(seen), vanished=(), ended=())


def _scene(frame: Frame, tracking: Tracking, motion: Motion | None) -> SceneFacts:
    contrast = contrast_of(frame.pixels)
    if motion is None:
        return SceneFacts(len(tracking.vanished), contrast=contrast)
    return SceneFacts(len(tracking.vanished), motion.boxes_xyxy, contrast)
