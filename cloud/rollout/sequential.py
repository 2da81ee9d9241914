"""Confidence sequences: intervals that hold at every look, so that a rollout may look whenever a report comes.

The asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas (2021): after n observations of
standard deviation s the mean lies within

    s * sqrt(2 (n r^2 + 1) / (n^2 r^2) * log(sqrt(n r^2 + 1) / alpha))

of the estimate, at all n at once, with probability 1 - alpha. `r` sets where the interval is tightest. Observations
here are weighted by 1 / the probability with which they were made (Hajek's estimator); n is then Kish's effective
number, (sum w)^2 / sum w^2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from fovea.core.errors import Malformed


@dataclass(frozen=True, slots=True)
class WeightedSums:
    """Sums over observations x of weight w: all that is known of them, and they add up across devices."""

    n: int = 0
    sum_w: float = 0.0
    sum_wx: float = 0.0
    sum_wxx: float = 0.0
    sum_ww: float = 0.0

    @classmethod
    def of(cls, all_sums: Iterable[WeightedSums]) -> WeightedSums:
        total = cls()
        for sums in all_sums:
            total = total + sums
        return total

    def __add__(self, other: WeightedSums) -> WeightedSums:
        return WeightedSums(
            self.n + other.n,
            self.sum_w + other.sum_w,
            self.sum_wx + other.sum_wx,
            self.sum_wxx + other.sum_wxx,
            self.sum_ww + other.sum_ww,
        )

    @property
    def mean(self) -> float:
        """NaN without observations."""
        return self.sum_wx / self.sum_w if self.sum_w > 0 else math.nan

    @property
    def variance(self) -> float:
        if not self.sum_w > 0:
            return math.nan
        return max(self.sum_wxx / self.sum_w - self.mean**2, 0.0)

    @property
    def effective_n(self) -> float:
        return self.sum_w**2 / self.sum_ww if self.sum_ww > 0 else 0.0


NO_SUMS = WeightedSums()


@dataclass(frozen=True, slots=True)
class Band:
    """An estimate and the interval that holds at every look. Without observations it says nothing: -inf to inf."""

    value: float
    low: float
    high: float

    def __sub__(self, other: Band) -> Band:
        """Of the difference, when both hold."""
        return Band(self.value - other.value, self.low - other.high, self.high - other.low)


NOTHING_KNOWN = Band(math.nan, -math.inf, math.inf)

LEAST_EFFECTIVE_N = 30.0
"""Below this the sequence, which is asymptotic, is not used."""
_TIGHTEST_AT_N = 300.0
LEAST_VARIANCE = 1e-4
"""A few observations that happen to be equal are no proof that all are."""


def band(sums: WeightedSums, alpha: float) -> Band:
    """Of the mean of `sums`. Raises Malformed unless 0 < alpha < 1."""
    if not 0 < alpha < 1:
        raise Malformed(f"confidence sequence: alpha: expected 0 to 1, got {alpha}")
    n = sums.effective_n
    if n < LEAST_EFFECTIVE_N:
        return NOTHING_KNOWN
    half = math.sqrt(max(sums.variance, LEAST_VARIANCE)) * half_width(n, alpha)
    return Band(sums.mean, sums.mean - half, sums.mean + half)


def half_width(n: float, alpha: float) -> float:
    """Of the interval after `n` observations, in standard deviations of one observation."""
    r2 = _best_r2(alpha)
    scale = n * r2 + 1
    return math.sqrt(2 * scale / (n * n * r2) * math.log(math.sqrt(scale) / alpha))


def _best_r2(alpha: float) -> float:
    """Makes the interval tightest near `_TIGHTEST_AT_N` observations (their equation for rho, to first order)."""
    wide = -2 * math.log(alpha)
    return (wide + math.log(wide + 1)) / _TIGHTEST_AT_N
