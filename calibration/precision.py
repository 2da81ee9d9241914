"""Average precision of any weighting of the groups in a match table, by COCO's formula.

A weight says how often a group counts: 1 and 0 pick a subset of clips, whole numbers from a draw with replacement are
a bootstrap resample. One pass over the true positives serves all weightings together: between two of them only the
number of boxes in each group matters.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibration.matching import IOU_THRESHOLDS, BoxSize, ClassMatches, MatchTable

RECALLS: NDArray[np.float64] = np.linspace(0.0, 1.0, 101)
_COLUMNS_AT_ONCE = 250
"""Bounds the memory: true positives x weightings, in doubles."""


def average_precisions(table: MatchTable, weights: NDArray[np.float64], size: BoxSize) -> NDArray[np.float64]:
    """AP f64[K, T, B] of the table's K classes at T IoU thresholds under B weightings f64[G, B] of its groups.

    NaN where a class has no true box of that size under a weighting.
    """
    columns = range(0, weights.shape[1], _COLUMNS_AT_ONCE)
    return np.stack(
        [
            np.concatenate(
                [
                    _of_class(table.matches[class_id, size], weights[:, at : at + _COLUMNS_AT_ONCE])
                    for at in columns
                ],
                axis=1,
            )
            for class_id in table.class_ids
        ]
    )


def _of_class(matches: ClassMatches, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    positives = matches.positives @ weights
    by_threshold = np.stack(
        [_at_threshold(matches, index, weights, positives) for index in range(len(IOU_THRESHOLDS))]
    )
    by_threshold[:, positives == 0] = np.nan
    return by_threshold


def _at_threshold(
    matches: ClassMatches, index: int, weights: NDArray[np.float64], positives: NDArray[np.float64]
) -> NDArray[np.float64]:
    """AP f64[B] of one class at one IoU threshold."""
    hit_rows = np.flatnonzero(matches.correct[index])
    if not len(hit_rows):
        return np.zeros(weights.shape[1])
    counted = np.flatnonzero(~matches.ignored[index])
    # The stretch between two hits that a box lies in; boxes after the last hit change nothing.
    stretch = np.searchsorted(hit_rows, counted)
    counted, stretch = counted[stretch < len(hit_rows)], stretch[stretch < len(hit_rows)]
    cells = stretch * len(weights) + matches.group[counted]
    boxes = np.bincount(cells, minlength=len(hit_rows) * len(weights)).reshape(len(hit_rows), -1)
    boxes_so_far = np.cumsum(boxes.astype(np.float64) @ weights, axis=0)
    hits_so_far = np.cumsum(weights[matches.group[hit_rows]], axis=0)
    precision = np.divide(hits_so_far, boxes_so_far, out=np.zeros_like(hits_so_far), where=boxes_so_far > 0)
    envelope = np.maximum.accumulate(precision[::-1], axis=0)[::-1]
    recall = np.divide(hits_so_far, positives, out=np.zeros_like(hits_so_far), where=positives > 0)
    # How many of the 101 recall levels each hit is the first to reach; level 0 is reached at once.
    newly = np.diff(_levels_reached(recall), axis=0, prepend=0)
    average: NDArray[np.float64] = (newly * envelope).sum(axis=0) / len(RECALLS)
    return average


def _levels_reached(recall: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many of RECALLS are at or below each recall (np.searchsorted from the right, many times faster)."""
    nearest = (recall * 100 + 1e-6).astype(np.int64)
    reached: NDArray[np.int64] = nearest + (RECALLS[nearest] <= recall)
    return reached
