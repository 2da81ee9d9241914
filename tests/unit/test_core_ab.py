"""Two policies side by side: who gets which frame, and what may be said of the difference."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fovea.core.ab import (
    AbPlan,
    AbUnit,
    Arm,
    BlockedMean,
    Estimate,
    final_agreement,
    pooled,
)
from fovea.core.agreement import agreement_f1
from fovea.core.detections import Detections
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from tests.builders import model_ref

AT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
SIZE = ImageSize(640, 480)


def plan(by: AbUnit = AbUnit.FRAME, share_b: float = 0.5, salt: str = "") -> AbPlan:
    return AbPlan("balanced", "frugal", share_b, by, salt=salt)


@pytest.mark.parametrize("share_b", [0.1, 0.5, 0.9])
def test_b_gets_about_its_share_of_the_frames(share_b: float) -> None:
    arms = [plan(share_b=share_b).arm_of("yard", number, AT) for number in range(4000)]
    assert arms.count(Arm.B) / len(arms) == pytest.approx(share_b, abs=0.03)


def test_the_same_frame_is_always_of_the_same_arm_and_another_salt_shuffles() -> None:
    arms = [plan().arm_of("yard", number, AT) for number in range(200)]
    assert arms == [plan().arm_of("yard", number, AT + timedelta(days=1)) for number in range(200)]
    assert arms != [plan(salt="again").arm_of("yard", number, AT) for number in range(200)]


def test_a_slice_stays_together_and_a_camera_for_good() -> None:
    in_slice = {plan(AbUnit.SLICE).arm_of("yard", n, AT + timedelta(seconds=n)) for n in range(60)}
    assert len(in_slice) == 1
    over_hours = {plan(AbUnit.SLICE).arm_of("yard", 0, AT + timedelta(minutes=n)) for n in range(60)}
    assert over_hours == set(Arm)
    of_camera = {plan(AbUnit.CAMERA).arm_of("yard", n, AT + timedelta(hours=n)) for n in range(60)}
    assert len(of_camera) == 1
    assert {plan(AbUnit.CAMERA).arm_of(f"camera-{n}", 0, AT) for n in range(40)} == set(Arm)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"share_b": 0.0}, "share_b"),
        ({"share_b": 1.0}, "share_b"),
        ({"slice_s": 0.0}, "slice_s"),
        ({"b": "x"}, "twice"),
    ],
)
def test_a_plan_that_compares_nothing_is_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(Malformed, match=said):
        AbPlan(**{"a": "x", "b": "y", **change})  # type: ignore[arg-type]


def test_a_plan_knows_names_and_shares() -> None:
    assert [plan(share_b=0.2).name_of(arm) for arm in Arm] == ["balanced", "frugal"]
    assert [plan(share_b=0.2).share_of(arm) for arm in Arm] == [0.8, 0.2]


def test_nothing_counted_is_no_estimate_and_few_blocks_have_no_interval() -> None:
    mean = BlockedMean(block_s=10)
    assert mean.estimate() is None
    mean.add(0.0, 3.0, 1.0)
    mean.add(11.0, 1.0, 1.0)
    found = mean.estimate()
    assert found == Estimate(2.0, None, 2.0)
    assert found.low is None and found.high is None


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(300):
        mean = BlockedMean(block_s=1)
        for block in range(40):
            level = rng.normal(5.0, 1.0)  # frames of one block resemble each other
            for _ in range(rng.integers(3, 9)):
                mean.add(block, level + rng.normal(0, 0.2), 1.0)
        found = mean.estimate()
        assert found is not None and found.low is not None and found.high is not None
        covered += found.low <= 5.0 <= found.high
    assert 0.90 <= covered / 300 <= 0.98


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 10), st.integers(1, 3)), min_size=1, max_size=60))
def test_the_mean_is_the_sum_over_the_count_whatever_the_blocks(rows: list[tuple[float, float, int]]) -> None:
    mean = BlockedMean(block_s=7)
    for at_s, x, n in rows:
        mean.add(at_s, x, float(n))
    found = mean.estimate()
    assert found is not None
    assert found.value == pytest.approx(sum(x for _, x, _ in rows) / sum(n for _, _, n in rows))
    assert found.count == sum(n for _, _, n in rows)


def test_frames_that_were_asked_agree_and_the_others_as_much_as_the_audits() -> None:
    found = final_agreement(Estimate(0.25, 0.01, 100), Estimate(0.8, 0.05, 10))
    assert found is not None and found.error is not None
    assert found.value == pytest.approx(0.25 + 0.75 * 0.8)
    assert found.error == pytest.approx(math.hypot(0.75 * 0.05, 0.2 * 0.01))
    assert final_agreement(Estimate(0.25, 0.01, 100), None) is None
    assert final_agreement(Estimate(0.25, None, 100), Estimate(0.8, 0.05, 10)).error is None  # type: ignore[union-attr]


def test_a_difference_is_as_unsure_as_both_together() -> None:
    found = Estimate(5.0, 0.3, 10).minus(Estimate(4.0, 0.4, 20))
    assert (found.value, found.error, found.count) == (1.0, pytest.approx(0.5), 10)
    assert Estimate(5.0, 0.3, 10).minus(Estimate(4.0, None, 20)).error is None


def test_sites_count_by_their_frames() -> None:
    found = pooled([Estimate(1.0, 0.1, 300), Estimate(2.0, 0.1, 100)])
    assert found is not None and found.error is not None
    assert found.value == pytest.approx(1.25)
    assert found.error == pytest.approx(math.hypot(0.75 * 0.1, 0.25 * 0.1))
    assert pooled([]) is None
    assert pooled([Estimate(1.0, None, 3)]) == Estimate(1.0, None, 3)


def boxes(*rows: tuple[float, float, float, float, int]) -> Detections:
    return Detections(
        np.array([row[:4] for row in rows], np.float32).reshape(-1, 4),
        np.full(len(rows), 0.9, np.float32),
        np.array([row[4] for row in rows], np.int32),
        SIZE,
        model_ref(),
    )


def test_agreement_is_f1_of_boxes_of_one_class() -> None:
    car, bus = (0, 0, 100, 100, 2), (200, 200, 300, 300, 5)
    assert agreement_f1(boxes(), boxes()) == 1.0
    assert agreement_f1(boxes(car), boxes()) == 0.0
    assert agreement_f1(boxes(car, bus), boxes(car)) == pytest.approx(2 / 3)
    assert agreement_f1(boxes(car), boxes((0, 0, 100, 100, 5))) == 0.0
    assert agreement_f1(boxes(car, (2, 2, 102, 102, 2)), boxes(car)) == pytest.approx(2 / 3)


def test_answers_to_different_images_cannot_agree() -> None:
    other = Detections.empty(ImageSize(320, 240), model_ref())
    with pytest.raises(Malformed, match="one image"):
        agreement_f1(boxes(), other)
