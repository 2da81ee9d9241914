"""From the raw output of a YOLO-family network to boxes and scores in input pixels.

Each decoder takes the output of one image and gives `RawBoxes`; `candidates_of` does the rest (suppression, way back
to the frame, types). The layouts:

cut graph     boxes f32[4R, A] and logits f32[C, A]: our own export, cut before the decode. R distance bins per side
              (distribution focal loss, Li et al. 2020; R = 1: the distance itself), A anchors, strides ascending,
              row-major in each level.
one-to-many   f32[4 + C, A]: Ultralytics v8/v11 export: centre x, y, width, height in px, then class probabilities.
end-to-end    f32[N, 6]: x1, y1, x2, y2, score, class: one score per box.
yolox         f32[A, 5 + C]: offset to the cell, log size, objectness, class probabilities (Ge et al. 2021).

A network may put out anything. A wrong shape is Malformed; an anchor with a NaN, an infinite score or a box of more
than 10 million px is dropped, and its neighbours are not touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import log

import numpy as np
from numpy.typing import NDArray

from fovea.core.arrays import FloatArray
from fovea.core.detections import Candidates, ScoreKind
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from fovea.core.geometry import NmsSettings, nms_pairs, ranked
from fovea.core.labels import LabelSet
from fovea.core.letterbox import Letterbox

_FARTHEST_PX = 1e7
"""No real box has a corner beyond; its area still fits a float32 comfortably."""

_LARGEST_EXPONENT = 88.0
"""exp of more does not fit a float32."""


class Layout(StrEnum):
    """Which of the known output layouts a model has."""

    CUT = "cut"
    ONE_TO_MANY = "one_to_many"
    END_TO_END = "end_to_end"
    YOLOX = "yolox"


@dataclass(frozen=True, slots=True, eq=False)
class RawBoxes:
    """Boxes f32[N, 4] xyxy in input px with raw class scores f32[N, C] in 0..1, not suppressed yet."""

    boxes_xyxy: FloatArray
    class_scores: FloatArray
    kind: ScoreKind


def decode_cut(
    boxes: FloatArray,
    logits: FloatArray,
    input_size: ImageSize,
    strides: Sequence[int],
    min_score: float,
) -> RawBoxes:
    """Decodes boxes f32[4R, A] and logits f32[C, A]; only anchors with a class at `min_score` or above are touched.

    Raises Malformed when the anchor count does not follow from the input size and the strides.
    """
    centres, anchor_strides = _anchors(input_size, tuple(strides))
    anchors = (len(centres),)
    if (
        boxes.ndim != 2 or not len(boxes) or len(boxes) % 4 or boxes.shape[1:] != anchors
        or logits.ndim != 2 or not len(logits) or logits.shape[1:] != anchors
    ):  # fmt: skip
        raise Malformed(
            f"cut graph outputs: expected boxes (4R, {len(centres)}) and logits (C, {len(centres)}) for input "
            f"{input_size} and strides {list(strides)}, got {boxes.shape} and {logits.shape}"
        )
    lowest_logit = log(min_score / (1.0 - min_score))
    alive = _alive(logits.max(axis=0), lowest_logit)
    with _any_number():
        distances = _expected_distances(boxes[:, alive])
        corners = np.empty((len(alive), 4), np.float32)
        centres = centres[alive]
        np.subtract(centres, distances[:, :2], out=corners[:, :2])
        np.add(centres, distances[:, 2:], out=corners[:, 2:])
        corners *= anchor_strides[alive, None]
    if len(boxes) == 4:  # a distance as it comes may be negative, a mean of bins is not
        corners = _ordered(corners)
    return RawBoxes(corners, sigmoid(logits[:, alive].T), ScoreKind.PER_CLASS)


def decode_one_to_many(output: FloatArray, min_score: float) -> RawBoxes:
    """Decodes f32[4 + C, A]: cx, cy, w, h in input px and class probabilities. Raises Malformed for no such shape."""
    if output.ndim != 2 or len(output) < 5:
        raise Malformed(f"one-to-many output: expected (4 + C, A), got {output.shape}")
    alive = _alive(output[4:].max(axis=0), min_score)
    centre, size, scores = output[:2, alive].T, output[2:4, alive].T, output[4:, alive].T
    with _any_number():
        corners = np.concatenate([centre - size / 2, centre + size / 2], axis=1)
    return RawBoxes(_ordered(corners), np.clip(scores, 0, 1), ScoreKind.PER_CLASS)


def decode_end_to_end(output: FloatArray, class_count: int, min_score: float) -> RawBoxes:
    """Decodes f32[N, 6]: x1, y1, x2, y2, score, class channel.

    Raises Malformed for another shape and for a channel out of range: such a model does not go with its labels.
    """
    if output.ndim != 2 or output.shape[1] != 6:
        raise Malformed(f"end-to-end output: expected (N, 6), got {output.shape}")
    rows = output[_alive(output[:, 4], min_score)]
    rows = rows[np.isfinite(rows).all(axis=1)]
    nearest = np.rint(rows[:, 5])
    outside = nearest[(nearest < 0) | (nearest > class_count - 1)]
    if outside.size:
        raise Malformed(f"end-to-end output: expected classes 0 to {class_count - 1}, got {outside[0]:g}")
    channels = nearest.astype(np.intp)
    scores = np.zeros((len(rows), class_count), np.float32)
    scores[np.arange(len(rows)), channels] = np.clip(rows[:, 4], 0, 1)
    return RawBoxes(_ordered(rows[:, :4]), scores, ScoreKind.ONE_PER_BOX)


def decode_yolox(
    output: FloatArray, input_size: ImageSize, strides: Sequence[int], min_score: float
) -> RawBoxes:
    """Decodes f32[A, 5 + C]; the score of a class is objectness times class probability.

    Raises Malformed when the anchor count does not follow from the input size and the strides.
    """
    centres, stride = _anchors(input_size, tuple(strides))
    if output.ndim != 2 or len(output) != len(centres) or output.shape[1] < 6:
        raise Malformed(
            f"yolox output: expected ({len(centres)}, 5 + C) for input {input_size} and strides {list(strides)}, "
            f"got {output.shape}"
        )
    with _any_number():
        scores = output[:, 4:5] * output[:, 5:]
        alive = _alive(scores.max(axis=1), min_score)
        corner, scale = centres[alive] - 0.5, stride[alive, None]
        centre = (output[alive, :2] + corner) * scale
        size = np.exp(output[alive, 2:4]) * scale
        corners = np.concatenate([centre - size / 2, centre + size / 2], axis=1)
    return RawBoxes(_ordered(corners), np.clip(scores[alive], 0, 1), ScoreKind.PER_CLASS)


def candidates_of(raw: RawBoxes, letterbox: Letterbox, labels: LabelSet, nms: NmsSettings) -> Candidates:
    """Suppresses duplicates and maps the rest back to the frame; what lies in the padding alone is dropped.

    A model with one score per box was trained to say each thing once: suppressing its boxes again costs it AP
    (YOLOv10n on 24 COCO photographs: 0.495 with, 0.502 without), so they are only ranked.
    """
    boxes, scores = raw.boxes_xyxy, raw.class_scores
    is_near, is_finite = np.abs(boxes) <= _FARTHEST_PX, np.isfinite(scores)
    if np.count_nonzero(is_near) < boxes.size or np.count_nonzero(is_finite) < scores.size:
        usable = is_near.all(axis=1) & is_finite.all(axis=1)
        boxes, scores = boxes[usable], scores[usable]
    if raw.kind is ScoreKind.ONE_PER_BOX:
        rows, kept_scores = ranked(scores, nms)
    else:
        rows, kept_scores = nms_pairs(boxes, scores, nms)
    in_frame = letterbox.to_frame(boxes[rows])
    has_side = in_frame[:, :2] < in_frame[:, 2:]
    if np.count_nonzero(has_side) < has_side.size:
        visible = has_side.all(axis=1)
        in_frame, kept_scores = in_frame[visible], kept_scores[visible]
    return Candidates(in_frame, kept_scores, raw.kind, labels, letterbox.frame)


def sigmoid(logits: FloatArray) -> FloatArray:
    """The logistic function f32, exact to float32 also where it is small (0.001 and below), without overflow."""
    probabilities: FloatArray = (1 / (1 + np.exp(-np.maximum(logits, -_LARGEST_EXPONENT)))).astype(np.float32)
    return probabilities


def _alive(best_scores: FloatArray, lowest: float) -> NDArray[np.intp]:
    """The anchors worth decoding: `lowest` or above, but neither infinite nor NaN."""
    return ((best_scores >= lowest) & (best_scores < np.inf)).nonzero()[0]


def _any_number() -> np.errstate:
    """Silences numpy where a broken network may overflow; `candidates_of` drops what comes of it."""
    return np.errstate(over="ignore", invalid="ignore")


@lru_cache(maxsize=16)
def _anchors(input_size: ImageSize, strides: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
    """Cell centres f32[A, 2] in units of their stride, and the stride of each anchor f32[A]."""
    centres, per_anchor = [], []
    for stride in strides:
        columns, rows = input_size.width // stride, input_size.height // stride
        grid_y, grid_x = np.mgrid[0:rows, 0:columns].astype(np.float32) + 0.5
        centres.append(np.stack([grid_x.ravel(), grid_y.ravel()], axis=1))
        per_anchor.append(np.full(rows * columns, stride, np.float32))
    grids = np.concatenate(centres), np.concatenate(per_anchor)
    for grid in grids:
        grid.flags.writeable = False  # one array for all callers
    return grids


def _expected_distances(boxes: FloatArray) -> FloatArray:
    """Distances to the four sides f32[N, 4], in strides: the mean of the R-bin distribution of each side."""
    bins = boxes.shape[0] // 4
    if bins == 1:
        return np.ascontiguousarray(boxes.T)
    per_side = boxes.reshape(4, bins, -1)
    weights = np.exp(per_side - per_side.max(axis=1, keepdims=True))
    bin_values = np.arange(bins, dtype=np.float32)[None, :, None]
    mean: FloatArray = (weights * bin_values).sum(axis=1) / weights.sum(axis=1)
    return mean.T


def _ordered(corners_xyxy: FloatArray) -> FloatArray:
    """The same boxes with x1 <= x2 and y1 <= y2 (a network may predict a negative size)."""
    low = np.minimum(corners_xyxy[:, :2], corners_xyxy[:, 2:])
    high = np.maximum(corners_xyxy[:, :2], corners_xyxy[:, 2:])
    return np.concatenate([low, high], axis=1).astype(np.float32)
