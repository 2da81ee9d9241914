"""Which box of a model found which true box: pycocotools' matching, kept once per frame for all that follows.

The matching rules are the COCO evaluation's (Lin et al. 2014): greedy by score, IoU 0.50 to 0.95 in ten steps, at
most 100 boxes per image and class, ignored truth matched last and counted on neither side. The table keeps the
result box by box, so that average precision of any subset of clips, and of any resample of them, is a matter of
counting.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.truth import EvaluatedFrame, scored_boxes
from fovea.core.arrays import FloatArray, IntArray
from fovea.core.errors import Malformed

IOU_THRESHOLDS: NDArray[np.float64] = np.linspace(0.5, 0.95, 10)
MAX_BOXES_PER_CLASS = 100


class BoxSize(StrEnum):
    """COCO's ranges of box area: small is below 32 x 32 px, large above 96 x 96 px."""

    ALL = "all"
    SMALL = "small"
    MEDIUM = "medium"
    LARGE = "large"


AREA_RANGES_PX2: Mapping[BoxSize, tuple[float, float]] = {
    BoxSize.ALL: (0, 1e10),
    BoxSize.SMALL: (0, 32**2),
    BoxSize.MEDIUM: (32**2, 96**2),
    BoxSize.LARGE: (96**2, 1e10),
}


@dataclass(frozen=True, slots=True, eq=False)
class ClassMatches:
    """The boxes of one class over all frames, best first, D of them; T IoU thresholds, G groups.

    scores f32[D], group i32[D] (index of the frame's group), correct bool[T, D] (found a true box nobody better had
    found), ignored bool[T, D] (counts on neither side), positives f64[G]: true boxes in each group.
    """

    scores: FloatArray
    group: IntArray
    correct: NDArray[np.bool_]
    ignored: NDArray[np.bool_]
    positives: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class MatchTable:
    """All matches of one model on one set of frames; `frames` i64[G] counts the frames of each group."""

    groups: tuple[str, ...]
    frames: NDArray[np.int64]
    class_ids: tuple[int, ...]
    matches: Mapping[tuple[int, BoxSize], ClassMatches]


def match(
    frames: Sequence[EvaluatedFrame],
    class_ids: Iterable[int],
    sizes: Sequence[BoxSize] = tuple(BoxSize),
) -> MatchTable:
    """Matches every frame once, for the classes named. Boxes and truth of other classes are left out.

    Raises Malformed when there is no frame or no class.
    """
    wanted = tuple(sorted(set(class_ids)))
    if not frames or not wanted:
        raise Malformed(f"evaluation: expected frames and classes, got {len(frames)} and {len(wanted)}")
    groups = tuple(sorted({frame.group for frame in frames}))
    group_of = np.array([groups.index(frame.group) for frame in frames], np.int32)
    evaluated = _evaluate_images(frames, wanted, sizes)
    by_class: dict[tuple[int, BoxSize], ClassMatches] = {}
    blocks = iter(np.array_split(np.arange(len(evaluated)), len(wanted) * len(sizes)))
    for class_id in wanted:
        for size in sizes:
            images = [evaluated[index] for index in next(blocks)]
            by_class[class_id, size] = _gather(images, group_of, len(groups))
    counts = np.bincount(group_of, minlength=len(groups)).astype(np.int64)
    return MatchTable(groups, counts, wanted, by_class)


def _evaluate_images(
    frames: Sequence[EvaluatedFrame], class_ids: Sequence[int], sizes: Sequence[BoxSize]
) -> list[dict[str, Any] | None]:
    """pycocotools' result for each class, then size, then frame; None where a frame has nothing of the class."""
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):
        evaluation = COCOeval(
            _coco(frames, class_ids, _truth_annotations(frames)),
            _coco(frames, class_ids, _seen_annotations(frames)),
            "bbox",
        )
        evaluation.params.catIds = list(class_ids)
        evaluation.params.iouThrs = IOU_THRESHOLDS
        evaluation.params.maxDets = [MAX_BOXES_PER_CLASS]
        evaluation.params.areaRng = [list(AREA_RANGES_PX2[size]) for size in sizes]
        evaluation.params.areaRngLbl = [str(size) for size in sizes]
        evaluation.evaluate()
    images: list[dict[str, Any] | None] = evaluation.evalImgs
    return images


def _coco(
    frames: Sequence[EvaluatedFrame], class_ids: Sequence[int], annotations: list[dict[str, Any]]
) -> Any:
    from pycocotools.coco import COCO

    coco = COCO()
    coco.dataset = {
        "info": {},
        "images": [{"id": index} for index in range(len(frames))],
        "categories": [{"id": class_id} for class_id in class_ids],
        # Ids from 1: pycocotools reads a match with id 0 as no match.
        "annotations": [row | {"id": number} for number, row in enumerate(annotations, start=1)],
    }
    coco.createIndex()
    return coco


def _truth_annotations(frames: Sequence[EvaluatedFrame]) -> list[dict[str, Any]]:
    return [
        _annotation(image, box, class_id) | {"iscrowd": int(ignore)}
        for image, frame in enumerate(frames)
        for box, class_id, ignore in zip(
            frame.truth.boxes_xyxy.tolist(),
            frame.truth.class_ids.tolist(),
            frame.truth.ignore.tolist(),
            strict=True,
        )
    ]


def _seen_annotations(frames: Sequence[EvaluatedFrame]) -> list[dict[str, Any]]:
    annotations = []
    for image, frame in enumerate(frames):
        seen = scored_boxes(frame.seen)
        for box, class_id, score in zip(
            seen.boxes_xyxy.tolist(), seen.class_ids.tolist(), seen.scores.tolist(), strict=True
        ):
            annotations.append(_annotation(image, box, class_id) | {"iscrowd": 0, "score": score})
    return annotations


def _annotation(image: int, box_xyxy: list[float], class_id: int) -> dict[str, Any]:
    x1, y1, x2, y2 = box_xyxy
    width, height = x2 - x1, y2 - y1
    return {
        "image_id": image,
        "category_id": class_id,
        "bbox": [x1, y1, width, height],
        "area": width * height,
    }


def _gather(images: Sequence[dict[str, Any] | None], group_of: IntArray, group_count: int) -> ClassMatches:
    """Puts the frames of one class together, best score first (stable, like COCO's accumulation)."""
    positives = np.zeros(group_count)
    scores, groups, found, ignored = [], [], [], []
    for image in images:
        if image is None:
            continue
        group = group_of[image["image_id"]]
        positives[group] += np.count_nonzero(np.asarray(image["gtIgnore"]) == 0)
        scores.append(np.asarray(image["dtScores"], np.float32))
        groups.append(np.full(len(scores[-1]), group, np.int32))
        found.append(np.asarray(image["dtMatches"]) > 0)
        ignored.append(np.asarray(image["dtIgnore"], bool))
    if not scores:
        nothing = np.empty((len(IOU_THRESHOLDS), 0), bool)
        return ClassMatches(np.empty(0, np.float32), np.empty(0, np.int32), nothing, nothing, positives)
    all_scores = np.concatenate(scores)
    order = np.argsort(-all_scores, kind="stable")
    is_ignored = np.concatenate(ignored, axis=1)[:, order]
    is_found = np.concatenate(found, axis=1)[:, order]
    return ClassMatches(
        all_scores[order], np.concatenate(groups)[order], is_found & ~is_ignored, is_ignored, positives
    )
