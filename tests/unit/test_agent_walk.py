"""What happens to a frame of one camera, with a fake model, motion and gate; no thread."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edge_agent.frame_walk import EDGE_LOST, FrameWalk, Judging, Walked
from edge_agent.track.tracker import Tracker
from fovea.core.deciding import DecideSettings, Situation
from fovea.core.errors import DetectorFailed
from fovea.core.frame import Frame
from fovea.core.routing import Reason, Route, Tier
from tests.agent_fakes import CAN_ASK, EDGE_REF, NO_LINK, FakeGate, FakeMotion, frame
from tests.fakes import FakeClock, FakeDetector

NEVER_AUDITED = 1.0
AUDITED = 0.0


class Street:
    """One camera with its walk."""

    def __init__(
        self, p_ask: float = 1.0, is_edge_meant: bool = True, detector: FakeDetector | None = None
    ) -> None:
        self.clock = FakeClock()
        self.detector = detector or FakeDetector()
        self.motion = FakeMotion()
        self.gate = FakeGate(p_ask)
        judging = Judging(self.gate, DecideSettings(audit_share=0.1), is_edge_meant=is_edge_meant)
        self.walk = FrameWalk(self.detector, self.motion, Tracker(), judging, self.clock)
        self.sequence = 0

    def next_frame(self, after_s: float = 0.2) -> Frame:
        self.clock.advance(after_s)
        self.sequence += 1
        return frame(self.clock, self.sequence)

    def look(self, situation: Situation | None = CAN_ASK, draw: float = NEVER_AUDITED) -> Walked:
        return self.walk.walk(self.next_frame(), draw, None if situation is None else lambda *_: situation)


def test_a_frame_is_answered_by_the_camera_as_revision_0_with_reason_and_times() -> None:
    street = Street()
    seen = street.next_frame()
    street.clock.advance(0.03)
    walked = street.walk.walk(seen, NEVER_AUDITED, lambda *_: CAN_ASK)
    result = walked.result
    assert (result.frame_id, result.revision, result.answered_by) == (seen.id, 0, Tier.AGENT)
    assert (result.captured_at, result.captured_mono_s) == (seen.captured_at, seen.captured_mono_s)
    assert (result.decision.route, result.decision.reasons) == (Route.EDGE, (Reason.UNCERTAIN_BOXES,))
    assert result.degraded is None
    assert len(result.detections) == 1
    assert list(result.stage_ms) == ["wait", "motion", "detect", "track", "decide"]
    assert result.stage_ms["wait"] == pytest.approx(30)
    assert walked.own.detections is result.detections
    assert walked.decide_cpu_s is not None and walked.decide_cpu_s >= 0


def test_a_weak_box_goes_up_with_a_question_but_is_neither_told_nor_followed() -> None:
    strong, weak = ((10.0, 10.0, 60.0, 60.0), 0.8, 0), ((80.0, 20.0, 120.0, 60.0), 0.1, 1)
    walked = Street(detector=FakeDetector(look=lambda _: [strong, weak])).look()
    assert walked.own.detections.scores.tolist() == pytest.approx([0.8, 0.1])
    assert walked.result.detections.scores.tolist() == pytest.approx([0.8])
    assert len(walked.tracking.tracks) == 1


def test_a_sure_frame_stays_here() -> None:
    decision = Street(p_ask=0.0).look().result.decision
    assert (decision.route, decision.reasons) == (Route.LOCAL, (Reason.SURE,))


def test_a_frame_drawn_for_the_audit_is_asked_about_though_it_is_sure() -> None:
    decision = Street(p_ask=0.0).look(draw=AUDITED).result.decision
    assert decision.is_audit and decision.route is Route.EDGE
    assert decision.send_probability == pytest.approx(0.1)


def test_a_frame_worth_asking_while_nobody_is_there_says_that_it_is_degraded() -> None:
    result = Street().look(NO_LINK).result
    assert result.degraded == EDGE_LOST
    assert (result.decision.route, result.decision.reasons[-1]) == (Route.LOCAL, Reason.LINK_DOWN)


def test_a_sure_frame_is_not_degraded_by_a_lost_edge() -> None:
    assert Street(p_ask=0.0).look(NO_LINK).result.degraded is None


def test_where_no_edge_is_configured_an_answer_alone_is_all_that_was_meant() -> None:
    assert Street(is_edge_meant=False).look(NO_LINK).result.degraded is None


def test_with_asking_switched_off_nothing_is_judged_and_the_reason_says_so() -> None:
    street = Street()
    decision = street.look(None, draw=AUDITED).result.decision
    assert (decision.route, decision.reasons) == (Route.LOCAL, (Reason.SWITCHED_OFF,))
    assert street.gate.judged == []


def test_a_still_frame_costs_no_look_and_what_was_seen_is_carried_on() -> None:
    street = Street()
    for _ in range(3):
        looked = street.look()
    street.motion.is_moving = False
    looks = len(street.detector.batch_sizes)
    for _ in range(40):  # eight seconds: longer than any track survives unseen
        skipped = street.look(draw=AUDITED)
    assert len(street.detector.batch_sizes) == looks
    decision = skipped.result.decision
    assert (decision.route, decision.reasons) == (Route.SKIP, (Reason.STILL,))
    assert skipped.result.detections.boxes_xyxy == pytest.approx(looked.result.detections.boxes_xyxy, abs=1)
    assert [track.id for track in skipped.tracking.confirmed] == [
        track.id for track in looked.tracking.confirmed
    ]
    assert skipped.result.answered_by is Tier.AGENT and skipped.decide_cpu_s is None


def test_a_forced_look_is_a_look_though_nothing_moves() -> None:
    street = Street()
    street.look()
    street.motion.is_moving, street.motion.is_forced = False, True
    assert street.look().result.decision.route is Route.EDGE


def test_the_first_frame_is_looked_at_even_if_nothing_moves() -> None:
    street = Street()
    street.motion.is_moving = False
    assert street.look().result.decision.route is Route.EDGE


def test_a_still_frame_of_another_size_is_looked_at() -> None:
    street = Street()
    street.look()
    street.motion.is_moving = False
    other = street.next_frame()
    small = replace(other, pixels=other.pixels[:24, :32].copy())
    assert street.walk.walk(small, NEVER_AUDITED, lambda *_: CAN_ASK).result.decision.route is Route.EDGE


def test_a_broken_look_is_passed_on_and_the_next_frame_goes_on() -> None:
    street = Street()
    street.look()
    street.detector.fail_with = DetectorFailed("out of memory")
    with pytest.raises(DetectorFailed):
        street.look()
    street.detector.fail_with = None
    assert [track.is_confirmed for track in street.look().tracking.tracks] == [True]


def test_a_late_answer_is_carried_onto_the_tracks_in_view() -> None:
    street = Street()
    asked = street.look()
    street.look()
    late = FakeDetector(ref=EDGE_REF, look=lambda _: [((8, 8, 24, 24), 0.9, 0), ((40, 30, 60, 46), 0.8, 1)])
    [inference] = late.detect([asked.frame.pixels])
    tracking = street.walk.carry(asked.frame, inference.detections, Tier.EDGE)
    assert [track.tier for track in tracking.confirmed] == [Tier.AGENT, Tier.EDGE], "also what it missed"


def test_what_the_edge_saw_alone_stays_in_the_answers_of_still_frames() -> None:
    street = Street()
    asked = street.look()
    late = FakeDetector(ref=EDGE_REF, look=lambda _: [((8, 8, 24, 24), 0.9, 0), ((40, 30, 60, 46), 0.8, 1)])
    [inference] = late.detect([asked.frame.pixels])
    street.walk.carry(asked.frame, inference.detections, Tier.EDGE)
    street.motion.is_moving = False
    for _ in range(20):
        skipped = street.look()
    assert len(skipped.result.detections) == 2


def test_after_a_loss_nothing_is_followed_on() -> None:
    street = Street()
    for _ in range(3):
        before = street.look()
    street.walk.forget()
    after = street.look()
    assert {track.id for track in after.tracking.tracks}.isdisjoint(
        track.id for track in before.tracking.tracks
    )
