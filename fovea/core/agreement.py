"""How far two answers to one frame agree: F1 of their boxes."""

from __future__ import annotations

import numpy as np

from fovea.core.detections import Detections
from fovea.core.errors import Malformed
from fovea.core.geometry import iou_matrix


def agreement_f1(a: Detections, b: Detections, iou: float = 0.5) -> float:
    """0..1: twice the boxes that both have over the boxes of each; a pair overlaps by `iou` or more and is of one
    class, best overlap first, each box in one pair at most. Nothing and nothing agree. Raises Malformed for answers
    to images of different sizes."""
    if a.image_size != b.image_size:
        raise Malformed(f"agreement: expected answers to one image, got {a.image_size} and {b.image_size}")
    if not len(a) and not len(b):
        return 1.0
    overlap = iou_matrix(a.boxes_xyxy, b.boxes_xyxy)
    overlap[a.class_ids[:, None] != b.class_ids[None, :]] = 0
    pairs = 0
    while overlap.size and overlap.max() >= iou:
        row, column = np.unravel_index(int(overlap.argmax()), overlap.shape)
        overlap[row, :] = overlap[:, column] = 0
        pairs += 1
    return 2 * pairs / (len(a) + len(b))
