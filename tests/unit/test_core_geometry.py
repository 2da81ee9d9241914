"""Overlap and suppression, against plain loops that are too slow to be wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fovea.core.arrays import FloatArray
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from fovea.core.geometry import NmsSettings, areas, clip_boxes, iou_matrix, nms_pairs

Pair = tuple[int, int]


@st.composite
def boxes_of(draw: st.DrawFn, most: int = 12) -> FloatArray:
    """Boxes with whole corners, so that every overlap is the same in float32 and in float64; some have no area."""
    count = draw(st.integers(0, most))
    corners = draw(hnp.arrays(np.int64, (count, 2, 2), elements=st.integers(0, 12)))
    return np.sort(corners, axis=1).reshape(count, 4).astype(np.float32)


@st.composite
def boxes_and_scores(draw: st.DrawFn, classes: int = 3) -> tuple[FloatArray, FloatArray]:
    """Boxes and class scores that are all different, many of them below the lowest score."""
    boxes = draw(boxes_of())
    cells = len(boxes) * classes
    ranks = draw(st.permutations(range(cells)))
    scores = (np.array(ranks, np.float32) - cells / 2) / max(cells, 1) * 1.8
    return boxes, np.clip(scores, 0, 1).reshape(len(boxes), classes).astype(np.float32)


def plain_iou(a: Any, b: Any) -> float:
    width = max(min(a[2], b[2]) - max(a[0], b[0]), 0.0)
    height = max(min(a[3], b[3]) - max(a[1], b[1]), 0.0)
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - width * height
    return width * height / union if union > 0 else 0.0


def plain_nms(boxes: FloatArray, scores: FloatArray, nms: NmsSettings) -> dict[Pair, float]:
    """The pairs of box and class that survive, with their scores, from the definition alone."""
    pairs = [
        (row, k)
        for row in range(len(boxes))
        for k in range(scores.shape[1])
        if scores[row, k] >= nms.min_score
    ]
    pairs = sorted(pairs, key=lambda pair: -scores[pair])[: nms.max_pairs]
    kept: list[Pair] = []
    for row, k in pairs:
        if not any(k == other and plain_iou(boxes[row], boxes[better]) > nms.iou for better, other in kept):
            kept.append((row, k))
    rows = list(dict.fromkeys(row for row, _ in kept))[: nms.max_boxes]
    return {(row, k): float(scores[row, k]) for row, k in kept if row in rows}


def as_pairs(result: tuple[Any, FloatArray]) -> dict[Pair, float]:
    rows, kept = result
    return {(int(rows[i]), int(k)): float(kept[i, k]) for i, k in zip(*np.nonzero(kept), strict=True)}


@given(boxes_of(), boxes_of())
def test_overlap_is_what_the_definition_says(a: FloatArray, b: FloatArray) -> None:
    expected = [[plain_iou(x, y) for y in b.tolist()] for x in a.tolist()]
    assert np.allclose(iou_matrix(a, b), np.reshape(expected, (len(a), len(b))), atol=1e-7)


@given(boxes_of())
def test_overlap_is_symmetric_and_a_box_with_an_area_overlaps_itself_by_exactly_one(
    boxes: FloatArray,
) -> None:
    overlaps = iou_matrix(boxes, boxes)
    assert np.array_equal(overlaps, overlaps.T)
    assert np.array_equal(np.diag(overlaps), (areas(boxes) > 0).astype(np.float32))


@settings(max_examples=300)
@given(
    boxes_and_scores(),
    st.sampled_from([0.3, 0.5, 0.65, 0.9]),
    st.integers(1, 40),
    st.integers(1, 15),
)
def test_suppression_is_the_plain_reference(
    case: tuple[FloatArray, FloatArray], iou: float, max_pairs: int, max_boxes: int
) -> None:
    nms = NmsSettings(iou=iou, min_score=0.05, max_pairs=max_pairs, max_boxes=max_boxes)
    rows, kept = nms_pairs(*case, nms)
    assert as_pairs((rows, kept)) == plain_nms(*case, nms)
    best = kept.max(axis=1)
    assert (np.diff(best) <= 0).all() and len(rows) <= max_boxes and np.count_nonzero(kept) <= max_pairs


def test_suppression_of_a_thousand_boxes_is_the_plain_reference_too() -> None:
    random = np.random.default_rng(3)
    corners = random.integers(0, 120, (600, 2))
    boxes = np.concatenate([corners, corners + random.integers(0, 40, (600, 2))], axis=1).astype(np.float32)
    scores = (random.permutation(1200).reshape(600, 2) / 1200).astype(np.float32)
    nms = NmsSettings(iou=0.5, min_score=0.1)
    result = nms_pairs(boxes, scores, nms)
    assert as_pairs(result) == plain_nms(boxes, scores, nms)
    assert 128 < np.count_nonzero(result[1]) < 1000


@given(boxes_and_scores(), st.randoms(use_true_random=False))
def test_the_order_of_the_boxes_does_not_matter(case: tuple[FloatArray, FloatArray], random: Any) -> None:
    boxes, scores = case
    order = list(range(len(boxes)))
    random.shuffle(order)
    shuffled = as_pairs(nms_pairs(boxes[order], scores[order], NmsSettings()))
    assert {(order[row], k): score for (row, k), score in shuffled.items()} == as_pairs(
        nms_pairs(boxes, scores, NmsSettings())
    )


@given(boxes_and_scores())
def test_classes_do_not_see_each_other(case: tuple[FloatArray, FloatArray]) -> None:
    boxes, scores = case
    together = as_pairs(nms_pairs(boxes, scores, NmsSettings()))
    alone: dict[Pair, float] = {}
    for k in range(scores.shape[1]):
        pairs = as_pairs(nms_pairs(boxes, scores[:, k : k + 1], NmsSettings()))
        alone |= {(row, k): score for (row, _), score in pairs.items()}
    assert together == alone


def test_a_pair_that_lost_is_zero_while_the_other_class_of_its_box_lives() -> None:
    boxes = np.array([[0, 0, 10, 10], [0, 0, 10, 10]], np.float32)
    rows, kept = nms_pairs(boxes, np.array([[0.9, 0.0], [0.5, 0.3]], np.float32), NmsSettings())
    assert rows.tolist() == [0, 1]
    assert kept.tolist() == [pytest.approx([0.9, 0.0]), pytest.approx([0.0, 0.3])]


def test_boxes_without_area_suppress_nobody_and_are_suppressed_by_nobody() -> None:
    boxes = np.array([[0, 0, 9, 9], [4, 4, 4, 4], [4, 4, 4, 4], [0, 4, 9, 4]], np.float32)
    rows, _ = nms_pairs(boxes, np.array([[0.9], [0.8], [0.7], [0.6]], np.float32), NmsSettings())
    assert rows.tolist() == [0, 1, 2, 3]


def test_neighbours_that_touch_are_two_things() -> None:
    boxes = np.array([[0, 0, 10, 10], [10, 0, 20, 10]], np.float32)
    rows, _ = nms_pairs(boxes, np.array([[0.9], [0.8]], np.float32), NmsSettings(iou=0.01))
    assert rows.tolist() == [0, 1]


@pytest.mark.parametrize("count", [0, 5])
def test_no_pair_at_the_lowest_score_gives_nothing(count: int) -> None:
    rows, kept = nms_pairs(np.zeros((count, 4), np.float32), np.zeros((count, 3), np.float32), NmsSettings())
    assert (rows.shape, kept.shape) == ((0,), (0, 3))


@given(hnp.arrays(np.float32, (3, 4), elements=st.floats(-(2.0**120), 2.0**120, width=32)))
def test_clipped_boxes_lie_in_the_image_and_clipping_again_changes_nothing(boxes: FloatArray) -> None:
    clipped = clip_boxes(boxes, ImageSize(7, 3))
    assert clipped.min() >= 0 and (clipped.max(axis=0) <= [7, 3, 7, 3]).all()
    assert np.array_equal(clip_boxes(clipped, ImageSize(7, 3)), clipped)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"iou": 0.0}, "nms iou: expected more than 0 and less than 1, got 0.0"),
        ({"iou": float("nan")}, "nms iou: expected more than 0 and less than 1, got nan"),
        ({"min_score": 0.0}, "nms min_score: expected more than 0"),
        ({"min_score": 1.0}, "nms min_score: expected more than 0"),
        ({"max_pairs": 0}, "nms max_pairs, max_boxes: expected at least 1, got 0, 300"),
        ({"max_boxes": -1}, "nms max_pairs, max_boxes: expected at least 1, got 1000, -1"),
    ],
)
def test_settings_that_suppress_nothing_or_everything_are_malformed(
    changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(Malformed, match=f"^{told}"):
        NmsSettings(**changes)
