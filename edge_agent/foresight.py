"""What an agent's questions will take, foretold from those that ended: time, bytes, and the work of making them."""

from __future__ import annotations

from collections.abc import Mapping

from edge_agent.escalation import Ended
from edge_agent.observing import ErrandEnding
from fovea.core.latency import AskContext, LatencyPredictor
from fovea.core.routing import Route, Tier
from fovea.link.forecaster import STALE_AFTER_S, Forecaster

TIER_OF: dict[Route, Tier] = {Route.EDGE: Tier.EDGE, Route.CLOUD: Tier.CLOUD}
_NEWEST_SHARE = 0.2


class Foresight:
    """For the thread that decides; `figures` for any."""

    def __init__(self, predictor: LatencyPredictor, stale_after_s: float = STALE_AFTER_S) -> None:
        self._forecaster = Forecaster(predictor, stale_after_s)
        self._question_bytes = 0.0
        self._encode_ms = 0.0

    @property
    def question_bytes(self) -> int:
        """What a question lately took on the wire; 0 before the first."""
        return round(self._question_bytes)

    @property
    def encode_ms(self) -> float:
        """What making one lately took on this machine; 0 before the first."""
        return self._encode_ms

    def expected_ms(self, tier: Tier, now_mono_s: float, in_flight: int) -> float | None:
        """From asking now to having the answer, with so many others under way; None where nobody can say."""
        return self._forecaster.expected_ms(tier, AskContext(now_mono_s, in_flight, self.question_bytes))

    def figures(self) -> Mapping[str, float]:
        """See `Forecaster.figures`."""
        return self._forecaster.figures()

    def ended(self, ended: Ended) -> None:
        """A question ended. An answer tells of its tier, and with what it waited for the cloud of the edge below it;
        silence tells that it takes longer than this."""
        self._learn_size(ended)
        took_ms = (ended.ended_mono_s - ended.errand.asked_mono_s) * 1000
        asked = TIER_OF.get(ended.errand.decision.route, Tier.EDGE)
        context = AskContext(ended.errand.asked_mono_s, ended.errand.in_flight, ended.sent_bytes)
        now_mono_s, answer = ended.ended_mono_s, ended.answer
        if answer is None:
            if ended.ending is ErrandEnding.LATE:
                self._forecaster.silent(asked, took_ms, context, now_mono_s)
            return
        self._forecaster.heard(asked, took_ms - answer.timings.above_ms, context, now_mono_s)
        if asked is Tier.EDGE and answer.revision >= Tier.CLOUD:
            self._forecaster.heard(Tier.CLOUD, took_ms, context, now_mono_s)

    def _learn_size(self, ended: Ended) -> None:
        if ended.sent_bytes:
            share = _NEWEST_SHARE if self._question_bytes else 1.0
            self._question_bytes += share * (ended.sent_bytes - self._question_bytes)
        if ended.encode_s is not None:
            share = _NEWEST_SHARE if self._encode_ms else 1.0
            self._encode_ms += share * (1000 * ended.encode_s - self._encode_ms)
