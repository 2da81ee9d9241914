"""Which box continues which track: overlap of slightly grown boxes, best pairs first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fovea.core.arrays import FloatArray
from fovea.core.geometry import iou_matrix

Rounds = tuple[tuple[float, float], ...]
"""Rounds of matching: how much boxes are grown, and the overlap from which two may be one thing."""
MOVED: Rounds = ((0.0, 0.3), (0.3, 0.25))
"""For where a thing should be by now: near ones first, then farther ones among what is left."""
SAME_MOMENT: Rounds = ((0.0, 0.4),)
"""For two looks at one moment."""
_LEAST_MARGIN_PX = 1.0


def matches(
    expected_xyxy: FloatArray,
    seen_xyxy: FloatArray,
    factors: FloatArray,
    rounds: Rounds,
) -> dict[int, int]:
    """Row of `seen_xyxy` f32[M, 4] -> row of `expected_xyxy` f32[N, 4] that it continues.

    Each round sees what the rounds before have left; overlaps count times `factors` f32[N, M].
    """
    pairs: dict[int, int] = {}
    rows, columns = list(range(len(expected_xyxy))), list(range(len(seen_xyxy)))
    for margin, lowest in rounds:
        likeness = grown_overlaps(expected_xyxy[rows], seen_xyxy[columns], margin)
        likeness *= factors[np.ix_(rows, columns)]
        found = [(rows[row], columns[column]) for row, column in best_pairs(likeness, lowest)]
        pairs |= {column: row for row, column in found}
        taken = {row for row, _ in found}
        rows = [row for row in rows if row not in taken]
        columns = [column for column in columns if column not in pairs]
        if not rows or not columns:
            break
    return pairs


def grown_overlaps(a_xyxy: FloatArray, b_xyxy: FloatArray, margin: float) -> FloatArray:
    """IoU f32[N, M] of boxes that were grown by `margin` of their sides on every side (1 px at least, if any).

    Growing lets small, fast things overlap between two looks (Yang et al. 2023, "buffered IoU"): a plain IoU of 0
    does not tell a near miss from the far end of the frame.
    """
    if margin == 0:
        return iou_matrix(a_xyxy, b_xyxy)
    return iou_matrix(_grown(a_xyxy, margin), _grown(b_xyxy, margin))


def best_pairs(likeness: FloatArray, lowest: float) -> list[tuple[int, int]]:
    """Pairs (row, column) of f32[N, M], the likest first, each row and column once, all above `lowest`.

    Greedy, not the optimum of the sum: with a handful of things in view the two seldom differ, and the optimum
    would trade a sure pair for two doubtful ones.
    """
    rows, columns = np.nonzero(likeness > lowest)
    order = np.argsort(-likeness[rows, columns], kind="stable")
    pairs = []
    used_rows: set[int] = set()
    used_columns: set[int] = set()
    for row, column in zip(rows[order].tolist(), columns[order].tolist(), strict=True):
        if row not in used_rows and column not in used_columns:
            used_rows.add(row)
            used_columns.add(column)
            pairs.append((row, column))
    return pairs


def class_factors(a_class_ids: Sequence[int], b_class_ids: NDArray[np.int32], other: float) -> FloatArray:
    """f32[N, M]: 1 where both are of one class, `other` where not."""
    same = np.array(a_class_ids, np.int32)[:, None] == b_class_ids[None, :]
    return np.where(same, np.float32(1), np.float32(other))


def _grown(boxes_xyxy: FloatArray, margin: float) -> FloatArray:
    margins = np.maximum((boxes_xyxy[:, 2:] - boxes_xyxy[:, :2]) * margin, _LEAST_MARGIN_PX)
    return np.concatenate([boxes_xyxy[:, :2] - margins, boxes_xyxy[:, 2:] + margins], axis=1)
