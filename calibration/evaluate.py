"""How good a detector is: average precision by the COCO rules, with intervals over whole clips.

AP is computed over every (box, class) pair of the candidates down to a raw score of 0.001, not over the boxes that
were answered. Frames are matched once (`match`); `report`, `interval` and `compare` count on the table. Intervals are
95 % bootstrap percentile intervals over groups (Efron 1979): frames of one clip resemble each other, so whole clips
are drawn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.matching import BoxSize, MatchTable, match
from calibration.precision import average_precisions
from calibration.truth import EvaluatedFrame, GroundTruth
from fovea.core.errors import Malformed

__all__ = [
    "ApReport", "EvaluatedFrame", "GroundTruth", "Interval", "MatchTable", "compare", "compare_unpaired", "evaluate",
    "interval", "match", "report",
]  # fmt: skip

_IOU_50, _IOU_75 = 0, 5
_QUANTILES = (0.025, 0.975)


@dataclass(frozen=True, slots=True)
class ApReport:
    """Average precision 0..1: `ap` over IoU 0.50 to 0.95, `ap50` and `ap75` at one IoU, all as means over the classes
    that have a true box. `by_class` (of class ids) and `by_size` hold only what has true boxes."""

    ap: float
    ap50: float
    ap75: float
    by_class: Mapping[int, float]
    by_size: Mapping[BoxSize, float]
    frames: int
    boxes: int


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and its 95 % interval."""

    value: float
    low: float
    high: float


def evaluate(frames: Sequence[EvaluatedFrame], class_ids: Iterable[int]) -> ApReport:
    """AP of `frames` over the classes that are named here and that the truth has.

    Raises Malformed without frames or without a single true box of the classes.
    """
    return report(match(frames, class_ids))


def report(table: MatchTable, groups: Collection[str] | None = None) -> ApReport:
    """AP of a match table, or of those of its groups that are named. Raises Malformed as `evaluate` does."""
    weights = _indicator(table, groups)
    by_threshold = average_precisions(table, weights, BoxSize.ALL)[:, :, 0]
    present = ~np.isnan(by_threshold[:, 0])
    if not present.any():
        raise Malformed(f"evaluation: no true box of the classes {list(table.class_ids)} in these frames")
    means = by_threshold[present].mean(axis=0)
    by_size: dict[BoxSize, float] = {}
    for size in BoxSize:
        if size is not BoxSize.ALL and (table.class_ids[0], size) in table.matches:
            values = average_precisions(table, weights, size)
            if not np.isnan(values).all():
                by_size[size] = float(np.nanmean(values))
    return ApReport(
        ap=float(means.mean()),
        ap50=float(means[_IOU_50]),
        ap75=float(means[_IOU_75]),
        by_class={
            class_id: float(values.mean())
            for class_id, values, is_present in zip(table.class_ids, by_threshold, present, strict=True)
            if is_present
        },
        by_size=by_size,
        frames=int(weights[:, 0] @ table.frames),
        boxes=int(sum(table.matches[c, BoxSize.ALL].positives @ weights[:, 0] for c in table.class_ids)),
    )


def interval(
    table: MatchTable, groups: Collection[str] | None = None, resamples: int = 1000, seed: int = 0
) -> Interval:
    """AP with its interval over resampled groups (of those named, or all)."""
    rng = np.random.default_rng(seed)
    return _interval(
        report(table, groups).ap, _mean_ap(table, _resamples(_indicator(table, groups), resamples, rng))
    )


def compare(
    a: MatchTable,
    b: MatchTable,
    groups: Collection[str] | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """AP of `a` minus AP of `b` on the same clips: both see the same resamples, so what is hard for both cancels.

    Raises Malformed when the two are not about the same groups.
    """
    if a.groups != b.groups:
        raise Malformed("paired comparison: expected the same groups on both sides")
    weights = _resamples(_indicator(a, groups), resamples, np.random.default_rng(seed))
    return _interval(report(a, groups).ap - report(b, groups).ap, _mean_ap(a, weights) - _mean_ap(b, weights))


def compare_unpaired(a: MatchTable, b: MatchTable, resamples: int = 1000, seed: int = 0) -> Interval:
    """AP of `a` minus AP of `b` where the clips are not the same ones: each side is resampled by itself."""
    rng = np.random.default_rng(seed)
    drawn_a = _mean_ap(a, _resamples(_indicator(a, None), resamples, rng))
    drawn_b = _mean_ap(b, _resamples(_indicator(b, None), resamples, rng))
    return _interval(report(a).ap - report(b).ap, drawn_a - drawn_b)


def _indicator(table: MatchTable, groups: Collection[str] | None) -> NDArray[np.float64]:
    """Weights f64[G, 1]: 1 for the groups named. Raises Malformed for a name that is not there."""
    if groups is None:
        return np.ones((len(table.groups), 1))
    unknown = set(groups) - set(table.groups)
    if unknown or not groups:
        raise Malformed(
            f"evaluation: expected some of the {len(table.groups)} groups, got {sorted(unknown)[:5]}"
        )
    chosen = set(groups)
    return np.array([[float(group in chosen)] for group in table.groups])


def _resamples(
    indicator: NDArray[np.float64], resamples: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Weights f64[G, B]: how often each group came up in each of B draws with replacement."""
    rows = np.flatnonzero(indicator[:, 0])
    weights = np.zeros((len(indicator), resamples))
    weights[rows] = rng.multinomial(len(rows), np.full(len(rows), 1 / len(rows)), size=resamples).T
    return weights


def _mean_ap(table: MatchTable, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """AP f64[B] as the mean over classes that have a true box under each weighting; NaN where none has."""
    by_class = average_precisions(table, weights, BoxSize.ALL).mean(axis=1)
    present = ~np.isnan(by_class)
    total = np.where(present, by_class, 0).sum(axis=0)
    mean: NDArray[np.float64] = np.full(len(total), np.nan)
    np.divide(total, present.sum(axis=0), out=mean, where=present.any(axis=0))
    return mean


def _interval(value: float, drawn: NDArray[np.float64]) -> Interval:
    low, high = np.nanquantile(drawn, _QUANTILES)
    return Interval(value, float(low), float(high))
