"""How far two answers to one frame agree: F1 of their boxes."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from fovea.core.arrays import FloatArray, IntArray
from fovea.core.detections import Detections
from fovea.core.errors import Malformed
from fovea.core.geometry import iou_matrix


def agreement_f1(
    a: Detections,
    b: Detections,
    iou: float = 0.5,
    within_xyxy: FloatArray | None = None,
    class_ids: Collection[int] | None = None,
) -> float:
    """0..1: twice the boxes that both have over the boxes of each; a pair overlaps by `iou` or more and is of one
    class, best overlap first, each box in one pair at most. Nothing and nothing agree. Only boxes count whose middle
    lies in one of the places `within_xyxy` f32[R, 4] px and whose class is among `class_ids` (None: all). Raises
    Malformed for answers to images of different sizes."""
    if a.image_size != b.image_size:
        raise Malformed(f"agreement: expected answers to one image, got {a.image_size} and {b.image_size}")
    rows, columns = (_counting(each, within_xyxy, class_ids) for each in (a, b))
    if not len(rows) and not len(columns):
        return 1.0
    pairs = same_things(
        a.boxes_xyxy[rows], a.class_ids[rows], b.boxes_xyxy[columns], b.class_ids[columns], iou
    )
    return 2 * len(pairs) / (len(rows) + len(columns))


def same_things(
    a_xyxy: FloatArray, a_class_ids: IntArray, b_xyxy: FloatArray, b_class_ids: IntArray, iou: float
) -> list[tuple[int, int]]:
    """Which box of `a` (row) and which of `b` (column) are one thing: of one class, overlapping by `iou` or more;
    best overlap first, each box once."""
    overlap = iou_matrix(a_xyxy, b_xyxy)
    overlap[a_class_ids[:, None] != b_class_ids[None, :]] = 0
    rows, columns = np.nonzero(overlap >= iou)
    order = np.argsort(-overlap[rows, columns], kind="stable")
    free_rows, free_columns, pairs = set(rows.tolist()), set(columns.tolist()), list[tuple[int, int]]()
    for row, column in zip(rows[order].tolist(), columns[order].tolist(), strict=True):
        if row in free_rows and column in free_columns:
            free_rows.remove(row)
            free_columns.remove(column)
            pairs.append((row, column))
    return pairs


def _counting(
    seen: Detections, within_xyxy: FloatArray | None, class_ids: Collection[int] | None
) -> NDArray[np.intp]:
    """Which boxes count."""
    counts = np.ones(len(seen), np.bool_)
    if class_ids is not None:
        counts &= np.isin(seen.class_ids, list(class_ids))
    if within_xyxy is not None:
        middles = ((seen.boxes_xyxy[:, :2] + seen.boxes_xyxy[:, 2:]) / 2)[:, None]
        inside = np.logical_and(within_xyxy[:, :2] <= middles, middles <= within_xyxy[:, 2:])
        counts &= np.any(np.all(inside, axis=2), axis=1)
    return np.flatnonzero(counts)
