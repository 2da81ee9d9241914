"""How much may be asked: questions and bytes per second, as token buckets that are told the time."""

from __future__ import annotations

import math

from fovea.core.errors import Malformed


class TokenBucket:
    """Fills at `rate_per_s` up to `burst`; starts full. Time is passed in, one that steps back adds nothing.

    Not for several threads at once. Raises Malformed for a negative rate or a burst that is not above 0; an infinite
    rate never runs dry.
    """

    def __init__(self, rate_per_s: float, burst: float) -> None:
        if not rate_per_s >= 0:
            raise Malformed(f"token bucket rate_per_s: expected 0 or more, got {rate_per_s}")
        if not burst > 0:
            raise Malformed(f"token bucket burst: expected more than 0, got {burst}")
        self.rate_per_s = rate_per_s
        self.burst = burst
        self._tokens = burst
        self._at_mono_s: float | None = None

    def available(self, now_mono_s: float) -> float:
        """Tokens there are now; below 0 while `spend` has run into debt."""
        if not math.isfinite(now_mono_s):
            raise Malformed(f"token bucket now_mono_s: expected a finite number, got {now_mono_s}")
        if math.isinf(self.rate_per_s):
            return math.inf
        if self._at_mono_s is not None and now_mono_s > self._at_mono_s:
            gained = self.rate_per_s * (now_mono_s - self._at_mono_s)
            self._tokens = min(self.burst, self._tokens + gained)
        self._at_mono_s = now_mono_s
        return self._tokens

    def take(self, now_mono_s: float, tokens: float = 1.0) -> bool:
        """Takes `tokens` if they are all there; False, and nothing taken, else."""
        if self.available(now_mono_s) < tokens:
            return False
        self._tokens -= tokens
        return True

    def spend(self, now_mono_s: float, tokens: float) -> None:
        """Takes what was used already, if need be into debt: nothing is available until it is paid back."""
        self.available(now_mono_s)
        self._tokens -= tokens


class Budget:
    """What one asking side may spend: questions and bytes, each with a burst of `burst_s` seconds (one question at
    least). The size of a question is known only when it is encoded, so bytes are spent after the fact: a question
    is allowed while the bytes are not in debt."""

    def __init__(self, asks_per_s: float, bytes_per_s: float = math.inf, burst_s: float = 5.0) -> None:
        if not (burst_s > 0 and math.isfinite(burst_s)):
            raise Malformed(f"budget burst_s: expected a finite number above 0, got {burst_s}")
        self._asks = TokenBucket(asks_per_s, max(1.0, asks_per_s * burst_s))
        self._bytes = TokenBucket(bytes_per_s, max(1.0, bytes_per_s * burst_s))

    @property
    def limits_bytes(self) -> bool:
        """False when only questions are counted."""
        return math.isfinite(self._bytes.rate_per_s)

    def allows(self, now_mono_s: float) -> bool:
        """True when one more question may be asked now; takes nothing."""
        return self._asks.available(now_mono_s) >= 1 and self._bytes.available(now_mono_s) > 0

    def level(self, now_mono_s: float) -> float:
        """How full it is, 0 (empty, or in debt) to 1: the scarcer of questions and bytes. Takes nothing."""
        levels = (
            min(bucket.available(now_mono_s) / bucket.burst, 1.0) if math.isfinite(bucket.burst) else 1.0
            for bucket in (self._asks, self._bytes)
        )
        return max(min(levels), 0.0)

    def spend_ask(self, now_mono_s: float) -> None:
        """One question is being asked. Audits do not pass here."""
        self._asks.spend(now_mono_s, 1.0)

    def spend_bytes(self, now_mono_s: float, size_bytes: int) -> None:
        """It took `size_bytes` on the wire."""
        self._bytes.spend(now_mono_s, float(size_bytes))
