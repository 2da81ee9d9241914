"""Which tier looks: weighed by quality of experience, with what the machine has left; and what is possible now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.case_keeping import CaseKeeping
from edge_agent.escalation import Ended, Errand, Escalation
from edge_agent.foresight import Foresight
from edge_agent.idle import Pace
from edge_agent.idling import Idling
from edge_agent.observing import ErrandEnding
from edge_agent.prospects import Prospects, ProspectSettings
from edge_agent.purse import Purse
from edge_agent.tier_choice import QoeSettings, Room, TierChoice
from fovea.core.budget import Budget
from fovea.core.deciding import DecideSettings, decide
from fovea.core.detections import Detections
from fovea.core.errors import Malformed
from fovea.core.gate import Opinion
from fovea.core.hard_case import TierAnswer
from fovea.core.labels import LabelSet
from fovea.core.latency import EwmaPredictor
from fovea.core.price import AskPrice, PriceSettings
from fovea.core.qoe import Priorities, QoeWeights, RouteChoice
from fovea.core.routing import Reason, Route, RouteDecision, Tier
from fovea.process.resources import ResourceState
from tests.agent_fakes import FakeLink, FakeObserver, edge_answer, frame
from tests.fakes import FAKE_REF, FakeClock

PERSON, CAR = 0, 2
ALL_LATENCY = QoeWeights(1.0, 0.0, 0.0, 0.0)
ALL_QUALITY = QoeWeights(0.0, 1.0, 0.0, 0.0)
GIGABYTE = 1 << 30
WORTH = Opinion(0.9, 0.2, (Reason.EXPECTED_GAIN,))


def machine(free_share: float = 0.6, is_throttled: bool = False) -> ResourceState:
    available = round(free_share * GIGABYTE)
    return ResourceState(
        1.0, memory_total_bytes=GIGABYTE, memory_available_bytes=available, is_throttled=is_throttled
    )


def seen(*class_ids: int) -> Detections:
    boxes = np.tile(np.array([8, 8, 24, 24], np.float32), (len(class_ids), 1))
    scores = np.full(len(class_ids), 0.8, np.float32)
    size = frame(FakeClock()).size
    return Detections(boxes, scores, np.array(class_ids, np.int32), size, FAKE_REF)


class Scales:
    """A TierChoice with an edge that took 100 ms, and 4 ms to be asked."""

    def __init__(self, state: ResourceState | None = None, **settings: Any) -> None:
        self.state = state
        self.foresight = Foresight(EwmaPredictor())
        own = TierAnswer(Tier.AGENT, seen(), LabelSet.from_names(["person"]))
        errand = Errand(frame(FakeClock()), own, RouteDecision(Route.EDGE, (Reason.SURE,)), 1.5)
        self.foresight.ended(Ended(errand, None, ErrandEnding.LATE, 0.1, sent_bytes=20_000, encode_s=0.004))
        self.choice = TierChoice(QoeSettings(own_quality=0.3, **settings), self.foresight, lambda: self.state)

    def choose(
        self,
        gain: float | None = 0.2,
        expected_ms: Mapping[Route, float] | None = None,
        things: Detections | None = None,
        in_flight: int = 0,
        time_left_s: float = 1.4,
        camera: str = "front",
    ) -> RouteChoice | None:
        return self.choice.choose(
            frame(FakeClock(), camera=camera),
            seen() if things is None else things,
            Opinion(0.9, gain, (Reason.EXPECTED_GAIN,)),
            30.0,
            {Route.EDGE: 100.0} if expected_ms is None else expected_ms,
            in_flight,
            time_left_s,
        )

    def route(self, **facts: Any) -> Route:
        choice = self.choose(**facts)
        assert choice is not None
        return choice.route


def test_a_gain_that_nobody_has_to_wait_for_is_worth_asking_for() -> None:
    choice = Scales(machine()).choose()
    assert choice is not None
    assert (choice.route, choice.reasons) == (Route.EDGE, (Reason.EXPECTED_GAIN,))
    assert 0 < choice.qoe < 1


def test_without_an_estimate_of_the_gain_there_is_nothing_to_weigh() -> None:
    assert Scales().choose(gain=None) is None


def test_a_look_that_would_make_it_worse_is_not_asked_for() -> None:
    assert Scales().route(gain=-0.05) is Route.LOCAL


@given(st.floats(0, 1), st.floats(0, 5000), st.floats(0, 5000))
def test_the_later_an_answer_comes_the_less_it_is_worth(gain: float, one_ms: float, other_ms: float) -> None:
    soon, late = sorted((one_ms, other_ms))
    scales = Scales()
    first = scales.choose(gain=gain, expected_ms={Route.EDGE: soon}, time_left_s=60.0)
    second = scales.choose(gain=gain, expected_ms={Route.EDGE: late}, time_left_s=60.0)
    assert first is not None and second is not None
    assert first.qoe >= second.qoe


def test_of_an_edge_and_a_cloud_the_nearer_one_is_asked_when_both_see_the_same() -> None:
    assert Scales().route(expected_ms={Route.CLOUD: 300.0, Route.EDGE: 60.0}) is Route.EDGE
    assert Scales().route(expected_ms={Route.CLOUD: 60.0, Route.EDGE: 900.0}) is Route.CLOUD


def test_a_tier_that_would_answer_too_late_is_out_however_good_it_is() -> None:
    assert Scales(weights=ALL_QUALITY).route(gain=0.7, time_left_s=0.09) is Route.LOCAL


def test_who_holds_his_own_answer_back_feels_the_wait() -> None:
    slow = {Route.EDGE: 250.0}
    assert Scales(hold_s=None).route(gain=0.15, expected_ms=slow) is Route.EDGE
    assert Scales(hold_s=0.4).route(gain=0.15, expected_ms=slow) is Route.LOCAL
    assert Scales(hold_s=0.4, weights=ALL_QUALITY).route(gain=0.15, expected_ms=slow) is Route.EDGE


def test_a_machine_without_memory_left_asks_only_about_what_gains_much() -> None:
    assert Scales(machine(free_share=0.5)).route(gain=0.05) is Route.EDGE
    full = Scales(machine(free_share=0.04))
    assert full.route(gain=0.05) is Route.LOCAL
    assert full.route(gain=0.7, expected_ms={Route.EDGE: 1.0}) is Route.EDGE
    assert Scales(machine(free_share=0.04), weights=ALL_QUALITY).route(gain=0.05) is Route.EDGE


def test_questions_under_way_take_memory_too() -> None:
    tight = Scales(machine(free_share=0.0506))
    assert tight.route(gain=0.05, in_flight=0) is Route.EDGE
    assert tight.route(gain=0.05, in_flight=4) is Route.LOCAL


def test_a_machine_that_holds_itself_back_asks_less() -> None:
    small = 0.02
    assert Scales(machine()).route(gain=small) is Route.EDGE
    assert Scales(machine(is_throttled=True)).route(gain=small) is Route.LOCAL
    assert Scales(machine(is_throttled=True)).route(gain=0.2) is Route.EDGE


def test_each_new_look_at_the_machine_counts_and_none_is_ample() -> None:
    scales = Scales(None)
    assert scales.route(gain=0.05) is Route.EDGE
    scales.state = machine(free_share=0.0)
    assert scales.route(gain=0.05) is Route.LOCAL
    scales.state = ResourceState(2.0)
    assert scales.route(gain=0.05) is Route.EDGE


def test_room_is_what_is_free_beyond_what_others_need() -> None:
    assert Room.of(None) == Room.of(ResourceState(1.0)) == Room()
    room = Room.of(machine(free_share=0.15, is_throttled=True))
    assert room.is_held_back and room.share_of(0.05 * GIGABYTE) == pytest.approx(0.5)
    assert room.share_of(GIGABYTE) == 1.0 and Room.of(machine(0.01)).share_of(0) == 1.0


def test_weights_are_those_of_the_label_else_of_the_camera_else_of_all() -> None:
    settings = QoeSettings(
        by_camera={"gate": ALL_LATENCY},
        by_label={PERSON: ALL_QUALITY, CAR: ALL_LATENCY},
        priorities=Priorities(0.5, {}, {PERSON: 1.0, CAR: 0.2}),
    )
    assert settings.weights_of("front", frozenset()) == QoeWeights()
    assert settings.weights_of("gate", frozenset({7})) is ALL_LATENCY
    assert settings.weights_of("gate", frozenset({CAR, PERSON})) is ALL_QUALITY


def test_priority_of_camera_and_label_makes_the_better_look_worth_more() -> None:
    priorities = Priorities(0.0, {"gate": 1.0}, {PERSON: 1.0})
    scales = Scales(priorities=priorities)
    usual, label, camera = (
        scales.choose(),
        scales.choose(things=seen(PERSON)),
        scales.choose(camera="gate"),
    )
    assert usual is not None and label is not None and camera is not None
    assert label.qoe == camera.qoe > usual.qoe


@pytest.mark.parametrize("quality", [-0.1, 1.1, float("nan")])
def test_a_quality_that_is_none_is_refused(quality: float) -> None:
    with pytest.raises(Malformed, match="own_quality"):
        QoeSettings(own_quality=quality)


# What is possible now


class Now:
    """Prospects of an agent with a fake edge; the own answer takes 30 ms."""

    def __init__(self, timeout_s: float = 1.5, has_choice: bool = True) -> None:
        self.clock = FakeClock()
        self.state: ResourceState | None = None
        self.link = FakeLink(edge_answer)
        self.escalation = Escalation(
            self.link, CaseKeeping(None, 90), 4, self.clock, lambda ended: None, FakeObserver()
        )
        self.scales = Scales()
        self.foresight = Foresight(EwmaPredictor())
        self.prospects = Prospects(
            self.escalation,
            Purse(Budget(1000.0), AskPrice(PriceSettings(start=1e-6))),
            self.foresight,
            TierChoice(QoeSettings(own_quality=0.3), self.foresight, lambda: self.state)
            if has_choice
            else None,
            ProspectSettings(timeout_s),
            self.clock.monotonic_s,
        )

    def heard_after(self, took_s: float) -> None:
        own = TierAnswer(Tier.AGENT, seen(), LabelSet.from_names(["person"]))
        asked_mono_s = self.clock.monotonic_s()
        self.clock.advance(took_s)
        decision = RouteDecision(Route.EDGE, (Reason.EXPECTED_GAIN,))
        errand = Errand(frame(self.clock), own, decision, asked_mono_s + 9, asked_mono_s)
        self.foresight.ended(Ended(errand, None, ErrandEnding.LATE, self.clock.monotonic_s(), 20_000))

    def decided(self, opinion: Opinion = WORTH, idling: Idling | None = None) -> RouteDecision:
        looked_at = frame(self.clock)
        self.clock.advance(0.03)
        situation = self.prospects.of(looked_at, idling, opinion, seen())
        return decide(opinion, 0.999, DecideSettings(), situation)


def test_a_frame_worth_asking_is_asked_and_says_how_good_that_is() -> None:
    decision = Now().decided()
    assert decision.route is Route.EDGE and decision.reasons == (Reason.EXPECTED_GAIN,)
    assert decision.qoe is not None and 0 < decision.qoe < 1


def test_a_frame_that_is_sure_is_neither_foretold_nor_weighed() -> None:
    decision = Now().decided(Opinion(0.1, 0.01, (Reason.EXPECTED_GAIN,)))
    assert (decision.route, decision.reasons, decision.qoe) == (Route.LOCAL, (Reason.SURE,), None)


def test_an_answer_that_is_foretold_to_come_too_late_is_not_asked_for() -> None:
    now = Now(timeout_s=0.5)
    now.heard_after(0.6)
    decision = now.decided()
    assert decision.route is Route.LOCAL and decision.reasons[-1] is Reason.NO_TIME
    now.clock.advance(6.0)
    assert now.decided().route is Route.EDGE, "after a while one question has to try"


def test_a_question_that_costs_more_than_it_brings_is_not_asked() -> None:
    now = Now()
    now.state = machine(free_share=0.0)
    decision = now.decided()
    assert decision.route is Route.LOCAL and decision.qoe is not None
    assert decision.reasons == (Reason.EXPECTED_GAIN, Reason.COSTS_MORE)


def test_without_scales_the_gate_alone_decides() -> None:
    now = Now(has_choice=False)
    now.state = machine(free_share=0.0)
    decision = now.decided()
    assert (decision.route, decision.qoe) == (Route.EDGE, None)


def test_an_edge_that_is_full_is_busy_and_not_lost() -> None:
    now = Now()
    now.link.may_ask, now.link.is_busy = False, True
    assert now.decided().reasons[-1] is Reason.UPPER_BUSY
    now.link.is_busy = False
    assert now.decided().reasons[-1] is Reason.LINK_DOWN


def test_nobody_is_asked_about_what_the_idle_model_saw() -> None:
    class Saving:
        pace = Pace(2, 1.0, 1)

    decision = Now().decided(idling=Saving())  # type: ignore[arg-type]
    assert decision.route is Route.LOCAL and decision.reasons[-1] is Reason.COSTS_MORE
