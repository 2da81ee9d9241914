"""How long a tier will take to answer, foretold from how long it took: the seam, and a running mean.

`fovea.core.lstm_latency` is the second kind. Which of the two a bundle carries is decided by measurement
(`calibration.fit_latency`).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from fovea.core.errors import Malformed
from fovea.core.routing import Tier

_KEPT_ERRORS = 64
_TAIL = 0.95
_LEAST_MS, _MOST_MS = 0.01, 600_000.0


@dataclass(frozen=True, slots=True)
class AskContext:
    """What was known when a question was asked.

    at_mono_s      when
    in_flight      how many others to the same tier were under way
    payload_bytes  its size on the wire
    """

    at_mono_s: float
    in_flight: int = 0
    payload_bytes: int = 0

    def __post_init__(self) -> None:
        if not math.isfinite(self.at_mono_s):
            raise Malformed(f"ask context at_mono_s: expected a finite number, got {self.at_mono_s}")
        if self.in_flight < 0 or self.payload_bytes < 0:
            raise Malformed(
                "ask context: expected counts of 0 or more, got "
                f"in_flight {self.in_flight}, payload_bytes {self.payload_bytes}"
            )


@dataclass(frozen=True, slots=True)
class LatencySample:
    """One question that was answered: `latency_ms` from asking to having the answer."""

    tier: Tier
    latency_ms: float
    context: AskContext

    def __post_init__(self) -> None:
        checked_latency_ms(self.latency_ms)

    @property
    def answered_mono_s(self) -> float:
        return self.context.at_mono_s + self.latency_ms / 1000


class Forecast(NamedTuple):
    """Milliseconds: the expected latency, and one that 19 of 20 answers should stay below."""

    mean_ms: float
    p95_ms: float


class LatencyPredictor(Protocol):
    """For one thread. Each tier is followed for itself."""

    def observe(self, tier: Tier, latency_ms: float, context: AskContext) -> None:
        """An answer came: after `latency_ms`, asked in `context`. To be told in the order of the answers. Raises
        Malformed for a latency that is no positive finite number."""
        ...

    def predict(self, tier: Tier, context: AskContext | None = None) -> Forecast | None:
        """For a question asked now, in `context` where that is known; None while nothing is known of the tier."""
        ...


def checked_latency_ms(latency_ms: float) -> float:
    """The latency within 0.01 ms to 10 min. Raises Malformed when it is negative or not finite."""
    if not 0 <= latency_ms < math.inf:
        raise Malformed(f"latency_ms: expected a finite number of 0 or more, got {latency_ms}")
    return min(max(latency_ms, _LEAST_MS), _MOST_MS)


class RecentErrors:
    """By how much the last 64 answers took longer than foretold: the tail of any forecast of the mean."""

    def __init__(self) -> None:
        self._late_ms: deque[float] = deque(maxlen=_KEPT_ERRORS)

    def add(self, late_ms: float) -> None:
        self._late_ms.append(late_ms)

    def forecast(self, mean_ms: float) -> Forecast:
        """`mean_ms` with the 95 % quantile of the errors on top; twice the mean while there are fewer than 8."""
        if len(self._late_ms) < 8:
            return Forecast(mean_ms, 2 * mean_ms)
        ordered = sorted(self._late_ms)
        tail_ms = ordered[min(math.ceil(_TAIL * len(ordered)), len(ordered) - 1)]
        return Forecast(mean_ms, mean_ms + max(tail_ms, 0.0))


@dataclass(frozen=True, slots=True)
class EwmaSettings:
    """alpha: weight of the newest answer in the mean, above 0 to 1."""

    alpha: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise Malformed(f"ewma alpha: expected more than 0 up to 1, got {self.alpha}")


class EwmaPredictor:
    """The exponentially weighted mean of the answers so far; the first one starts it. Looks at no context."""

    def __init__(self, settings: EwmaSettings = EwmaSettings()) -> None:
        self.settings = settings
        self._mean_ms: dict[Tier, float] = {}
        self._errors: dict[Tier, RecentErrors] = {}

    def observe(self, tier: Tier, latency_ms: float, context: AskContext) -> None:
        latency_ms = checked_latency_ms(latency_ms)
        mean_ms = self._mean_ms.get(tier)
        if mean_ms is None:
            self._mean_ms[tier], self._errors[tier] = latency_ms, RecentErrors()
            return
        self._errors[tier].add(latency_ms - mean_ms)
        self._mean_ms[tier] = mean_ms + self.settings.alpha * (latency_ms - mean_ms)

    def predict(self, tier: Tier, context: AskContext | None = None) -> Forecast | None:
        mean_ms = self._mean_ms.get(tier)
        return None if mean_ms is None else self._errors[tier].forecast(mean_ms)
