"""How far scores are from what they promise: reliability by bins, D-ECE and LaECE of one match table.

D-ECE (Küppers et al. 2020) holds the mean score of a bin against the share of its boxes that are right at IoU 0.5.
LaECE (Oksuz et al. 2023) asks for more: class by class, a score should be precision times how well the right boxes
lie, so a model that is right but sloppy is too sure of itself. The IoU of a right box is read off the ten thresholds
that it passes, so it is known to 0.025.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.matching import IOU_THRESHOLDS, BoxSize, MatchTable
from fovea.core.errors import Malformed
from fovea.core.scores import ScoreCalibration

_IOU_50 = 0
_HALF_STEP = float(IOU_THRESHOLDS[1] - IOU_THRESHOLDS[0]) / 2
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Reliability:
    """Of the bins that have boxes: `mean_score` f64[B], `precision` f64[B] and how many `boxes` f64[B]; and the
    errors 0..1 that follow."""

    mean_score: Floats
    precision: Floats
    boxes: Floats
    d_ece: float
    la_ece: float


def reliability(
    table: MatchTable,
    calibration: ScoreCalibration | None = None,
    bins: int = 10,
    la_bins: int = 25,
    min_raw_score: float = 0.05,
) -> Reliability:
    """Of the table's scores, after `calibration` if one is given.

    Only boxes with a raw score of `min_raw_score` or more count, so that before and after are about the same boxes.
    Raises Malformed when there are none.
    """
    curve = calibration or ScoreCalibration.identity()
    scores, right, la_errors = [], [], []
    for class_id in table.class_ids:
        matches = table.matches[class_id, BoxSize.ALL]
        rows = (matches.scores >= min_raw_score) & ~matches.ignored[_IOU_50]
        if not rows.any():
            continue
        own = curve.apply(matches.scores[rows][:, None], (class_id,))[:, 0].astype(np.float64)
        correct = matches.correct[:, rows]
        overlap = np.where(
            correct[_IOU_50], IOU_THRESHOLDS[0] + (2 * correct.sum(axis=0) - 1) * _HALF_STEP, 0.0
        )
        la_errors.append(_gap(own, overlap, la_bins))
        scores.append(own)
        right.append(correct[_IOU_50].astype(np.float64))
    if not scores:
        raise Malformed(f"calibration error: no box scores {min_raw_score} or more")
    score, hit = np.concatenate(scores), np.concatenate(right)
    bin_of = _bins(score, bins)
    counts = np.bincount(bin_of, minlength=bins)
    filled = counts > 0
    means = [np.bincount(bin_of, each, minlength=bins)[filled] / counts[filled] for each in (score, hit)]
    return Reliability(
        means[0],
        means[1],
        counts[filled].astype(np.float64),
        _gap(score, hit, bins),
        float(np.mean(la_errors)),
    )


def _gap(scores: Floats, reached: Floats, bins: int) -> float:
    """Mean over the boxes of how far the mean score of their bin is from what it reached."""
    sums = np.bincount(_bins(scores, bins), weights=scores - reached, minlength=bins)
    return float(np.abs(sums).sum() / len(scores))


def _bins(scores: Floats, bins: int) -> NDArray[np.int64]:
    of: NDArray[np.int64] = np.minimum((scores * bins).astype(np.int64), bins - 1)
    return of
