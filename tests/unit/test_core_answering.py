"""The answer is the calibrated best class of each box, best first, and nothing below the threshold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fovea.core.answering import answer, raw_score_for
from fovea.core.arrays import FloatArray
from fovea.core.detections import Candidates, ModelRef, ScoreKind
from fovea.core.frame import ImageSize
from fovea.core.labels import LabelSet
from fovea.core.scores import PiecewiseCurve, PlattCurve, ScoreCalibration

REF = ModelRef("street", "1", "ab" * 32)
LABELS = LabelSet.from_names(["car", "person", "forklift"])


def seen(scores: FloatArray) -> Candidates:
    corner = np.arange(len(scores), dtype=np.float32)[:, None]
    boxes = np.concatenate([corner, corner, corner + 1, corner + 1], axis=1)
    return Candidates(boxes, scores, ScoreKind.PER_CLASS, LABELS, ImageSize(100, 100))


@given(
    hnp.arrays(np.float32, st.tuples(st.integers(0, 8), st.just(3)), elements=st.floats(0, 1, width=32)),
    st.floats(0, 1, width=32),
    st.floats(0.1, 5),
    st.floats(-3, 3),
)
def test_the_answer_is_what_plain_loops_give(
    scores: FloatArray, min_score: float, slope: float, offset: float
) -> None:
    calibration = ScoreCalibration(PlattCurve(slope, offset))
    calibrated = calibration.apply(scores, LABELS.ids)
    expected = []
    for row, values in enumerate(calibrated.tolist()):
        best = max(range(3), key=lambda k: values[k])
        if scores[row, best] > 0 and values[best] >= min_score:
            expected.append((values[best], float(scores[row, best]), float(row), LABELS.ids[best]))
    expected.sort(key=lambda item: (-item[0], -item[1]))

    candidates = seen(scores)
    given_answer = answer(candidates, calibration, min_score, REF)
    got = given_answer.detections
    assert got.scores.tolist() == [score for score, _, _, _ in expected]
    assert list(zip(got.boxes_xyxy[:, 0].tolist(), got.class_ids.tolist(), strict=True)) == [
        (row, class_id) for _, _, row, class_id in expected
    ]
    assert (got.model, got.image_size, given_answer.candidates) == (REF, ImageSize(100, 100), candidates)


def test_the_class_is_chosen_after_calibration_and_told_by_its_id() -> None:
    calibration = ScoreCalibration.identity()
    lifted = ScoreCalibration(calibration.fallback, {0: PiecewiseCurve(np.array([0, 1]), np.array([0.8, 1]))})
    scores = np.array([[0.5, 0.4, 0.0]], np.float32)
    assert answer(seen(scores), calibration, 0.1, REF).detections.class_ids.tolist() == [2]
    assert answer(seen(scores), lifted, 0.1, REF).detections.class_ids.tolist() == [0]


def test_scores_that_calibration_makes_equal_keep_the_order_of_the_raw_ones() -> None:
    raw = np.array([[0.99990, 0, 0], [0.99999, 0, 0], [0.99995, 0, 0]], np.float32)
    got = answer(seen(raw), ScoreCalibration(PlattCurve(10, 5)), 0.5, REF).detections
    assert got.scores.tolist() == [1, 1, 1]
    assert got.boxes_xyxy[:, 0].tolist() == [1, 2, 0]


@pytest.mark.parametrize("rows", [0, 2])
def test_boxes_without_a_claim_are_not_answered_even_at_threshold_zero(rows: int) -> None:
    given_answer = answer(seen(np.zeros((rows, 3), np.float32)), ScoreCalibration.identity(), 0.0, REF)
    assert (len(given_answer.detections), len(given_answer.candidates)) == (0, rows)


@given(
    st.lists(st.tuples(st.floats(0.2, 4), st.floats(-4, 4)), min_size=1, max_size=3),
    st.floats(0.0, 1.0, width=32),
)
def test_below_the_raw_score_that_an_answer_needs_no_class_is_answered(
    curves: list[tuple[float, float]], min_score: float
) -> None:
    by_class = {LABELS.ids[row]: PlattCurve(*curve) for row, curve in enumerate(curves[1:])}
    calibration = ScoreCalibration(PlattCurve(*curves[0]), by_class)
    needed = raw_score_for(calibration, LABELS.ids, min_score)
    assert 0 <= needed <= 1
    below = np.full((1, 3), np.nextafter(np.float32(needed), np.float32(0)), np.float32)
    if needed > 0:
        assert calibration.apply(below, LABELS.ids).max() < min_score
    if needed < 0.99:
        above = np.full((1, 3), needed * 1.001 + 1e-6, np.float32)
        assert calibration.apply(above, LABELS.ids).max() >= min_score


def test_the_raw_score_of_a_calibration_that_changes_nothing_is_the_score_itself() -> None:
    assert raw_score_for(ScoreCalibration.identity(), LABELS.ids, 0.25) == pytest.approx(0.25, abs=1e-6)
