"""How long a tier above will take to answer: foretold from how long it took, while that is to be believed."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from fovea.core.latency import AskContext, Forecast, LatencyPredictor
from fovea.core.routing import Tier

STALE_AFTER_S = 5.0


class Forecaster:
    """A predictor that several threads may ask and tell. What it gives is the expected latency, not its tail: a tail
    of a few answers would silence a link over one hiccup.

    A forecast of which nothing new was heard for a while is none: one that says "too late" stops the questions that
    would correct it, so one question in a while has to go all the same.
    """

    def __init__(self, predictor: LatencyPredictor, stale_after_s: float = STALE_AFTER_S) -> None:
        self._predictor = predictor
        self._stale_after_s = stale_after_s
        self._lock = threading.Lock()
        self._heard_mono_s: dict[Tier, float] = {}
        self._newest: dict[Tier, Forecast] = {}

    def expected_ms(self, tier: Tier, context: AskContext) -> float | None:
        """From asking in `context` to having the answer; None where nobody can say."""
        with self._lock:
            heard_mono_s = self._heard_mono_s.get(tier)
            if heard_mono_s is None or context.at_mono_s - heard_mono_s > self._stale_after_s:
                return None
            forecast = self._predictor.predict(tier, context)
        return None if forecast is None else forecast.mean_ms

    def heard(self, tier: Tier, latency_ms: float, context: AskContext, now_mono_s: float) -> None:
        """`tier`, asked in `context`, has answered after `latency_ms`."""
        with self._lock:
            self._observe(tier, max(latency_ms, 0.0), context, now_mono_s)

    def silent(self, tier: Tier, waited_ms: float, context: AskContext, now_mono_s: float) -> None:
        """`tier`, asked in `context`, was given up after `waited_ms`: it takes longer than that, which is news only
        where less was expected."""
        with self._lock:
            forecast = self._predictor.predict(tier, context)
            if forecast is None or waited_ms > forecast.mean_ms:
                self._observe(tier, waited_ms, context, now_mono_s)

    def _observe(self, tier: Tier, latency_ms: float, context: AskContext, now_mono_s: float) -> None:
        self._predictor.observe(tier, latency_ms, context)
        self._heard_mono_s[tier] = max(now_mono_s, self._heard_mono_s.get(tier, now_mono_s))
        forecast = self._predictor.predict(tier)
        if forecast is not None:
            self._newest[tier] = forecast

    def figures(self) -> Mapping[str, float]:
        """What was foretold after the newest answer of each tier, in ms, for people."""
        with self._lock:
            return {
                f"{tier.name.lower()}_{what}": round(ms, 2)
                for tier, forecast in self._newest.items()
                for what, ms in zip(("ms", "ms_p95"), forecast, strict=True)
            }
