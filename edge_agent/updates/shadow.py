"""A candidate that looks at some frames beside the champion, on a thread that yields to everything else."""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from edge_agent.updates.evidence import upper_f1, upper_of, weight_of
from fovea.core.agreement import agreement_f1
from fovea.core.detections import Detections, ModelRef
from fovea.core.frame import FrameId
from fovea.core.hard_case import TierAnswer
from fovea.core.ports import Clock, Detector
from fovea.core.release import ShadowReport
from fovea.core.routing import Route
from fovea.update.times import LatestTimes

if TYPE_CHECKING:
    from edge_agent.escalation import Ended
    from edge_agent.frame_walk import Walked

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_NICENESS: Final = 15
_UNPAIRED: Final = 64
"""Looks and answers that wait for each other, at most."""
_LONGEST_REST_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class ShadowLimits:
    """share: of the frames that nobody is asked about. busy_share: of the time that it may look. waiting: frames that
    were asked about and wait, at most."""

    share: float
    busy_share: float = 0.5
    waiting: int = 4


class Shadow:
    """A SecondLook. Frames that were asked about come first, for only they can be compared with the tier above; of
    the others the newest one waits. Owns its detector, and closes it when it ends."""

    def __init__(
        self,
        candidate: Detector,
        champion: ModelRef,
        limits: ShadowLimits,
        tell_from: Callable[[], float],
        clock: Clock,
        draw: Callable[[], float],
    ) -> None:
        """`draw` gives numbers that are uniform in 0..1, on the thread that offers."""
        self._candidate = candidate
        self._sha256 = candidate.ref.sha256
        self._champion = champion
        self._limits = limits
        self._tell_from = tell_from
        self._clock = clock
        self._draw = draw
        self._changed = threading.Condition()
        self._asked: deque[Walked] = deque(maxlen=limits.waiting)
        self._sampled: Walked | None = None
        self._is_ending = False
        self._counting = threading.Lock()
        self._begin_counts()
        self._thread = threading.Thread(target=self._run, name="shadow", daemon=True)

    def _begin_counts(self) -> None:
        self._pairs = _Pairs()
        self._times = LatestTimes()
        self._frames = self._crashes = 0
        self._agreement_sum = 0.0

    def start(self) -> None:
        self._thread.start()

    def champion_changed(self, champion: ModelRef) -> None:
        """What counts is the comparison with this one from now on."""
        with self._counting:
            self._champion = champion
            self._begin_counts()

    def offer(self, walked: Walked) -> None:
        """See `edge_agent.agent.SecondLook`."""
        decision = walked.result.decision
        if decision.route is Route.SKIP or walked.own.detections.model != self._champion:
            return  # an idle camera may be looked at by a cheaper model
        if not decision.is_asked and self._draw() >= self._limits.share:
            return
        with self._changed:
            if decision.is_asked:
                self._asked.append(walked)
            else:
                self._sampled = walked
            self._changed.notify()

    def ended(self, ended: Ended) -> None:
        """A question ended; from any thread but that of the frames."""
        upper = upper_of(ended)
        if upper is None or ended.errand.own.detections.model != self._champion:
            return
        told = _FromAbove(ended.errand.own, upper, weight_of(ended))
        with self._counting:
            self._pairs.answered(ended.errand.frame.id, told, self._tell_from())

    def report(self) -> ShadowReport:
        """What came of it so far."""
        with self._counting:
            pairs, frames = self._pairs, self._frames
            return ShadowReport(
                candidate_sha256=self._sha256,
                frames=frames,
                crashes=self._crashes,
                candidate_ms_p95=self._times.p95_ms(),
                agreement_with_champion_mean=self._agreement_sum / frames if frames else None,
                paired_n=pairs.n,
                sum_w=pairs.sum_w,
                sum_wd=pairs.sum_wd,
                sum_wdd=pairs.sum_wdd,
                sum_ww=pairs.sum_ww,
            )

    def stop(self, timeout_s: float) -> bool:
        """False when the look under way did not end in time; its thread closes the model when it does."""
        with self._changed:
            self._is_ending = True
            self._changed.notify()
        if self._thread.ident is None:
            self._candidate.close()
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        _be_nice()
        try:
            while (walked := self._next()) is not None:
                begun_s = self._clock.monotonic_s()
                self._look(walked)
                self._rest(self._clock.monotonic_s() - begun_s)
        except Exception:  # the top of this thread: the champion is looked at all the same
            _log.exception("the shadow broke; the candidate is not looked at any more")
        finally:
            self._candidate.close()

    def _next(self) -> Walked | None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_ending or self._asked or self._sampled is not None)
            if self._is_ending:
                return None
            if self._asked:
                return self._asked.popleft()
            sampled, self._sampled = self._sampled, None
            return sampled

    def _rest(self, looked_s: float) -> None:
        rest_s = min(looked_s * (1 / self._limits.busy_share - 1), _LONGEST_REST_S)
        with self._changed:
            self._changed.wait_for(lambda: self._is_ending, rest_s)

    def _look(self, walked: Walked) -> None:
        begun_s = self._clock.monotonic_s()
        try:
            [inference] = self._candidate.detect([walked.frame.pixels])
        except Exception as error:  # whatever a candidate raises: that is what it is tried for
            with self._counting:
                self._crashes += 1
                is_first = self._crashes == 1
            if is_first:
                _log.warning("the candidate broke on a frame of %s: %s", walked.frame.id.camera, error)
            return
        took_ms = (self._clock.monotonic_s() - begun_s) * 1000
        tell_from, seen = self._tell_from(), inference.detections
        agreement = agreement_f1(walked.own.detections.above(tell_from), seen.above(tell_from))
        with self._counting:
            if walked.own.detections.model != self._champion:
                return
            self._frames += 1
            self._times.add(took_ms)
            self._agreement_sum += agreement
            if walked.result.decision.is_asked:
                self._pairs.looked(walked.frame.id, seen, tell_from)


@dataclass(frozen=True, slots=True, eq=False)
class _FromAbove:
    """What champion and upper tier saw on one frame, and what it counts for."""

    own: TierAnswer
    upper: TierAnswer
    weight: float


class _Pairs:
    """Brings the looks of a candidate together with the answers from above, whichever comes first."""

    def __init__(self) -> None:
        self._looks: OrderedDict[FrameId, Detections] = OrderedDict()
        self._answers: OrderedDict[FrameId, _FromAbove] = OrderedDict()
        self.n = 0
        self.sum_w = self.sum_wd = self.sum_wdd = self.sum_ww = 0.0

    def looked(self, frame_id: FrameId, seen: Detections, tell_from: float) -> None:
        answer = self._answers.pop(frame_id, None)
        if answer is None:
            _keep(self._looks, frame_id, seen)
        else:
            self._add(seen, answer, tell_from)

    def answered(self, frame_id: FrameId, answer: _FromAbove, tell_from: float) -> None:
        seen = self._looks.pop(frame_id, None)
        if seen is None:
            _keep(self._answers, frame_id, answer)
        else:
            self._add(seen, answer, tell_from)

    def _add(self, seen: Detections, answer: _FromAbove, tell_from: float) -> None:
        own, upper = answer.own, answer.upper
        difference = upper_f1(seen, upper, own.labels, tell_from) - upper_f1(
            own.detections, upper, own.labels, tell_from
        )
        weight = answer.weight
        self.n += 1
        self.sum_w += weight
        self.sum_wd += weight * difference
        self.sum_wdd += weight * difference * difference
        self.sum_ww += weight * weight


def _keep(waiting: OrderedDict[FrameId, _T], frame_id: FrameId, what: _T) -> None:
    waiting[frame_id] = what
    while len(waiting) > _UNPAIRED:
        waiting.popitem(last=False)


def _be_nice() -> None:
    """On Linux a thread has a niceness of its own."""
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
    except (OSError, AttributeError) as error:
        _log.debug("the shadow's thread is as urgent as any: %s", error)
