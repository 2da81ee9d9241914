"""By how much devices agree more or less than before a stage began, each camera against itself.

Cameras differ in what they look at, by more than a model may lose. The few of a canary, set against all others, would
be blamed for their view; so each device is first compared with itself, and the change of those with the new model
then with the change of those without, who live through the same hours (a difference of differences).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from cloud.rollout.sequential import (
    LEAST_EFFECTIVE_N,
    LEAST_VARIANCE,
    NOTHING_KNOWN,
    Band,
    WeightedSums,
    half_width,
)

LEAST_OF_A_DEVICE = 10.0
"""Fewer observations, before or since, say nothing of a camera."""
_LEAST_SPREAD = 0.02
"""So much, at least, a model is taken to do to one camera more than to another: one camera is no fleet."""


@dataclass(frozen=True, slots=True)
class Shift:
    """The mean change of a cohort and how sure it is: n effective observations since the stage began, the variance
    `since` that more of them make smaller, and the variance `before` that stays: of what was seen earlier, and for
    want of more devices."""

    value: float = math.nan
    since: float = math.inf
    before: float = math.inf
    n: float = 0.0
    devices: int = 0


UNKNOWN = Shift()


def shift_of(devices: Iterable[tuple[WeightedSums, WeightedSums]]) -> Shift:
    """Of devices as (since the stage began, before it). Those that were not seen enough on either side are left
    out."""
    seen = [
        (since, before)
        for since, before in devices
        if min(since.effective_n, before.effective_n) >= LEAST_OF_A_DEVICE
    ]
    if not seen:
        return UNKNOWN
    n = sum(since.effective_n for since, _ in seen)
    spread2 = max(sum(since.effective_n * since.variance for since, _ in seen) / n, LEAST_VARIANCE)
    weights = [1 / (1 / since.effective_n + 1 / before.effective_n) for since, before in seen]
    shares = [weight / sum(weights) for weight in weights]
    changes = [since.mean - before.mean for since, before in seen]
    value = sum(share * change for share, change in zip(shares, changes, strict=True))
    since_part = spread2 * sum(
        share**2 / since.effective_n for share, (since, _) in zip(shares, seen, strict=True)
    )
    before_part = spread2 * sum(
        share**2 / before.effective_n for share, (_, before) in zip(shares, seen, strict=True)
    )
    few = _LEAST_SPREAD**2 * sum(share**2 for share in shares)
    # What a model does to one camera more than to another does not get less with more frames of the same cameras.
    between = _between(shares, changes, value)
    return Shift(value, max(since_part, between - before_part - few), before_part + few, n, len(seen))


def difference(new: Shift, old: Shift, alpha: float) -> Band:
    """How much more `new` has changed than `old`, with all that is unsure."""
    return _band(new, old, alpha, new.since + old.since + new.before + old.before)


def difference_since(new: Shift, old: Shift, alpha: float) -> Band:
    """The same, as if it were known for sure how things were before. That cannot become surer by waiting: it must
    not hold a rollout up for ever where a fleet has not run for long."""
    return _band(new, old, alpha, new.since + old.since)


def _band(new: Shift, old: Shift, alpha: float, variance: float) -> Band:
    if min(new.n, old.n) < LEAST_EFFECTIVE_N:
        return NOTHING_KNOWN
    value, n = new.value - old.value, 1 / (1 / new.n + 1 / old.n)
    half = math.sqrt(n * variance) * half_width(n, alpha)
    return Band(value, value - half, value + half)


def _between(shares: list[float], changes: list[float], value: float) -> float:
    """The variance of the mean as the devices differ; 0 for one alone."""
    count = len(changes)
    if count < 2:
        return 0.0
    squares = sum(share**2 * (change - value) ** 2 for share, change in zip(shares, changes, strict=True))
    return squares * count / (count - 1)
