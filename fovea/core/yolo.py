"""From the raw output of a YOLO-family network to boxes and scores in input pixels.

Each decoder takes the output of one image and gives `RawBoxes`; `candidates_of` does the rest (suppression, way back
to the frame, types). The layouts:

cut graph     boxes f32[4R, A] and logits f32[C, A]: our own export, cut before the decode. R distance bins per side
              (distribution focal loss, Li et al. 2020; R = 1: the distance itself), A anchors, strides ascending,
              row-major in each level.
one-to-many   f32[4 + C, A]: Ultralytics v8/v11 export: centre x, y, width, height in px, then class probabilities.
end-to-end    f32[N, 6]: x1, y1, x2, y2, score, class: one score per box.
yolox         f32[A, 5 + C]: offset to the cell, log size, objectness, class probabilities (Ge et al. 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import log

import numpy as np

from fovea.core.arrays import FloatArray
from fovea.core.detections import Candidates, ScoreKind
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from fovea.core.geometry import NmsSettings, nms_pairs
from fovea.core.labels import LabelSet
from fovea.core.letterbox import Letterbox


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
    if boxes.shape[-1] != len(centres) or logits.shape[-1] != len(centres) or boxes.shape[0] % 4:
        raise Malformed(
            f"cut graph outputs: expected boxes (4R, {len(centres)}) and logits (C, {len(centres)}) for input "
            f"{input_size} and strides {list(strides)}, got {boxes.shape} and {logits.shape}"
        )
    lowest_logit = log(min_score / (1.0 - min_score))
    alive = np.flatnonzero(logits.max(axis=0) >= lowest_logit)
    distances = _expected_distances(boxes[:, alive])
    centres, stride = centres[alive], anchor_strides[alive, None]
    corners = np.concatenate([centres - distances[:, :2], centres + distances[:, 2:]], axis=1) * stride
    return RawBoxes(_ordered(corners), sigmoid(logits[:, alive].T), ScoreKind.PER_CLASS)


def decode_one_to_many(output: FloatArray, min_score: float) -> RawBoxes:
    """Decodes f32[4 + C, A]: cx, cy, w, h in input px and class probabilities."""
    alive = np.flatnonzero(output[4:].max(axis=0) >= min_score)
    centre, size, scores = output[:2, alive].T, output[2:4, alive].T, output[4:, alive].T
    corners = np.concatenate([centre - size / 2, centre + size / 2], axis=1)
    return RawBoxes(_ordered(corners), np.clip(scores, 0, 1), ScoreKind.PER_CLASS)


def decode_end_to_end(output: FloatArray, class_count: int, min_score: float) -> RawBoxes:
    """Decodes f32[N, 6]: x1, y1, x2, y2, score, class channel. Raises Malformed for a channel out of range."""
    rows = output[output[:, 4] >= min_score]
    channels = rows[:, 5].astype(np.int64)
    if rows.size and (channels.min() < 0 or channels.max() >= class_count):
        raise Malformed(f"end-to-end output: expected classes 0 to {class_count - 1}, got {channels.max()}")
    scores = np.zeros((len(rows), class_count), np.float32)
    scores[np.arange(len(rows)), channels] = np.clip(rows[:, 4], 0, 1)
    return RawBoxes(_ordered(rows[:, :4]), scores, ScoreKind.ONE_PER_BOX)


def decode_yolox(
    output: FloatArray, input_size: ImageSize, strides: Sequence[int], min_score: float
) -> RawBoxes:
    """Decodes f32[A, 5 + C]; the score of a class is objectness times class probability."""
    centres, stride = _anchors(input_size, tuple(strides))
    if len(output) != len(centres):
        raise Malformed(f"yolox output: expected {len(centres)} anchors for {input_size}, got {len(output)}")
    scores = output[:, 4:5] * output[:, 5:]
    alive = np.flatnonzero(scores.max(axis=1) >= min_score)
    corner, scale = centres[alive] - 0.5, stride[alive, None]
    centre = (output[alive, :2] + corner) * scale
    # A wild log size must not overflow; no box is wider than e^10 strides.
    size = np.exp(np.minimum(output[alive, 2:4], 10)) * scale
    corners = np.concatenate([centre - size / 2, centre + size / 2], axis=1)
    return RawBoxes(_ordered(corners), np.clip(scores[alive], 0, 1), ScoreKind.PER_CLASS)


def candidates_of(raw: RawBoxes, letterbox: Letterbox, labels: LabelSet, nms: NmsSettings) -> Candidates:
    """Suppresses duplicates and maps the rest back to the frame."""
    finite = np.isfinite(raw.boxes_xyxy).all(axis=1) & np.isfinite(raw.class_scores).all(axis=1)
    boxes, scores = raw.boxes_xyxy[finite], raw.class_scores[finite]
    rows, kept_scores = nms_pairs(boxes, scores, nms)
    return Candidates(letterbox.to_frame(boxes[rows]), kept_scores, raw.kind, labels, letterbox.frame)


def sigmoid(logits: FloatArray) -> FloatArray:
    """The logistic function, without overflow for large negative logits."""
    probabilities: FloatArray = (0.5 * (1.0 + np.tanh(0.5 * logits))).astype(np.float32)
    return probabilities


@lru_cache(maxsize=16)
def _anchors(input_size: ImageSize, strides: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
    """Cell centres f32[A, 2] in units of their stride, and the stride of each anchor f32[A]."""
    centres, per_anchor = [], []
    for stride in strides:
        columns, rows = input_size.width // stride, input_size.height // stride
        grid_y, grid_x = np.mgrid[0:rows, 0:columns].astype(np.float32) + 0.5
        centres.append(np.stack([grid_x.ravel(), grid_y.ravel()], axis=1))
        per_anchor.append(np.full(rows * columns, stride, np.float32))
    return np.concatenate(centres), np.concatenate(per_anchor)


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
