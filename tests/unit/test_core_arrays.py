"""Arrays are checked, read-only, and nobody else's memory."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from fovea.core.arrays import frozen_boxes, frozen_floats, frozen_ints, frozen_unit
from fovea.core.errors import Malformed


@pytest.mark.parametrize(
    ("values", "shape", "told"),
    [
        ("abc", (None,), "expected numbers, got str"),
        (["1", "2"], (None,), "expected numbers, got list"),
        ([[1, 2], [3]], (None, 2), "expected numbers, got list"),
        (None, (None,), "expected numbers, got NoneType"),
        (np.array([1 + 2j]), (None,), "expected numbers, got array of complex128"),
        (np.array([True]), (None,), "expected numbers, got array of bool"),
        (3.0, (None,), r"expected shape \(N\), got \(\)"),
        ([1.0, 2.0], (3,), r"expected shape \(3\), got \(2,\)"),
        ([], (3,), r"expected shape \(3\), got \(0,\)"),
        (np.zeros((0, 7)), (None, 4), r"expected shape \(N, 4\), got \(0, 7\)"),
        (np.zeros((2, 4, 1)), (None, 4), r"expected shape \(N, 4\), got \(2, 4, 1\)"),
        ([1.0, np.nan], (None,), "expected finite values, got nan"),
        ([1.0, -np.inf], (None,), "expected finite values, got -inf"),
        ([1e300], (None,), "expected finite values, got inf"),
    ],
)
def test_wrong_numbers_are_malformed_and_the_text_says_field_expected_and_got(
    values: Any, shape: tuple[int | None, ...], told: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Malformed, match=f"^weights: {told}"):
            frozen_floats("weights", values, shape)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([1.5], r"expected whole numbers that fit 32 bits, got 1\.5"),
        ([2**31], "expected whole numbers that fit 32 bits, got 2147483648"),
        (np.array([2**63], np.uint64), "expected whole numbers that fit 32 bits, got 9223372036854775808"),
        ([2**80], "expected whole numbers, got list"),
        ([np.nan], "expected whole numbers that fit 32 bits, got nan"),
        ([True], "expected whole numbers, got list"),
        (["1"], "expected whole numbers, got list"),
        ([[1]], r"expected shape \(N\), got \(1, 1\)"),
    ],
)
def test_wrong_whole_numbers_are_malformed_and_the_text_says_field_expected_and_got(
    values: Any, told: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Malformed, match=f"^ids: {told}"):
            frozen_ints("ids", values, (None,))


@pytest.mark.parametrize("values", [[1, 2], [1.0, 2.0], np.array([1, 2], np.uint64), np.array([1, 2], ">i2")])
def test_whole_numbers_of_any_width_are_taken(values: Any) -> None:
    assert frozen_ints("ids", values, (None,)).tolist() == [1, 2]


@pytest.mark.parametrize("make", [list, np.array, lambda rows: np.array(rows, np.float32)[:, ::-1][:, ::-1]])
def test_the_result_is_read_only_contiguous_float32(make: Any) -> None:
    array = frozen_floats("x", make([[1, 2], [3, 4]]), (None, 2))
    assert (array.dtype.name, array.flags.c_contiguous) == ("float32", True)
    assert array.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 9


def test_later_writes_of_the_caller_do_not_reach_in() -> None:
    mine = np.array([0.1, 0.2], np.float32)
    window = mine[:]
    window.flags.writeable = False  # read-only for whom it is handed to, not for its owner
    ids = np.array([1, 2], np.int32)
    direct, through_window = frozen_floats("x", mine, (None,)), frozen_floats("x", window, (None,))
    whole = frozen_ints("x", ids, (None,))
    mine[:], ids[:] = 9, 9
    assert direct.tolist() == through_window.tolist() == pytest.approx([0.1, 0.2])
    assert whole.tolist() == [1, 2]


def test_what_is_frozen_already_is_not_copied_again() -> None:
    once = frozen_floats("x", [1.0, 2.0], (None,))
    assert frozen_floats("x", once, (None,)) is once


def test_an_empty_list_stands_for_no_rows_but_never_for_missing_ones() -> None:
    assert frozen_floats("x", [], (None, 4)).shape == (0, 4)
    assert frozen_floats("x", [], (0, 3)).shape == (0, 3)
    with pytest.raises(Malformed, match=r"expected shape \(2, 4\), got \(0,\)"):
        frozen_floats("x", [], (2, 4))


def test_boxes_that_are_inside_out_are_malformed_and_the_row_is_told() -> None:
    with pytest.raises(
        Malformed, match=r"^b: expected x1 <= x2 and y1 <= y2, got \[5.0, 0.0, 4.0, 1.0\] in row 1"
    ):
        frozen_boxes("b", [[0, 0, 0, 0], [5, 0, 4, 1]])
    with pytest.raises(Malformed, match="in row 0"):
        frozen_boxes("b", [[0, 2, 4, 1]])


@pytest.mark.parametrize("values", [[0.5, -0.01], [1.01, 0.5]])
def test_a_score_outside_0_to_1_is_malformed_and_the_range_is_told(values: list[float]) -> None:
    with pytest.raises(Malformed, match=f"^s: expected 0 to 1, got {min(values):g} to {max(values):g}"):
        frozen_unit("s", values, (None,))
