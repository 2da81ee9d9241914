"""How far scores are from probabilities: detection expected calibration error (D-ECE).

Küppers et al. 2020, "Multivariate Confidence Calibration for Object Detection", over confidence alone: boxes are put
into bins by score, and in each bin the mean score is held against the share of boxes that are right at IoU 0.5.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibration.matching import BoxSize, MatchTable
from fovea.core.errors import Malformed
from fovea.core.scores import ScoreCalibration

_IOU_50 = 0


def detection_calibration_error(
    table: MatchTable,
    calibration: ScoreCalibration | None = None,
    bins: int = 10,
    min_raw_score: float = 0.05,
) -> float:
    """D-ECE 0..1 of the table's scores, after `calibration` if one is given.

    Only boxes with a raw score of `min_raw_score` or more count, so that the error before and after is one over the
    same boxes, and the many hopeless candidates do not hide it. Raises Malformed when there are none.
    """
    scores, is_correct = _scored(table, calibration or ScoreCalibration.identity(), min_raw_score)
    if not len(scores):
        raise Malformed(f"calibration error: no box scores {min_raw_score} or more")
    bin_of = np.minimum((scores * bins).astype(int), bins - 1)
    counts = np.bincount(bin_of, minlength=bins)
    gaps = np.bincount(bin_of, weights=scores - is_correct, minlength=bins)
    return float(np.abs(gaps).sum() / counts.sum())


def _scored(
    table: MatchTable, calibration: ScoreCalibration, min_raw_score: float
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Calibrated scores of the boxes that count, over all classes, and whether each is right."""
    scores, is_correct = [], []
    for class_id in table.class_ids:
        matches = table.matches[class_id, BoxSize.ALL]
        rows = (matches.scores >= min_raw_score) & ~matches.ignored[_IOU_50]
        calibrated = calibration.apply(matches.scores[rows][:, None], (class_id,))[:, 0]
        scores.append(calibrated.astype(np.float64))
        is_correct.append(matches.correct[_IOU_50][rows])
    return np.concatenate(scores), np.concatenate(is_correct)
