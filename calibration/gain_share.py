"""How well a rule chooses what to ask: its share of the gain that an oracle has with as many questions.

An oracle that knows the reward of every frame (`calibration.reward`) asks about the most rewarding ones. The gain
share of a rule is what its own choice adds to the AP of the weak model, over what the oracle's choice of as many
frames adds: 1 is perfect, and chance has its share, too. Two rules are compared on the same resampled clips, so that
what is hard for both cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from calibration.cascade import CascadeTable, Flags, Floats, mean_ap, top_share
from calibration.evaluate import Interval
from fovea.core.errors import Malformed

_QUANTILES = (0.025, 0.975)


class Verdict(StrEnum):
    """What a paired comparison says: ABOVE and BELOW where the 95 % interval leaves 0 out."""

    ABOVE = "above"
    TIE = "tie"
    BELOW = "below"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Gain share of one rule minus that of another, with the interval over clips."""

    difference: Interval

    @property
    def verdict(self) -> Verdict:
        if self.difference.low > 0:
            return Verdict.ABOVE
        return Verdict.BELOW if self.difference.high < 0 else Verdict.TIE


def gain_share(table: CascadeTable, asked: Flags, oracle: Flags) -> float:
    """Share of the gain of `oracle` bool[F] that `asked` bool[F], or the mean over the columns bool[F, D], has.

    Raises Malformed where the oracle gains nothing: there is nothing to have a share of.
    """
    nobody = np.zeros(len(table), bool)
    mixtures = np.column_stack([nobody, oracle, asked])
    ap = table.ap(mixtures)
    if ap[1] <= ap[0]:
        raise Malformed(
            f"gain share: expected an oracle that gains, got AP {ap[1]:.4f} with it and {ap[0]:.4f} without"
        )
    return float((ap[2:].mean() - ap[0]) / (ap[1] - ap[0]))


def compare_gain_shares(
    table: CascadeTable,
    ours: Flags,
    others: Sequence[Flags],
    oracle: Flags,
    resamples: int = 1000,
    seed: int = 0,
) -> list[Comparison]:
    """`ours` bool[F] against each of the others (bool[F], or bool[F, D] for the mean of D draws of one rule).

    All choices stay as they are; the clips are drawn with replacement. Raises Malformed as `gain_share` does.
    """
    clips = len(table.clips)
    weights = np.random.default_rng(seed).multinomial(clips, np.full(clips, 1 / clips), size=resamples).T
    counts = np.column_stack([np.ones(clips), weights]).astype(np.float64)

    def ap_of(asked: Flags) -> Floats:
        drawn = [mean_ap(table.mixed(one), counts) for one in np.atleast_2d(asked.T)]
        mean: Floats = np.mean(drawn, axis=0)
        return mean

    weak, best, own = ap_of(np.zeros(len(table), bool)), ap_of(oracle), ap_of(ours)
    if best[0] <= weak[0]:
        raise Malformed("gain share: expected an oracle that gains, got one that does not")
    usable = best > weak  # A resample in which even the oracle gains nothing says nothing about shares.
    compared = []
    for other in others:
        shares = (own - ap_of(other))[usable] / (best - weak)[usable]
        low, high = np.quantile(shares[1:], _QUANTILES)
        compared.append(Comparison(Interval(float(shares[0]), float(low), float(high))))
    return compared


def ap_curve(table: CascadeTable, scores: Floats, shares: Sequence[float]) -> Floats:
    """AP f64[S] when each share (0..1) of the frames, by the highest scores, is asked."""
    return table.ap(np.column_stack([top_share(scores, share) for share in shares]))


NEVER_PCT = 101.0
"""In place of a percentage that is not reached even when everything is asked."""


def equals_strong_at_pct(table: CascadeTable, scores: Floats, strong_ap: float) -> float:
    """The smallest whole percentage asked, by the highest scores, at which the mixture is as good as the strong model
    alone; NEVER_PCT where it never is."""
    curve = ap_curve(table, scores, [pct / 100 for pct in range(101)])
    reached = np.flatnonzero(curve >= strong_ap)
    return float(reached[0]) if len(reached) else NEVER_PCT


def misroutes(reward: Floats, asked: Flags, window: NDArray[np.int64]) -> float:
    """Costly misroutes as a share of all frames: kept although their gain exceeds that of a frame that was asked in
    the same window (i64[F]); how many is averaged over the columns of bool[F, D]. A window in which nothing was
    asked has none."""
    total = 0.0
    columns = np.atleast_2d(asked.T)
    for column in columns:
        for each in np.unique(window):
            here = window == each
            if (column & here).any():
                cheapest = reward[column & here].min()
                total += np.count_nonzero(reward[here & ~column] > cheapest)
    return total / (len(columns) * len(reward))


def misroute_cost(reward: Floats, asked: Flags, window: NDArray[np.int64]) -> float:
    """What misroutes cost, as the mean gain per frame that the best choice of as many frames in each window would
    have on top; averaged over columns."""
    total = 0.0
    columns = np.atleast_2d(asked.T)
    for column in columns:
        for each in np.unique(window):
            here = window == each
            best = np.sort(reward[here])[::-1][: np.count_nonzero(column & here)].sum()
            total += best - reward[column & here].sum()
    return total / (len(columns) * len(reward))


def needless_pct(reward: Floats, asked: Flags) -> float:
    """Percentage of the frames asked that gained nothing, or lost; 0 where nothing was asked."""
    return 100 * float((reward[asked] <= 0).mean()) if asked.any() else 0.0
