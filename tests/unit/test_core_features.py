"""Each of the twelve features says what its line of documentation says."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fovea.core.detections import Candidates, Detections, ModelRef, ScoreKind
from fovea.core.errors import Malformed
from fovea.core.features import (
    FEATURE_NAMES,
    FeatureSettings,
    FrameFeatures,
    SceneFacts,
    contrast_of,
    frame_features,
)
from fovea.core.frame import ImageSize
from fovea.core.labels import LabelSet

SIZE = ImageSize(200, 100)
REF = ModelRef("model", "1", "ab" * 32)
LABELS = LabelSet.from_names(["person", "car"])


def answered(*rows: tuple[list[float], float]) -> Detections:
    boxes, scores = zip(*rows, strict=True) if rows else ([], [])
    return Detections(boxes, scores, [0] * len(rows), SIZE, REF)  # type: ignore[arg-type]


def seen(*scores: float) -> Candidates:
    boxes = [[0, 0, 10, 10]] * len(scores)
    return Candidates(boxes, [[s, 0] for s in scores] or np.empty((0, 2)), ScoreKind.PER_CLASS, LABELS, SIZE)  # type: ignore[arg-type]


NOTHING = frame_features(seen(), answered())
TWO = answered(([0, 0, 20, 10], 0.9), ([100, 0, 110, 20], 0.4))


def test_a_frame_without_anything_is_all_zero_but_for_the_missing_smallest_box() -> None:
    values = dict(zip(FEATURE_NAMES, NOTHING.values, strict=True))
    assert values.pop("smallest_share") == 1
    assert set(values.values()) == {0.0}


def test_answered_boxes_are_counted_and_their_scores_summed_up() -> None:
    features = frame_features(seen(0.8, 0.4), TWO)
    assert features.box_count == 2
    assert features.top_score == pytest.approx(0.9)
    assert features.mean_score == pytest.approx(0.65)
    assert features.uncertain_count == 1


def test_the_border_of_certainty_is_a_setting() -> None:
    sterner = frame_features(seen(0.8, 0.4), TWO, settings=FeatureSettings(sure_from=0.95))
    assert sterner.uncertain_count == 2


def test_weak_mass_is_what_lies_between_noise_and_the_answer() -> None:
    features = frame_features(seen(0.8, 0.4, 0.2, 0.1, 0.01), TWO)
    assert features.weak_mass == pytest.approx(0.3)


def test_an_empty_answer_leaves_all_its_mass_weak() -> None:
    assert frame_features(seen(0.2, 0.1), answered()).weak_mass == pytest.approx(0.3)


def test_entropy_is_one_bit_for_a_toss_and_none_for_certainty() -> None:
    assert frame_features(seen(0.5, 0.5), answered()).entropy_sum == pytest.approx(2)
    assert frame_features(seen(1.0), answered()).entropy_sum == pytest.approx(0, abs=1e-6)
    assert frame_features(seen(0.01), answered()).entropy_sum == 0


def test_the_smallest_box_is_measured_by_its_side() -> None:
    assert frame_features(seen(), TWO).smallest_share == pytest.approx(math.sqrt(200 / 20000))


def test_crowding_is_the_mean_of_the_nearest_overlaps() -> None:
    crowd = answered(([0, 0, 10, 10], 0.9), ([0, 0, 10, 20], 0.8), ([100, 0, 110, 10], 0.7))
    assert frame_features(seen(), crowd).crowding == pytest.approx((0.5 + 0.5 + 0) / 3)
    assert frame_features(seen(), TWO).crowding == 0


def test_motion_counts_where_no_box_explains_it() -> None:
    half_covered = SceneFacts(motion_boxes_xyxy=np.array([[10, 0, 30, 10]], np.float32))
    elsewhere = SceneFacts(motion_boxes_xyxy=np.array([[50, 50, 60, 70]], np.float32))
    inside = SceneFacts(motion_boxes_xyxy=np.array([[2, 2, 8, 8]], np.float32))
    assert frame_features(seen(), TWO, half_covered).unexplained_motion == pytest.approx(100 / 20000)
    assert frame_features(seen(), TWO, elsewhere).unexplained_motion == pytest.approx(200 / 20000)
    assert frame_features(seen(), TWO, inside).unexplained_motion == 0
    assert frame_features(seen(), answered(), inside).unexplained_motion == pytest.approx(36 / 20000)


def test_boxes_on_top_of_each_other_do_not_explain_other_motion() -> None:
    twice = answered(([0, 0, 10, 10], 0.9), ([0, 0, 10, 10], 0.8))
    motion = SceneFacts(motion_boxes_xyxy=np.array([[0, 0, 10, 10], [50, 50, 60, 60]], np.float32))
    assert frame_features(seen(), twice, motion).unexplained_motion == pytest.approx(100 / 20000)


def test_what_is_known_beside_the_boxes_is_passed_on() -> None:
    features = frame_features(seen(), TWO, SceneFacts(vanished_count=3, contrast=0.2))
    assert (features.vanished_count, features.contrast) == (3, 0.2)


def test_change_is_the_difference_of_the_summed_scores() -> None:
    before = frame_features(seen(), TWO)
    assert frame_features(seen(), answered(), previous=before).change == pytest.approx(1.3)
    assert frame_features(seen(), TWO, previous=before).change == pytest.approx(0)
    assert before.change == 0


def test_the_vector_has_the_order_of_the_names() -> None:
    features = FrameFeatures(*range(12))
    assert FEATURE_NAMES[:2] == ("box_count", "top_score")
    assert len(FEATURE_NAMES) == 12
    assert features.vector.dtype == np.float32
    assert features.vector.tolist() == list(range(12))


@given(st.data())
def test_any_frame_gives_finite_features_within_their_ranges(data: st.DataObject) -> None:
    scores = sorted(data.draw(st.lists(st.floats(0, 1, width=32), max_size=30)), reverse=True)
    count = data.draw(st.integers(0, len(scores)))
    corners = st.tuples(st.floats(0, 200), st.floats(0, 100), st.floats(0, 50), st.floats(0, 50))

    def boxes(number: int) -> list[list[float]]:
        drawn = data.draw(st.lists(corners, min_size=number, max_size=number))
        return [[x, y, x + w, y + h] for x, y, w, h in drawn]

    detections = answered(*zip(boxes(count), scores[:count], strict=True))
    motion = np.array(boxes(data.draw(st.integers(0, 5))), np.float32).reshape(-1, 4)
    features = frame_features(seen(*scores), detections, SceneFacts(1, motion, 0.1), NOTHING)
    assert features.box_count == count
    for name in ("top_score", "mean_score", "smallest_share", "crowding", "unexplained_motion"):
        assert 0 <= getattr(features, name) <= 1 + 1e-6
    assert features.weak_mass <= sum(scores) + 1e-4


def test_contrast_is_that_of_the_light() -> None:
    flat = np.full((540, 960, 3), 90, np.uint8)
    split = flat.copy()
    split[:, :480], split[:, 480:] = 0, 255
    assert contrast_of(flat) == 0
    assert contrast_of(split) == pytest.approx(0.5)
    assert contrast_of(np.zeros((1, 1, 3), np.uint8)) == 0


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["box_count", "change"])
def test_a_feature_that_is_no_amount_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(Malformed, match=f"feature {name}"):
        replace(NOTHING, **{name: value})


@pytest.mark.parametrize(
    "facts", [{"vanished_count": -1}, {"contrast": math.nan}, {"motion_boxes_xyxy": np.zeros((2, 3))}]
)
def test_facts_that_make_no_sense_are_refused(facts: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        SceneFacts(**facts)


@pytest.mark.parametrize("settings", [{"sure_from": 1.5}, {"noise_below": math.nan}])
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(Malformed, match="feature settings"):
        FeatureSettings(**settings)


WEIGHED = FeatureSettings(class_weights={0: 3.0})


def weak_boxes(*scores: float, class_id: int) -> Detections:
    count = len(scores)
    boxes = np.tile(np.array([[0, 0, 10, 10]], np.float32), (count, 1))
    return Detections(
        boxes, np.array(scores, np.float32), np.full(count, class_id, np.int32), TWO.image_size, TWO.model
    )


def test_with_class_weights_doubt_is_about_what_was_answered_and_counts_by_class() -> None:
    told, other = weak_boxes(0.5, class_id=0), 2
    features = frame_features(seen(), told, settings=WEIGHED, weak=weak_boxes(0.5, 0.2, 0.01, class_id=0))
    assert features.weak_mass == pytest.approx(3 * 0.2)
    assert features.entropy_sum == pytest.approx(3 * (1 + 0.7219281), rel=1e-5)
    unknown = weak_boxes(0.5, class_id=other)
    assert frame_features(seen(), unknown, settings=WEIGHED).entropy_sum == pytest.approx(1)


def test_without_class_weights_doubt_is_about_the_raw_candidates() -> None:
    weak = weak_boxes(0.5, 0.2, class_id=0)
    assert frame_features(seen(0.1), answered(), weak=weak).weak_mass == pytest.approx(0.1)


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_a_class_weight_that_is_none_is_refused(weight: float) -> None:
    with pytest.raises(Malformed, match="class_weights: expected finite numbers"):
        FeatureSettings(class_weights={0: weight})
