"""How far scores are from what they promise."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.calibration_error import detection_calibration_error
from calibration.evaluate import EvaluatedFrame, GroundTruth, match
from calibration.fit_scores import fit_scores
from calibration.matching import BoxSize
from calibration.reliability import reliability
from fovea.core.detections import Candidates, ScoreKind
from fovea.core.errors import Malformed
from fovea.core.labels import LabelSet
from tests.unit.evaluation_frames import LABELS, SIZE, random_frames


def one_box(score: float, shift_px: float) -> EvaluatedFrame:
    """A true box 100 px wide, seen `shift_px` to its right."""
    labels = LabelSet.from_names(["person"])
    truth = GroundTruth(np.array([[0, 0, 100, 100]], np.float32), np.array([0], np.int32), np.zeros(1, bool))
    boxes = np.array([[shift_px, 0, 100 + shift_px, 100]], np.float32)
    return EvaluatedFrame("clip", truth, Candidates(boxes, [[score]], ScoreKind.PER_CLASS, labels, SIZE))  # type: ignore[arg-type]


def test_the_error_of_detection_is_the_one_that_is_known_already() -> None:
    table = match(random_frames(60, 1), LABELS.ids, (BoxSize.ALL,))
    assert reliability(table).d_ece == pytest.approx(detection_calibration_error(table))


def test_a_box_that_lies_exactly_is_held_against_one_and_a_sloppy_one_against_its_overlap() -> None:
    exact = reliability(match([one_box(0.9, 0)], (0,), (BoxSize.ALL,)))
    assert exact.d_ece == pytest.approx(0.1)
    assert exact.la_ece == pytest.approx(abs(0.9 - 0.975), abs=1e-6)
    sloppy = reliability(match([one_box(0.9, 25)], (0,), (BoxSize.ALL,)))  # IoU 0.6 exactly
    assert sloppy.d_ece == pytest.approx(0.1)
    assert sloppy.la_ece == pytest.approx(0.9 - 0.6, abs=0.03)


def test_a_wrong_box_reaches_nothing() -> None:
    wrong = reliability(match([one_box(0.7, 90)], (0,), (BoxSize.ALL,)))
    assert [wrong.d_ece, wrong.la_ece] == pytest.approx([0.7, 0.7])


def test_calibration_brings_the_error_down_and_the_bins_onto_the_diagonal() -> None:
    frames = random_frames(300, 4)
    table = match(frames, LABELS.ids, (BoxSize.ALL,))
    before, after = reliability(table), reliability(table, fit_scores(frames, LABELS.ids))
    assert after.d_ece < before.d_ece
    gaps = np.abs(after.mean_score - after.precision) * after.boxes / after.boxes.sum()
    assert gaps.sum() == pytest.approx(after.d_ece)


def test_a_model_that_says_nothing_has_no_error_to_speak_of() -> None:
    with pytest.raises(Malformed, match=r"no box scores 0.05 or more"):
        reliability(match([one_box(0.01, 0)], (0,), (BoxSize.ALL,)))
