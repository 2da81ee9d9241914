"""What speaks for a model: how it fares on its frames, and how far the tier above agrees with it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from edge_agent.escalation import Ended
from edge_agent.observing import AnswerSeen, ErrandSeen, FrameSeen
from fovea.core.agreement import agreement_f1
from fovea.core.detections import Detections, ModelRef
from fovea.core.hard_case import TierAnswer
from fovea.core.labels import LabelSet
from fovea.core.release import Agreement, Asked
from fovea.core.routing import Route, Tier
from fovea.update.times import LatestTimes


class ModelWatch:
    """An Observer of the model that runs: counts since the start of the process, times since the model runs."""

    def __init__(self, model: ModelRef) -> None:
        self._lock = threading.Lock()
        self._model = model
        self._times = LatestTimes()
        self._frames = self._failures = self._asked = 0

    def model_changed(self, model: ModelRef) -> None:
        """Times of frames that this one looked at count from now on."""
        with self._lock:
            self._model, self._times = model, LatestTimes()

    @property
    def frames(self) -> int:
        """Those that were looked at and answered."""
        return self._frames

    @property
    def failures(self) -> int:
        return self._failures

    def asked(self) -> Asked:
        with self._lock:
            return Asked(self._frames, self._asked)

    def detect_ms_p95(self) -> float | None:
        with self._lock:
            return self._times.p95_ms()

    def frame_seen(self, seen: FrameSeen) -> None:
        result = seen.result
        if result.decision.route is Route.SKIP:
            return
        took_ms = result.stage_ms.get("detect")
        with self._lock:
            self._frames += 1
            self._asked += result.decision.is_asked
            # Not those of the cheaper model that looks while a camera is idle.
            if took_ms is not None and result.detections.model == self._model:
                self._times.add(took_ms)

    def answer_seen(self, seen: AnswerSeen) -> None:
        return

    def frame_failed(self, camera: str) -> None:
        with self._lock:
            self._failures += 1

    def errand_seen(self, seen: ErrandSeen) -> None:
        return


class UpperAgreement:
    """How far the tier above agrees with the model that runs. For several threads; not for that of the frames, as
    comparing costs more than a frame has."""

    def __init__(self, model: ModelRef, tell_from: Callable[[], float]) -> None:
        """`tell_from`: the score from which on a box is told, as it is now."""
        self._lock = threading.Lock()
        self._tell_from = tell_from
        self._sums = Agreement(model.sha256)

    def model_changed(self, model: ModelRef) -> None:
        with self._lock:
            if self._sums.model_sha256 != model.sha256:
                self._sums = Agreement(model.sha256)

    @property
    def sums(self) -> Agreement:
        return self._sums

    def ended(self, ended: Ended) -> None:
        """A question ended. Answers to frames that another model looked at do not count."""
        upper, answer = upper_of(ended), ended.errand.own
        own = answer.detections
        if upper is None or own.model.sha256 != self._sums.model_sha256:
            return
        agreement = upper_f1(own, upper, answer.labels, self._tell_from())
        with self._lock:
            if own.model.sha256 == self._sums.model_sha256:
                self._sums = self._sums.plus(agreement, weight_of(ended))


def upper_of(ended: Ended) -> TierAnswer | None:
    """What the highest tier that answered saw itself, before its answer was merged with those below."""
    if ended.answer is None:
        return None
    above = [each for each in ended.answer.answers if each.tier is not Tier.AGENT]
    return max(above, key=lambda each: each.tier, default=None)


def weight_of(ended: Ended) -> float:
    """1 / the probability with which the frame was sent."""
    return 1 / ended.errand.decision.send_probability


def upper_f1(seen: Detections, upper: TierAnswer, champion: LabelSet, tell_from: float) -> float:
    """How far the tier above agrees with what a model would tell: in the parts of the frame that it was shown, and
    about what the champion can see. A model is blind to other things, not wrong about them."""
    told = upper.detections.above(tell_from)
    return agreement_f1(seen.above(tell_from), told, within_xyxy=upper.looked_xyxy, class_ids=champion.ids)
