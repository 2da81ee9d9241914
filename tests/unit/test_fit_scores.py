"""Fitted score calibrations: nearer to the truth, order kept, and careful with few boxes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from calibration.calibration_error import detection_calibration_error
from calibration.evaluate import match, report
from calibration.fit_scores import MIN_HITS_PER_CLASS, fit_scores, fit_scores_of
from calibration.score_curves import (
    Outcomes,
    fit_isotonic,
    fit_platt,
    joined,
    log_loss,
    pool_adjacent_violators,
    prior_outcomes,
)
from calibration.truth import EvaluatedFrame, GroundTruth
from fovea.core.detections import Candidates, ScoreKind
from fovea.core.errors import Malformed
from fovea.core.scores import PiecewiseCurve, PlattCurve, ScoreCalibration
from tests.unit.evaluation_frames import LABELS, SIZE, random_frames

PERSON, CAR, DOG = LABELS.ids


def shy_frames(count: int, seed: int) -> list[EvaluatedFrame]:
    """A model that says 0.2 where it is right half the time: raw scores far too low."""
    rng = np.random.default_rng(seed)
    frames = []
    for index in range(count):
        score = rng.uniform(0.05, 0.4)
        is_right = rng.random() < 2.4 * score
        box = np.array([[10.0, 10, 60, 60]])
        truth = GroundTruth(box if is_right else box + 100, np.array([PERSON]), np.array([False]))
        seen = Candidates(box, np.array([[score, 0, 0]]), ScoreKind.PER_CLASS, LABELS, SIZE)
        frames.append(EvaluatedFrame(f"clip-{index // 4}", truth, seen))
    return frames


def test_scores_that_were_too_low_come_out_near_the_truth_on_other_clips() -> None:
    calibration = fit_scores(shy_frames(600, 1), LABELS.ids)
    other = match(shy_frames(600, 2), LABELS.ids)
    before = detection_calibration_error(other)
    after = detection_calibration_error(other, calibration)
    assert before > 0.2
    assert after < 0.06


def test_calibration_never_changes_the_order_of_scores() -> None:
    calibration = fit_scores(random_frames(120, 3), LABELS.ids)
    raw = np.linspace(0.001, 1, 4000, dtype=np.float32)[:, None]
    for class_id in LABELS.ids:
        rises = np.diff(calibration.apply(raw, (class_id,))[:, 0])
        assert (rises >= 0).all()
        assert (rises[40:-120] > 0).all()


def test_average_precision_per_class_stays_what_it_was() -> None:
    frames = random_frames(60, 4)
    calibration = fit_scores(frames, LABELS.ids)
    calibrated = [
        EvaluatedFrame(
            frame.group,
            frame.truth,
            Candidates(
                frame.seen.boxes_xyxy,
                calibration.apply(frame.seen.class_scores, LABELS.ids),
                ScoreKind.PER_CLASS,
                LABELS,
                SIZE,
            ),
        )
        for frame in frames
        if isinstance(frame.seen, Candidates)
    ]
    before, after = report(match(frames, LABELS.ids)), report(match(calibrated, LABELS.ids))
    assert after.by_class == pytest.approx(before.by_class, abs=2e-3)


def test_a_class_with_few_right_boxes_uses_the_curve_of_all_classes() -> None:
    frames = shy_frames(200, 5)
    assert set(fit_scores(frames, LABELS.ids).by_class) == {PERSON}
    few = fit_scores(frames[: MIN_HITS_PER_CLASS // 2], LABELS.ids)
    assert not few.by_class


def test_a_handful_of_boxes_hardly_bends_the_prior() -> None:
    two_wrong = Outcomes(np.array([0.8, 0.9]), np.zeros(2), np.ones(2), np.zeros(2, np.intp))
    prior = PlattCurve(1.0, 0.0)
    for fit in (fit_platt, fit_isotonic):
        bent = fit(joined([prior_outcomes(prior), two_wrong]))
        assert bent.apply(np.array([0.85], np.float32))[0] > 0.4


def test_the_kind_of_curve_that_explains_held_out_clips_is_chosen() -> None:
    # A step that no logistic line can follow: useless below 0.5, certain above.
    step = fit_scores_of(match(_step_frames(600, 0.5), LABELS.ids))
    assert isinstance(step.fallback, PiecewiseCurve)
    assert isinstance(fit_scores_of(match(_logistic_frames(400), LABELS.ids)).fallback, PlattCurve)


def _step_frames(count: int, at: float) -> list[EvaluatedFrame]:
    return _frames_right_when(lambda score, draw: draw < (0.95 if score > at else 0.3), count)


def _logistic_frames(count: int) -> list[EvaluatedFrame]:
    line = PlattCurve(0.7, -0.5)
    return _frames_right_when(lambda score, draw: draw < line.apply(np.array([score], np.float32))[0], count)


def _frames_right_when(is_right: Callable[[float, float], bool], count: int) -> list[EvaluatedFrame]:
    rng = np.random.default_rng(9)
    frames = []
    for index in range(count):
        score, box = rng.uniform(0.01, 0.99), np.array([[10.0, 10, 60, 60]])
        shift = 0 if is_right(score, rng.random()) else 100
        truth = GroundTruth(box + shift, np.array([PERSON]), np.array([False]))
        seen = Candidates(box, np.array([[score, 0, 0]]), ScoreKind.PER_CLASS, LABELS, SIZE)
        frames.append(EvaluatedFrame(f"clip-{index // 4}", truth, seen))
    return frames


def test_a_fitted_line_recovers_the_line_that_made_the_data() -> None:
    rng = np.random.default_rng(0)
    scores, line = rng.uniform(0.01, 0.99, 20000), PlattCurve(0.6, -0.8)
    correct = (rng.random(20000) < line.apply(scores.astype(np.float32))).astype(float)
    outcomes = Outcomes(scores, correct, np.ones(20000), np.zeros(20000, np.intp))
    fitted = fit_platt(outcomes)
    assert fitted.slope == pytest.approx(0.6, abs=0.05)
    assert fitted.offset == pytest.approx(-0.8, abs=0.08)
    assert log_loss(fitted, outcomes) <= log_loss(line, outcomes) + 1e-6


def test_pooling_gives_the_nearest_never_falling_values() -> None:
    pooled = pool_adjacent_violators(np.array([1.0, 3, 2, 2, 5]), np.array([1.0, 1, 1, 2, 1]))
    assert pooled.tolist() == pytest.approx([1, 2.25, 2.25, 2.25, 5])


def test_scores_that_fall_with_quality_still_give_a_rising_curve() -> None:
    scores = np.linspace(0.05, 0.95, 200)
    outcomes = Outcomes(scores, 1 - scores, np.ones(200), np.zeros(200, np.intp))
    for fit in (fit_platt, fit_isotonic):
        assert (np.diff(fit(outcomes).apply(np.linspace(0.01, 0.99, 50, dtype=np.float32))) > 0).all()


def test_a_split_without_a_single_right_box_is_refused() -> None:
    truth = GroundTruth(np.array([[200.0, 100, 260, 160]]), np.array([PERSON]), np.array([False]))
    seen = Candidates(np.array([[1.0, 1, 9, 9]]), np.array([[0.9, 0, 0]]), ScoreKind.PER_CLASS, LABELS, SIZE)
    with pytest.raises(Malformed, match="nothing can be fitted"):
        fit_scores([EvaluatedFrame("a", truth, seen)], LABELS.ids)


def test_calibration_error_of_perfect_probabilities_is_small_and_of_bold_ones_large() -> None:
    table = match(shy_frames(800, 6), LABELS.ids)
    honest = PiecewiseCurve(np.array([0, 0.4, 1]), np.array([0, 0.96, 1]))
    bold = PlattCurve(1.0, 8.0)
    assert detection_calibration_error(table, ScoreCalibration(honest)) < 0.06
    assert detection_calibration_error(table, ScoreCalibration(bold)) > 0.4
    with pytest.raises(Malformed, match="no box scores"):
        detection_calibration_error(table, min_raw_score=0.99)
