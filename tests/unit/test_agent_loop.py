"""The agent's loop, turn by turn: fairness, publishing, asking, late answers, what breaks; the edge is a fake."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from edge_agent.agent import CLOUD_LOST, Agent, AgentParts, AgentSettings, Seat
from edge_agent.case_keeping import SAMPLE, CaseKeeping
from edge_agent.escalation import Escalation
from edge_agent.frame_walk import EDGE_BUSY, EDGE_LOST, FrameWalk, Judging
from edge_agent.inbox import Inbox
from edge_agent.observing import ErrandEnding
from edge_agent.outage import OutageTeller
from edge_agent.publish.label_names import LabelNames
from edge_agent.publish.publishing import EventKind, Feature
from edge_agent.publish.zones import ObjectWatch
from edge_agent.purse import RULES_PRICE, Purse
from edge_agent.track.tracker import Tracker
from fovea.core.budget import Budget
from fovea.core.deciding import DecideSettings
from fovea.core.errors import DeadlineExceeded, DetectorFailed, FoveaError, Overloaded, Unavailable
from fovea.core.price import AskPrice
from fovea.core.routing import Reason, Route, Tier
from protos.calls import DetectAnswer, DetectQuestion
from tests.agent_fakes import (
    FakeCamera,
    FakeGate,
    FakeLink,
    FakeMotion,
    FakeObserver,
    FakePublisher,
    FakeShelf,
    edge_answer,
    frame,
)
from tests.fakes import FakeClock, FakeDetector

LIVENESS_S = 20.0
PERIOD_S = 0.2


class Site:
    """An agent with fake cameras and a fake edge; frames go in and turns are taken by hand."""

    def __init__(
        self,
        cameras: Sequence[str] = ("front",),
        p_ask: float = 1.0,
        audit_share: float = 0.0,
        say: Callable[[DetectQuestion], DetectAnswer | FoveaError] = edge_answer,
        settings: AgentSettings = AgentSettings(),
        budget: Budget | None = None,
        max_in_flight: int = 4,
        has_edge: bool = True,
        draws: Sequence[float] = (),
    ) -> None:
        self.clock, self.detector, self.gate = FakeClock(), FakeDetector(), FakeGate(p_ask)
        self.inbox, self.observer, self.publisher = Inbox(), FakeObserver(), FakePublisher()
        self.shelf, self.names = FakeShelf(), LabelNames()
        self.keeping = CaseKeeping(self.shelf, jpeg_quality=90)
        self.link = FakeLink(say)
        self.escalation = Escalation(
            self.link, self.keeping, max_in_flight, self.clock, self.inbox.errand_ended, self.observer
        )
        judging = Judging(self.gate, DecideSettings(audit_share=audit_share), is_edge_meant=has_edge)
        self.motion = FakeMotion()
        self.cameras = {name: FakeCamera() for name in cameras}
        self.seats = {
            name: Seat(
                self.cameras[name],
                FrameWalk(self.detector, self.motion, Tracker(), judging, self.clock),
                ObjectWatch(name, "boot", self.names),
            )
            for name in cameras
        }
        waiting = list(draws)
        self.agent = Agent(
            self.seats,
            AgentParts(
                self.inbox,
                self.escalation if has_edge else None,
                self.keeping,
                Purse(budget or Budget(1000.0), AskPrice(RULES_PRICE)),
                self.publisher,
                self.observer,
                self.names,
                OutageTeller(),
            ),
            settings,
            self.clock,
            draw=lambda: waiting.pop(0) if waiting else 0.999,
        )
        self.sequence = 0
        self.keeping.start()
        self.escalation.start()

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.escalation.stop(LIVENESS_S)
        assert self.keeping.stop(LIVENESS_S)

    def frame(self, camera: str = "front", after_s: float = PERIOD_S) -> None:
        """One more frame of a camera lies ready."""
        self.clock.advance(after_s)
        self.sequence += 1
        self.cameras[camera].frames.append(frame(self.clock, self.sequence, camera))
        self.inbox.frame_ready(camera)

    def turn(self) -> None:
        """The agent does what there is to do, one frame at most."""
        work = self.inbox.take(0)
        assert work is not None
        self.agent.step(work)

    def frame_and_turn(self, camera: str = "front") -> None:
        self.frame(camera)
        self.turn()

    def answers_come(self) -> None:
        """Waits until no question is under way, then the agent takes in what came."""
        until(lambda: self.escalation.in_flight == 0)
        until(lambda: len(self.observer.errands) == len(self.link.asked))
        self.turn()

    def kept(self, number: int) -> list[tuple[str, ...]]:
        """The reasons of the cases on the shelf, when there are `number`."""
        until(lambda: self.keeping.counts["kept"] >= number)
        assert len(self.shelf.cases) == number
        return [case.reasons for case in self.shelf.cases]


def until(holds: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + LIVENESS_S
    while not holds():
        assert time.monotonic() < ends_s, "it never came to hold"
        time.sleep(0.002)


# Turns


def test_every_camera_has_its_turn_however_fast_one_of_them_is() -> None:
    with Site(["fast", "slow", "slower"], p_ask=0.0) as site:
        for name in ("fast", "slow", "slower"):
            site.frame(name)
        for _ in range(6):
            site.turn()
            site.frame("fast")
            site.frame("slow")
            site.frame("slower")
        order = [camera for camera, _, _ in site.publisher.told]
        assert order == ["fast", "slow", "slower"] * 2


def test_a_camera_that_rings_twice_for_one_frame_has_one_answer() -> None:
    with Site(p_ask=0.0) as site:
        site.frame()
        site.inbox.frame_ready("front")
        site.turn()
        site.inbox.frame_ready("front")
        site.turn()
        assert site.publisher.told == [("front", 1, 0)]


# Asking, and what comes back


def test_the_own_answer_is_published_before_anybody_is_asked_and_the_better_one_when_it_comes() -> None:
    with Site() as site:
        site.link.open.clear()
        site.frame_and_turn()
        assert site.publisher.told == [("front", 1, 0)]
        site.frame_and_turn()
        assert site.publisher.told == [("front", 1, 0), ("front", 2, 0)], "the second frame did not wait"
        site.link.open.set()
        site.answers_come()
        later = site.publisher.results[2:]
        assert {(each.frame_id.sequence, each.revision) for each in later} == {(1, 1), (2, 1)}
        assert {(each.answered_by, each.decision.route, each.degraded) for each in later} == {
            (Tier.EDGE, Route.EDGE, None)
        }
        assert all(each.stage_ms["since_capture"] >= 0 for each in later)
        assert [seen.camera for seen in site.observer.answers] == ["front", "front"]


def test_a_question_carries_who_asks_what_was_seen_why_and_the_time_that_is_left() -> None:
    with Site(settings=AgentSettings(ask_timeout_s=1.0)) as site:
        site.frame()
        site.clock.advance(0.25)
        site.turn()
        site.answers_come()
        [question], [timeout_s] = site.link.asked, site.link.timeouts_s
        assert timeout_s == pytest.approx(0.75)
        own = site.publisher.results[0]
        assert (question.frame_id, question.captured_at) == (own.frame_id, own.captured_at)
        assert question.captured_mono_s == own.captured_mono_s
        [answer] = question.answers
        assert (answer.tier, answer.detections) == (Tier.AGENT, own.detections)
        assert question.reasons == (Reason.UNCERTAIN_BOXES.value,)
        assert question.send_probability == 1.0


def test_a_late_answer_is_carried_onto_what_is_in_view_now() -> None:
    with Site() as site:
        site.link.open.clear()
        for _ in range(3):
            site.frame_and_turn()
        site.link.open.set()
        site.answers_come()
        carried = site.publisher.trackings[-1]
        assert carried.at_mono_s == pytest.approx(site.publisher.results[2].captured_mono_s)
        assert len(carried.confirmed) == 1


def test_an_answer_of_the_cloud_is_revision_2_and_what_is_missing_is_said() -> None:
    def say(question: DetectQuestion) -> DetectAnswer:
        return replace(edge_answer(question, revision=2), is_degraded=True)

    with Site(say=say) as site:
        site.frame_and_turn()
        site.answers_come()
        late = site.publisher.results[1]
        assert (late.revision, late.answered_by, late.degraded) == (2, Tier.CLOUD, CLOUD_LOST)


def test_labels_that_only_the_edge_knows_get_their_names() -> None:
    def say(question: DetectQuestion) -> DetectAnswer:
        answer = edge_answer(question)
        return replace(answer, labels=FakeDetector(labels=replace(answer.labels)).labels)

    with Site(say=say) as site:
        site.frame_and_turn()
        site.answers_come()
        assert site.names.name_of(2) == "car"


def test_no_answer_leaves_the_own_one_standing_and_is_counted() -> None:
    with Site(say=lambda _: Overloaded("full")) as site:
        site.frame_and_turn()
        site.answers_come()
        assert site.publisher.told == [("front", 1, 0)]
        assert [seen.ending for seen in site.observer.errands] == [ErrandEnding.REFUSED]


def test_as_many_are_asked_as_may_be_and_the_others_say_why_not() -> None:
    with Site(max_in_flight=2) as site:
        site.link.open.clear()
        for _ in range(3):
            site.frame_and_turn()
        assert [each.decision.route for each in site.publisher.results] == [
            Route.EDGE,
            Route.EDGE,
            Route.LOCAL,
        ]
        assert Reason.TOO_MANY_IN_FLIGHT in site.publisher.results[2].decision.reasons
        site.link.open.set()
        site.answers_come()
        site.frame_and_turn()
        assert site.publisher.results[-1].decision.route is Route.EDGE


def test_the_budget_holds_and_audits_come_on_top() -> None:
    with Site(budget=Budget(asks_per_s=0.01, burst_s=1.0), audit_share=0.1, draws=(0.9, 0.9, 0.01)) as site:
        for _ in range(3):
            site.frame_and_turn()
        decisions = [each.decision for each in site.publisher.results if each.revision == 0]
        assert [decision.route for decision in decisions] == [Route.EDGE, Route.LOCAL, Route.EDGE]
        assert Reason.OVER_BUDGET in decisions[1].reasons
        assert decisions[2].is_audit
        site.answers_come()


def test_bytes_that_were_sent_are_paid_for_and_those_of_audits_are_not() -> None:
    picture_bytes = 48 * 64 * 3
    budget = Budget(asks_per_s=1000.0, bytes_per_s=picture_bytes / 100, burst_s=1.0)
    with Site(budget=budget, p_ask=0.0, audit_share=0.1, draws=(0.01,)) as site:
        site.frame_and_turn()
        site.answers_come()
        assert [each.decision.is_audit for each in site.publisher.results[:1]] == [True]
        assert site.observer.errands[0].sent_bytes == picture_bytes
        site.gate.p_ask = 1.0
        site.frame_and_turn()
        site.answers_come()
        site.frame_and_turn()
        reasons = [each.decision.reasons for each in site.publisher.results if each.revision == 0]
        assert Reason.OVER_BUDGET not in reasons[1] and Reason.OVER_BUDGET in reasons[2]


# A lost edge


def test_while_the_edge_is_lost_answers_say_so_and_cases_are_kept_for_later() -> None:
    with Site() as site:
        site.link.may_ask = False
        site.frame_and_turn()
        site.frame_and_turn()
        site.link.may_ask = True
        site.frame_and_turn()
        site.answers_come()
        own = [each for each in site.publisher.results if each.revision == 0]
        assert [each.degraded for each in own] == [EDGE_LOST, EDGE_LOST, None]
        assert site.publisher.results[-1].revision == 1
        assert site.kept(3)[:2] == [(Reason.UNCERTAIN_BOXES, Reason.LINK_DOWN)] * 2


def test_an_edge_that_is_full_is_busy_in_the_data_and_not_lost() -> None:
    with Site() as site:
        site.link.may_ask, site.link.is_busy = False, True
        site.frame_and_turn()
        [result] = site.publisher.results
        assert result.degraded == EDGE_BUSY
        assert site.kept(1) == [(Reason.UNCERTAIN_BOXES, Reason.UPPER_BUSY)]


@pytest.mark.parametrize(
    ("failure", "degraded"),
    [
        (Overloaded("full"), EDGE_BUSY),
        (Unavailable("gone"), EDGE_LOST),
        (DeadlineExceeded("late"), None),
    ],
)
def test_a_held_answer_without_the_better_one_says_what_stood_in_the_way(
    failure: FoveaError, degraded: str | None
) -> None:
    with Site(settings=HOLDING, say=lambda _: failure) as site:
        site.frame_and_turn()
        site.answers_come()
        assert [each.degraded for each in site.publisher.results] == [degraded]


def test_during_an_outage_only_as_many_cases_are_kept_as_questions_would_have_been_paid_for() -> None:
    with Site(budget=Budget(asks_per_s=0.01, burst_s=1.0)) as site:
        site.link.may_ask = False
        for _ in range(3):
            site.frame_and_turn()
        assert site.kept(1) == [(Reason.UNCERTAIN_BOXES, Reason.LINK_DOWN)]
        assert [each.degraded for each in site.publisher.results] == [EDGE_LOST] * 3


def test_without_an_edge_nothing_is_degraded_and_nothing_is_asked() -> None:
    with Site(has_edge=False) as site:
        site.frame_and_turn()
        [result] = site.publisher.results
        assert (result.degraded, result.decision.route) == (None, Route.LOCAL)


# Cases


def test_every_frame_that_was_asked_about_becomes_a_case_with_the_answers_known_by_then() -> None:
    with Site() as site:
        site.link.encodes_jpeg = True
        site.link.say = lambda question: edge_answer(replace(question, image=frame(site.clock).pixels))
        site.frame_and_turn()
        site.answers_come()
        site.kept(1)
        [case] = site.shelf.cases
        assert [answer.tier for answer in case.answers] == [Tier.AGENT, Tier.EDGE]
        assert case.jpeg == b"\xff\xd8 jpeg", "the bytes that were sent"
        assert case.frame_id == site.publisher.results[0].frame_id


def test_a_case_that_the_cloud_has_seen_is_not_sent_twice_but_an_audit_is() -> None:
    with Site(say=lambda question: edge_answer(question, 2), audit_share=0.1, draws=(0.9, 0.01)) as site:
        site.frame_and_turn()
        site.answers_come()
        site.gate.p_ask = 0.0
        site.frame_and_turn()
        site.answers_come()
        assert site.kept(1) == [(Reason.AUDIT, Reason.SURE)]
        assert site.shelf.cases[0].send_probability == pytest.approx(0.1)


def test_an_audit_that_cannot_be_sent_is_kept_all_the_same() -> None:
    with Site(p_ask=0.0, audit_share=0.1, draws=(0.01,), budget=Budget(0.0, burst_s=0.001)) as site:
        site.link.may_ask = False
        site.frame_and_turn()
        assert site.kept(1) == [(Reason.AUDIT, Reason.SURE, Reason.LINK_DOWN)]


def test_a_sample_is_kept_at_random_with_its_probability() -> None:
    with Site(p_ask=0.0, settings=AgentSettings(sample_share=0.2), draws=(0.9, 0.1, 0.9, 0.5)) as site:
        site.frame_and_turn()
        site.frame_and_turn()
        assert site.kept(1) == [(Reason.SURE, SAMPLE)]
        assert site.shelf.cases[0].send_probability == pytest.approx(0.2)


def test_frames_that_nobody_looked_at_are_no_cases() -> None:
    with Site(p_ask=0.0, settings=AgentSettings(sample_share=1.0)) as site:
        site.frame_and_turn()
        site.motion.is_moving = False
        site.frame_and_turn()
        assert site.publisher.results[1].decision.route is Route.SKIP
        site.kept(1)


# Holding an answer back for a better one

HOLDING = AgentSettings(ask_timeout_s=2.0, hold_s=0.3)


def test_a_better_answer_that_comes_in_time_is_the_only_one() -> None:
    with Site(settings=HOLDING) as site:
        site.frame_and_turn()
        assert site.publisher.told == []
        site.answers_come()
        assert site.publisher.told == [("front", 1, 1)]
        assert len(site.observer.frames) == 1 and site.observer.answers == []


def test_an_answer_that_is_late_comes_after_the_own_one_which_comes_when_its_time_is_over() -> None:
    with Site(settings=HOLDING) as site:
        site.link.open.clear()
        site.frame_and_turn()
        site.clock.advance(0.29)
        site.turn()
        assert site.publisher.told == []
        site.clock.advance(0.02)
        site.turn()
        assert site.publisher.told == [("front", 1, 0)]
        site.link.open.set()
        site.answers_come()
        assert site.publisher.told == [("front", 1, 0), ("front", 1, 1)]


def test_holding_back_one_frame_delays_no_other() -> None:
    with Site(["front", "back"], settings=HOLDING) as site:
        site.link.open.clear()
        site.frame_and_turn("front")
        site.gate.p_ask = 0.0
        site.frame_and_turn("back")
        assert site.publisher.told == [("back", 2, 0)]
        site.link.open.set()
        site.answers_come()


def test_a_question_that_fails_frees_the_own_answer_at_once() -> None:
    with Site(settings=HOLDING, say=lambda _: Overloaded("full")) as site:
        site.frame_and_turn()
        site.answers_come()
        assert site.publisher.told == [("front", 1, 0)]


# What breaks


def test_a_frame_on_which_the_model_breaks_is_counted_and_the_next_one_goes_on() -> None:
    with Site(p_ask=0.0) as site:
        site.detector.fail_with = DetectorFailed("no memory")
        site.frame_and_turn()
        site.detector.fail_with = None
        site.frame_and_turn()
        assert site.publisher.told == [("front", 2, 0)]
        assert site.observer.failed == ["front"]
        assert site.agent.failures_in_a_row == 0


def test_failures_in_a_row_are_told_apart_from_accidents(caplog: pytest.LogCaptureFixture) -> None:
    with Site(p_ask=0.0) as site:
        site.detector.fail_with = DetectorFailed("no memory")
        for _ in range(5):
            site.frame_and_turn()
        assert site.agent.failures_in_a_row == 5
        assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"], (
            "once, and when it is serious"
        )
        site.detector.fail_with = None
        site.frame_and_turn()
        assert site.agent.failures_in_a_row == 0


def test_a_publisher_that_breaks_does_not_end_the_agent() -> None:
    with Site(p_ask=0.0) as site:
        site.publisher.fail_with = RuntimeError("a bug")
        site.frame_and_turn()
        site.publisher.fail_with = None
        site.frame_and_turn()
        assert site.publisher.told == [("front", 2, 0)]


def test_an_answer_about_another_picture_is_refused() -> None:
    def say(question: DetectQuestion) -> DetectAnswer:
        other = FakeDetector().detect([frame(FakeClock()).pixels[:20, :20].copy()])[0].detections
        return replace(edge_answer(question), detections=other, answers=())

    with Site(say=say) as site:
        site.frame_and_turn()
        site.answers_come()
        assert site.publisher.told == [("front", 1, 0)]
        assert [seen.ending for seen in site.observer.errands] == [ErrandEnding.REJECTED]


# Commands, losses, the end


def test_a_camera_that_is_switched_off_is_not_looked_at_and_its_frames_are_counted() -> None:
    with Site(["front", "back"], p_ask=0.0) as site:
        site.agent.command(Feature.DETECT, "front", False)
        site.frame_and_turn("front")
        site.frame_and_turn("back")
        site.agent.command(Feature.DETECT, "front", True)
        site.frame_and_turn("front")
        assert site.publisher.told == [("back", 2, 0), ("front", 3, 0)]
        assert site.seats["front"].switched_off_frames == 1
        assert site.publisher.states == [("front", Feature.DETECT, False), ("front", Feature.DETECT, True)]


def test_asking_can_be_switched_off_and_the_rate_can_be_set() -> None:
    with Site() as site:
        site.agent.command(Feature.GATE, "front", False)
        site.agent.command(Feature.FPS, "front", 2.5)
        site.agent.command(Feature.FPS, "nobody", 2.5)
        site.frame_and_turn()
        assert site.publisher.results[0].decision.reasons == (Reason.SWITCHED_OFF,)
        assert site.cameras["front"].fps == 2.5


def test_objects_come_and_end_with_their_camera() -> None:
    with Site(p_ask=0.0) as site:
        for _ in range(3):
            site.frame_and_turn()
        site.inbox.camera_lost("front")
        site.turn()
        kinds = [event.kind for _, event in site.publisher.events]
        assert (kinds[0], kinds[-1]) == (EventKind.NEW, EventKind.END)
        assert site.publisher.object_counts[-1][1].by_label == {"person": 0}


def test_it_is_finished_when_its_cameras_are_and_nothing_is_under_way() -> None:
    with Site() as site:
        site.link.open.clear()
        site.frame_and_turn()
        assert not site.agent.is_finished
        site.cameras["front"].is_finished = True
        assert not site.agent.is_finished, "an answer is under way"
        site.link.open.set()
        until(lambda: site.escalation.in_flight == 0)
        assert not site.agent.is_finished, "it was not taken in"
        site.answers_come()
        assert site.agent.is_finished


def test_as_a_thread_it_answers_until_it_is_stopped_and_then_tells_what_it_held_back() -> None:
    with Site(settings=replace(HOLDING, hold_s=3600.0)) as site:
        site.link.open.clear()
        site.agent.start()
        site.frame()
        until(lambda: len(site.link.asked) == 1)
        assert site.agent.stop(LIVENESS_S)
        assert not site.agent.has_broken
        assert site.publisher.told == [("front", 1, 0)]


def test_a_thread_that_hangs_is_left_behind() -> None:
    import threading

    with Site(p_ask=0.0) as site:
        hangs, goes_on = threading.Event(), threading.Event()

        def hang(_: object) -> list[object]:
            hangs.set()
            assert goes_on.wait(LIVENESS_S)
            return []

        site.detector.detect = hang  # type: ignore[assignment]
        site.agent.start()
        site.frame()
        assert hangs.wait(LIVENESS_S)
        site.clock.advance(90)
        assert site.agent.busy_s() == pytest.approx(90)
        assert not site.agent.stop(0.05)
        assert site.publisher.told == []
        goes_on.set()
