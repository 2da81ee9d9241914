"""The agent: one thread looks at the frames of all cameras in turn, publishes, asks, and takes in what comes back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Protocol

from edge_agent.case_keeping import SAMPLE, CaseDraft, CaseKeeping
from edge_agent.chore import Chore
from edge_agent.escalation import Ended, Errand, Escalation
from edge_agent.foresight import Foresight
from edge_agent.frame_walk import EDGE_BUSY, EDGE_LOST, FrameWalk, Judging, Walked
from edge_agent.held_results import HeldResults
from edge_agent.idling import Idling
from edge_agent.inbox import Inbox, Work
from edge_agent.observing import AnswerSeen, ErrandEnding, FrameSeen, Observer
from edge_agent.outage import OutageTeller
from edge_agent.policy_arms import AbTest
from edge_agent.prospects import Prospects, ProspectSettings
from edge_agent.publish.label_names import LabelNames
from edge_agent.publish.publishing import Feature, Publisher, Setting
from edge_agent.publish.zones import ObjectNews, ObjectWatch
from edge_agent.purse import Purse
from edge_agent.tier_choice import TierChoice
from edge_agent.track.tracking import Tracking
from fovea.core.detections import TOLD_FROM, Detections
from fovea.core.frame import Frame
from fovea.core.latency import EwmaPredictor
from fovea.core.ports import Clock
from fovea.core.result import FrameResult
from fovea.core.routing import Reason, Route, Tier
from protos.calls import DetectAnswer

_log = logging.getLogger(__name__)

CLOUD_LOST = "cloud_lost"
"""Why a later answer is degraded: the cloud was to be asked, too, and could not be."""

MISSED = {ErrandEnding.UNREACHED: EDGE_LOST, ErrandEnding.REFUSED: EDGE_BUSY}
"""Why an own answer that was held back for a better one is degraded after all."""

FAILURES_UNHEALTHY = 3
"""So many frames in a row on which the model broke are no accident."""


class FrameGiver(Protocol):
    """What the agent needs of a camera; `edge_agent.capture.camera.Camera` is one."""

    def take(self) -> Frame | None:
        """The newest frame that nobody took yet, at once; None when there is none."""
        ...

    def set_fps(self, fps: float) -> None:
        """How many frames per second it gives from now on."""
        ...

    @property
    def is_finished(self) -> bool:
        """It had an end, has reached it, and every frame of it was taken."""
        ...


class SecondLook(Protocol):
    """Another model that looks at some of the frames; `edge_agent.updates.shadow.Shadow` is one."""

    def offer(self, walked: Walked) -> None:
        """A frame that was looked at, and whose own answer is out or held back. Returns at once, never raises."""
        ...


@dataclass(slots=True)
class Seat:
    """One camera with all that belongs to it. `is_on`: its frames are looked at; `may_ask`: others may be asked;
    `idling`: it takes fewer frames while nothing moves."""

    camera: FrameGiver
    walk: FrameWalk
    watch: ObjectWatch
    is_on: bool = True
    may_ask: bool = True
    idling: Idling | None = None
    switched_off_frames: int = 0
    last_captured_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """ask_timeout_s: an answer is worth having for so long after the capture. hold_s: how long after its capture an
    own answer is held back for a better one; None publishes it at once. sample_share: of the looked-at frames that
    are kept as cases at random. tell_from: the score from which on a box of a better answer is told. ask_from: the
    p_ask from which on a frame is worth a question. route: whom the link reaches, EDGE or CLOUD."""

    ask_timeout_s: float = 1.5
    hold_s: float | None = None
    sample_share: float = 0.0
    tell_from: float = TOLD_FROM
    ask_from: float = 0.7
    route: Route = Route.EDGE


@dataclass(frozen=True, slots=True)
class AgentParts:
    """What an agent works with, ready to use; threads are started and stopped by their owner. Without a `choice` the
    gate's word alone counts."""

    inbox: Inbox
    escalation: Escalation | None
    keeping: CaseKeeping
    purse: Purse
    publisher: Publisher
    observer: Observer
    names: LabelNames
    outage: OutageTeller = field(default_factory=OutageTeller)
    foresight: Foresight = field(default_factory=lambda: Foresight(EwmaPredictor()))
    choice: TierChoice | None = None
    ab: AbTest | None = None


class Agent:
    """Runs on one thread of its own. Whatever breaks on a frame is counted, and the next frame goes on."""

    def __init__(
        self,
        seats: Mapping[str, Seat],
        parts: AgentParts,
        settings: AgentSettings,
        clock: Clock,
        draw: Callable[[], float],
    ) -> None:
        """`draw` gives numbers that are uniform in 0..1."""
        self._seats = dict(seats)
        self._parts = parts
        self._settings = settings
        self._clock = clock
        self._draw = draw
        self._held = HeldResults()
        self._prospects = self._new_prospects()
        self.second_look: SecondLook | None = None
        """may be set and taken away from any thread"""
        self._busy_since_mono_s: float | None = None
        self._failures_in_a_row = 0
        self._has_broken = False
        self._thread = threading.Thread(target=self._run, name="agent", daemon=True)

    @property
    def seats(self) -> Mapping[str, Seat]:
        return self._seats

    @property
    def has_broken(self) -> bool:
        """The thread has ended, and nobody told it to."""
        return self._has_broken

    @property
    def failures_in_a_row(self) -> int:
        """Frames on which the model, or a later step, broke since the last good one."""
        return self._failures_in_a_row

    @property
    def is_finished(self) -> bool:
        """Every camera has come to its end, and nothing is under way any more."""
        escalation = self._parts.escalation
        return (
            all(seat.camera.is_finished for seat in self._seats.values())
            and (escalation is None or escalation.in_flight == 0)
            and self._parts.inbox.is_empty
            and self._busy_since_mono_s is None
            and not len(self._held)
        )

    def busy_s(self) -> float:
        """For how long the thread has been at one piece of work; 0 while it waits for some."""
        since_mono_s = self._busy_since_mono_s
        return 0.0 if since_mono_s is None else max(self._clock.monotonic_s() - since_mono_s, 0.0)

    def start(self) -> None:
        self._thread.start()

    def between_frames(self, act: Callable[[], None], timeout_s: float) -> None:
        """Does something on the agent's thread while no frame is looked at, and waits until it is done; from any
        other thread. Raises as `Chore.wait` does."""
        chore = Chore(act)
        self._parts.inbox.do(chore)
        chore.wait(timeout_s)

    def go_by(
        self, judging: Judging, purse: Purse, choice: TierChoice | None, settings: AgentSettings
    ) -> None:
        """Judges, decides and pays like this from the next frame on. To be called between two frames."""
        self._parts = replace(self._parts, purse=purse, choice=choice)
        self._settings = settings
        self._prospects = self._new_prospects()
        for seat in self._seats.values():
            seat.walk.judge_by(judging)

    def stop(self, timeout_s: float) -> bool:
        """Ends the thread after the frame under way: what is held back is published, objects end. False when it did
        not end in time (the model hangs); nothing more is published then."""
        self._parts.inbox.close()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        for held in self._held.take_all():
            self._publish_own(held.walked)
        for name, seat in self._seats.items():
            self._tell_news(name, seat.watch.end_all(self._clock.now()))
        return True

    def command(self, feature: Feature, camera: str, value: Setting) -> None:
        """Switches a feature of a camera, from any thread."""
        seat = self._seats.get(camera)
        if seat is None:
            return
        match feature:
            case Feature.DETECT:
                seat.is_on = bool(value)
            case Feature.GATE:
                seat.may_ask = bool(value)
            case Feature.FPS:
                (seat.camera.set_fps if seat.idling is None else seat.idling.set_usual_fps)(float(value))
        self._parts.publisher.publish_state(camera, feature, value)

    def step(self, work: Work) -> None:
        """One turn: what came back, what was held long enough, one frame. Never raises."""
        self._busy_since_mono_s = self._clock.monotonic_s()
        try:
            for chore in work.chores:
                chore.run()
            for ended in work.ended:
                self._guarded(ended.errand.frame.id.camera, partial(self._take_in, ended))
            for name in work.lost:
                self._guarded(name, partial(self._end_tracks, name))
            for held in self._held.take_due(self._clock.monotonic_s()):
                self._guarded(held.walked.frame.id.camera, partial(self._publish_own, held.walked))
            if work.camera is not None:
                self._look(work.camera)
        finally:
            self._busy_since_mono_s = None

    def _run(self) -> None:
        try:
            while (work := self._parts.inbox.take(self._patience_s())) is not None:
                self.step(work)
        except Exception:  # the top of this thread: whoever runs the agent sees that it has ended
            _log.exception("the agent's thread broke")
            self._has_broken = True

    def _new_prospects(self) -> Prospects:
        parts, settings = self._parts, self._settings
        return Prospects(
            parts.escalation,
            parts.purse,
            parts.foresight,
            parts.choice,
            ProspectSettings(settings.ask_timeout_s, settings.ask_from, settings.route),
            self._clock.monotonic_s,
        )

    def _patience_s(self) -> float | None:
        due_mono_s = self._held.next_due_mono_s
        return None if due_mono_s is None else max(due_mono_s - self._clock.monotonic_s(), 0.0)

    def _guarded(self, camera: str, act: Callable[[], None]) -> bool:
        try:
            act()
        except Exception as error:  # one frame must not end the others
            self._failed(camera, error)
            return False
        return True

    def _failed(self, camera: str, error: Exception) -> None:
        self._failures_in_a_row += 1
        self._parts.observer.frame_failed(camera)
        if self._failures_in_a_row in (1, FAILURES_UNHEALTHY):
            _log.error(
                "a frame of %s broke, %d in a row: %s", camera, self._failures_in_a_row, error, exc_info=error
            )

    def _look(self, name: str) -> None:
        seat = self._seats[name]
        frame = seat.camera.take()
        if frame is None:
            return
        if not seat.is_on:
            seat.switched_off_frames += 1
            return
        if self._guarded(name, partial(self._walk, seat, frame)):
            if self._failures_in_a_row >= FAILURES_UNHEALTHY:
                _log.warning("frames are answered again, after %d that broke", self._failures_in_a_row)
            self._failures_in_a_row = 0

    def _walk(self, seat: Seat, frame: Frame) -> None:
        ab = self._parts.ab
        if ab is not None:
            ab.enter(frame)
        situation = partial(self._prospects.of, frame, seat.idling) if seat.may_ask else None
        walked = seat.walk.walk(frame, self._draw(), situation)
        seat.last_captured_at = frame.captured_at
        if ab is not None:
            ab.looked(walked)
        if walked.result.degraded == EDGE_LOST and (said := self._parts.outage.frame_degraded()):
            _log.warning(said)
        if walked.result.decision.is_asked and self._settings.hold_s is not None:
            self._ask(walked)
            self._held.hold(walked, frame.captured_mono_s + self._settings.hold_s)
        else:
            self._publish_own(walked)
            if walked.result.decision.is_asked:
                self._ask(walked)
            else:
                self._keep(walked)
        self._tell_objects(frame.id.camera, seat, walked.tracking)
        if (second_look := self.second_look) is not None:
            second_look.offer(walked)

    def _ask(self, walked: Walked) -> None:
        escalation, now_mono_s = self._parts.escalation, self._clock.monotonic_s()
        errand = Errand(
            walked.frame,
            walked.own,
            walked.result.decision,
            walked.frame.captured_mono_s + self._settings.ask_timeout_s,
            now_mono_s,
            0 if escalation is None else escalation.in_flight,
            walked.places_xyxy,
        )
        if escalation is None or not escalation.offer(errand):  # it is ending
            self._parts.inbox.errand_ended(Ended(errand, None, ErrandEnding.CANCELLED, now_mono_s))
        elif not walked.result.decision.is_audit:
            self._parts.purse.spend_ask(now_mono_s)

    def _keep(self, walked: Walked) -> None:
        """Cases among the frames that nobody is asked about: audits that could not be sent, what was worth a question
        while nobody was there (as many as the budget would have paid for), and a sample."""
        decision = walked.result.decision
        if decision.route is Route.SKIP:
            return
        now_mono_s = self._clock.monotonic_s()
        reasons: tuple[str, ...] = tuple(decision.reasons)
        probability = decision.send_probability
        if not decision.is_audit:
            nobody = Reason.LINK_DOWN in decision.reasons or Reason.UPPER_BUSY in decision.reasons
            if nobody and self._parts.purse.can_pay(now_mono_s):
                self._parts.purse.spend_ask(now_mono_s)
                probability = 1.0
            elif self._settings.sample_share and self._draw() < self._settings.sample_share:
                reasons, probability = (*reasons, SAMPLE), self._settings.sample_share
            else:
                return
        self._parts.keeping.keep(CaseDraft(walked.frame, (walked.own,), reasons, probability))

    def _take_in(self, ended: Ended) -> None:
        """A question ended: its answer is published and carried on, or the own answer has to do."""
        frame, answer = ended.errand.frame, ended.answer
        if self._parts.ab is not None:
            self._parts.ab.enter(frame)
            self._parts.ab.ended(ended)
        if ended.sent_bytes and not ended.errand.decision.is_audit:
            self._parts.purse.spend_bytes(self._clock.monotonic_s(), ended.sent_bytes)
        self._parts.foresight.ended(ended)
        held = self._held.take(frame.id)
        if answer is None:
            if held is not None:
                self._publish_own(_less_than_meant(held.walked, ended.ending))
            return
        name = frame.id.camera
        seat = self._seats[name]
        self._parts.names.learn(answer.labels)
        for each in answer.answers:
            self._parts.names.learn(each.labels)
        told = answer.detections.above(self._settings.tell_from)
        result = _later_result(ended.errand, answer, told, self._clock.monotonic_s())
        tracking = seat.walk.carry(frame, told, result.answered_by)
        self._parts.publisher.publish_result(name, result, tracking)
        latency_s = max(self._clock.monotonic_s() - frame.captured_mono_s, 0.0)
        if held is None:
            self._parts.observer.answer_seen(AnswerSeen(name, result, latency_s))
        else:
            walked = held.walked
            self._parts.observer.frame_seen(
                FrameSeen(name, result, latency_s, walked.decide_cpu_s, walked.decide_wall_s)
            )
        self._tell_objects(name, seat, tracking)

    def _publish_own(self, walked: Walked) -> None:
        name = walked.frame.id.camera
        self._parts.publisher.publish_result(name, walked.result, walked.tracking)
        latency_s = max(self._clock.monotonic_s() - walked.frame.captured_mono_s, 0.0)
        self._parts.observer.frame_seen(
            FrameSeen(name, walked.result, latency_s, walked.decide_cpu_s, walked.decide_wall_s)
        )

    def _end_tracks(self, name: str) -> None:
        """The camera is gone: what was in view is not followed any more."""
        seat = self._seats[name]
        seat.walk.forget()
        self._tell_news(name, seat.watch.end_all(self._clock.now()))

    def _tell_objects(self, name: str, seat: Seat, tracking: Tracking) -> None:
        at = seat.last_captured_at or self._clock.now()
        self._tell_news(name, seat.watch.look(tracking, at, tracking.at_mono_s))

    def _tell_news(self, name: str, news: ObjectNews) -> None:
        if news.events:
            self._parts.publisher.publish_events(name, news.events)
        self._parts.publisher.publish_counts(name, news.counts)


def _less_than_meant(walked: Walked, ending: ErrandEnding) -> Walked:
    missed = MISSED.get(ending)
    return walked if missed is None else replace(walked, result=replace(walked.result, degraded=missed))


def _later_result(errand: Errand, answer: DetectAnswer, told: Detections, now_mono_s: float) -> FrameResult:
    frame, timings = errand.frame, answer.timings
    revision = max(answer.revision, Tier.EDGE.value)
    return FrameResult(
        frame_id=frame.id,
        revision=revision,
        detections=told,
        answered_by=Tier(min(revision, Tier.CLOUD.value)),
        decision=errand.decision,
        captured_at=frame.captured_at,
        captured_mono_s=frame.captured_mono_s,
        stage_ms={
            "since_capture": max(now_mono_s - frame.captured_mono_s, 0.0) * 1000,
            "upper_queue": timings.queue_ms,
            "upper_open": timings.decode_ms,
            "upper_infer": timings.infer_ms,
        },
        degraded=CLOUD_LOST if answer.is_degraded else None,
    )
