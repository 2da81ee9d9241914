"""The edge's answer: its own look merged with those of other tiers, and for hard frames with that of the cloud."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from edge_server.outcomes import Escalated, EscalationObserver, NobodyCounts
from edge_server.second_gate import LookJudge
from fovea.core.arrays import ImageArray
from fovea.core.budget import Budget
from fovea.core.deciding import DecideSettings, Situation, decide
from fovea.core.errors import DeadlineExceeded, DetectorFailed, FoveaError, Incompatible, Malformed
from fovea.core.frame import size_of
from fovea.core.gate import Opinion
from fovea.core.hard_case import TierAnswer
from fovea.core.latency import AskContext, EwmaPredictor
from fovea.core.merging import MergeSettings
from fovea.core.routing import Reason, Route, RouteDecision, Tier
from fovea.link.forecaster import Forecaster
from fovea.link.link import Link, LinkState, LinkStatus
from fovea.serving.answerer import all_answers, merged_answer
from fovea.serving.worker import Looked
from protos.calls import DetectAnswer, DetectQuestion, Timings

_log = logging.getLogger(__name__)

ONLY_PARTS = "only_parts"
"""Why the cloud was not asked about a hard frame: this server has parts of it only."""

_GRACE_S = 0.2
"""A link that has not come back so long after its time is not waited for."""


@dataclass(frozen=True, slots=True)
class EscalationSettings:
    """timeout_s: what the cloud is waited for at most. margin_s: how long before its own deadline the edge answers.
    least_s: with less time left the cloud is not asked. max_in_flight: frames that wait for the cloud at once."""

    timeout_s: float = 2.0
    margin_s: float = 0.02
    least_s: float = 0.05
    max_in_flight: int = 4
    decide: DecideSettings = field(default_factory=lambda: DecideSettings(audit_share=0.0, route=Route.CLOUD))

    def __post_init__(self) -> None:
        if not (self.timeout_s > 0 and self.margin_s >= 0 and self.least_s >= 0 and self.max_in_flight >= 1):
            raise Malformed(f"escalation settings: expected times and frames above 0, got {self}")


class Escalation:
    """An Answerer that asks the cloud about what is still hard. It never waits longer than the caller does: a cloud
    that is late or gone leaves the merged answer of the edge and the camera, marked as degraded.

    Owns the link and the threads that wait on it, from entering it as a context to leaving it.
    """

    def __init__(
        self,
        link: Link,
        gate: LookJudge,
        budget: Budget,
        settings: EscalationSettings = EscalationSettings(),
        merging: MergeSettings = MergeSettings(),
        observer: EscalationObserver = NobodyCounts(),
        draw: Callable[[], float] = random.random,
        forecaster: Forecaster | None = None,
    ) -> None:
        """`draw` gives numbers in 0..1 for audits; `forecaster` foretells the cloud (None: by a running mean)."""
        self._link = link
        self._gate = gate
        self._budget = budget
        self._settings = settings
        self._merging = merging
        self._observer = observer
        self._draw = draw
        self._forecaster = forecaster or Forecaster(EwmaPredictor())
        self._lock = threading.Lock()  # guards the budget and the count of what is in flight
        self._in_flight = 0
        self._pool = ThreadPoolExecutor(settings.max_in_flight, thread_name_prefix="ask-cloud")

    @property
    def in_flight(self) -> int:
        """Frames that the cloud is being asked about."""
        return self._in_flight

    def __enter__(self) -> Self:
        self._link.listen(_say_change)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._link.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def answer(
        self, question: DetectQuestion, pixels: ImageArray, looked: Looked, expires_mono_s: float
    ) -> DetectAnswer:
        answers = all_answers(question, looked, Tier.EDGE)
        if question.mosaic is not None:
            return self._answered_parts(question, answers, looked, pixels)
        below = [answer for answer in answers if answer.tier < Tier.EDGE]
        opinion = self._gate.judge(looked, below, pixels)
        time_left_s = expires_mono_s - self._settings.margin_s - time.monotonic()
        decision = self._decided(opinion, time_left_s)
        if not decision.is_asked:
            outcome, reason = _why_not(decision)
            self._observer.frame_ended(outcome, reason, None)
            is_wanted = opinion.p_ask >= self._settings.decide.ask_from
            is_degraded = outcome is Escalated.HINDERED and is_wanted
            return merged_answer(question, looked, answers, self._merging, is_degraded)
        begun_mono_s = time.monotonic()
        errand = _Errand(question, answers, decision, pixels, time_left_s)
        above = await self._asked(errand, decision, min(time_left_s, self._settings.timeout_s))
        of_all = {each.tier: each for each in (*answers, *(answers_above(above) if above else ()))}
        is_degraded = above is None or above.is_degraded
        merged = merged_answer(question, looked, tuple(of_all.values()), self._merging, is_degraded)
        return replace(merged, timings=Timings(above_ms=(time.monotonic() - begun_mono_s) * 1000))

    def _answered_parts(
        self,
        question: DetectQuestion,
        answers: tuple[TierAnswer, ...],
        looked: Looked,
        pixels: ImageArray,
    ) -> DetectAnswer:
        """The answer to a mosaic, which is never handed on: the cloud keeps what it is asked about, to learn from,
        and parts are no frame. What all tiers say together is judged all the same: a frame that is still hard is
        answered with less than was meant."""
        merged = merged_answer(question, looked, answers, self._merging)
        inference = replace(looked.inference, detections=merged.detections)
        below = [answer for answer in answers if answer.tier < Tier.EDGE]
        opinion = self._gate.judge(replace(looked, inference=inference), below, pixels)
        is_wanted = opinion.p_ask >= self._settings.decide.ask_from
        if is_wanted:
            self._observer.frame_ended(Escalated.HINDERED, ONLY_PARTS, None)
        else:
            self._observer.frame_ended(Escalated.KEPT, Reason.SURE, None)
        return replace(merged, is_degraded=is_wanted)

    def _decided(self, opinion: Opinion, time_left_s: float) -> RouteDecision:
        """The decision, and a place in flight and what it costs taken when it is to ask."""
        now_s, settings = time.monotonic(), self._settings
        expected_ms = self._forecaster.expected_ms(Tier.CLOUD, AskContext(now_s, self._in_flight))
        round_trip_s = (self._link.round_trip_ms or 0 if expected_ms is None else expected_ms) / 1000
        has_link = self._link.may_ask
        with self._lock:
            situation = Situation(
                has_link=has_link,
                in_flight=self._in_flight,
                max_in_flight=settings.max_in_flight,
                time_left_s=time_left_s,
                round_trip_s=max(round_trip_s, settings.least_s),
                budget_allows=self._budget.allows(now_s),
                is_busy=not has_link and self._link.is_busy,
            )
            decision = decide(opinion, self._draw(), settings.decide, situation)
            if decision.is_asked:
                self._in_flight += 1
                if not decision.is_audit:
                    self._budget.spend_ask(now_s)
        return decision

    async def _asked(self, errand: _Errand, decision: RouteDecision, timeout_s: float) -> DetectAnswer | None:
        """The answer of the cloud; None when it did not come in time. Whatever happens, it is counted once."""
        context = AskContext(time.monotonic(), max(self._in_flight - 1, 0))
        outcome, reason = Escalated.LEFT, ""
        call = self._pool.submit(errand.run, self._link, timeout_s)
        call.add_done_callback(lambda call: self._landed(errand, decision))
        try:
            answer = await _awaited(call, min(timeout_s + _GRACE_S, errand.time_left_s))
            outcome, reason = Escalated.ANSWERED, decision.reasons[0]
            self._heard(context, self._forecaster.heard)
            return answer
        except FoveaError as error:
            if isinstance(error, DeadlineExceeded):
                self._heard(context, self._forecaster.silent)
            outcome, reason = Escalated.FAILED, _snake_case(type(error).__name__)
            _log.debug("the cloud did not answer: %s", error)
            return None
        finally:
            self._observer.frame_ended(outcome, reason, time.monotonic() - context.at_mono_s)

    def _heard(self, context: AskContext, tell: Callable[[Tier, float, AskContext, float], None]) -> None:
        """The cloud has answered, or was silent, until now."""
        now_s = time.monotonic()
        tell(Tier.CLOUD, (now_s - context.at_mono_s) * 1000, context, now_s)

    def _landed(self, errand: _Errand, decision: RouteDecision) -> None:
        """The question is over, also one whose asker has left: its place is free."""
        with self._lock:
            self._in_flight -= 1
            if not decision.is_audit:
                self._budget.spend_bytes(time.monotonic(), errand.sent_bytes)


class _Errand:
    """One question to the cloud, run on a thread of its own."""

    def __init__(
        self,
        question: DetectQuestion,
        answers: tuple[TierAnswer, ...],
        decision: RouteDecision,
        pixels: ImageArray,
        time_left_s: float,
    ) -> None:
        self.time_left_s = time_left_s
        self.sent_bytes = 0
        self._question = question
        self._answers = answers
        self._decision = decision
        self._pixels = pixels

    def run(self, link: Link, timeout_s: float) -> DetectAnswer:
        """Raises FoveaErrors, whatever goes wrong."""
        try:
            return self._ask(link, time.monotonic() + timeout_s)
        except FoveaError:
            raise
        except Exception as error:  # the top of this thread: the edge's own answer must not be lost over it
            _log.exception("asking the cloud failed in a way that nobody foresaw")
            raise DetectorFailed(f"asking the cloud failed: {error!r:.200}") from error

    def _ask(self, link: Link, ends_mono_s: float) -> DetectAnswer:
        question = _question_above(self._question, self._answers, self._decision)
        if not isinstance(question.image, bytes):
            question = replace(question, image=link.encode(self._pixels))
        image = question.image
        self.sent_bytes = len(image) if isinstance(image, bytes) else image.nbytes
        answer = link.ask(question, ends_mono_s - time.monotonic())
        if answer.detections.image_size != size_of(self._pixels):
            raise Incompatible(
                f"asked about {size_of(self._pixels)} px, got an answer about {answer.detections.image_size} px"
            )
        return answer


def answers_above(answer: DetectAnswer) -> tuple[TierAnswer, ...]:
    """What the tiers above the edge saw. A server that gives no answers of single tiers, or stands as an edge itself,
    is a cloud to this one."""
    above = tuple(each for each in answer.answers if each.tier > Tier.EDGE)
    if above:
        return above
    own = next((each for each in answer.answers if each.tier == answer.revision), None)
    seen = answer.detections if own is None else own.detections
    return (TierAnswer(Tier.CLOUD, seen, answer.labels),)


def _question_above(
    question: DetectQuestion, answers: tuple[TierAnswer, ...], decision: RouteDecision
) -> DetectQuestion:
    """The same question with what is known by now. Nobody here needs the cloud's candidates."""
    probability = 1.0 if question.send_probability is None else question.send_probability
    return replace(
        question,
        answers=answers,
        reasons=tuple(dict.fromkeys((*question.reasons, *decision.reasons))),
        # Of two tiny ones the product may be 0, which no probability of a frame that is sent can be.
        send_probability=max(probability * decision.send_probability, sys.float_info.min),
        wants_candidates=False,
    )


def _why_not(decision: RouteDecision) -> tuple[Escalated, str]:
    last = decision.reasons[-1]
    if last is Reason.SURE:
        return Escalated.KEPT, last
    return (Escalated.SPARED if last is Reason.OVER_BUDGET else Escalated.HINDERED), last


async def _awaited(call: Future[DetectAnswer], longest_s: float) -> DetectAnswer:
    """What `call` gives. Raises DeadlineExceeded when it takes too long, whatever it still does."""
    try:
        return await asyncio.wait_for(asyncio.wrap_future(call), longest_s)
    except TimeoutError:
        raise DeadlineExceeded(f"the cloud did not answer within {longest_s:.3f} s") from None


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _say_change(state: LinkState) -> None:
    """Once for each change: counters hold the rest."""
    if state.status is not LinkStatus.UP:
        _log.warning("the cloud is %s, answering without it: %s", state.status, state.reason)
    elif state.is_first:
        _log.info("the cloud is there")
    else:
        _log.info("the cloud is back after %.1f s, %d calls missed", state.away_s, state.missed_calls)
