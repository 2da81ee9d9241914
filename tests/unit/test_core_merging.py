"""The tiers' answers as one: trust, blindness against silence, and what never changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fovea.core.detections import Detections
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from fovea.core.geometry import iou_matrix
from fovea.core.hard_case import TierAnswer
from fovea.core.labels import LabelSet
from fovea.core.merging import MergeSettings, merge_answers
from fovea.core.routing import Tier
from tests.builders import model_ref

SIZE = ImageSize(640, 360)
MERGED = model_ref("merged", digit="e")
LABELS = LabelSet.from_names(["person", "bicycle", "car"])
PEOPLE_ONLY = LabelSet.from_names(["person"])
PERSON, CAR = 0, 2
HERE, ALMOST_HERE, FAR = (10, 10, 110, 110), (14, 10, 114, 110), (300, 200, 360, 300)
Row = tuple[tuple[float, float, float, float], float, int]


def saw(tier: Tier, *rows: Row, labels: LabelSet = LABELS, size: ImageSize = SIZE) -> TierAnswer:
    boxes = np.array([box for box, _, _ in rows], np.float32).reshape(-1, 4)
    scores = np.array([score for _, score, _ in rows], np.float32)
    class_ids = np.array([class_id for _, _, class_id in rows], np.int32)
    return TierAnswer(tier, Detections(boxes, scores, class_ids, size, model_ref(tier.name)), labels)


def rows_of(merged: Detections) -> list[tuple[int, float]]:
    return [
        (class_id, round(score, 3))
        for class_id, score in zip(merged.class_ids.tolist(), merged.scores.tolist(), strict=True)
    ]


def test_one_tier_alone_stays_as_it_is_but_for_its_name() -> None:
    alone = saw(Tier.AGENT, (HERE, 0.9, CAR), (ALMOST_HERE, 0.8, CAR), (FAR, 0.02, PERSON))
    merged = merge_answers([alone], MERGED)
    np.testing.assert_array_equal(merged.boxes_xyxy, alone.detections.boxes_xyxy)
    np.testing.assert_array_equal(merged.scores, alone.detections.scores)
    assert merged.model == MERGED


def test_what_both_see_is_one_box_between_theirs_nearer_to_the_more_trusted_one() -> None:
    merged = merge_answers(
        [saw(Tier.AGENT, (HERE, 0.6, CAR)), saw(Tier.CLOUD, (ALMOST_HERE, 0.6, CAR))],
        MERGED,
        MergeSettings(agent=1, cloud=3),
    )
    assert rows_of(merged) == [(CAR, 0.6)]
    assert merged.boxes_xyxy[0, 0] == pytest.approx(13.0)


def test_a_score_is_the_mean_of_the_tiers_by_trust() -> None:
    answers = [saw(Tier.AGENT, (HERE, 0.3, CAR)), saw(Tier.EDGE, (HERE, 0.9, CAR))]
    assert rows_of(merge_answers(answers, MERGED, MergeSettings(agent=1, edge=2))) == [(CAR, 0.7)]


def test_a_tier_that_looked_and_saw_nothing_pulls_the_score_down() -> None:
    answers = [saw(Tier.AGENT, (HERE, 0.8, CAR)), saw(Tier.EDGE)]
    settings = MergeSettings(agent=1, edge=1, absent_share=1.0)
    assert rows_of(merge_answers(answers, MERGED, settings)) == [(CAR, 0.4)]
    assert rows_of(merge_answers(answers, MERGED, MergeSettings(1, 1, absent_share=0.0))) == [(CAR, 0.8)]


def test_a_tier_that_does_not_know_the_class_is_blind_and_pulls_nothing_down() -> None:
    camera = saw(Tier.AGENT, (HERE, 0.8, CAR), (FAR, 0.6, PERSON))
    edge = saw(Tier.EDGE, (FAR, 0.6, PERSON), labels=PEOPLE_ONLY)
    settings = MergeSettings(agent=1, edge=1, absent_share=1.0)
    assert rows_of(merge_answers([camera, edge], MERGED, settings)) == [(CAR, 0.8), (PERSON, 0.6)]


def test_a_class_that_a_model_reports_without_listing_it_is_known_to_it() -> None:
    edge = saw(Tier.EDGE, (HERE, 0.8, CAR), labels=PEOPLE_ONLY)
    merged = merge_answers([saw(Tier.AGENT), edge], MERGED, MergeSettings(agent=1, edge=1, absent_share=1.0))
    assert rows_of(merged) == [(CAR, 0.4)]


def test_classes_never_melt_into_one_another() -> None:
    answers = [saw(Tier.AGENT, (HERE, 0.8, CAR)), saw(Tier.EDGE, (HERE, 0.8, PERSON))]
    assert sorted(class_id for class_id, _ in rows_of(merge_answers(answers, MERGED))) == [PERSON, CAR]


def test_nobody_saw_anything_is_an_answer_too() -> None:
    assert len(merge_answers([saw(Tier.AGENT), saw(Tier.EDGE)], MERGED)) == 0


def test_answers_that_do_not_go_together_are_malformed() -> None:
    small = saw(Tier.EDGE, size=ImageSize(320, 180))
    with pytest.raises(Malformed, match="expected answers to one image, got sizes"):
        merge_answers([saw(Tier.AGENT), small], MERGED)
    with pytest.raises(Malformed, match="expected one answer of each tier, at least one"):
        merge_answers([], MERGED)
    with pytest.raises(Malformed, match="expected one answer of each tier, at least one"):
        merge_answers([saw(Tier.EDGE), saw(Tier.EDGE)], MERGED)


@pytest.mark.parametrize("changes", [{"agent": 0.0}, {"edge": -1.0}, {"cloud": float("nan")}])
def test_trust_has_to_be_more_than_nothing(changes: dict[str, float]) -> None:
    with pytest.raises(Malformed, match=rf"^merge settings {next(iter(changes))}: "):
        MergeSettings(**changes)
    with pytest.raises(Malformed, match="fusion iou"):
        MergeSettings(iou=1.0)


@st.composite
def answers_of_tiers(draw: st.DrawFn) -> list[TierAnswer]:
    found = []
    for tier in draw(st.lists(st.sampled_from(Tier), unique=True, min_size=1, max_size=3)):
        count = draw(st.integers(0, 6))
        corners = draw(hnp.arrays(np.float32, (count, 2, 2), elements=st.floats(0, 350, width=32)))
        boxes = np.sort(corners, axis=1).reshape(-1, 4)
        # Different scores: which of two equal boxes goes first is of no interest here.
        scores = draw(st.permutations(range(1, 101))) if count else []
        labels = draw(st.sampled_from([LABELS, PEOPLE_ONLY]))
        ids = draw(hnp.arrays(np.int32, count, elements=st.sampled_from(list(labels.ids))))
        shares = np.array(sorted(scores[:count], reverse=True), np.float32) / 100
        found.append(TierAnswer(tier, Detections(boxes, shares, ids, SIZE, model_ref(tier.name)), labels))
    return found


@given(answers_of_tiers())
def test_merging_adds_no_class_no_score_and_no_place_that_nobody_saw(answers: list[TierAnswer]) -> None:
    merged = merge_answers(answers, MERGED)
    seen = [answer.detections for answer in answers]
    assert max((len(one) for one in seen), default=0) <= len(merged) <= sum(len(one) for one in seen)
    assert (np.diff(merged.scores) <= 0).all(), "best first"
    for box, score, class_id in zip(merged.boxes_xyxy, merged.scores, merged.class_ids, strict=True):
        of_class = [
            (one.boxes_xyxy[one.class_ids == class_id], one.scores[one.class_ids == class_id]) for one in seen
        ]
        boxes, scores = (np.concatenate(part) for part in zip(*of_class, strict=True))
        assert score <= scores.max() + 1e-6
        assert (boxes.min(axis=0) - 0.01 <= box).all() and (box <= boxes.max(axis=0) + 0.01).all()


@given(answers_of_tiers(), st.randoms())
def test_the_order_of_the_answers_does_not_matter(answers: list[TierAnswer], random: st.DataObject) -> None:
    shuffled = list(answers)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = merge_answers(answers, MERGED), merge_answers(shuffled, MERGED)
    np.testing.assert_array_equal(one.boxes_xyxy, other.boxes_xyxy)
    np.testing.assert_array_equal(one.scores, other.scores)
    np.testing.assert_array_equal(one.class_ids, other.class_ids)


@given(answers_of_tiers())
def test_what_far_apart_things_score_is_not_changed_by_who_agrees_on_others(
    answers: list[TierAnswer],
) -> None:
    lone = saw(Tier.CLOUD, ((5000, 5000, 5100, 5100), 0.9, CAR))
    others = [answer for answer in answers if answer.tier is not Tier.CLOUD]
    merged = merge_answers([lone, *others], MERGED, MergeSettings(absent_share=0.0))
    near = iou_matrix(merged.boxes_xyxy, lone.detections.boxes_xyxy)[:, 0] > 0.99
    np.testing.assert_allclose(merged.scores[near], [0.9], rtol=1e-6)
