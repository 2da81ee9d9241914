"""Best pairs first, each box once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.track.association import (
    MOVED,
    SAME_MOMENT,
    best_pairs,
    class_factors,
    grown_overlaps,
    is_covered,
    matches,
    matches_of_few,
    overlap_of,
)
from edge_agent.track.tracking import Box
from fovea.core.geometry import iou_matrix

NEAR_MISS = np.array([[0, 0, 10, 10]], np.float32), np.array([[11, 0, 21, 10]], np.float32)


def test_growing_lets_a_near_miss_overlap() -> None:
    assert grown_overlaps(*NEAR_MISS, margin=0)[0, 0] == 0
    assert grown_overlaps(*NEAR_MISS, margin=0.3)[0, 0] > 0.1


def test_without_growing_it_is_the_plain_overlap() -> None:
    a, b = np.array([[0, 0, 10, 10]], np.float32), np.array([[5, 0, 15, 10]], np.float32)
    np.testing.assert_array_equal(grown_overlaps(a, b, 0), iou_matrix(a, b))


def test_the_likest_pair_is_taken_first_even_at_the_cost_of_another() -> None:
    likeness = np.array([[0.9, 0.8], [0.8, 0.1]], np.float32)
    assert best_pairs(likeness, lowest=0.2) == [(0, 0)]
    assert best_pairs(likeness, lowest=0.05) == [(0, 0), (1, 1)]


@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_each_row_and_column_is_used_once_and_nothing_good_is_left(
    rows: int, columns: int, seed: int, lowest: float
) -> None:
    likeness = np.random.default_rng(seed).random((rows, columns)).astype(np.float32)
    pairs = best_pairs(likeness, lowest)
    assert len({row for row, _ in pairs}) == len({column for _, column in pairs}) == len(pairs)
    assert all(likeness[pair] > lowest for pair in pairs)
    left = [[row not in {r for r, _ in pairs}] for row in range(rows)]
    free = np.array(left, bool).reshape(rows, 1) & np.array(
        [column not in {c for _, c in pairs} for column in range(columns)], bool
    ).reshape(1, columns)
    assert not (free & (likeness > lowest)).any()


def test_another_class_counts_less() -> None:
    factors = class_factors([0, 2], np.array([2, 2, 0], np.int32), 0.7)
    np.testing.assert_allclose(factors, [[0.7, 0.7, 1], [1, 1, 0.7]])


def test_a_far_match_is_tried_only_with_what_the_near_round_left() -> None:
    expected = np.array([[0, 0, 10, 10], [13, 0, 23, 10]], np.float32)
    seen = np.array([[1, 0, 11, 10]], np.float32)
    assert matches(expected, seen, np.ones((2, 1), np.float32), MOVED) == {0: 0}
    moved_on = np.array([[1, 0, 11, 10], [18, 4, 28, 14]], np.float32)
    assert matches(expected, moved_on, np.ones((2, 2), np.float32), MOVED) == {0: 0, 1: 1}


def test_two_looks_at_one_moment_have_to_agree_better() -> None:
    expected = np.array([[0, 0, 10, 10]], np.float32)
    aside = np.array([[5, 0, 15, 10]], np.float32)
    factors = np.ones((1, 1), np.float32)
    assert matches(expected, aside, factors, MOVED) == {0: 0}
    assert matches(expected, aside, factors, SAME_MOMENT) == {}


@pytest.mark.parametrize(("expected", "seen"), [(0, 3), (3, 0), (0, 0)])
def test_nothing_matches_nothing(expected: int, seen: int) -> None:
    boxes = np.array([[0, 0, 10, 10]] * 3, np.float32)
    factors = np.ones((expected, seen), np.float32)
    assert matches(boxes[:expected], boxes[:seen], factors, MOVED) == {}


side = st.floats(0, 40, width=32)
box = st.tuples(side, side, side, side).map(lambda b: (b[0], b[1], b[0] + b[2], b[1] + b[3]))


@given(st.lists(box, max_size=7), st.lists(box, max_size=7), st.integers(0, 2**32 - 1), st.booleans())
def test_a_few_boxes_are_matched_as_many_are(
    expected: list[Box], seen: list[Box], seed: int, has_moved: bool
) -> None:
    rounds = MOVED if has_moved else SAME_MOMENT
    factors = np.random.default_rng(seed).choice([1.0, 0.8, 0.7], (len(expected), len(seen)))
    in_plain_floats: Any = np.float64
    tables = [np.array(boxes, in_plain_floats).reshape(-1, 4) for boxes in (expected, seen)]
    of_many = matches(tables[0], tables[1], factors, rounds)
    of_few = matches_of_few(expected, seen, lambda row, column: float(factors[row, column]), rounds)
    assert of_few == of_many


@given(box, box)
def test_one_overlap_is_that_of_the_table(a: Box, b: Box) -> None:
    table = iou_matrix(np.array([a], np.float64), np.array([b], np.float64))
    assert overlap_of(a, b) == pytest.approx(float(table[0, 0]), abs=1e-12)


@pytest.mark.parametrize(
    ("others", "is_hidden"),
    [
        ([], False),
        ([(0.0, 0.0, 5.0, 10.0)], True),
        ([(0.0, 0.0, 4.9, 10.0)], False),
        ([(0.0, 0.0, 4.9, 10.0), (5.0, 0.0, 9.9, 10.0)], False),
        ([(20.0, 0.0, 40.0, 10.0), (-5.0, -5.0, 50.0, 50.0)], True),
        ([(10.0, 0.0, 20.0, 10.0)], False),
    ],
    ids=["nobody", "half of it", "less than half", "two halves are not one", "all of it", "it only touches"],
)
def test_a_box_is_covered_by_one_other_that_lies_on_enough_of_it(others: list[Box], is_hidden: bool) -> None:
    assert is_covered((0.0, 0.0, 10.0, 10.0), others, 0.5) is is_hidden


def test_a_box_without_area_is_covered_by_nothing() -> None:
    assert not is_covered((5.0, 0.0, 5.0, 10.0), [(0.0, 0.0, 10.0, 10.0)], 0.5)
