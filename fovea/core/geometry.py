"""Boxes: intersection over union, non-maximum suppression, clipping. All boxes are xyxy in pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fovea.core.arrays import FloatArray
from fovea.core.detections import LOWEST_SCORE
from fovea.core.frame import ImageSize


@dataclass(frozen=True, slots=True)
class NmsSettings:
    """How raw outputs become candidates.

    iou: two boxes of one class that overlap by more are the same thing. min_score: weaker pairs of box and class
    are dropped first. max_pairs: only the strongest pairs are looked at (bounds the time on a board).
    max_boxes: the most that is kept.
    """

    iou: float = 0.65
    min_score: float = LOWEST_SCORE
    max_pairs: int = 1000
    max_boxes: int = 300


def iou_matrix(a_xyxy: FloatArray, b_xyxy: FloatArray) -> FloatArray:
    """Intersection over union of every pair: f32[N, 4], f32[M, 4] -> f32[N, M]; 0 where both areas are 0."""
    left_top = np.maximum(a_xyxy[:, None, :2], b_xyxy[None, :, :2])
    right_bottom = np.minimum(a_xyxy[:, None, 2:], b_xyxy[None, :, 2:])
    sides = np.maximum(right_bottom - left_top, 0)
    intersection = sides[..., 0] * sides[..., 1]
    union = areas(a_xyxy)[:, None] + areas(b_xyxy)[None, :] - intersection
    return np.divide(intersection, union, out=np.zeros_like(intersection), where=union > 0)


def areas(boxes_xyxy: FloatArray) -> FloatArray:
    """f32[N] areas in px^2."""
    sides = boxes_xyxy[:, 2:] - boxes_xyxy[:, :2]
    return np.asarray(sides[:, 0] * sides[:, 1])


def clip_boxes(boxes_xyxy: FloatArray, size: ImageSize) -> FloatArray:
    """Boxes cut to the image; edges run from 0 to width and height."""
    limits = np.array([size.width, size.height, size.width, size.height], np.float32)
    return np.clip(boxes_xyxy, 0, limits).astype(np.float32, copy=False)


def nms_pairs(
    boxes_xyxy: FloatArray, class_scores: FloatArray, settings: NmsSettings
) -> tuple[NDArray[np.intp], FloatArray]:
    """Greedy suppression among the (box, class) pairs of each class.

    f32[N, 4] and f32[N, C] in; out: the rows kept i[K], best first, and their scores f32[K, C] in which a pair that
    lost to a better box of its class is 0. This is the multi-label form of the COCO evaluation, with the losing
    classes of a kept box told apart from the winning ones.
    """
    rows, channels = np.nonzero(class_scores >= settings.min_score)
    scores = class_scores[rows, channels]
    order = np.argsort(-scores, kind="stable")[: settings.max_pairs]
    rows, channels, scores = rows[order], channels[order], scores[order]
    keep = _greedy(boxes_xyxy[rows], channels, settings.iou)
    rows, channels, scores = rows[keep], channels[keep], scores[keep]

    kept_rows, first = np.unique(rows, return_index=True)
    kept_rows = kept_rows[np.argsort(first, kind="stable")][: settings.max_boxes]
    place = np.full(len(boxes_xyxy), -1, np.intp)
    place[kept_rows] = np.arange(len(kept_rows))
    inside = place[rows] >= 0
    kept_scores = np.zeros((len(kept_rows), class_scores.shape[1]), np.float32)
    kept_scores[place[rows[inside]], channels[inside]] = scores[inside]
    return kept_rows, kept_scores


def _greedy(boxes_xyxy: FloatArray, channels: NDArray[np.intp], iou: float) -> NDArray[np.bool_]:
    """True for the boxes, given best first, that no better kept box of the same class overlaps by more than iou."""
    keep = np.ones(len(boxes_xyxy), bool)
    if not len(boxes_xyxy):
        return keep
    overlaps = (iou_matrix(boxes_xyxy, boxes_xyxy) > iou) & (channels[:, None] == channels[None, :])
    rivals = np.flatnonzero(overlaps.sum(axis=1) > 1)
    # Most boxes have no rival at all: only those that have one are walked in order.
    for row in rivals:
        if keep[row]:
            beaten = overlaps[row, row + 1 :]
            keep[row + 1 :][beaten] = False
    return keep
