"""Agreement of two answers: boxes of one class that overlap, where and about what both were asked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fovea.core.agreement import agreement_f1
from fovea.core.detections import Detections
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from tests.builders import model_ref

SIZE = ImageSize(200, 100)
LEFT, RIGHT = (0.0, 0.0, 40.0, 40.0), (100.0, 0.0, 140.0, 40.0)
LEFT_HALF = np.array([[0, 0, 90, 100]], np.float32)
Row = tuple[tuple[float, float, float, float], int]


def seen(*rows: Row, size: ImageSize = SIZE) -> Detections:
    return Detections(
        np.array([box for box, _ in rows], np.float32).reshape(-1, 4),
        np.full(len(rows), 0.9, np.float32),
        np.array([class_id for _, class_id in rows], np.int32),
        size,
        model_ref(),
    )


def test_the_same_things_agree_and_other_classes_and_places_do_not() -> None:
    both = seen((LEFT, 0), (RIGHT, 1))
    assert agreement_f1(both, both) == 1.0
    assert agreement_f1(both, seen((LEFT, 0))) == pytest.approx(2 / 3)
    assert agreement_f1(both, seen((LEFT, 1), (RIGHT, 0))) == 0.0


def test_nothing_and_nothing_agree() -> None:
    assert agreement_f1(seen(), seen()) == 1.0
    assert agreement_f1(seen(), seen((LEFT, 0))) == 0.0


def test_one_box_pairs_once() -> None:
    assert agreement_f1(seen((LEFT, 0), (LEFT, 0)), seen((LEFT, 0))) == pytest.approx(2 / 3)


def test_of_places_that_were_not_shown_nothing_is_said() -> None:
    whole, part = seen((LEFT, 0), (RIGHT, 0)), seen((LEFT, 0))
    assert agreement_f1(whole, part, within_xyxy=LEFT_HALF) == 1.0
    assert agreement_f1(seen((RIGHT, 0)), seen(), within_xyxy=LEFT_HALF) == 1.0
    assert agreement_f1(whole, part, within_xyxy=np.empty((0, 4), np.float32)) == 1.0


def test_of_classes_that_one_cannot_see_nothing_is_said() -> None:
    assert agreement_f1(seen((LEFT, 0)), seen((LEFT, 0), (RIGHT, 7)), class_ids=(0, 1)) == 1.0


def test_answers_to_images_of_different_sizes_cannot_be_compared() -> None:
    with pytest.raises(Malformed, match="one image"):
        agreement_f1(seen(), seen(size=ImageSize(100, 100)))


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), max_size=6),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), max_size=6),
)
def test_agreement_is_the_same_from_both_sides_and_between_0_and_1(
    ours: list[tuple[int, int]], theirs: list[tuple[int, int]]
) -> None:
    a, b = (
        seen(*(((10.0 * at, 0.0, 10.0 * at + 15, 20.0), class_id) for at, class_id in rows))
        for rows in (ours, theirs)
    )
    assert agreement_f1(a, b) == agreement_f1(b, a)
    assert 0 <= agreement_f1(a, b) <= 1
    assert agreement_f1(a, a) == 1.0
