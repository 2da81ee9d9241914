"""Several models as one: who agrees is believed, who is blind has no say, and calibration comes first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fovea.core.arrays import ImageArray
from fovea.core.detections import LOWEST_SCORE, Candidates, Inference, ModelRef, ScoreKind
from fovea.core.errors import DetectorFailed, Malformed
from fovea.core.frame import ImageSize
from fovea.core.fusion import FusionSettings
from fovea.core.labels import Label, LabelSet
from fovea.core.scores import PlattCurve, ScoreCalibration
from fovea.runtime.ensemble import EnsembleDetector, EnsembleSettings, Member
from tests.builders import model_ref, scene
from tests.fakes import FakeDetector, Seen

SIZE = ImageSize(64, 48)
PERSON_CAR = LabelSet.from_names(["person", "car"])
CAR_DOG = LabelSet.from_names(["car", "dog"])
IDENTITY = ScoreCalibration.identity()
A, B = (10.0, 10.0, 30.0, 30.0), (40.0, 5.0, 60.0, 40.0)


def seeing(
    seen: Seen,
    labels: LabelSet = PERSON_CAR,
    digit: str = "a",
    calibration: ScoreCalibration = IDENTITY,
    trust: float = 1.0,
) -> Member:
    """A member that sees the same in every frame."""
    return Member(
        FakeDetector(lambda _: seen, labels, model_ref("m" + digit, "1", digit)), calibration, trust
    )


def seen_by(*members: Member, **changes: Any) -> Inference:
    ensemble = EnsembleDetector(members, EnsembleSettings(**({"answer_min_score": 0.1} | changes)))
    [inference] = ensemble.detect([np.zeros((SIZE.height, SIZE.width, 3), np.uint8)])
    return inference


def rows(inference: Inference) -> list[tuple[tuple[float, ...], float, str]]:
    """The answer as (box, score, name)."""
    found, names = inference.detections, {label.id: label.name for label in inference.candidates.labels}
    return [
        (tuple(round(edge, 3) for edge in box), round(score, 4), names[class_id])
        for box, score, class_id in zip(
            found.boxes_xyxy.tolist(), found.scores.tolist(), found.class_ids.tolist(), strict=True
        )
    ]


def test_one_box_of_two_models_becomes_one_with_the_mean_score_and_the_weighted_box() -> None:
    shifted = (12.0, 10.0, 32.0, 30.0)
    inference = seen_by(seeing([(A, 0.9, 0)]), seeing([(shifted, 0.3, 0)], digit="b"))
    assert rows(inference) == [((10.5, 10.0, 30.5, 30.0), 0.6, "person")]


def test_who_knows_a_class_and_sees_nothing_pulls_the_score_down() -> None:
    assert rows(seen_by(seeing([(A, 0.8, 1)]), seeing([], digit="b"))) == [(A, 0.4, "car")]


def test_who_does_not_know_a_class_has_no_say_in_it() -> None:
    inference = seen_by(seeing([(A, 0.8, 0)]), seeing([(B, 0.6, 1)], CAR_DOG, "b"))
    assert rows(inference) == [(A, 0.8, "person"), (B, 0.6, "dog")]


def test_models_that_number_a_class_differently_agree_on_it() -> None:
    inference = seen_by(seeing([(A, 0.8, 1)]), seeing([(A, 0.4, 0)], CAR_DOG, "b"))
    assert rows(inference) == [(A, 0.6, "car")]
    assert inference.candidates.labels.names == ("person", "car", "dog")


def test_trust_weighs_models() -> None:
    inference = seen_by(seeing([(A, 0.9, 0)], trust=3.0), seeing([], digit="b"))
    assert rows(inference)[0][1] == pytest.approx(0.675)


def test_scores_are_calibrated_before_they_are_fused() -> None:
    loud = seeing([(A, 0.99, 0)], calibration=ScoreCalibration(PlattCurve(1.0, -4.595119)))
    inference = seen_by(loud, seeing([(A, 0.3, 0)], digit="b"))
    assert rows(inference)[0][1] == pytest.approx((0.5 + 0.3) / 2, abs=1e-3)


def test_one_thing_that_two_models_name_differently_is_one_answer_with_both_scores_behind_it() -> None:
    inference = seen_by(seeing([(A, 0.9, 0)]), seeing([(A, 0.8, 1)], digit="b"))
    assert rows(inference) == [(A, 0.45, "person")]
    assert inference.candidates.class_scores.tolist() == [pytest.approx([0.45, 0.4])]


def test_things_side_by_side_stay_apart() -> None:
    rider = (10.0, 10.0, 30.0, 24.0)
    inference = seen_by(seeing([(A, 0.9, 0), (rider, 0.8, 1)]))
    assert rows(inference) == [(A, 0.9, "person"), (rider, 0.8, "car")]


def test_two_things_of_one_class_in_one_place_stay_two() -> None:
    near = (10.5, 10.0, 30.0, 30.0)
    inference = seen_by(seeing([(A, 0.9, 0), (near, 0.7, 0)]))
    assert [score for _, score, _ in rows(inference)] == pytest.approx([0.9, 0.7])


def test_what_is_too_weak_is_not_answered_but_stays_a_candidate() -> None:
    inference = seen_by(seeing([(A, 0.08, 0), (B, 0.0015, 1)]), seeing([], digit="b"))
    assert rows(inference) == []
    assert inference.candidates.best_scores.tolist() == [pytest.approx(0.04)], "0.00075 is below the lowest"


def test_no_more_candidates_than_asked_for_the_best_ones() -> None:
    many = [((float(x), 0.0, x + 1.0, 1.0), (x + 1) / 100, 0) for x in range(60)]
    inference = seen_by(seeing(many), max_boxes=5)
    assert inference.candidates.best_scores.tolist() == pytest.approx([0.60, 0.59, 0.58, 0.57, 0.56])
    assert len(seen_by(seeing(many), max_claims=7).candidates) == 7


def test_a_model_alone_says_what_it_says_by_itself() -> None:
    alone = FakeDetector(min_score=0.1)
    frame = scene(48, 64)
    [own] = alone.detect([frame])
    ensemble = EnsembleDetector([Member(alone, IDENTITY)], EnsembleSettings(answer_min_score=0.1))
    [inference] = ensemble.detect([frame])
    np.testing.assert_array_equal(inference.detections.boxes_xyxy, own.detections.boxes_xyxy)
    np.testing.assert_allclose(inference.detections.scores, own.detections.scores, rtol=1e-6)


def test_its_name_is_its_members_and_its_digest_all_that_its_answers_depend_on() -> None:
    def ref(*members: Member, name: str = "", **changes: Any) -> ModelRef:
        return EnsembleDetector(members, EnsembleSettings(**changes), name).ref

    one, other = seeing([]), seeing([], digit="b")
    usual = ref(one, other)
    assert (usual.name, usual.version) == ("ma+mb", "1")
    assert ref(one, other) == usual
    assert ref(one, other, name="teacher").name == "teacher"
    digests = {
        usual.sha256,
        ref(one).sha256,
        ref(one, seeing([], digit="b", trust=2.0)).sha256,
        ref(one, other, answer_min_score=0.3).sha256,
        ref(one, other, fusion=FusionSettings(0.7)).sha256,
    }
    assert len(digests) == 5


def test_no_member_and_members_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(Malformed, match="at least one model"):
        EnsembleDetector([])
    odd = LabelSet((Label(0, "automobile"),))
    with pytest.raises(Malformed, match="share the id 0"):
        EnsembleDetector([seeing([]), seeing([], odd, "b")])


@pytest.mark.parametrize(
    "wrong", [{"same_box_iou": 1.0}, {"answer_min_score": 1.5}, {"max_boxes": 0}, {"max_claims": 0}]
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Malformed, match="ensemble: expected"):
        EnsembleSettings(**wrong)


def test_a_member_that_fails_fails_the_whole_and_closing_closes_all() -> None:
    members = [seeing([]), seeing([], digit="b")]
    fakes = [member.detector for member in members]
    ensemble = EnsembleDetector(members)
    assert isinstance(fakes[1], FakeDetector)
    fakes[1].fail_with = DetectorFailed("no memory")
    with pytest.raises(DetectorFailed, match="no memory"):
        ensemble.detect([scene()])
    ensemble.close()
    assert all(isinstance(fake, FakeDetector) and fake.is_closed for fake in fakes)


box = st.tuples(st.integers(0, 40), st.integers(0, 30), st.integers(1, 24), st.integers(1, 18)).map(
    lambda sides: (sides[0], sides[1], sides[0] + sides[2], sides[1] + sides[3])
)
sights = st.lists(
    st.tuples(box, st.integers(2, 1000).map(lambda n: n / 1000), st.integers(0, 1)), max_size=12
)


@settings(max_examples=60, deadline=None)
@given(st.lists(sights, min_size=1, max_size=3))
def test_whatever_the_members_see_the_answer_is_sound(seen: list[list[Any]]) -> None:
    members = [seeing(one, (PERSON_CAR, CAR_DOG)[place % 2], "abc"[place]) for place, one in enumerate(seen)]
    inference = seen_by(*members)
    candidates = inference.candidates
    assert candidates.kind is ScoreKind.PER_CLASS
    assert isinstance(candidates, Candidates)
    if len(candidates):
        assert candidates.best_scores.min() >= LOWEST_SCORE
        assert (candidates.boxes_xyxy >= 0).all()
        assert (candidates.boxes_xyxy <= [SIZE.width, SIZE.height] * 2).all()
    highest: float = max((score for one in seen for _, score, _ in one), default=0)
    assert all(score <= highest + 1e-6 for score in inference.detections.scores.tolist())
    claims = sum(len(one) for one in seen)
    assert np.count_nonzero(candidates.class_scores) <= claims
    swapped: ImageArray = np.zeros((SIZE.height, SIZE.width, 3), np.uint8)
    again = EnsembleDetector(members, EnsembleSettings(answer_min_score=0.1)).detect([swapped])[0]
    np.testing.assert_array_equal(again.candidates.class_scores, candidates.class_scores)
