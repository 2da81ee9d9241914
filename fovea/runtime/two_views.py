"""Test-time augmentation: what a model saw in a frame and in its mirror image, as one set of candidates."""

from __future__ import annotations

import numpy as np

from fovea.core.arrays import FloatArray
from fovea.core.detections import LOWEST_SCORE, Candidates
from fovea.core.fusion import BoxSet, FusionSettings, fuse
from fovea.core.geometry import iou_matrix

_SETTINGS = FusionSettings(iou=0.55, absent_share=1.0)


def merge_views(plain: Candidates, mirrored: Candidates, max_boxes: int) -> Candidates:
    """Candidates of a frame and of its mirror image (in mirrored coordinates) as candidates of the frame.

    Boxes of the same best class are fused (`fovea.core.fusion`): the box is the score-weighted mean, the score the
    mean of the two views, a view that saw nothing counting as 0. The scores of the other classes are the mean of
    the two boxes that went in, kept below that of the best class.
    """
    width = plain.image_size.width
    turned = mirrored.boxes_xyxy[:, [2, 1, 0, 3]].copy()
    turned[:, [0, 2]] = width - turned[:, [0, 2]]
    views = [(plain.boxes_xyxy, plain.class_scores), (turned, mirrored.class_scores)]
    fused = fuse([_box_set(boxes, scores) for boxes, scores in views], _SETTINGS)

    class_scores = sum((_matching_scores(fused, boxes, scores) for boxes, scores in views), np.float32(0))
    class_scores = np.minimum(np.asarray(class_scores / 2, np.float32), fused.scores[:, None])
    class_scores[np.arange(len(fused.scores)), fused.class_ids] = fused.scores
    kept = np.flatnonzero(fused.scores >= LOWEST_SCORE)[:max_boxes]
    return Candidates(fused.boxes_xyxy[kept], class_scores[kept], plain.kind, plain.labels, plain.image_size)


def _box_set(boxes_xyxy: FloatArray, class_scores: FloatArray) -> BoxSet:
    return BoxSet(boxes_xyxy, class_scores.max(axis=1), class_scores.argmax(axis=1).astype(np.int32))


def _matching_scores(fused: BoxSet, boxes_xyxy: FloatArray, class_scores: FloatArray) -> FloatArray:
    """For each fused box, the class scores of the view's box that overlaps it most and has its class, else zeros."""
    if not len(boxes_xyxy):
        return np.zeros((len(fused.scores), class_scores.shape[1]), np.float32)
    overlaps = iou_matrix(fused.boxes_xyxy, boxes_xyxy)
    overlaps[fused.class_ids[:, None] != class_scores.argmax(axis=1)[None, :]] = 0
    best = overlaps.argmax(axis=1)
    is_match = overlaps[np.arange(len(best)), best] > _SETTINGS.iou
    scores: FloatArray = np.where(is_match[:, None], class_scores[best], 0).astype(np.float32)
    return scores
