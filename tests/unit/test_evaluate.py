"""Average precision: against a plain implementation, with ignored truth, over subsets and resamples of clips."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from typing import Any

import numpy as np
import pytest
from pycocotools.cocoeval import COCOeval

from calibration import matching
from calibration.evaluate import compare, compare_unpaired, evaluate, interval, match, report
from calibration.matching import BoxSize
from calibration.truth import EvaluatedFrame, GroundTruth
from fovea.core.detections import Candidates, Detections, ModelRef, ScoreKind
from fovea.core.errors import Malformed
from tests.unit.evaluation_frames import LABELS, SIZE, random_frames
from tests.unit.plain_coco import plain_ap

PERSON, CAR, DOG = LABELS.ids


@pytest.mark.parametrize("seed", range(5))
def test_ap_agrees_with_the_plain_implementation(seed: int) -> None:
    frames = random_frames(40, seed)
    assert evaluate(frames, LABELS.ids).ap == pytest.approx(plain_ap(frames, LABELS.ids), abs=1e-3)


def test_the_counting_agrees_with_pycocotools_to_the_last_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = random_frames(60, 7)
    evaluation = _vendor_evaluation(frames)
    ours = evaluate(frames, LABELS.ids)
    precision = evaluation.eval["precision"][..., 0]
    for row, size in enumerate((BoxSize.SMALL, BoxSize.MEDIUM, BoxSize.LARGE), start=1):
        of_size = precision[:, :, :, row]
        assert ours.by_size[size] == pytest.approx(of_size[of_size > -1].mean(), abs=1e-12)
    assert ours.ap == pytest.approx(precision[:, :, :, 0].mean(), abs=1e-12)
    assert ours.ap50 == pytest.approx(precision[0, :, :, 0].mean(), abs=1e-12)
    assert ours.ap75 == pytest.approx(precision[5, :, :, 0].mean(), abs=1e-12)


def _vendor_evaluation(frames: list[EvaluatedFrame]) -> Any:
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation = COCOeval(
            matching._coco(frames, LABELS.ids, matching._truth_annotations(frames)),
            matching._coco(frames, LABELS.ids, matching._seen_annotations(frames)),
            "bbox",
        )
        evaluation.params.maxDets = [100]
        evaluation.evaluate()
        evaluation.accumulate()
    return evaluation


def test_boxes_on_ignored_truth_count_neither_for_nor_against() -> None:
    real = ([10, 10, 60, 60], PERSON, False)
    crowd = ([100, 10, 200, 110], PERSON, True)
    right = ([10, 10, 60, 60], 0.5)
    in_the_crowd = [([100, 10, 140, 60], 0.9), ([150, 40, 200, 110], 0.8)]
    with_crowd = _frame([real, crowd], [right, *in_the_crowd])
    assert evaluate([with_crowd], [PERSON]).ap == pytest.approx(1.0)
    without = _frame([real], [right, *in_the_crowd])
    assert evaluate([without], [PERSON]).ap == pytest.approx(1 / 3, abs=1e-3)


def test_only_classes_with_a_true_box_that_the_caller_names_are_averaged() -> None:
    frame = _frame(
        [([10, 10, 60, 60], PERSON, False), ([80, 10, 160, 60], CAR, False)], [([10, 10, 60, 60], 0.5)]
    )
    assert evaluate([frame], [PERSON, DOG]).by_class == {PERSON: pytest.approx(1.0)}
    both = evaluate([frame], LABELS.ids)
    assert both.by_class == {PERSON: pytest.approx(1.0), CAR: 0.0}
    assert both.ap == pytest.approx(0.5)


def test_every_class_score_of_a_box_counts_not_the_best_one_alone() -> None:
    truth = GroundTruth([[10, 10, 60, 60]], [CAR], [False])
    seen = Candidates([[10, 10, 60, 60]], [[0.9, 0.2, 0]], ScoreKind.PER_CLASS, LABELS, SIZE)
    assert evaluate([EvaluatedFrame("a", truth, seen)], [CAR]).ap == pytest.approx(1.0)


def test_detections_are_evaluated_as_they_were_answered() -> None:
    truth = GroundTruth([[10, 10, 60, 60]], [CAR], [False])
    model = ModelRef("m", "1", "0" * 64)
    seen = Detections([[10, 10, 60, 60], [90, 10, 99, 60]], [0.5, 0.9], [CAR, CAR], SIZE, model)
    assert evaluate([EvaluatedFrame("a", truth, seen)], [CAR]).ap == pytest.approx(0.5)


def test_a_subset_of_clips_scores_as_if_evaluated_alone() -> None:
    frames = random_frames(30, 3)
    some = {"clip-1", "clip-4", "clip-7"}
    alone = evaluate([frame for frame in frames if frame.group in some], LABELS.ids)
    assert report(match(frames, LABELS.ids), some) == alone


def test_a_resample_scores_as_if_its_clips_were_evaluated_that_often() -> None:
    frames = random_frames(12, 4, ignore_share=0)
    table = match(frames, LABELS.ids)
    weights = np.array([[2.0], [0.0], [1.0], [3.0]])
    copies = [
        dataclasses.replace(frame, group=f"{frame.group}-{copy}")
        for frame in frames
        for copy in range(int(weights[table.groups.index(frame.group), 0]))
    ]
    drawn = matching_mean(table, weights)
    assert drawn == pytest.approx(evaluate(copies, LABELS.ids).ap, abs=1e-12)


def matching_mean(table: matching.MatchTable, weights: np.ndarray) -> float:
    from calibration.precision import average_precisions

    return float(np.nanmean(average_precisions(table, weights, BoxSize.ALL)))


def test_the_interval_holds_the_figure_and_narrows_with_more_clips() -> None:
    few, many = (interval(match(random_frames(count, 5), LABELS.ids)) for count in (15, 240))
    assert few.low < few.value < few.high
    assert many.low < many.value < many.high
    assert many.high - many.low < 0.6 * (few.high - few.low)


def test_a_paired_comparison_is_tighter_than_an_unpaired_one_and_sees_the_better_model() -> None:
    good = match(random_frames(90, 6, jitter_px=3.0), LABELS.ids)
    worse = match(random_frames(90, 6, jitter_px=4.0), LABELS.ids)
    paired, unpaired = compare(good, worse), compare_unpaired(good, worse)
    assert paired.low > 0
    assert paired.value == pytest.approx(unpaired.value)
    assert paired.high - paired.low < unpaired.high - unpaired.low


def test_a_model_compared_with_itself_differs_by_nothing() -> None:
    table = match(random_frames(30, 8), LABELS.ids)
    same = compare(table, table)
    assert (same.value, same.low, same.high) == (0, 0, 0)


def test_a_comparison_on_other_clips_is_refused() -> None:
    with pytest.raises(Malformed, match="same groups"):
        compare(match(random_frames(30, 1), LABELS.ids), match(random_frames(60, 1), LABELS.ids))


def test_a_model_that_saw_nothing_scores_zero_and_no_truth_at_all_is_refused() -> None:
    nothing = Candidates(np.empty((0, 4)), np.empty((0, 3)), ScoreKind.PER_CLASS, LABELS, SIZE)
    blind = EvaluatedFrame("a", GroundTruth([[1, 1, 9, 9]], [CAR], [False]), nothing)
    assert evaluate([blind], LABELS.ids).ap == 0
    empty = EvaluatedFrame("a", GroundTruth.empty(), nothing)
    with pytest.raises(Malformed, match="no true box"):
        evaluate([empty], LABELS.ids)
    with pytest.raises(Malformed, match="expected frames"):
        evaluate([], LABELS.ids)


def test_truth_with_flags_missing_or_a_box_turned_round_is_refused() -> None:
    with pytest.raises(Malformed, match="expected 1 flags, got 0"):
        GroundTruth([[0, 0, 1, 1]], [CAR], [])
    with pytest.raises(Malformed, match="x1 <= x2"):
        GroundTruth([[5, 0, 1, 1]], [CAR], [False])


def _frame(
    truth: list[tuple[list[int], int, bool]], seen_persons: list[tuple[list[int], float]]
) -> EvaluatedFrame:
    boxes, ids, ignore = zip(*truth, strict=True)
    seen = Candidates(
        [box for box, _ in seen_persons],
        [[score, 0, 0] for _, score in seen_persons],
        ScoreKind.PER_CLASS,
        LABELS,
        SIZE,
    )
    return EvaluatedFrame("a", GroundTruth(list(boxes), list(ids), list(ignore)), seen)


def test_recall_levels_are_counted_as_a_search_would_count_them() -> None:
    from calibration.precision import RECALLS, _levels_reached

    for positives in range(1, 130):
        recall = np.arange(positives + 1) / positives
        assert np.array_equal(_levels_reached(recall), np.searchsorted(RECALLS, recall, side="right"))
