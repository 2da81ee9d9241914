"""Two models that disagree are found out and corrected, two that agree are left alone, and odd input is refused."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.align import AlignSettings, align, apply_to, corrected, fit_correction, kl_divergence
from calibration.align_pairs import ModelAnswers, calibrated_boxes, matched_pairs
from calibration.align_report import AlignmentReport, Verdict
from calibration.truth import ScoredBoxes
from fovea.core.detections import Candidates, Detections, Inference, ScoreKind
from fovea.core.errors import Malformed
from fovea.core.labels import LabelSet
from fovea.core.scores import PiecewiseCurve, PlattCurve, ScoreCalibration
from fovea.runtime.calibration_file import calibration_from_json
from tests.builders import model_ref
from tests.unit.evaluation_frames import LABELS, SIZE

PERSON, CAR, DOG = LABELS.ids
Scores = np.ndarray


def two_models(
    score: Callable[[Scores, np.random.Generator, np.ndarray], Scores] = lambda s, rng, ids: s,
    rename: Callable[[np.ndarray, np.random.Generator], np.ndarray] = lambda ids, rng: ids,
    frames: int = 120,
    seed: int = 0,
    noise: float = 0.03,
) -> tuple[ModelAnswers, ModelAnswers]:
    """The stronger sees up to 8 boxes a frame; the weaker sees most of them, its scores and classes changed."""
    rng = np.random.default_rng(seed)
    ids = np.array(LABELS.ids, np.int32)
    strong, weak = [], []
    for _ in range(frames):
        count = int(rng.integers(2, 9))
        corner = np.stack([40.0 * np.arange(count), rng.uniform(0, 60, count)], axis=1)
        boxes = np.concatenate([corner, corner + rng.uniform(20, 36, (count, 2))], axis=1)
        classes = ids[rng.choice(3, count, p=[0.5, 0.3, 0.2])]
        sure = rng.beta(2, 2, count)
        strong.append(ScoredBoxes(boxes, sure, classes))
        seen = rng.random(count) < 0.85
        said = np.clip(sure[seen] + rng.normal(0, noise, int(seen.sum())), 0.06, 0.99)
        moved = boxes[seen] + rng.normal(0, 0.5, (int(seen.sum()), 4))
        weak.append(ScoredBoxes(moved, score(said, rng, classes[seen]), rename(classes[seen], rng)))
    clips = tuple(f"clip-{index // 2}" for index in range(frames))
    return (
        ModelAnswers("student", LABELS, tuple(weak), clips),
        ModelAnswers("teacher", LABELS, tuple(strong), clips),
    )


def shy(scores: Scores, rng: np.random.Generator, ids: np.ndarray) -> Scores:
    """What quantization does to scores: 0.85 becomes 0.55."""
    return scores**3.5


def test_models_that_differ_by_noise_alone_are_alike() -> None:
    report = align(*two_models(noise=0.01))
    assert report.verdict is Verdict.ALIKE
    assert report.correction is None
    assert not report.confusions
    assert report.summary == "student and teacher answer alike."


@pytest.mark.parametrize("seed", range(6))
def test_a_model_against_itself_is_never_found_to_differ(seed: int) -> None:
    _, strong = two_models(seed=seed)
    report = align(strong, strong)
    assert report.verdict is Verdict.ALIKE
    assert report.class_kl == pytest.approx(0, abs=1e-12)
    assert report.score_kl == pytest.approx(0, abs=1e-12)
    assert report.agreement == 1.0


def test_two_halves_of_one_model_are_hardly_ever_found_to_differ() -> None:
    differing = 0
    for seed in range(12):
        _, whole = two_models(frames=160, seed=seed)
        halves = [ModelAnswers("half", LABELS, whole.frames[part::2], ()) for part in (0, 1)]
        # Two halves show different scenes: only their histograms are held against each other, not their boxes.
        scores = [np.concatenate([frame.scores for frame in half.frames]) for half in halves]
        counts = [np.histogram(each, np.linspace(0, 1, 11))[0].astype(float) for each in scores]
        report = align(whole, whole)
        differing += float(kl_divergence(counts[0], counts[1])) > report.score_kl_threshold
    assert differing <= 1


def test_scores_that_shifted_are_found_and_the_correction_takes_them_back() -> None:
    weak, strong = two_models(shy)
    report = align(weak, strong)
    assert report.verdict is Verdict.CORRECTED
    assert report.scores_differ and not report.classes_differ
    assert report.held_out_score_kl_after < 0.1 * report.held_out_score_kl
    assert report.held_out_gap_after < 0.1 * report.held_out_gap
    assert report.correction is not None
    curve = report.correction.fallback
    assert curve.apply(np.array([0.85**3.5], np.float32))[0] == pytest.approx(0.85, abs=0.06)


def test_a_corrected_model_is_found_alike_on_other_clips() -> None:
    correction = align(*two_models(shy)).correction
    assert correction is not None
    weak, strong = two_models(shy, seed=9)
    frames = tuple(
        ScoredBoxes(f.boxes_xyxy, apply_to(correction, f.scores.astype(float), f.class_ids), f.class_ids)
        for f in weak.frames
    )
    again = align(ModelAnswers("corrected", LABELS, frames, weak.groups), strong)
    assert again.score_kl < 3 * again.score_kl_threshold
    assert again.score_kl < 0.1 * align(weak, strong).score_kl


def test_a_class_whose_scores_shifted_alone_gets_a_curve_of_its_own() -> None:
    weak, strong = two_models(lambda s, rng, ids: np.where(ids == CAR, s**4, s))
    report = align(weak, strong)
    assert [shift.label for shift in report.class_shifts if shift.differs] == ["car"]
    assert report.correction is not None
    half = np.array([0.5**4], np.float32)
    assert report.correction.by_class[CAR].apply(half)[0] > 0.35
    assert report.correction.by_class[PERSON].apply(half)[0] < 0.2


def test_a_model_that_calls_things_by_other_names_is_reported_with_the_confusion() -> None:
    def dogs_are_people(ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.where((ids == DOG) & (rng.random(len(ids)) < 0.8), PERSON, ids).astype(np.int32)

    report = align(*two_models(rename=dogs_are_people))
    assert report.verdict is Verdict.REPORTED
    assert report.classes_differ
    assert report.correction is None
    (confusion,) = report.confusions
    assert (confusion.weak_says, confusion.strong_says) == ("person", "dog")
    assert 0.1 < confusion.share < 0.4
    assert "No correction of scores takes it back" in report.summary


def test_a_swap_that_leaves_the_class_shares_as_they_are_is_still_named() -> None:
    def swapped(ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        swap = rng.random(len(ids)) < 0.3
        return np.where(swap & (ids == CAR), DOG, np.where(swap & (ids == DOG), CAR, ids)).astype(np.int32)

    report = align(*two_models(rename=swapped))
    assert {(each.weak_says, each.strong_says) for each in report.confusions} >= {
        ("car", "dog"),
        ("dog", "car"),
    }


def test_a_difference_that_no_map_of_scores_explains_is_reported() -> None:
    report = align(*two_models(lambda s, rng, ids: rng.choice([0.1, 0.9], len(s))))
    assert report.scores_differ
    assert report.verdict in (Verdict.REPORTED, Verdict.CORRECTED)
    if report.verdict is Verdict.CORRECTED:
        assert report.held_out_score_kl_after < report.held_out_score_kl
    else:
        assert report.correction is None


def test_a_report_travels_as_json_and_its_correction_as_a_calibration() -> None:
    report = align(*two_models(shy))
    said = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert said["verdict"] == "corrected"
    assert said["scores_differ"] is True
    assert said["weak"] == "student"
    assert said["summary"] == report.summary
    assert report.correction is not None
    read = calibration_from_json(json.dumps(said["correction"]).encode())
    raw = np.linspace(0, 1, 50, dtype=np.float32)
    assert np.allclose(read.fallback.apply(raw), report.correction.fallback.apply(raw))
    assert json.loads(json.dumps(align(*two_models(noise=0.01)).to_json()))["correction"] is None


def test_the_same_answers_give_the_same_report() -> None:
    assert align(*two_models(shy)).to_json() == align(*two_models(shy)).to_json()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.3, 4), st.floats(-2, 2))
def test_a_correction_and_what_it_is_composed_with_never_change_the_order_of_boxes(
    seed: int, slope: float, offset: float
) -> None:
    weak, strong = two_models(shy, frames=40, seed=seed)
    pairs = matched_pairs(weak, strong, 0.5, 0.05)
    both = corrected(ScoreCalibration(PlattCurve(slope, offset)), fit_correction(pairs))
    raw = np.linspace(0, 1, 500, dtype=np.float32)
    for curve in (both.fallback, *both.by_class.values()):
        mapped = curve.apply(raw)
        assert (np.diff(mapped) >= 0).all()
        assert mapped.min() >= 0 and mapped.max() <= 1


def test_a_composed_calibration_does_what_both_do_one_after_the_other() -> None:
    first = ScoreCalibration(PlattCurve(0.8, 0.4), {CAR: PlattCurve(1.2, -0.5)})
    second = ScoreCalibration(
        PlattCurve(1.5, 0.2), {DOG: PiecewiseCurve(np.array([0, 1]), np.array([0.1, 0.6]))}
    )
    both = corrected(first, second)
    raw = np.linspace(0.01, 0.99, 60, dtype=np.float32)
    for class_id in LABELS.ids:
        step = first.by_class.get(class_id, first.fallback).apply(raw)
        expected = second.by_class.get(class_id, second.fallback).apply(step)
        assert both.by_class.get(class_id, both.fallback).apply(raw) == pytest.approx(expected, abs=0.01)


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=8), st.integers(0, 2**32 - 1))
def test_a_divergence_is_never_negative_and_0_only_between_equals(counts: list[int], seed: int) -> None:
    p = np.array(counts, float)
    q = np.random.default_rng(seed).permutation(p)
    assert float(kl_divergence(p, q)) >= -1e-12
    assert float(kl_divergence(p, p)) == pytest.approx(0, abs=1e-12)


def test_each_box_stands_in_one_pair_and_the_best_overlap_wins() -> None:
    box = np.array([[0.0, 0, 100, 100]])
    near = np.array([[0.0, 0, 100, 90], [0, 0, 100, 98], [300, 300, 310, 310]])
    weak = ModelAnswers("w", LABELS, (ScoredBoxes(box, np.array([0.4]), np.array([CAR])),))
    strong = ModelAnswers(
        "s", LABELS, (ScoredBoxes(near, np.array([0.9, 0.8, 0.7]), np.array([CAR, DOG, CAR])),)
    )
    pairs = matched_pairs(weak, strong, 0.5, 0.05)
    assert (len(pairs), pairs.strong[0], pairs.strong_class[0]) == (1, pytest.approx(0.8), DOG)


def test_a_class_that_one_model_does_not_know_is_no_disagreement() -> None:
    weak, strong = two_models(noise=0.01)
    blind = LabelSet.from_names(["person", "car"])
    kept = tuple(_only(frame, blind.ids) for frame in weak.frames)
    report = align(ModelAnswers("student", blind, kept, weak.groups), strong)
    assert not report.classes_differ
    assert not report.confusions


def test_candidates_are_taken_with_calibrated_scores_in_their_best_class() -> None:
    boxes = np.array([[0.0, 0, 10, 10], [0, 0, 20, 20]])
    raw = np.array([[0.2, 0.6, 0.1], [0.01, 0.02, 0.01]])
    candidates = Candidates(boxes, raw, ScoreKind.PER_CLASS, LABELS, SIZE)
    seen = Inference(Detections.empty(SIZE, model_ref()), candidates)
    halved = ScoreCalibration(PiecewiseCurve(np.array([0, 1]), np.array([0, 0.5])))
    taken = calibrated_boxes(seen, halved, 0.05)
    assert taken.scores == pytest.approx([0.3])
    assert taken.class_ids.tolist() == [CAR]
    nothing = Candidates(np.empty((0, 4)), np.empty((0, 3)), ScoreKind.PER_CLASS, LABELS, SIZE)
    assert not len(calibrated_boxes(Inference(seen.detections, nothing), halved, 0.05).scores)


def _only(frame: ScoredBoxes, class_ids: tuple[int, ...]) -> ScoredBoxes:
    kept = np.isin(frame.class_ids, class_ids)
    return ScoredBoxes(frame.boxes_xyxy[kept], frame.scores[kept], frame.class_ids[kept])


def _one(score: float = 0.5, class_id: int = CAR, box: tuple[float, ...] = (0, 0, 9, 9)) -> ScoredBoxes:
    return ScoredBoxes(np.array([box]), np.array([score]), np.array([class_id]))


@pytest.mark.parametrize(
    ("frame", "wrong"),
    [
        (_one(float("nan")), r"student, frame 0, scores: expected finite"),
        (_one(1.5), r"student, frame 0, scores: expected 0 to 1"),
        (_one(box=(0, 0, float("nan"), 9)), r"student, frame 0, boxes: expected finite"),
        (
            _one(class_id=77),
            r"frame 0: expected classes of its labels \['person', 'car', 'dog'\], got \[77\]",
        ),
    ],
)
def test_answers_that_make_no_sense_are_refused_with_model_and_frame(frame: ScoredBoxes, wrong: str) -> None:
    with pytest.raises(Malformed, match=wrong):
        ModelAnswers("student", LABELS, (frame,))


def test_no_frames_or_not_the_same_frames_are_refused() -> None:
    weak, strong = two_models(frames=30)
    with pytest.raises(Malformed, match="student: expected at least one frame, got none"):
        ModelAnswers("student", LABELS, ())
    with pytest.raises(Malformed, match="a clip for each of 30 frames, got 1"):
        ModelAnswers("student", LABELS, weak.frames, ("clip",))
    fewer = ModelAnswers("student", LABELS, weak.frames[:-1])
    with pytest.raises(Malformed, match="the same frames, got 29 of student and 30 of teacher"):
        align(fewer, strong)


def test_models_without_a_common_class_are_refused() -> None:
    other = LabelSet.from_names(["ship"])
    ship = ModelAnswers("ships", other, (_one(class_id=other.ids[0]),))
    with pytest.raises(Malformed, match="a class that both models know"):
        align(ship, ModelAnswers("streets", LABELS, (_one(),)))


def test_too_few_matches_are_refused() -> None:
    weak, strong = two_models(frames=5)
    with pytest.raises(Malformed, match=r"at least 50 boxes that both models see, got \d+ in 5 frames"):
        align(weak, strong)


def test_labels_in_another_order_are_suspected() -> None:
    def turned(ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.array([{PERSON: CAR, CAR: DOG, DOG: PERSON}[each] for each in ids.tolist()], np.int32)

    with pytest.raises(Malformed, match="are the labels in the same order"):
        align(*two_models(rename=turned))


def test_one_clip_cannot_tell_chance_from_difference() -> None:
    weak, strong = two_models(frames=60)
    clips = ("clip",) * 60
    one = [ModelAnswers(each.name, LABELS, each.frames, clips) for each in (weak, strong)]
    with pytest.raises(Malformed, match="at least 4 clips"):
        align(*one)


@pytest.mark.parametrize(
    "changes", [{"iou": 0.0}, {"min_score": 1.0}, {"bins": 1}, {"halvings": 0}, {"least_kl": -1.0}]
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(Malformed, match="align"):
        AlignSettings(**changes)  # type: ignore[arg-type]


def test_a_report_says_what_it_is_about() -> None:
    report: AlignmentReport = align(*two_models(shy))
    assert report.summary.startswith("student and teacher differ in scores (KL ")
    assert "A correction of scores lowers the divergence" in report.summary
