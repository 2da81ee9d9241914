"""A calibration never changes the order of scores, and a claim of nothing stays nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fovea.core.arrays import FloatArray
from fovea.core.errors import Malformed
from fovea.core.scores import PiecewiseCurve, PlattCurve, ScoreCalibration, ScoreCurve

SCORES = st.lists(st.floats(0, 1, width=32), min_size=1, max_size=40)


def knots(x: list[float], y: list[float]) -> PiecewiseCurve:
    return PiecewiseCurve(np.array(x, np.float32), np.array(y, np.float32))


@st.composite
def piecewise(draw: st.DrawFn) -> PiecewiseCurve:
    inner = sorted(draw(st.sets(st.integers(1, 999), max_size=6)))
    heights = sorted(draw(st.sets(st.integers(0, 1000), min_size=len(inner) + 2, max_size=len(inner) + 2)))
    return knots([x / 1000 for x in [0, *inner, 1000]], [y / 1000 for y in heights])


CURVES = st.one_of(st.builds(PlattCurve, st.floats(0.01, 20), st.floats(-20, 20)), piecewise())


def exact(curve: ScoreCurve, score: float) -> float:
    """The curve in float64, from its definition."""
    if isinstance(curve, PiecewiseCurve):
        return float(np.interp(score, curve.x.astype(float), curve.y.astype(float)))
    assert isinstance(curve, PlattCurve)
    score = min(max(score, 2.0**-150), 1 - 2.0**-25)
    logit = curve.slope * (np.log(score) - np.log1p(-score)) + curve.offset
    return float(np.exp(-np.logaddexp(0, -logit)))


@given(CURVES, SCORES)
def test_a_curve_is_its_definition_to_the_last_digits_of_float32(
    curve: ScoreCurve, scores: list[float]
) -> None:
    given_scores = np.array(scores, np.float32)
    expected = [exact(curve, float(score)) for score in given_scores]
    assert curve.apply(given_scores).dtype == np.float32
    assert curve.apply(given_scores) == pytest.approx(expected, rel=3e-7, abs=1e-44)


@given(CURVES, SCORES)
def test_scores_are_never_swapped_and_equal_only_where_float32_cannot_tell_them_apart(
    curve: ScoreCurve, scores: list[float]
) -> None:
    rising = np.unique(np.array(scores, np.float32))
    calibrated = curve.apply(rising)
    assert calibrated.min() >= 0 and calibrated.max() <= 1
    assert (np.diff(calibrated) >= 0).all()
    for index in np.flatnonzero(np.diff(calibrated) == 0):
        low, high = exact(curve, float(rising[index])), exact(curve, float(rising[index + 1]))
        assert high - low <= np.spacing(calibrated[index]) * 1.01


@pytest.mark.parametrize(
    "curve", [PlattCurve(0.7, -0.4), PlattCurve(1, 0), knots([0, 0.3, 1], [0.1, 0.2, 0.9])]
)
def test_an_ordinary_curve_is_strictly_increasing_over_all_scores_a_detector_gives(curve: ScoreCurve) -> None:
    steps = np.linspace(0.001, 0.999, 20_000, dtype=np.float32)
    assert (np.diff(curve.apply(steps)) > 0).all()


def test_platt_curve_never_claims_certainty_for_a_score_that_saturated() -> None:
    assert PlattCurve(0.5, -1).apply(np.array([1.0], np.float32))[0] < 0.9999


@given(SCORES)
def test_identity_gives_back_every_bit(scores: list[float]) -> None:
    column = np.array(scores, np.float32).reshape(-1, 1)
    assert np.array_equal(ScoreCalibration.identity().apply(column, (3,)), column)


@given(CURVES, CURVES)
def test_zero_stays_zero_and_each_class_has_its_own_curve(fallback: ScoreCurve, own: ScoreCurve) -> None:
    scores = np.array([[0.0, 0.5, 0.0], [0.3, 0.0, 0.9]], np.float32)
    calibrated = ScoreCalibration(fallback, {7: own}).apply(scores, (5, 7, 9))
    assert (calibrated[scores == 0] == 0).all()
    assert calibrated[0, 1] == own.apply(scores[:1, 1])[0]
    assert calibrated[1, 0] == fallback.apply(scores[1:, 0])[0]
    assert calibrated[1, 2] == fallback.apply(scores[1:, 2])[0]


def test_calibrating_leaves_the_raw_scores_alone_also_with_a_curve_that_returns_its_input() -> None:
    class AsItIs:
        def apply(self, scores: FloatArray) -> FloatArray:
            return scores

    raw = np.array([[0.5, 0.2]], np.float32)
    ScoreCalibration(AsItIs(), {2: PlattCurve(1, 3)}).apply(raw, (1, 2))
    assert raw.tolist() == [pytest.approx([0.5, 0.2])]


def test_later_changes_of_the_callers_mapping_do_not_reach_in() -> None:
    curves: dict[int, ScoreCurve] = {}
    calibration = ScoreCalibration(PlattCurve(1, 0), curves)
    curves[1] = PlattCurve(1, 5)
    assert calibration.by_class == {}


@pytest.mark.parametrize("shape", [(2, 3), (2,), (2, 1, 2)])
def test_scores_that_do_not_go_with_the_classes_are_malformed(shape: tuple[int, ...]) -> None:
    with pytest.raises(Malformed, match=r"^score calibration: expected scores \(N, 2\), got \(2"):
        ScoreCalibration.identity().apply(np.zeros(shape, np.float32), (1, 2))


@pytest.mark.parametrize("parts", [(0.0, 1.0), (-1.0, 1.0), (float("nan"), 0.0), (1.0, float("inf"))])
def test_a_platt_curve_that_does_not_rise_is_malformed(parts: tuple[float, float]) -> None:
    with pytest.raises(Malformed, match=r"^platt curve: expected a finite slope above 0, got [-0-9a-z.]+, "):
        PlattCurve(*parts)


@pytest.mark.parametrize(
    ("x", "y", "told"),
    [
        ([0], [0], "x: expected knots rising strictly from 0 to 1"),
        ([0, 0.9], [0, 1], "x: expected knots rising strictly from 0 to 1"),
        ([0, 0.5, 0.5, 1], [0, 0.1, 0.2, 1], "x: expected knots rising strictly from 0 to 1"),
        ([0, 1], [0.5, 0.5], "y: expected values rising strictly within 0 to 1"),
        ([0, 1], [0.5, 1.5], "y: expected values rising strictly within 0 to 1"),
        ([0, 1], [0.5], r"y: expected shape \(2\), got \(1,\)"),
        ([0, 1], [0, float("nan")], "y: expected finite values, got nan"),
    ],
)
def test_knots_that_do_not_rise_are_malformed(x: Any, y: Any, told: str) -> None:
    with pytest.raises(Malformed, match=f"^piecewise curve {told}"):
        PiecewiseCurve(x, y)


@given(st.lists(st.one_of(st.none(), CURVES), min_size=1, max_size=6), CURVES, st.integers(0, 2**32 - 1))
def test_all_classes_at_once_are_each_class_alone(
    curves: list[ScoreCurve | None], fallback: ScoreCurve, seed: int
) -> None:
    ids = tuple(range(10, 10 + len(curves)))
    calibration = ScoreCalibration(
        fallback, {class_id: curve for class_id, curve in zip(ids, curves, strict=True) if curve is not None}
    )
    scores = np.random.default_rng(seed).random((7, len(curves))).astype(np.float32)
    for _ in range(2):  # the second time by the plan of the first
        together = calibration.apply(scores, ids)
        for channel, curve in enumerate(curves):
            np.testing.assert_array_equal(together[:, channel], (curve or fallback).apply(scores[:, channel]))
