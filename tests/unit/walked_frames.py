"""Frames that were looked at, and questions about them that ended, for tests of what comes after."""

from __future__ import annotations

import numpy as np

from edge_agent.escalation import Ended, Errand
from edge_agent.frame_walk import Walked
from edge_agent.observing import ErrandEnding
from edge_agent.track.tracking import Tracking
from fovea.core.arrays import FloatArray
from fovea.core.detections import ModelRef
from fovea.core.hard_case import TierAnswer
from fovea.core.result import FrameResult
from fovea.core.routing import Reason, Route, RouteDecision, Tier
from protos.calls import DetectAnswer
from tests.agent_fakes import EDGE_REF, frame
from tests.builders import model_ref
from tests.fakes import FakeClock, FakeDetector, bright_parts

CHAMPION, CANDIDATE = model_ref("student", "1", "a"), model_ref("student", "2", "b")
ASKED = RouteDecision(Route.EDGE, (Reason.UNCERTAIN_BOXES,))
AUDITED = RouteDecision(Route.EDGE, (Reason.AUDIT, Reason.SURE), send_probability=0.1)
KEPT = RouteDecision(Route.LOCAL, (Reason.SURE,), send_probability=0.1)
SKIPPED = RouteDecision(Route.SKIP, (Reason.STILL,))


def walked(
    clock: FakeClock,
    sequence: int,
    decision: RouteDecision = KEPT,
    model: ModelRef = CHAMPION,
    sees: bool = True,
) -> Walked:
    """One bright thing is in it, which the model sees, or not."""
    taken = frame(clock, sequence)
    detector = FakeDetector(look=bright_parts if sees else lambda _: [], ref=model)
    [inference] = detector.detect([taken.pixels])
    seen = inference.detections
    result = FrameResult(
        frame_id=taken.id,
        revision=0,
        detections=seen,
        answered_by=Tier.AGENT,
        decision=decision,
        captured_at=taken.captured_at,
        captured_mono_s=taken.captured_mono_s,
        stage_ms={"detect": 10.0},
    )
    tracking = Tracking(taken.captured_mono_s, taken.size, (), (), ())
    return Walked(taken, result, tracking, TierAnswer(Tier.AGENT, seen, detector.labels))


def ended(
    looked: Walked, sees: bool = True, is_answered: bool = True, looked_xyxy: FloatArray | None = None
) -> Ended:
    """The edge saw the bright thing, or not; or did not answer."""
    errand = Errand(looked.frame, looked.own, looked.result.decision, np.inf)
    if not is_answered:
        return Ended(errand, None, ErrandEnding.LATE, 0.0)
    detector = FakeDetector(look=bright_parts if sees else lambda _: [], ref=EDGE_REF)
    [inference] = detector.detect([looked.frame.pixels])
    above = TierAnswer(Tier.EDGE, inference.detections, detector.labels, looked_xyxy)
    answer = DetectAnswer(
        inference.detections, EDGE_REF, detector.labels, revision=1, answers=(looked.own, above)
    )
    return Ended(errand, answer, ErrandEnding.ANSWERED, 0.0)
