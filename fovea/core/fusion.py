"""Merging what several models, or several views of one, say about the same frame.

Weighted box fusion (Solovyev, Wang, Gabruseva 2021): boxes of one class that overlap form a cluster, whose box is
the score-weighted mean of its members and whose score is the mean of the sources' scores, a silent source counting
as zero to the degree that it is trusted. Scores have to be calibrated (or come from one model), else the louder
model wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fovea.core.arrays import FloatArray, IntArray
from fovea.core.detections import Detections, ModelRef
from fovea.core.errors import Malformed
from fovea.core.geometry import iou_matrix


@dataclass(frozen=True, slots=True, eq=False)
class BoxSet:
    """Boxes f32[N, 4], scores f32[N] and class ids i32[N] of one source, with the trust it gets (weight > 0)."""

    boxes_xyxy: FloatArray
    scores: FloatArray
    class_ids: IntArray
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class FusionSettings:
    """iou: boxes that overlap by more are one cluster. absent_share: how much a silent source pulls a score down,
    0 (not at all) to 1 (it counts as a score of 0)."""

    iou: float = 0.55
    absent_share: float = 1.0


def fuse(sources: Sequence[BoxSet], settings: FusionSettings = FusionSettings()) -> BoxSet:
    """The merged boxes of all sources, best first. Deterministic, and the order of equal sources does not matter
    but for ties. Raises Malformed when there is no source or a weight is not above zero."""
    if not sources or any(not source.weight > 0 for source in sources):
        raise Malformed("fusion: expected at least one source, each with a weight above 0")
    boxes = np.concatenate([source.boxes_xyxy for source in sources]).astype(np.float64)
    scores = np.concatenate([source.scores for source in sources]).astype(np.float64)
    class_ids = np.concatenate([source.class_ids for source in sources])
    origin = np.concatenate([np.full(len(s.scores), index) for index, s in enumerate(sources)])
    weights = np.array([source.weight for source in sources])

    fused: list[tuple[float, int, np.ndarray]] = []
    for class_id in np.unique(class_ids):
        members = np.flatnonzero(class_ids == class_id)
        members = members[np.argsort(-(scores * weights[origin])[members], kind="stable")]
        for cluster in _clusters(boxes[members], origin[members], settings.iou):
            rows = members[cluster]
            fused.append(_merge(boxes[rows], scores[rows], origin[rows], weights, int(class_id), settings))
    fused.sort(key=lambda item: -item[0])
    return BoxSet(
        np.array([box for _, _, box in fused], np.float32).reshape(-1, 4),
        np.array([score for score, _, _ in fused], np.float32),
        np.array([class_id for _, class_id, _ in fused], np.int32),
    )


def merge_detections(
    answers: Sequence[Detections],
    weights: Sequence[float],
    merged_ref: ModelRef,
    settings: FusionSettings = FusionSettings(),
) -> Detections:
    """Fuses answers to one frame into one. Raises Malformed when they are not about the same image size."""
    sizes = {answer.image_size for answer in answers}
    if len(sizes) != 1:
        raise Malformed(f"fusion: expected answers to one image, got sizes {sorted(map(str, sizes))}")
    fused = fuse(
        [
            BoxSet(answer.boxes_xyxy, answer.scores, answer.class_ids, weight)
            for answer, weight in zip(answers, weights, strict=True)
        ],
        settings,
    )
    return Detections(fused.boxes_xyxy, fused.scores, fused.class_ids, sizes.pop(), merged_ref)


def _clusters(boxes: np.ndarray, origin: np.ndarray, iou: float) -> list[list[int]]:
    """Row numbers by cluster. Each box, strongest first, joins the best-overlapping cluster that has no box of its
    own source yet (a model does not see one thing twice: suppression has already spoken), else opens one."""
    overlaps = iou_matrix(boxes, boxes)
    clusters: list[list[int]] = []
    heads: list[int] = []
    for row in range(len(boxes)):
        fitting = [
            (overlaps[row, head], index)
            for index, head in enumerate(heads)
            if overlaps[row, head] > iou and all(origin[row] != origin[member] for member in clusters[index])
        ]
        if fitting:
            clusters[max(fitting, key=lambda item: (item[0], -item[1]))[1]].append(row)
        else:
            clusters.append([row])
            heads.append(row)
    return clusters


def _merge(
    boxes: np.ndarray,
    scores: np.ndarray,
    origin: np.ndarray,
    weights: np.ndarray,
    class_id: int,
    settings: FusionSettings,
) -> tuple[float, int, np.ndarray]:
    trust = weights[origin]
    pull = np.maximum(scores * trust, 1e-12)
    box = (boxes * pull[:, None]).sum(axis=0) / pull.sum()
    silent = weights.sum() - trust.sum()
    score = (scores * trust).sum() / (trust.sum() + settings.absent_share * silent)
    return float(score), class_id, box
