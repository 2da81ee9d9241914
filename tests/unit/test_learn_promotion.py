"""The promotion verdict: better on what people labelled goes on; all else is refused with its reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from calibration.evaluate import EvaluatedFrame, GroundTruth, match
from cloud.learn.promotion import Measured, Promotion, PromotionSettings, Verdict
from cloud.learn.promotion import judge as judge_by
from fovea.core.detections import Detections, ModelRef
from fovea.core.errors import Malformed

CAR, PERSON = 2, 0
REF = ModelRef("student", "1", "a" * 64)
GROUPS = {f"{condition}-{index}": condition for condition in ("day", "night") for index in range(20)}


QUICK = PromotionSettings(resamples=200)


def judge(
    candidate: Measured,
    champion: Measured,
    condition_of: Mapping[str, str],
    new_condition: str | None,
    settings: PromotionSettings = QUICK,
) -> Promotion:
    return judge_by(candidate, champion, condition_of, new_condition, settings)


@cache
def measured(
    day: float = 0.9,
    night: float = 0.2,
    persons: float | None = None,
    frames_per_group: int = 4,
    seed: int = 0,
    wrong: float = 0.0,
) -> Measured:
    """A model that finds this share of the cars (and persons: as the cars, unless told) by day and by night."""
    rng = np.random.default_rng(seed)
    frames = []
    for group, condition in GROUPS.items():
        share = day if condition == "day" else night
        for _ in range(frames_per_group):
            boxes = [[10 + 60 * i, 10, 50 + 60 * i, 60] for i in range(4)]
            class_ids = [CAR, CAR, PERSON, PERSON]
            truth = GroundTruth(boxes, class_ids, [False] * 4)
            found = [
                i for i in range(4)
                if rng.random() < (share if class_ids[i] == CAR or persons is None else persons)
            ]  # fmt: skip
            shift = 100 if rng.random() < wrong else 0
            seen = Detections(
                boxes_xyxy=np.array([boxes[i] for i in found], np.float32).reshape(-1, 4) + shift,
                scores=np.full(len(found), 0.9, np.float32),
                class_ids=np.array([class_ids[i] for i in found], np.int32),
                image_size=(640, 360),
                model=REF,
            )
            frames.append(EvaluatedFrame(group, truth, seen))
    return Measured(match(frames, [PERSON, CAR]), 0.1, 0.02, 0.3, 5.0, 1_000_000)


def test_a_student_that_learnt_night_and_kept_day_is_promoted() -> None:
    promotion = judge(measured(night=0.7), measured(), GROUPS, "night")
    assert promotion.verdict is Verdict.PROMOTE
    assert promotion.reasons == ("every check passed",)
    new = next(finding for finding in promotion.findings if finding.name == "new condition night")
    assert new.points is not None and 30 < new.points.low < new.points.high


def test_the_same_model_again_is_refused_because_nothing_got_better() -> None:
    champion = measured()
    promotion = judge(champion, champion, GROUPS, "night")
    assert promotion.verdict is Verdict.REFUSE
    assert "night, which is new: +0.0" in promotion.reasons[0]


def test_night_bought_with_day_is_refused_by_the_past_condition() -> None:
    promotion = judge(measured(day=0.7, night=0.8), measured(), GROUPS, "night")
    assert promotion.verdict is Verdict.REFUSE
    assert any(reason.startswith("day: -") for reason in promotion.reasons)


def test_a_class_that_was_lost_is_refused_though_the_mean_rose() -> None:
    champion = measured(day=0.6, night=0.6)
    promotion = judge(measured(day=1.0, night=1.0, persons=0.3), champion, GROUPS, "night")
    failed = {finding.name for finding in promotion.findings if not finding.passed}
    assert promotion.verdict is Verdict.REFUSE
    assert f"class {PERSON}" in failed and f"class {CAR}" not in failed


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"false_boxes_per_frame": 0.5}, "false boxes on empty frames"),
        ({"false_boxes_per_frame": float("nan")}, "false boxes on empty frames"),
        ({"calibration_error": 0.2}, "calibration error"),
        ({"asked_rate": 0.6}, "asked rate"),
        ({"latency_ms": 9.0}, "latency"),
        ({"bundle_bytes": 30_000_000}, "size"),
    ],
)
def test_each_of_the_rest_can_refuse_by_itself(change: dict[str, float], name: str) -> None:
    promotion = judge(replace(measured(night=0.7), **change), measured(), GROUPS, "night")  # type: ignore[arg-type]
    assert promotion.verdict is Verdict.REFUSE
    assert [finding.name for finding in promotion.findings if not finding.passed] == [name]


def test_boxes_in_the_wrong_place_are_refused() -> None:
    promotion = judge(measured(night=0.7, wrong=0.5), measured(), GROUPS, "night")
    assert promotion.verdict is Verdict.REFUSE


def test_without_enough_labelled_frames_it_may_only_watch() -> None:
    few = measured(frames_per_group=1)
    promotion = judge(few, few, GROUPS, "night")
    assert promotion.verdict is Verdict.SHADOW_ONLY
    assert promotion.reasons == ("40 golden frames are labelled, 100 are needed to judge",)


def test_without_frames_of_the_new_condition_it_may_only_watch() -> None:
    promotion = judge(measured(night=0.7), measured(), GROUPS, "fog")
    assert promotion.verdict is Verdict.SHADOW_ONLY
    assert promotion.reasons == ("0 golden frames show fog, 30 are needed to judge",)


def test_a_round_without_a_new_condition_needs_only_to_hold_everything() -> None:
    champion = measured()
    assert judge(champion, champion, GROUPS, None).verdict is Verdict.PROMOTE


def test_a_little_worse_by_chance_is_not_refused_for_a_past_condition() -> None:
    settings = replace(QUICK, worse_points=5)
    promotion = judge(measured(0.9, 0.7, seed=1), measured(0.9, 0.2), GROUPS, "night", settings)
    day = next(finding for finding in promotion.findings if finding.name == "condition day")
    assert day.points is not None and day.points.low < 0 < day.points.high
    assert promotion.verdict is Verdict.PROMOTE


def test_models_measured_on_different_frames_cannot_be_compared() -> None:
    champion = measured()
    groups = tuple(f"x{group}" for group in champion.golden.groups)
    other = replace(champion, golden=replace(champion.golden, groups=groups))
    with pytest.raises(Malformed, match="same golden frames"):
        judge(other, champion, GROUPS, "night")


def test_a_group_without_a_condition_is_named() -> None:
    champion = measured()
    with pytest.raises(Malformed, match="night-7"):
        judge(champion, champion, {k: v for k, v in GROUPS.items() if k != "night-7"}, "night")


def test_settings_below_zero_are_refused() -> None:
    with pytest.raises(Malformed, match="worse_points"):
        PromotionSettings(worse_points=-1)


def test_the_verdict_can_be_kept_as_json() -> None:
    told = json.loads(json.dumps(judge(measured(night=0.7), measured(), GROUPS, "night").to_json()))
    assert told["verdict"] == "promote"
    assert {"golden frames", "condition day", "size"} <= {finding["name"] for finding in told["findings"]}
