"""Which box continues which track: overlap of slightly grown boxes, best pairs first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from edge_agent.track.tracking import Box
from fovea.core.arrays import FloatArray
from fovea.core.geometry import iou_matrix

Rounds = tuple[tuple[float, float], ...]
"""Rounds of matching: how much boxes are grown, and the overlap from which two may be one thing."""
MOVED: Rounds = ((0.0, 0.3), (0.3, 0.25))
"""For where a thing should be by now: near ones first, then farther ones among what is left."""
SAME_MOMENT: Rounds = ((0.0, 0.4),)
"""For two looks at one moment."""
FEW_PAIRS = 1000
"""Up to so many pairs plain Python is faster than the calls into numpy."""
_LEAST_MARGIN_PX = 1.0
_OTHER_CLASS = 0.7
"""What an overlap counts with a box of another class."""


def pairs_of(
    known: Sequence[tuple[int, float]],
    places: Sequence[Box],
    boxes: Sequence[Box],
    class_ids: Sequence[int],
    rounds: Rounds,
) -> dict[int, int]:
    """Row of `boxes` -> index of the thing that it continues; `known` holds class and weight of each thing, `places`
    where it should be."""
    if not known or not boxes:
        return {}
    if len(known) * len(boxes) <= FEW_PAIRS:

        def factor(place: int, row: int) -> float:
            class_id, weight = known[place]
            return weight if class_id == class_ids[row] else weight * _OTHER_CLASS

        return matches_of_few(places, boxes, factor, rounds)
    factors = class_factors([class_id for class_id, _ in known], np.array(class_ids, np.int32), _OTHER_CLASS)
    factors *= np.array([weight for _, weight in known], np.float32)[:, None]
    return matches(np.array(places, np.float32), np.array(boxes, np.float32), factors, rounds)


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


def matches_of_few(
    expected: Sequence[Box], seen: Sequence[Box], factor: Callable[[int, int], float], rounds: Rounds
) -> dict[int, int]:
    """What `matches` gives, without an array; `factor(row, column)` is asked only where boxes overlap."""
    pairs: dict[int, int] = {}
    rows, columns = list(range(len(expected))), list(range(len(seen)))
    for margin, lowest in rounds:
        there = [(row, *_with_area(expected[row], margin)) for row in rows]
        found: list[tuple[float, int, int]] = []
        for column in columns:
            b_x1, b_y1, b_x2, b_y2, b_area = _with_area(seen[column], margin)
            for row, x1, y1, x2, y2, area in there:
                if x1 < b_x2 and b_x1 < x2 and y1 < b_y2 and b_y1 < y2:
                    both = ((x2 if x2 < b_x2 else b_x2) - (x1 if x1 > b_x1 else b_x1)) * (
                        (y2 if y2 < b_y2 else b_y2) - (y1 if y1 > b_y1 else b_y1)
                    )
                    union = area + b_area - both
                    likeness = both / union * factor(row, column) if union > 0 else 0.0
                    if likeness > lowest:
                        found.append((-likeness, row, column))
        found.sort()
        taken = set()
        for _, row, column in found:
            if row not in taken and column not in pairs:
                taken.add(row)
                pairs[column] = row
        rows = [row for row in rows if row not in taken]
        columns = [column for column in columns if column not in pairs]
        if not rows or not columns:
            break
    return pairs


def overlap_of(a: Box, b: Box) -> float:
    """IoU of two boxes; 0 where they do not overlap."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    both = width * height
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both
    return both / union if union > 0 else 0.0


def is_covered(box: Box, others: Sequence[Box], share: float) -> bool:
    """Whether any one of the other boxes covers this share of a box."""
    x1, y1, x2, y2 = box
    least = (x2 - x1) * (y2 - y1) * share
    if least <= 0:
        return False
    for o_x1, o_y1, o_x2, o_y2 in others:
        if x1 < o_x2 and o_x1 < x2 and y1 < o_y2 and o_y1 < y2:
            width = (x2 if x2 < o_x2 else o_x2) - (x1 if x1 > o_x1 else o_x1)
            height = (y2 if y2 < o_y2 else o_y2) - (y1 if y1 > o_y1 else o_y1)
            if width * height >= least:
                return True
    return False


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


def _with_area(box: Box, margin: float) -> tuple[float, float, float, float, float]:
    """The box grown as `grown_overlaps` does, and its area."""
    x1, y1, x2, y2 = box
    if margin:
        across = max((x2 - x1) * margin, _LEAST_MARGIN_PX)
        down = max((y2 - y1) * margin, _LEAST_MARGIN_PX)
        x1, y1, x2, y2 = x1 - across, y1 - down, x2 + across, y2 + down
    return x1, y1, x2, y2, (x2 - x1) * (y2 - y1)
