"""Questions to the tier above, off the path of the frames: a few threads encode, ask and wait."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from edge_agent.case_keeping import CaseDraft, CaseKeeping
from edge_agent.observing import ErrandEnding, ErrandSeen, Observer
from fovea.core.arrays import FloatArray, ImageArray
from fovea.core.errors import (
    BrokenError,
    Cancelled,
    DeadlineExceeded,
    FoveaError,
    Incompatible,
    Overloaded,
    RejectedError,
    Unavailable,
)
from fovea.core.frame import Frame
from fovea.core.hard_case import TierAnswer
from fovea.core.mosaic import Mosaic
from fovea.core.ports import Clock
from fovea.core.regions import RegionSettings, plan_mosaic
from fovea.core.routing import RouteDecision, Tier
from fovea.link.link import Link
from protos.calls import DetectAnswer, DetectQuestion, Priority

_log = logging.getLogger(__name__)

ENDINGS: tuple[tuple[type[FoveaError], ErrandEnding], ...] = (
    (DeadlineExceeded, ErrandEnding.LATE),
    (Overloaded, ErrandEnding.REFUSED),
    (Unavailable, ErrandEnding.UNREACHED),
    (RejectedError, ErrandEnding.REJECTED),
    (Cancelled, ErrandEnding.CANCELLED),
    (BrokenError, ErrandEnding.FAILED),
)
"""What each kind of error means for a question; the first that fits."""


@dataclass(frozen=True, slots=True, eq=False)
class Errand:
    """One frame that is asked about since `asked_mono_s`, when `in_flight` others were. An answer after
    `expires_mono_s` is not waited for. `places_xyxy` f32[M, 4] px: where, beside its weak boxes, the frame is in
    doubt."""

    frame: Frame
    own: TierAnswer
    decision: RouteDecision
    expires_mono_s: float
    asked_mono_s: float = 0.0
    in_flight: int = 0
    places_xyxy: FloatArray = field(default_factory=lambda: np.empty((0, 4), np.float32))

    def draft(self, answer: DetectAnswer | None, jpeg: bytes | None) -> CaseDraft:
        """The frame as a case, with what is known about it by now. A case is about the whole frame: what a tier says
        that was shown parts of it only is left out."""
        answers = () if answer is None else answer.answers
        above = tuple(each for each in answers if each.tier is not Tier.AGENT and each.is_whole)
        return CaseDraft(
            self.frame,
            (self.own, *above),
            tuple(self.decision.reasons),
            self.decision.send_probability,
            jpeg,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Ended:
    """A question that ended at `ended_mono_s`; `answer` is None when there will be none. `sent_bytes` of picture went
    out; `encode_s` is what making them took, None where that was not come to."""

    errand: Errand
    answer: DetectAnswer | None
    ending: ErrandEnding
    ended_mono_s: float
    sent_bytes: int = 0
    encode_s: float | None = None


OnEnd = Callable[[Ended], None]
"""Called once for each errand, on a thread of the pool."""


class Escalation:
    """A pool of daemon threads that asks. `offer` never waits: what exceeds the cap is turned away.

    Every frame that was asked about becomes a case, unless the answer shows that the cloud, which keeps every frame
    that it is asked about, has seen it; audits always do. With `regions` a frame whose doubt lies in a few places is
    asked about by a mosaic of these, where who is asked takes mosaics; audits never are.
    """

    def __init__(
        self,
        link: Link,
        keeping: CaseKeeping,
        max_in_flight: int,
        clock: Clock,
        on_end: OnEnd,
        observer: Observer,
        regions: RegionSettings | None = None,
    ) -> None:
        self._link = link
        self._keeping = keeping
        self._max_in_flight = max_in_flight
        self._clock = clock
        self._on_end = on_end
        self._observer = observer
        self._regions = regions
        self._errands: queue.SimpleQueue[Errand | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._in_flight = 0
        self._is_stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def link(self) -> Link:
        return self._link

    @property
    def max_in_flight(self) -> int:
        return self._max_in_flight

    @property
    def in_flight(self) -> int:
        """Errands that were taken and have not ended."""
        return self._in_flight

    def start(self) -> None:
        for number in range(self._max_in_flight):
            thread = threading.Thread(target=self._work, name=f"escalation-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def offer(self, errand: Errand) -> bool:
        """False when too many are in flight, or it ends: nothing happens with the errand then."""
        with self._lock:
            if self._is_stopping.is_set() or self._in_flight >= self._max_in_flight:
                return False
            self._in_flight += 1
        self._errands.put(errand)
        return True

    def stop(self, timeout_s: float) -> bool:
        """Gives up what is under way and closes the link; False when that took longer than `timeout_s`."""
        ends_s = time.monotonic() + timeout_s
        self._is_stopping.set()
        for _ in self._threads:
            self._errands.put(None)
        self._link.close()
        for thread in self._threads:
            thread.join(max(ends_s - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        while (errand := self._errands.get()) is not None:
            try:
                self._run(errand)
            except Exception:  # the top of this thread: the next errand goes on
                _log.exception("the question about %s broke", errand.frame.id)

    def _run(self, errand: Errand) -> None:
        asked = _Asked(errand, self._link, self._clock, self._regions)
        begun_s = self._clock.monotonic_s()
        ending = ErrandEnding.FAILED
        try:
            ending = ErrandEnding.CANCELLED if self._is_stopping.is_set() else asked.ask()
        except FoveaError as error:
            ending = ErrandEnding.CANCELLED if self._is_stopping.is_set() else ending_of(error)
            _log.debug("no answer for %s: %s", errand.frame.id, error)
        finally:
            with self._lock:
                self._in_flight -= 1
            ended_s = self._clock.monotonic_s()
            self._observer.errand_seen(
                ErrandSeen(errand.frame.id.camera, ending, asked.sent_bytes, ended_s - begun_s)
            )
            self._on_end(Ended(errand, asked.answer, ending, ended_s, asked.sent_bytes, asked.encode_s))
        if errand.decision.is_audit or asked.answer is None or asked.answer.revision < Tier.CLOUD:
            self._keeping.keep(errand.draft(asked.answer, asked.jpeg))


class _Asked:
    """One question while it is under way, and what is known of it however it ends."""

    def __init__(self, errand: Errand, link: Link, clock: Clock, regions: RegionSettings | None) -> None:
        self._errand = errand
        self._link = link
        self._clock = clock
        self._regions = regions
        self.answer: DetectAnswer | None = None
        self.jpeg: bytes | None = None
        self.sent_bytes = 0
        self.encode_s: float | None = None

    def ask(self) -> ErrandEnding:
        """Raises FoveaErrors."""
        frame = self._errand.frame
        if self._time_left_s() <= 0:
            return ErrandEnding.EXPIRED
        begun_s = self._clock.monotonic_s()
        mosaic = self._mosaic()
        image = self._link.encode(frame.pixels if mosaic is None else mosaic.cut(frame.pixels))
        self.encode_s = self._clock.monotonic_s() - begun_s
        # Of a mosaic nothing is to be learned: a case of this frame encodes all of it.
        self.jpeg = image if isinstance(image, bytes) and mosaic is None else None
        time_left_s = self._time_left_s()
        if time_left_s <= 0:
            return ErrandEnding.EXPIRED
        self.sent_bytes = len(image) if isinstance(image, bytes) else image.nbytes
        answer = self._link.ask(_question(self._errand, image, mosaic), time_left_s)
        if answer.detections.image_size != frame.size:
            raise Incompatible(
                f"asked about {frame.size} px, got an answer about {answer.detections.image_size} px"
            )
        self.answer = answer
        return ErrandEnding.ANSWERED

    def _mosaic(self) -> Mosaic | None:
        """None: all of the frame is asked about."""
        errand = self._errand
        if self._regions is None or errand.decision.is_audit or not self._link.takes_mosaics:
            return None
        return plan_mosaic(errand.own.detections, errand.places_xyxy, self._regions)

    def _time_left_s(self) -> float:
        return self._errand.expires_mono_s - self._clock.monotonic_s()


def ending_of(error: FoveaError) -> ErrandEnding:
    """How a question ended that raised `error`."""
    return next((ending for kind, ending in ENDINGS if isinstance(error, kind)), ErrandEnding.FAILED)


def _question(errand: Errand, image: bytes | ImageArray, mosaic: Mosaic | None) -> DetectQuestion:
    return DetectQuestion(
        image,
        frame_id=errand.frame.id,
        captured_at=errand.frame.captured_at,
        captured_mono_s=errand.frame.captured_mono_s,
        mosaic=mosaic,
        answers=(errand.own,),
        reasons=tuple(errand.decision.reasons),
        send_probability=errand.decision.send_probability,
        # Nobody waits for an audit: it must not push out what somebody is unsure of.
        priority=Priority.LOW if errand.decision.is_audit else Priority.NORMAL,
    )
