"""How far the teacher is believed: every rule, as the frame that it is there for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud.labels.judging import (
    Doubt,
    Judgement,
    JudgeSettings,
    Verdict,
    agreement_of,
    judge,
    settings_as_json,
)
from fovea.core.detections import Detections
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from tests.builders import model_ref

SIZE = ImageSize(100, 80)
LEFT, RIGHT, TOP = (5.0, 5.0, 35.0, 65.0), (60.0, 5.0, 95.0, 70.0), (40.0, 0.0, 58.0, 12.0)
PERSON, CAR = 0, 2

Box = tuple[tuple[float, float, float, float], float, int]


def seen(*boxes: Box, name: str = "m", size: ImageSize = SIZE) -> Detections:
    return Detections(
        np.array([box for box, _, _ in boxes], np.float32).reshape(-1, 4),
        np.array([score for _, score, _ in boxes], np.float32),
        np.array([class_id for _, _, class_id in boxes], np.int32),
        size,
        model_ref(name),
    )


def judged(teacher: Detections, *witnesses: Detections) -> Judgement:
    return judge(teacher, witnesses)


def test_a_sure_teacher_is_believed_where_weak_tiers_saw_nothing() -> None:
    said = judged(seen((LEFT, 0.9, PERSON)), seen(), seen())
    assert (said.verdict, said.doubts) == (Verdict.ACCEPT, (Doubt.NONE,))
    assert said.weights.tolist() == pytest.approx([0.9])
    assert len(said.ignore_xyxy) == 0
    assert said.agreement == 0.0
    assert said.witnesses == 2


def test_a_witness_of_the_same_makes_a_box_likelier() -> None:
    alone = judged(seen((LEFT, 0.6, PERSON)), seen())
    seconded = judged(seen((LEFT, 0.6, PERSON)), seen((LEFT, 0.8, PERSON)))
    assert seconded.weights[0] == pytest.approx(0.6 + 0.4 * 0.5 * 0.8)
    assert seconded.weights[0] > alone.weights[0]
    assert seconded.agreement == 1.0


def test_a_box_between_the_thresholds_is_neither_object_nor_background() -> None:
    said = judged(seen((LEFT, 0.9, PERSON), (RIGHT, 0.4, CAR), (TOP, 0.1, CAR)), seen((LEFT, 0.5, PERSON)))
    assert said.verdict is Verdict.ACCEPT
    assert (said.weights > 0).tolist() == [True, False, False]
    assert said.ignore_xyxy.tolist() == [list(RIGHT)]


def test_a_witness_lifts_a_doubtful_box_into_the_truth() -> None:
    said = judged(seen((LEFT, 0.4, PERSON)), seen((LEFT, 0.7, PERSON)))
    assert said.weights[0] == pytest.approx(0.4 + 0.6 * 0.5 * 0.7)
    assert len(said.ignore_xyxy) == 0


def test_one_camera_that_sees_a_ghost_is_corrected_not_obeyed() -> None:
    said = judged(seen((LEFT, 0.9, PERSON)), seen((RIGHT, 0.7, CAR)))
    assert said.verdict is Verdict.ACCEPT
    assert len(said.ignore_xyxy) == 0


def test_an_empty_frame_in_which_a_camera_saw_a_ghost_is_learned_as_empty() -> None:
    said = judged(seen(), seen((RIGHT, 0.7, CAR)))
    assert (said.verdict, said.doubts) == (Verdict.ACCEPT, (Doubt.NOTHING_THERE,))
    assert said.weights.shape == (0,)
    assert said.ignore_xyxy.shape == (0, 4)


def test_two_witnesses_against_a_silent_teacher_are_a_persons_business() -> None:
    ghost = seen((LEFT, 0.95, PERSON)), seen((RIGHT, 0.8, CAR)), seen((RIGHT, 0.8, CAR))
    said = judged(*ghost)
    assert (said.verdict, said.doubts) == (Verdict.ASK, (Doubt.CONTRADICTED,))
    assert said.ignore_xyxy.tolist() == [list(RIGHT)]


def test_however_sure_a_witness_is_it_takes_two_to_make_a_place_doubtful() -> None:
    said = judged(seen((LEFT, 0.95, PERSON)), seen((RIGHT, 1.0, CAR)))
    assert said.verdict is Verdict.ACCEPT
    assert len(said.ignore_xyxy) == 0
    two = seen((RIGHT, 0.7, CAR)), seen((RIGHT, 0.7, CAR))
    said = judged(seen((LEFT, 0.95, PERSON)), *two)
    assert said.verdict is Verdict.ACCEPT
    assert said.ignore_xyxy.tolist() == [list(RIGHT)]


def test_two_boxes_of_one_witness_are_two_things_not_two_witnesses() -> None:
    near = (61.0, 5.0, 95.0, 70.0)
    said = judged(seen((LEFT, 0.95, PERSON)), seen((RIGHT, 0.8, CAR), (near, 0.8, CAR)))
    assert said.verdict is Verdict.ACCEPT
    assert len(said.ignore_xyxy) == 0


def test_who_is_sure_of_another_class_makes_the_box_doubtful_and_a_person_is_asked() -> None:
    said = judged(seen((LEFT, 0.6, PERSON)), seen((LEFT, 0.9, CAR)))
    assert said.verdict is Verdict.ASK
    assert said.doubts[0] is Doubt.CLASSES_DIFFER
    assert said.weights[0] == 0
    assert said.ignore_xyxy.tolist() == [list(LEFT)]


def test_a_very_sure_teacher_keeps_its_class_against_a_weak_tier() -> None:
    said = judged(seen((LEFT, 0.97, PERSON)), seen((LEFT, 0.5, CAR)))
    assert said.verdict is Verdict.ACCEPT
    assert said.weights[0] == pytest.approx(0.97 * 0.75)


def test_a_witness_that_saw_both_classes_there_is_not_against() -> None:
    both = seen((LEFT, 0.8, PERSON), (LEFT, 0.8, CAR))
    assert judged(seen((LEFT, 0.6, PERSON)), both).weights[0] == pytest.approx(0.6 + 0.4 * 0.5 * 0.8)


def test_a_frame_of_doubtful_things_is_for_people_and_one_doubtful_thing_is_dropped() -> None:
    many = judged(seen((LEFT, 0.45, PERSON), (RIGHT, 0.45, CAR)), seen())
    assert (many.verdict, many.doubts) == (Verdict.ASK, (Doubt.MOSTLY_DOUBTFUL,))
    one = judged(seen((LEFT, 0.45, PERSON)), seen())
    assert (one.verdict, one.doubts) == (Verdict.DROP, (Doubt.NOTHING_SURE,))


def test_a_teacher_that_is_not_very_sure_needs_agreement() -> None:
    alone = judged(seen((LEFT, 0.55, PERSON)), seen((TOP, 0.5, CAR)))
    assert (alone.verdict, alone.doubts) == (Verdict.ASK, (Doubt.LITTLE_AGREEMENT,))
    assert judged(seen((LEFT, 0.55, PERSON)), seen((LEFT, 0.3, PERSON))).verdict is Verdict.ACCEPT


def test_without_a_witness_the_scores_alone_decide() -> None:
    said = judged(seen((LEFT, 0.9, PERSON)))
    assert (said.verdict, said.agreement, said.witnesses) == (Verdict.ACCEPT, 0.0, 0)


def test_agreement_is_the_best_that_any_witness_reaches() -> None:
    teacher = seen((LEFT, 0.9, PERSON), (RIGHT, 0.9, CAR))
    half, whole = seen((LEFT, 0.9, PERSON)), seen((LEFT, 0.9, PERSON), (RIGHT, 0.9, CAR))
    assert judged(teacher, half).agreement == pytest.approx(2 * 0.9 / 2.7)
    assert judged(teacher, half, whole).agreement == 1.0


def test_weak_boxes_hardly_count_in_the_agreement() -> None:
    strong = seen((LEFT, 0.9, PERSON))
    noisy = seen((LEFT, 0.9, PERSON), (RIGHT, 0.02, CAR), (TOP, 0.02, CAR))
    assert agreement_of(strong, noisy) > 0.97
    assert agreement_of(seen(), seen()) == 1.0
    assert agreement_of(strong, seen((LEFT, 0.9, CAR))) == 0.0


def test_boxes_in_px_of_another_size_are_refused() -> None:
    with pytest.raises(Malformed, match="100x80, got 50x40"):
        judged(seen((LEFT, 0.9, PERSON)), seen(size=ImageSize(50, 40)))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"iou": 0}, "judge iou"),
        ({"miss": 1.5}, "judge miss: expected 0 to 1, got 1.5"),
        ({"support": float("nan")}, "judge support"),
        ({"ignore_from": 0.6}, "at most truth_from"),
        ({"ask_mass": -1}, "judge ask_mass"),
        ({"conflict": True}, "judge conflict"),
    ],
)
def test_thresholds_that_make_no_sense_are_refused(wrong: dict[str, float], told: str) -> None:
    with pytest.raises(Malformed, match=told):
        JudgeSettings(**wrong)


def test_thresholds_survive_as_json() -> None:
    assert JudgeSettings(**settings_as_json(JudgeSettings(miss=0.2))) == JudgeSettings(miss=0.2)


boxes = st.builds(
    lambda x, y, w, h, score, class_id: ((x, y, x + w, y + h), score, class_id),
    *(st.integers(0, 40).map(float) for _ in range(2)),
    *(st.integers(1, 40).map(float) for _ in range(2)),
    st.floats(0, 1, width=32),
    st.sampled_from([0, 1, 2]),
)
frames = st.lists(boxes, max_size=6).map(lambda rows: seen(*rows))


@settings(max_examples=150, deadline=None)
@given(frames, st.lists(frames, max_size=3))
def test_every_place_is_learned_or_ignored_or_left_and_never_two_of_them(
    teacher: Detections, others: list[Detections]
) -> None:
    said, rules = judge(teacher, others), JudgeSettings()
    assert said.weights.shape == (len(teacher),)
    learned = said.weights > 0
    assert (said.weights[learned] >= rules.truth_from - 1e-6).all()
    assert (said.weights <= 1).all()
    assert 0 <= said.agreement <= 1 + 1e-6
    assert len(said.ignore_xyxy) <= (~learned).sum() + sum(len(other) for other in others)
    assert (said.verdict is Verdict.ASK) == (
        said.doubts[0] not in (Doubt.NONE, Doubt.NOTHING_THERE, Doubt.NOTHING_SURE)
    )


@settings(max_examples=60, deadline=None)
@given(frames, frames)
def test_agreement_does_not_depend_on_who_is_asked_first(a: Detections, b: Detections) -> None:
    assert agreement_of(a, b) == pytest.approx(agreement_of(b, a), abs=1e-5)
    assert agreement_of(a, a) == pytest.approx(1.0)


@settings(max_examples=60, deadline=None)
@given(frames, frames, frames)
def test_the_order_of_witnesses_does_not_matter(a: Detections, b: Detections, c: Detections) -> None:
    first, second = judge(a, [b, c]), judge(a, [c, b])
    np.testing.assert_allclose(first.weights, second.weights, atol=1e-6)
    assert first.agreement == second.agreement


def test_a_witness_speaks_for_the_strongest_box_and_not_for_its_weak_doubles() -> None:
    double = (6.0, 5.0, 36.0, 65.0)
    said = judged(seen((LEFT, 0.9, PERSON), (double, 0.3, PERSON)), seen((LEFT, 0.9, PERSON)))
    assert (said.weights > 0).tolist() == [True, False]
    assert len(said.ignore_xyxy) == 0


def test_one_contradicted_thing_among_many_is_set_aside_without_a_person() -> None:
    many = tuple(
        ((10.0 * x, 40.0 * y, 10.0 * x + 9, 40.0 * y + 30), 0.95, PERSON) for x in range(5) for y in (0, 1)
    )
    ghost = seen((RIGHT, 0.8, CAR)), seen((RIGHT, 0.8, CAR))
    said = judged(seen(*many), *ghost)
    assert (said.verdict, said.doubts) == (Verdict.ACCEPT, (Doubt.NONE,))
    assert said.ignore_xyxy.tolist() == [list(RIGHT)]


def test_who_rides_a_bicycle_says_nothing_against_it() -> None:
    both = seen((LEFT, 0.6, PERSON), ((5.0, 8.0, 35.0, 65.0), 0.6, 1))
    said = judged(both, seen((LEFT, 0.9, PERSON)))
    assert (said.verdict, said.weights[1]) == (Verdict.ACCEPT, pytest.approx(0.6))


def test_a_frame_with_no_more_than_a_weak_box_is_empty_but_for_that_place() -> None:
    said = judged(seen((LEFT, 0.2, PERSON)), seen((RIGHT, 0.9, CAR)))
    assert (said.verdict, said.doubts) == (Verdict.ACCEPT, (Doubt.NOTHING_THERE,))
    assert said.ignore_xyxy.tolist() == [list(LEFT)]
