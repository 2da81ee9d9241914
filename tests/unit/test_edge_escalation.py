"""The edge and the cloud: asked when it pays, never waited for too long, every outcome counted with its reason."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from edge_server.escalation import Escalation, EscalationSettings, answers_above
from edge_server.outcomes import Escalated
from edge_server.second_gate import SecondGate
from fovea.core.arrays import ImageArray
from fovea.core.budget import Budget
from fovea.core.deciding import DecideSettings
from fovea.core.detections import Candidates, Detections, Inference, ScoreKind
from fovea.core.errors import (
    Cancelled,
    DeadlineExceeded,
    Malformed,
    Overloaded,
    Unavailable,
)
from fovea.core.features import FrameFeatures
from fovea.core.frame import FrameId, ImageSize
from fovea.core.gate import Opinion
from fovea.core.hard_case import HardCase, TierAnswer
from fovea.core.labels import LabelSet
from fovea.core.latency import AskContext, EwmaPredictor
from fovea.core.routing import Reason, Route, Tier
from fovea.link.forecaster import Forecaster
from fovea.link.link import LinkState, LinkStatus, Listener
from fovea.serving.worker import Looked
from protos.calls import DeliveryReceipt, DetectAnswer, DetectQuestion
from tests.builders import model_ref, scene

WAIT_S = 10.0
PIXELS = scene(48, 64)
SIZE = ImageSize(64, 48)
LABELS = LabelSet.from_names(["person", "car", "bicycle"])
BOX = (0.0, 0.0, 20.0, 20.0)


def seen(score: float, name: str = "edge", size: ImageSize = SIZE) -> Detections:
    boxes, scores = np.array([BOX], np.float32), np.array([score], np.float32)
    return Detections(boxes, scores, np.array([0], np.int32), size, model_ref(name))


def looked(score: float = 0.5) -> Looked:
    own = seen(score)
    candidates = Candidates(
        own.boxes_xyxy, np.array([[score, 0, 0]], np.float32), ScoreKind.PER_CLASS, LABELS, SIZE
    )
    return Looked(Inference(own, candidates), own.model, LABELS, 1.0, 2.0)


def cloud_answer(score: float = 0.9, **changes: Any) -> DetectAnswer:
    own = seen(score, "cloud")
    fields: dict[str, Any] = {"revision": 2, "answers": (TierAnswer(Tier.CLOUD, own, LABELS),)}
    return DetectAnswer(own, own.model, LABELS, **fields | changes)


class FakeLink:
    """A Link whose cloud does what it is told; `asks` are the questions with the time that was given."""

    def __init__(self, told: Callable[[DetectQuestion, float], DetectAnswer] | None = None) -> None:
        self.told = told or (lambda question, timeout_s: cloud_answer())
        self.may_ask = True
        self.is_busy = False
        self.takes_mosaics = False
        self.round_trip_ms: float | None = None
        self.asks: list[tuple[DetectQuestion, float]] = []
        self.listeners: list[Listener] = []
        self.closed = threading.Event()
        self.state = LinkState(LinkStatus.UP, 0.0, "")

    def encode(self, pixels: ImageArray) -> bytes | ImageArray:
        return b"jpeg of %d rows" % len(pixels)

    def ask(self, question: DetectQuestion, timeout_s: float) -> DetectAnswer:
        self.asks.append((question, timeout_s))
        return self.told(question, timeout_s)

    def deliver(self, case: HardCase, timeout_s: float) -> DeliveryReceipt:
        raise AssertionError("nothing is delivered here")

    def listen(self, listener: Listener) -> None:
        self.listeners.append(listener)

    def close(self) -> None:
        self.closed.set()


class Counting:
    def __init__(self) -> None:
        self.ended: list[tuple[Escalated, str]] = []

    def frame_ended(self, outcome: Escalated, reason: str, asked_s: float | None) -> None:
        assert (asked_s is not None) == (outcome in (Escalated.ANSWERED, Escalated.FAILED, Escalated.LEFT))
        self.ended.append((outcome, reason))


class FixedGate:
    def __init__(self, p_ask: float) -> None:
        self._p_ask = p_ask

    def judge(self, features: FrameFeatures) -> Opinion:
        reason = Reason.UNCERTAIN_BOXES if self._p_ask else Reason.SURE
        return Opinion(self._p_ask, None, (reason,))


class Edge:
    """An Escalation with all that is needed to look into it."""

    def __init__(
        self,
        link: FakeLink,
        p_ask: float = 1.0,
        budget: Budget | None = None,
        audit_share: float = 0.0,
        draw: float = 0.5,
        forecaster: Forecaster | None = None,
        **settings: Any,
    ) -> None:
        self.link = link
        self.counting = Counting()
        deciding = DecideSettings(audit_share=audit_share, route=Route.CLOUD)
        self.escalation = Escalation(
            link,
            SecondGate(FixedGate(p_ask)),
            budget or Budget(1000.0),
            EscalationSettings(**{"decide": deciding} | settings),
            observer=self.counting,
            draw=lambda: draw,
            forecaster=forecaster,
        )

    async def answer(
        self, question: DetectQuestion | None = None, left_s: float = WAIT_S, score: float = 0.5
    ) -> DetectAnswer:
        question = question or DetectQuestion(b"a jpeg")
        return await self.escalation.answer(question, PIXELS, looked(score), time.monotonic() + left_s)


@contextmanager
def edge_of(link: FakeLink, **settings: Any) -> Iterator[Edge]:
    edge = Edge(link, **settings)
    with edge.escalation:
        yield edge
    assert link.closed.is_set()


def camera_saw(score: float) -> TierAnswer:
    return TierAnswer(Tier.AGENT, seen(score, "student"), LABELS)


async def test_a_frame_that_is_not_hard_stays_here() -> None:
    with edge_of(FakeLink(), p_ask=0.0) as edge:
        answer = await edge.answer(DetectQuestion(b"a jpeg", answers=(camera_saw(0.9),)))
    assert edge.link.asks == []
    assert edge.counting.ended == [(Escalated.KEPT, "sure")]
    assert (answer.revision, answer.is_degraded) == (1, False)
    assert [each.tier for each in answer.answers] == [Tier.AGENT, Tier.EDGE]
    assert 0.5 < answer.detections.scores[0] < 0.9


async def test_a_hard_frame_is_answered_by_all_three_and_each_is_told_alone() -> None:
    with edge_of(FakeLink()) as edge:
        answer = await edge.answer(DetectQuestion(b"a jpeg", answers=(camera_saw(0.2),)))
    assert [(each.tier, round(float(each.detections.scores[0]), 2)) for each in answer.answers] == [
        (Tier.AGENT, 0.2),
        (Tier.EDGE, 0.5),
        (Tier.CLOUD, 0.9),
    ]
    assert (answer.revision, answer.is_degraded, answer.model.name) == (2, False, "edge")
    assert answer.detections.model.name == "student+edge+cloud"
    assert answer.timings.above_ms >= 0
    assert edge.counting.ended == [(Escalated.ANSWERED, "uncertain_boxes")]


async def test_the_cloud_is_told_all_that_is_known_and_gets_the_picture_as_it_came() -> None:
    question = DetectQuestion(
        b"a jpeg",
        frame_id=FrameId("gate", "boot", 7),
        answers=(camera_saw(0.2),),
        reasons=("vanished_track", "uncertain_boxes"),
        send_probability=0.5,
        wants_candidates=True,
    )
    with edge_of(FakeLink(), p_ask=0.0, audit_share=0.1, draw=0.05) as edge:
        answer = await edge.answer(question)
    [(asked, _)] = edge.link.asks
    assert (asked.image, asked.frame_id, asked.wants_candidates) == (b"a jpeg", question.frame_id, False)
    assert [each.tier for each in asked.answers] == [Tier.AGENT, Tier.EDGE]
    assert asked.reasons == ("vanished_track", "uncertain_boxes", "audit", "sure")
    assert asked.send_probability == pytest.approx(0.05)
    assert answer.candidates is not None, "who asked wanted the edge's"


async def test_raw_pixels_are_encoded_for_the_link_on_another_thread() -> None:
    threads: list[str] = []

    class Noting(FakeLink):
        def encode(self, pixels: ImageArray) -> bytes | ImageArray:
            threads.append(threading.current_thread().name)
            return super().encode(pixels)

    with edge_of(Noting()) as edge:
        await edge.answer(DetectQuestion(PIXELS))
    assert edge.link.asks[0][0].image == b"jpeg of 48 rows"
    assert threads[0].startswith("ask-cloud")


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (Unavailable("gone"), "unavailable"),
        (DeadlineExceeded("late"), "deadline_exceeded"),
        (Overloaded("full", 0.5), "overloaded"),
        (Malformed("what?"), "malformed"),
        (Cancelled("closed"), "cancelled"),
        (KeyError("a bug"), "detector_failed"),
    ],
)
async def test_a_cloud_that_fails_leaves_the_merged_answer_marked_as_degraded(
    failure: Exception, reason: str
) -> None:
    def fail(question: DetectQuestion, timeout_s: float) -> DetectAnswer:
        raise failure

    with edge_of(FakeLink(fail)) as edge:
        answer = await edge.answer(DetectQuestion(b"a jpeg", answers=(camera_saw(0.9),)))
    assert (answer.revision, answer.is_degraded) == (1, True)
    assert [each.tier for each in answer.answers] == [Tier.AGENT, Tier.EDGE]
    assert edge.counting.ended == [(Escalated.FAILED, reason)]


async def test_a_question_that_cannot_be_put_takes_no_place_for_ever() -> None:
    """Its probability is so small that the product with the edge's own is no number above 0 any more."""
    question = DetectQuestion(b"a jpeg", send_probability=5e-324)
    with edge_of(FakeLink(), p_ask=0.0, audit_share=0.1, draw=0.05, max_in_flight=1) as edge:
        for _ in range(3):
            assert (await edge.answer(question)).revision == 2
            await until(lambda: edge.escalation.in_flight == 0)
    assert all((asked.send_probability or 0) > 0 for asked, _ in edge.link.asks)


async def test_an_answer_about_another_picture_is_no_answer() -> None:
    def elsewhere(question: DetectQuestion, timeout_s: float) -> DetectAnswer:
        return DetectAnswer(seen(0.9, "cloud", ImageSize(32, 32)), model_ref(), LABELS, revision=2)

    with edge_of(FakeLink(elsewhere)) as edge:
        answer = await edge.answer()
    assert answer.is_degraded and edge.counting.ended == [(Escalated.FAILED, "incompatible")]


async def test_a_degraded_answer_of_the_cloud_is_passed_on_as_one() -> None:
    with edge_of(FakeLink(lambda question, timeout_s: cloud_answer(is_degraded=True))) as edge:
        answer = await edge.answer()
    assert answer.is_degraded and answer.revision == 2


@pytest.mark.parametrize(
    ("change", "settings", "reason"),
    [
        ({"may_ask": False}, {}, "link_down"),
        ({"may_ask": False, "is_busy": True}, {}, "upper_busy"),
        ({"round_trip_ms": 20_000.0}, {}, "no_time"),
        ({}, {"least_s": 2 * WAIT_S}, "no_time"),
    ],
)
async def test_a_cloud_that_cannot_be_asked_now_is_not_asked_and_the_answer_is_degraded(
    change: dict[str, Any], settings: dict[str, Any], reason: str
) -> None:
    link = FakeLink()
    for name, value in change.items():
        setattr(link, name, value)
    with edge_of(link, **settings) as edge:
        answer = await edge.answer()
    assert link.asks == [] and answer.is_degraded
    assert edge.counting.ended == [(Escalated.HINDERED, reason)]


async def test_a_cloud_that_is_foretold_to_be_too_late_is_not_asked() -> None:
    link, forecaster = FakeLink(), Forecaster(EwmaPredictor())
    now_s = time.monotonic()
    forecaster.heard(Tier.CLOUD, 2000 * WAIT_S, AskContext(now_s), now_s)
    with edge_of(link, forecaster=forecaster) as edge:
        assert (await edge.answer()).is_degraded
    assert link.asks == [] and edge.counting.ended == [(Escalated.HINDERED, "no_time")]


async def test_answers_of_the_cloud_are_learned_from() -> None:
    forecaster = Forecaster(EwmaPredictor())
    with edge_of(FakeLink(), forecaster=forecaster) as edge:
        await edge.answer()
    assert forecaster.figures()["cloud_ms"] < 1000 * WAIT_S


async def test_an_audit_that_cannot_be_sent_is_no_loss_to_the_answer() -> None:
    link = FakeLink()
    link.may_ask = False
    with edge_of(link, p_ask=0.0, audit_share=1.0) as edge:
        answer = await edge.answer()
    assert not answer.is_degraded and edge.counting.ended == [(Escalated.HINDERED, "link_down")]


async def test_what_is_over_the_budget_is_answered_here_on_purpose() -> None:
    with edge_of(FakeLink(), budget=Budget(asks_per_s=0.001)) as edge:
        answers = [await edge.answer() for _ in range(3)]
    assert [answer.revision for answer in answers] == [2, 1, 1]
    assert not any(answer.is_degraded for answer in answers)
    assert Counter(edge.counting.ended) == {
        (Escalated.ANSWERED, "uncertain_boxes"): 1,
        (Escalated.SPARED, "over_budget"): 2,
    }


async def test_bytes_are_paid_for_after_they_were_sent() -> None:
    budget = Budget(1000.0, bytes_per_s=0.001, burst_s=1000.0)  # 1 byte
    with edge_of(FakeLink(), budget=budget) as edge:
        await edge.answer()
        await until(lambda: edge.escalation.in_flight == 0)
        await edge.answer()
    assert [outcome for outcome, _ in edge.counting.ended] == [Escalated.ANSWERED, Escalated.SPARED]


async def until(holds: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < ends_s
        await asyncio.sleep(0.005)


class Held:
    """A cloud that answers when it is let."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.let = threading.Semaphore(0)

    def __call__(self, question: DetectQuestion, timeout_s: float) -> DetectAnswer:
        self.begun.release()
        assert self.let.acquire(timeout=WAIT_S)
        return cloud_answer()


async def test_more_than_may_be_in_flight_are_answered_here_while_others_wait() -> None:
    held = Held()
    with edge_of(FakeLink(held), max_in_flight=2) as edge:
        waiting = [asyncio.create_task(edge.answer()) for _ in range(2)]
        await until(lambda: len(edge.link.asks) == 2)
        turned_away = await edge.answer()
        assert turned_away.is_degraded and turned_away.revision == 1
        assert edge.counting.ended == [(Escalated.HINDERED, "too_many_in_flight")]
        held.let.release(2)
        assert [answer.revision for answer in await asyncio.gather(*waiting)] == [2, 2]
        await until(lambda: edge.escalation.in_flight == 0)


async def test_a_caller_who_leaves_harms_no_neighbour_and_its_place_is_free_when_the_cloud_is_done() -> None:
    held = Held()
    with edge_of(FakeLink(held), max_in_flight=2) as edge:
        leaving, staying = (asyncio.create_task(edge.answer()) for _ in range(2))
        await until(lambda: len(edge.link.asks) == 2)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert edge.escalation.in_flight == 2, "the thread still waits for the cloud"
        held.let.release(2)
        assert (await staying).revision == 2
        await until(lambda: edge.escalation.in_flight == 0)
        held.let.release(1)
        assert (await edge.answer()).revision == 2
    assert Counter(outcome for outcome, _ in edge.counting.ended) == {
        Escalated.LEFT: 1,
        Escalated.ANSWERED: 2,
    }


async def test_a_link_that_does_not_come_back_is_left_behind_in_time() -> None:
    held = Held()
    with edge_of(FakeLink(held), timeout_s=0.1) as edge:
        answer = await asyncio.wait_for(edge.answer(), WAIT_S / 2)
        assert answer.is_degraded and edge.counting.ended == [(Escalated.FAILED, "deadline_exceeded")]
        held.let.release()


async def test_the_cloud_gets_what_is_left_minus_the_margin_and_never_more_than_the_timeout() -> None:
    with edge_of(FakeLink(), timeout_s=3.0, margin_s=0.5) as edge:
        await edge.answer(left_s=WAIT_S)
        await edge.answer(left_s=2.0)
    times_s = [timeout_s for _, timeout_s in edge.link.asks]
    assert 2.0 < times_s[0] <= 3.0 and 0.5 < times_s[1] <= 1.5


async def test_the_loop_goes_on_while_the_cloud_is_asked() -> None:
    held = Held()
    with edge_of(FakeLink(held)) as edge:
        waiting = asyncio.create_task(edge.answer())
        await until(lambda: len(edge.link.asks) == 1)
        turns = 0
        for _ in range(50):
            await asyncio.sleep(0)
            turns += 1
        assert turns == 50 and not waiting.done()
        held.let.release()
        await waiting


def test_a_cloud_that_tells_no_single_answers_or_stands_as_an_edge_is_a_cloud_to_this_one() -> None:
    plain = DetectAnswer(seen(0.9, "plain"), model_ref("plain"), LABELS, revision=2)
    [above] = answers_above(plain)
    assert (above.tier, above.detections.model.name) == (Tier.CLOUD, "plain")

    edge_like = DetectAnswer(
        seen(0.7, "merged"),
        model_ref("big"),
        LABELS,
        revision=1,
        answers=(camera_saw(0.2), TierAnswer(Tier.EDGE, seen(0.9, "big"), LABELS)),
    )
    [above] = answers_above(edge_like)
    assert (above.tier, above.detections.model.name) == (Tier.CLOUD, "big")


async def test_an_older_answer_of_the_cloud_in_the_question_is_replaced_by_its_new_one() -> None:
    older = TierAnswer(Tier.CLOUD, seen(0.1, "older"), LABELS)
    with edge_of(FakeLink()) as edge:
        answer = await edge.answer(DetectQuestion(b"a jpeg", answers=(older,)))
    assert [each.detections.model.name for each in answer.answers] == ["edge", "cloud"]


def test_what_happens_to_the_cloud_is_said_once_for_each_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with edge_of(FakeLink()) as edge:
        [listener] = edge.link.listeners
        listener(LinkState(LinkStatus.UP, 0.0, "", is_first=True))
        listener(LinkState(LinkStatus.DOWN, 1.0, "connection refused"))
        listener(LinkState(LinkStatus.UP, 85.0, "", away_s=84.0, missed_calls=312))
    assert [record.getMessage() for record in caplog.records] == [
        "the cloud is there",
        "the cloud is down, answering without it: connection refused",
        "the cloud is back after 84.0 s, 312 calls missed",
    ]


@pytest.mark.parametrize(
    "changes", [{"timeout_s": 0.0}, {"margin_s": -1.0}, {"least_s": -1.0}, {"max_in_flight": 0}]
)
def test_settings_that_make_no_sense_are_malformed(changes: dict[str, Any]) -> None:
    with pytest.raises(Malformed, match=r"^escalation settings: expected times and frames above 0"):
        EscalationSettings(**changes)
