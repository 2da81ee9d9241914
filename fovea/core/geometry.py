"""Boxes: intersection over union, non-maximum suppression, clipping. All boxes are xyxy in pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fovea.core.arrays import FloatArray
from fovea.core.detections import LOWEST_SCORE
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize

_STRIP = 128
_FEW_PAIRS = 256


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

    def __post_init__(self) -> None:
        for name, share in (("iou", self.iou), ("min_score", self.min_score)):
            if not 0 < share < 1:
                raise Malformed(f"nms {name}: expected more than 0 and less than 1, got {share}")
        if self.max_pairs < 1 or self.max_boxes < 1:
            raise Malformed(
                f"nms max_pairs, max_boxes: expected at least 1, got {self.max_pairs}, {self.max_boxes}"
            )


def iou_matrix(a_xyxy: FloatArray, b_xyxy: FloatArray) -> FloatArray:
    """Intersection over union of every pair: f32[N, 4], f32[M, 4] -> f32[N, M]; 0 where both areas are 0."""
    # One plane per axis: a last axis of 2 would make every step several times slower.
    a, b = a_xyxy.T[:, :, None], b_xyxy.T[:, None, :]
    width = np.minimum(a[2], b[2]) - np.maximum(a[0], b[0])
    height = np.minimum(a[3], b[3]) - np.maximum(a[1], b[1])
    intersection = np.maximum(width, 0) * np.maximum(height, 0)
    union = areas(a_xyxy)[:, None] + areas(b_xyxy)[None, :] - intersection
    overlap: FloatArray = np.divide(intersection, union, out=np.zeros_like(intersection), where=union > 0)
    return overlap


def areas(boxes_xyxy: FloatArray) -> FloatArray:
    """f32[N] areas in px^2."""
    sides = boxes_xyxy[:, 2:] - boxes_xyxy[:, :2]
    return np.asarray(sides[:, 0] * sides[:, 1])


def clip_boxes(boxes_xyxy: FloatArray, size: ImageSize) -> FloatArray:
    """Boxes cut to the image; edges run from 0 to width and height."""
    limits = np.array([size.width, size.height, size.width, size.height], np.float32)
    # What np.clip does, without its wrapper.
    return np.maximum(np.minimum(boxes_xyxy, limits), 0).astype(np.float32, copy=False)


def ranked(class_scores: FloatArray, settings: NmsSettings) -> tuple[NDArray[np.intp], FloatArray]:
    """The strongest `max_boxes` rows of f32[N, C] at `min_score` or above, best first, and their scores f32[K, C]:
    what `nms_pairs` gives where nothing is to be suppressed."""
    best = class_scores.max(axis=1, initial=0)
    rows = np.flatnonzero(best >= settings.min_score)
    rows = rows[np.argsort(-best[rows], kind="stable")][: settings.max_boxes]
    return rows, class_scores[rows]


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
    if len(rows) <= _FEW_PAIRS:
        kept = _greedy_among_few(boxes_xyxy[rows].tolist(), channels.tolist(), settings.iou)
    else:
        kept = np.flatnonzero(_greedy(boxes_xyxy[rows], channels, settings.iou)).tolist()
    rows_of: list[int] = rows.tolist()
    place: dict[int, int] = {}
    inside, places = [], []
    for pair in kept:
        at = place.setdefault(rows_of[pair], len(place))
        if at < settings.max_boxes:
            inside.append(pair)
            places.append(at)
    kept_rows = np.array(list(place)[: settings.max_boxes], np.intp)
    kept_scores = np.zeros((len(kept_rows), class_scores.shape[1]), np.float32)
    kept_scores[places, channels[inside]] = scores[inside]
    return kept_rows, kept_scores


def _greedy_among_few(boxes: list[list[float]], channels: list[int], iou: float) -> list[int]:
    """What `_greedy` keeps, in plain Python: the calls into numpy take three times as long for the pairs of a usual
    frame."""
    kept = []
    kept_of: dict[int, list[tuple[float, float, float, float, float]]] = {}
    for pair, ((x1, y1, x2, y2), channel) in enumerate(zip(boxes, channels, strict=True)):
        area = (x2 - x1) * (y2 - y1)
        rivals = kept_of.setdefault(channel, [])
        for r_x1, r_y1, r_x2, r_y2, r_area in rivals:
            if x1 < r_x2 and r_x1 < x2 and y1 < r_y2 and r_y1 < y2:
                width = (x2 if x2 < r_x2 else r_x2) - (x1 if x1 > r_x1 else r_x1)
                both = width * ((y2 if y2 < r_y2 else r_y2) - (y1 if y1 > r_y1 else r_y1))
                if both > iou * (area + r_area - both):
                    break
        else:
            kept.append(pair)
            rivals.append((x1, y1, x2, y2, area))
    return kept


def _greedy(boxes_xyxy: FloatArray, channels: NDArray[np.intp], iou: float) -> NDArray[np.bool_]:
    """True for the boxes, given best first, that no better kept box of the same class overlaps by more than iou."""
    keep = np.ones(len(boxes_xyxy), bool)
    # In strips against all that follows, so that the tables stay small enough for a cache.
    for start in range(0, len(boxes_xyxy), _STRIP):
        strip = slice(start, start + _STRIP)
        rivals = iou_matrix(boxes_xyxy[strip], boxes_xyxy[start:]) > iou
        rivals &= channels[strip, None] == channels[None, start:]
        # Most boxes have no rival but themselves: only those that have one are walked in order.
        for row in np.flatnonzero(np.count_nonzero(rivals, axis=1) > 1):
            if keep[start + row]:
                keep[start + row + 1 :] &= ~rivals[row, row + 1 :]
    return keep
