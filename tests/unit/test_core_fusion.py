"""What merging promises, whatever the sources say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fovea.core.errors import Malformed
from fovea.core.fusion import BoxSet, FusionSettings, fuse
from fovea.core.geometry import iou_matrix


def box_set(*rows: tuple[list[int], float, int], weight: float = 1.0) -> BoxSet:
    boxes, scores, class_ids = zip(*rows, strict=True) if rows else ([], [], [])
    return BoxSet(boxes, scores, class_ids, weight)  # type: ignore[arg-type]


@st.composite
def sources_of(draw: st.DrawFn, most: int = 4) -> list[BoxSet]:
    """Sources whose boxes often overlap; each score stands once, so that there are no ties."""
    counts = draw(st.lists(st.integers(0, 6), min_size=1, max_size=most))
    scores = iter(draw(st.permutations(range(1, 1 + sum(counts)))))
    sources = []
    for count in counts:
        rows: list[tuple[list[int], float, int]] = []
        for _ in range(count):
            (x1, x2), (y1, y2) = (
                sorted(draw(st.tuples(st.integers(0, 6), st.integers(0, 6)))) for _ in range(2)
            )
            rows.append(([x1, y1, x2, y2], next(scores) / 30, draw(st.integers(0, 1))))
        sources.append(box_set(*rows, weight=draw(st.sampled_from([0.5, 1.0, 3.0]))))
    return sources


def as_rows(fused: BoxSet) -> list[tuple[Any, ...]]:
    rows = zip(fused.class_ids.tolist(), fused.scores.tolist(), fused.boxes_xyxy.tolist(), strict=True)
    return sorted((k, round(score, 5), [round(x, 3) for x in box]) for k, score, box in rows)


@given(sources_of(), st.randoms(use_true_random=False))
def test_the_order_of_the_sources_does_not_matter(sources: list[BoxSet], random: Any) -> None:
    strengths = [score * s.weight for s in sources for score in s.scores.tolist()]
    assume(len({round(strength, 6) for strength in strengths}) == len(strengths))
    shuffled = list(sources)
    random.shuffle(shuffled)
    assert as_rows(fuse(shuffled)) == as_rows(fuse(sources))


@given(sources_of(), st.floats(0, 1))
def test_fused_boxes_lie_in_the_hull_and_fused_scores_below_the_best(
    sources: list[BoxSet], share: float
) -> None:
    fused = fuse(sources, FusionSettings(absent_share=share))
    boxes = np.concatenate([source.boxes_xyxy for source in sources])
    scores = np.concatenate([source.scores for source in sources])
    class_ids = np.concatenate([source.class_ids for source in sources])
    assert len(fused.scores) <= len(scores) and set(fused.class_ids.tolist()) == set(class_ids.tolist())
    assert (np.diff(fused.scores) <= 0).all()
    for box, score, class_id in zip(fused.boxes_xyxy, fused.scores, fused.class_ids, strict=True):
        same = boxes[class_ids == class_id]
        assert (box >= same.min(axis=0)).all() and (box <= same.max(axis=0)).all()
        assert box[0] <= box[2] and box[1] <= box[3]
        assert score <= scores[class_ids == class_id].max() + 1e-6


@given(sources_of(most=1), st.integers(1, 4))
def test_sources_that_say_the_same_keep_their_boxes_and_scores(source: list[BoxSet], times: int) -> None:
    # Boxes in the same place cannot be told apart, so which copy joins which is open.
    same_class = source[0].class_ids[:, None] == source[0].class_ids[None, :]
    overlaps = iou_matrix(source[0].boxes_xyxy, source[0].boxes_xyxy) * same_class
    assume((np.triu(overlaps, k=1) < 0.55).all())
    flat = (source[0].boxes_xyxy[:, 2:] == source[0].boxes_xyxy[:, :2]).any(axis=1)
    assume(not flat.any())
    assert as_rows(fuse(source * times)) == as_rows(source[0])


@given(sources_of(most=1))
def test_one_source_never_merges_with_itself(source: list[BoxSet]) -> None:
    assert as_rows(fuse(source)) == as_rows(source[0])


def test_two_overlapping_boxes_of_one_source_stay_two_also_when_another_sees_both() -> None:
    one = box_set(([0, 0, 10, 10], 0.9, 0), ([0, 0, 10, 8], 0.8, 0))
    two = box_set(([0, 0, 10, 10], 0.7, 0), ([0, 0, 10, 8], 0.6, 0))
    fused = fuse([one, two])
    assert fused.boxes_xyxy.tolist() == [[0, 0, 10, 10], [0, 0, 10, 8]]
    assert fused.scores.tolist() == pytest.approx([0.8, 0.7])


def test_a_cluster_takes_one_box_of_each_source_and_the_second_opens_its_own() -> None:
    head, first, second = [0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 8]
    fused = fuse([box_set((head, 0.9, 0)), box_set((first, 0.8, 0), (second, 0.7, 0))])
    assert fused.scores.tolist() == pytest.approx([0.85, 0.35])
    assert fused.boxes_xyxy[1].tolist() == second


def test_the_box_is_the_mean_weighted_by_score_and_trust() -> None:
    fused = fuse([box_set(([0, 0, 10, 10], 0.9, 1)), box_set(([2, 0, 12, 10], 0.3, 1), weight=3.0)])
    assert fused.boxes_xyxy[0].tolist() == pytest.approx([1, 0, 11, 10])
    assert fused.scores.tolist() == pytest.approx([(0.9 + 3 * 0.3) / 4])


@pytest.mark.parametrize(("share", "score"), [(1.0, 0.3), (0.5, 0.4), (0.0, 0.6)])
def test_a_silent_source_pulls_the_score_down_by_its_share(share: float, score: float) -> None:
    fused = fuse([box_set(([0, 0, 9, 9], 0.6, 0)), box_set()], FusionSettings(absent_share=share))
    assert fused.scores.tolist() == pytest.approx([score])


def test_a_silent_source_counts_by_its_weight() -> None:
    fused = fuse([box_set(([0, 0, 9, 9], 0.8, 0)), box_set(weight=3.0)])
    assert fused.scores.tolist() == pytest.approx([0.2])


def test_classes_do_not_merge() -> None:
    fused = fuse([box_set(([0, 0, 9, 9], 0.8, 0)), box_set(([0, 0, 9, 9], 0.7, 1))])
    assert fused.class_ids.tolist() == [0, 1]


def test_a_box_joins_the_cluster_it_overlaps_best() -> None:
    strong, near = [0, 0, 100, 100], [10, 0, 110, 100]
    fused = fuse([box_set((strong, 0.9, 0), (near, 0.8, 0)), box_set(([11, 0, 111, 100], 0.7, 0))])
    assert fused.boxes_xyxy[:, 0].tolist() == pytest.approx([(10 * 0.8 + 11 * 0.7) / 1.5, 0])


@pytest.mark.parametrize("count", [1, 3])
def test_sources_that_see_nothing_give_nothing(count: int) -> None:
    fused = fuse([box_set()] * count)
    assert (fused.boxes_xyxy.shape, fused.scores.shape, fused.class_ids.dtype.name) == ((0, 4), (0,), "int32")


def test_boxes_scored_zero_do_not_divide_by_zero() -> None:
    fused = fuse([box_set(([0, 0, 4, 4], 0.0, 0)), box_set(([0, 0, 4, 4], 0.0, 0))])
    assert (fused.boxes_xyxy.tolist(), fused.scores.tolist()) == ([[0, 0, 4, 4]], [0])


def test_no_source_is_malformed() -> None:
    with pytest.raises(Malformed, match="fusion: expected at least one source"):
        fuse([])


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_weight_that_is_none_is_malformed(weight: float) -> None:
    with pytest.raises(Malformed, match=f"^box set weight: expected a finite number above 0, got {weight}"):
        box_set(weight=weight)


@pytest.mark.parametrize(
    ("changes", "told"),
    [({"iou": 1.0}, "iou"), ({"iou": float("nan")}, "iou"), ({"absent_share": -0.1}, "absent_share")],
)
def test_settings_out_of_range_are_malformed(changes: dict[str, float], told: str) -> None:
    with pytest.raises(Malformed, match=f"^fusion {told}: expected"):
        FusionSettings(**changes)
