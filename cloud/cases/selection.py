"""Which cases are worth learning from: arrays in, indices out. Gain, diversity and class balance, one by one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from cloud.cases.stored_case import CaseFilter
from fovea.core.errors import Malformed

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Indices = NDArray[np.intp]

_GAIN_FLOOR = 0.02
"""What no tier disagreed about is chosen last, but before nothing."""
_PRIOR_CASES = 10.0
_AT_ONCE = 512
# How far apart two cases are, as a squared distance: unrelated pictures (half of the bits of their hashes differ)
# count as much as another camera or another condition, the other side of the day half of it, a class a quarter.
_BIT, _PLACE, _HOUR, _CLASS = 1 / 8, 1 / 2, 1 / 4, 1 / 3


@dataclass(frozen=True, slots=True)
class Selection:
    """What is wanted: `count` cases of those that `wanted` means, and all audits of them besides.

    without                   cases that are protected for this reason or a kind of it are left out: what a student is
                              judged by it must not learn
    gain, diversity, balance  how much each counts (exponents; 0: not at all)
    look_at                   of more than these, a random part is looked at
    Equal seeds give equal answers over equal stores.
    """

    count: int
    seed: int = 0
    wanted: CaseFilter = field(default_factory=CaseFilter)
    without: str | None = "golden"
    with_audits: bool = True
    gain: float = 1.0
    diversity: float = 1.0
    balance: float = 1.0
    look_at: int = 20_000

    def __post_init__(self) -> None:
        if self.count < 0 or self.look_at < 1:
            raise Malformed(
                f"selection: expected a count of 0 or more and look_at of 1 or more, got {self.count}, {self.look_at}"
            )
        for name in ("gain", "diversity", "balance"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise Malformed(f"selection {name}: expected 0 or more, got {value}")

    @property
    def filter(self) -> CaseFilter:
        """Which cases may be taken at all."""
        return replace(self.wanted, unprotected_as=self.without)


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """What is known of N cases, to choose by.

    gains         f64[N] measured, 0 to 1; NaN where fewer than two tiers have looked
    reasons       why each was sent
    send_probabilities  f64[N]
    hashes        u64[N]
    cameras, conditions  i64[N] numbers of strata
    hours         f64[N] time of day, 0 to 24
    has_class     bool[N, C]; what has none of them shows nothing, and that is a class, too
    """

    gains: Floats
    reasons: Sequence[Sequence[str]]
    send_probabilities: Floats
    hashes: NDArray[np.uint64]
    cameras: NDArray[np.int64]
    conditions: NDArray[np.int64]
    hours: Floats
    has_class: Bools

    def __len__(self) -> int:
        return len(self.gains)


def expected_gains(pool: Pool) -> Floats:
    """f64[N]: the gain that was measured, else the mean of those that were sent for the same reason (of several, the
    best), drawn towards the mean of all where they are few. Where nothing was measured at all, half of the
    probability with which the gate sent it."""
    is_measured = np.isfinite(pool.gains)
    of_reason: dict[str, list[float]] = defaultdict(list)
    for place in np.flatnonzero(is_measured):
        for reason in pool.reasons[int(place)]:
            of_reason[reason].append(float(pool.gains[place]))
    overall = float(pool.gains[is_measured].mean()) if is_measured.any() else None
    expected = pool.gains.copy()
    for place in np.flatnonzero(~is_measured):
        prior = float(pool.send_probabilities[place]) / 2 if overall is None else overall
        expected[place] = max(
            (
                (sum(of_reason[reason]) + _PRIOR_CASES * prior) / (len(of_reason[reason]) + _PRIOR_CASES)
                for reason in pool.reasons[int(place)]
            ),
            default=prior,
        )
    return expected


def descriptors(pool: Pool) -> NDArray[np.float32]:
    """f32[N, D]: points whose squared distances are described above."""
    bits = np.unpackbits(pool.hashes.astype(">u8").view(np.uint8).reshape(len(pool), 8), axis=1)
    angle = pool.hours * (2 * math.pi / 24)
    parts = [
        bits * _BIT,
        _one_hot(pool.cameras) * _PLACE,
        _one_hot(pool.conditions) * _PLACE,
        np.stack([np.sin(angle), np.cos(angle)], axis=1) * _HOUR,
        pool.has_class * _CLASS,
    ]
    return np.concatenate([part.astype(np.float32) for part in parts], axis=1)


def choose(pool: Pool, selection: Selection, given: Bools | None = None) -> Indices:
    """Up to `selection.count` indices into `pool`, the most wanted first.

    `given` (bool[N]) are taken already: they are not chosen again, and what resembles them is wanted less. Greedy:
    each step takes the best product of expected gain, distance to the nearest that is taken (k-center, after
    Gonzalez, 1985) and the need of its rarest class, 1 / sqrt(1 + how often that was taken).
    """
    count = len(pool)
    is_taken = np.zeros(count, bool) if given is None else given.copy()
    points = descriptors(pool)
    shows = np.concatenate([pool.has_class, ~pool.has_class.any(axis=1, keepdims=True)], axis=1)
    taken_of_class = shows[is_taken].sum(axis=0).astype(np.float64)
    nearest = _distances_to(points, points[is_taken])
    # Equal cases are told apart by the seed alone, not by the order in which a database hands them out.
    luck = 1 + 1e-6 * np.random.default_rng(selection.seed).random(count)
    worth = (_GAIN_FLOOR + expected_gains(pool)) ** selection.gain * luck
    chosen: list[int] = []
    for _ in range(min(selection.count, int(count - is_taken.sum()))):
        need = np.where(shows, 1 / np.sqrt(1 + taken_of_class), 0).max(axis=1)
        score = worth * (1e-9 + nearest) ** selection.diversity * need**selection.balance
        best = int(np.argmax(np.where(is_taken, -1.0, score)))
        chosen.append(best)
        is_taken[best] = True
        taken_of_class += shows[best]
        nearest = np.minimum(nearest, _distances_to(points, points[best : best + 1]))
    return np.array(chosen, np.intp)


def _one_hot(numbers: NDArray[np.int64]) -> Floats:
    _, places = np.unique(numbers, return_inverse=True)
    return np.eye(int(places.max(initial=0)) + 1)[places.ravel()]


def _distances_to(points: NDArray[np.float32], centers: NDArray[np.float32]) -> Floats:
    """f64[N]: from each point to the nearest center; 1 where there is none."""
    if not len(centers):
        return np.ones(len(points))
    nearest = np.full(len(points), np.inf)
    squares = (points**2).sum(axis=1)
    for start in range(0, len(centers), _AT_ONCE):
        part = centers[start : start + _AT_ONCE]
        table = squares[:, None] + (part**2).sum(axis=1)[None, :] - 2 * points @ part.T
        nearest = np.minimum(nearest, table.min(axis=1))
    return np.asarray(np.sqrt(np.maximum(nearest, 0)), np.float64)
