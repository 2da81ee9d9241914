"""How long a batch takes on one device, learned from the batches that ran: per_item_s * size + fixed_s."""

from __future__ import annotations

from dataclasses import dataclass

from fovea.core.errors import Malformed

_PULL = 0.02
"""Towards the slope so far, in squared steps of batch size: weak as soon as the recent sizes differ at all."""


@dataclass(frozen=True, slots=True)
class Running:
    """A batch that the device is busy with."""

    size: int
    started_mono_s: float


class LatencyModel:
    """A straight line through the recent batches, by least squares whose memory fades.

    `memory` is how many batches count. One that took more than `outlier` times what was expected counts as `outlier`
    times: a single stall moves the line little, a device that became slow moves it within a few batches. Batches of
    one size alone do not tell the slope; it then keeps its share of the time. Before any other size was seen the line
    goes through the origin (twice the pictures, twice the time), which promises too little rather than too much.
    """

    def __init__(self, memory: float = 20.0, outlier: float = 4.0) -> None:
        if not (memory > 1 and outlier > 1):
            raise Malformed(f"latency model: expected numbers above 1, got {memory} and {outlier}")
        self._kept = 1 - 1 / memory
        self._outlier = outlier
        self._weight = self._n = self._t = self._nn = self._nt = 0.0
        self._per_item_s = self._fixed_s = 0.0
        self._observed_mono_s: float | None = None

    @property
    def per_item_s(self) -> float:
        return self._per_item_s

    @property
    def fixed_s(self) -> float:
        return self._fixed_s

    def observe(self, size: int, seconds: float, now_s: float) -> None:
        """A batch of `size` took `seconds` and ended at `now_s` (monotonic)."""
        if self._observed_mono_s is not None:
            seconds = min(seconds, self._outlier * self.batch_s(size))
        self._observed_mono_s = now_s
        self._fade()
        self._weight += 1
        self._n += size
        self._t += seconds
        self._nn += size * size
        self._nt += size * seconds
        self._fit()

    def batch_s(self, size: int) -> float:
        """Expected seconds for a batch of `size`; 0 while nothing is known."""
        return self._per_item_s * size + self._fixed_s

    def saving(self, size: int) -> float:
        """The share of the device's time, 0 to 1, that a batch of `size` is expected to save against its pictures one
        by one; 0 while nothing is known."""
        alone_s = size * self.batch_s(1)
        return max(1 - self.batch_s(size) / alone_s, 0.0) if alone_s > 0 else 0.0

    def silence_s(self, now_s: float) -> float:
        """Seconds since the last batch that was observed; infinite when there was none."""
        return float("inf") if self._observed_mono_s is None else now_s - self._observed_mono_s

    def finish_in_s(self, ahead: int, max_batch: int, running: Running | None, now_s: float) -> float:
        """Expected seconds until a newcomer with `ahead` others before it is finished: the rest of the running
        batch, the full batches before its own, and its own."""
        full, together = divmod(ahead, max_batch)
        return self.left_s(running, now_s) + full * self.batch_s(max_batch) + self.batch_s(together + 1)

    def left_s(self, running: Running | None, now_s: float) -> float:
        """Expected seconds until the running batch is done. One that is late by some time is expected to need as
        much again, so that nobody is promised the time of a device that hangs."""
        if running is None:
            return 0.0
        return abs(self.batch_s(running.size) - (now_s - running.started_mono_s))

    def _fade(self) -> None:
        self._weight *= self._kept
        self._n *= self._kept
        self._t *= self._kept
        self._nn *= self._kept
        self._nt *= self._kept

    def _fit(self) -> None:
        mean_n, mean_s = self._n / self._weight, self._t / self._weight
        variance = max(self._nn / self._weight - mean_n**2, 0.0)
        covariance = self._nt / self._weight - mean_n * mean_s
        slope = (covariance + _PULL * self._slope_so_far(mean_n, mean_s)) / (variance + _PULL)
        # Neither part of the time is negative: the steepest line allowed goes through the origin.
        self._per_item_s = min(max(slope, 0.0), mean_s / mean_n)
        self._fixed_s = mean_s - self._per_item_s * mean_n

    def _slope_so_far(self, mean_n: float, mean_s: float) -> float:
        """The slope of the line so far after it was scaled to go through the mean: a device that becomes slower does
        so in all parts of its work."""
        expected_s = self.batch_s(1) + self.per_item_s * (mean_n - 1)
        return self.per_item_s * mean_s / expected_s if expected_s > 0 else mean_s / mean_n
