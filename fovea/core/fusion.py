"""Merging what several models, or several views of one, say about the same frame.

Weighted box fusion (Solovyev, Wang, Gabruseva 2021): boxes of one class that overlap form a cluster, whose box is
the score-weighted mean of its members and whose score is the mean of the sources' scores, a silent source counting
as zero to the degree that it is trusted; one that has not looked there does not count. Scores have to be calibrated
(or come from one model), else the louder model wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fovea.core.arrays import FloatArray, IntArray, frozen_boxes, frozen_ints, frozen_unit
from fovea.core.errors import Malformed
from fovea.core.geometry import iou_matrix


@dataclass(frozen=True, slots=True, eq=False)
class BoxSet:
    """Boxes f32[N, 4], scores f32[N] and class ids i32[N] of one source, with the trust it gets (weight > 0), and
    where alone it has looked, f32[R, 4] (None: everywhere)."""

    boxes_xyxy: FloatArray
    scores: FloatArray
    class_ids: IntArray
    weight: float = 1.0
    looked_xyxy: FloatArray | None = None

    def __post_init__(self) -> None:
        boxes = frozen_boxes("box set boxes_xyxy", self.boxes_xyxy)
        object.__setattr__(self, "boxes_xyxy", boxes)
        object.__setattr__(self, "scores", frozen_unit("box set scores", self.scores, (len(boxes),)))
        object.__setattr__(self, "class_ids", frozen_ints("box set class_ids", self.class_ids, (len(boxes),)))
        if not (self.weight > 0 and np.isfinite(self.weight)):
            raise Malformed(f"box set weight: expected a finite number above 0, got {self.weight}")
        if self.looked_xyxy is not None:
            looked = frozen_boxes("box set looked_xyxy", self.looked_xyxy)
            object.__setattr__(self, "looked_xyxy", looked)


@dataclass(frozen=True, slots=True)
class FusionSettings:
    """iou: boxes that overlap by more are one cluster. absent_share: how much a silent source pulls a score down,
    0 (not at all) to 1 (it counts as a score of 0)."""

    iou: float = 0.55
    absent_share: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.iou < 1:
            raise Malformed(f"fusion iou: expected more than 0 and less than 1, got {self.iou}")
        if not 0 <= self.absent_share <= 1:
            raise Malformed(f"fusion absent_share: expected 0 to 1, got {self.absent_share}")


def fuse(sources: Sequence[BoxSet], settings: FusionSettings = FusionSettings()) -> BoxSet:
    """The merged boxes of all sources, best first. Deterministic, and the order of equal sources does not matter
    but for ties. Raises Malformed when there is no source."""
    if not sources:
        raise Malformed("fusion: expected at least one source, got none")
    boxes = np.concatenate([source.boxes_xyxy for source in sources]).astype(np.float64)
    scores = np.concatenate([source.scores for source in sources]).astype(np.float64)
    class_ids = np.concatenate([source.class_ids for source in sources])
    origin = np.concatenate([np.full(len(s.scores), index) for index, s in enumerate(sources)])
    weights = np.array([source.weight for source in sources])

    order = np.lexsort((-scores * weights[origin], class_ids))
    boxes, scores, class_ids, origin = boxes[order], scores[order], class_ids[order], origin[order]
    heads, cluster = np.unique(_heads(boxes, class_ids, origin, settings.iou), return_inverse=True)
    looked = np.sum([s.weight * _looked_at(boxes[heads], s.looked_xyxy) for s in sources], axis=0)
    fused_boxes, fused_scores = _means(boxes, scores, weights[origin], cluster, looked, settings)
    best_first = np.argsort(-fused_scores, kind="stable")
    return BoxSet(fused_boxes[best_first], fused_scores[best_first], class_ids[heads][best_first])


def _heads(boxes: np.ndarray, class_ids: np.ndarray, origin: np.ndarray, iou: float) -> np.ndarray:
    """For each row the row that opened its cluster. Each box, strongest first, joins the best-overlapping cluster of
    its class that has no box of its own source yet (a model does not see one thing twice: suppression has already
    spoken), else opens one."""
    overlaps = iou_matrix(boxes, boxes)
    near = (overlaps > iou) & (class_ids[:, None] == class_ids[None, :])
    heads = np.arange(len(boxes))
    is_head = np.ones(len(boxes), bool)
    # has_source[k, row]: the cluster that `row` heads has a box of source k.
    has_source = origin[None, :] == np.arange(origin.max(initial=-1) + 1)[:, None]
    # Most boxes have no other near them: only those that have one are walked in order.
    for row in np.flatnonzero(np.tril(near, k=-1).any(axis=1)).tolist():
        fitting = np.flatnonzero(near[row, :row] & is_head[:row] & ~has_source[origin[row], :row])
        if len(fitting):
            head = fitting[int(overlaps[row, fitting].argmax())]
            heads[row], is_head[row] = head, False
            has_source[origin[row], head] = True
    return heads


def _means(
    boxes: np.ndarray,
    scores: np.ndarray,
    trust: np.ndarray,
    cluster: np.ndarray,
    looked: np.ndarray,
    settings: FusionSettings,
) -> tuple[FloatArray, FloatArray]:
    """The box f32[K, 4] and the score f32[K] of each cluster 0..K-1, where sources of that much trust `looked`."""
    pull = np.maximum(scores * trust, 1e-12)
    columns = [np.bincount(cluster, pull * column) / np.bincount(cluster, pull) for column in boxes.T]
    spoken = np.bincount(cluster, trust)
    silent = np.maximum(looked - spoken, 0)
    fused_scores = np.bincount(cluster, scores * trust) / (spoken + settings.absent_share * silent)
    return np.stack(columns, axis=1).astype(np.float32), np.minimum(fused_scores, 1).astype(np.float32)


def _looked_at(boxes: np.ndarray, looked_xyxy: FloatArray | None) -> np.ndarray:
    """f64[K]: 1 for boxes of which half or more lies in one of the places, 0 for others."""
    if looked_xyxy is None:
        return np.ones(len(boxes))
    low = np.maximum(boxes[:, None, :2], looked_xyxy[None, :, :2])
    sides = np.maximum(np.minimum(boxes[:, None, 2:], looked_xyxy[None, :, 2:]) - low, 0)
    most = sides.prod(axis=2).max(axis=1, initial=0)
    return np.asarray(most >= (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) / 2, np.float64)
