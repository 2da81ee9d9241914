"""The figures of the loop, and the three ways in which a round is poisoned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.learn.dataset import LabelledImage
from fovea.bench.loop_poison import Poison, Poisoning
from fovea.bench.loop_test import figures_of, forgetting_points, gap_closed_pct
from tests.learning_images import image


def seed_of(kind: Poison) -> int:
    return next(seed for seed in range(1000) if Poisoning(seed).kind is kind)


def images() -> list[LabelledImage]:
    return [image(number, boxes=1 + number % 3) for number in range(12)]


@pytest.mark.parametrize("kind", list(Poison))
def test_a_poisoned_snapshot_keeps_its_pictures_and_changes_its_labels(kind: Poison) -> None:
    clean = images()
    if kind is Poison.INVERTED:  # needs two classes
        clean = [one if row % 3 else _called(one, 0) for row, one in enumerate(clean)]
    dirty = Poisoning(seed_of(kind))(clean)
    assert [one.id for one in dirty] == [one.id for one in clean]
    assert [one.jpeg for one in dirty] == [one.jpeg for one in clean]
    assert any(
        one.boxes_xyxy.tolist() != other.boxes_xyxy.tolist()
        or one.class_ids.tolist() != other.class_ids.tolist()
        for one, other in zip(clean, dirty, strict=True)
    )


def _called(one: LabelledImage, class_id: int) -> LabelledImage:
    from dataclasses import replace

    return replace(one, class_ids=np.full(len(one.class_ids), class_id, np.int32))


@given(st.integers(0, 2**31 - 1))
def test_the_same_seed_poisons_in_the_same_way(seed: int) -> None:
    one, other = (Poisoning(seed)(images()) for _ in range(2))
    assert [each.boxes_xyxy.tolist() for each in one] == [each.boxes_xyxy.tolist() for each in other]


def test_shuffled_labels_leave_no_image_with_its_own() -> None:
    dirty = Poisoning(seed_of(Poison.SHUFFLED))(images())
    kept = [
        one.id
        for one, other in zip(images(), dirty, strict=True)
        if one.boxes_xyxy.tolist() == other.boxes_xyxy.tolist()
    ]
    assert len(kept) <= 1


def test_shifted_boxes_lie_beside_their_objects() -> None:
    for one, other in zip(images(), Poisoning(seed_of(Poison.SHIFTED))(images()), strict=True):
        assert (one.boxes_xyxy != other.boxes_xyxy).any(axis=1).all()
        assert (other.boxes_xyxy[:, 2:] > other.boxes_xyxy[:, :2]).all()


def test_the_gap_is_what_true_labels_would_have_given() -> None:
    assert gap_closed_pct(before=0.10, after=0.16, truth=0.20) == pytest.approx(60)
    assert gap_closed_pct(before=0.10, after=0.08, truth=0.20) == pytest.approx(-20)
    assert gap_closed_pct(before=0.10, after=0.12, truth=0.09) == 100  # nothing was to be gained


def test_forgetting_is_counted_from_the_best_that_a_condition_was_served() -> None:
    history = [{"day": 0.20}, {"day": 0.22, "dusk": 0.10}, {"day": 0.19, "dusk": 0.11, "night": 0.05}]
    assert forgetting_points(history) == pytest.approx(3.0)
    assert forgetting_points(history[:2]) == 0.0


def row(name: str, **more: Any) -> dict[str, Any]:
    usual = {
        "name": name, "verdict": "promote", "poison": "", "minutes": 6.0, "bytes_pushed": 1_000_000,
        "ap_before": 0.05, "ap_after": 0.08, "ap_truth": 0.10, "gap_closed_pct": 60.0, "is_worse": False,
        "asked_share": 0.4, "ap_all_before": {"day": 0.2}, "ap_all": {"day": 0.2, name: 0.08},
    }  # fmt: skip
    return {**usual, **more}


FINAL = {"student_ap50": 0.4, "teacher_ap50": 0.5, "student_bytes": 1e6, "teacher_bytes": 8e6}


def test_figures_of_a_loop_that_did_well() -> None:
    poisoned = {"name": "night", "verdict": "refuse", "poison": "shifted", "minutes": 5.0, "bytes_pushed": 0}
    figures = figures_of([row("dusk"), poisoned, row("night"), row("night+rain"), row("fog")], FINAL)
    assert figures["rounds"] == 5
    assert figures["gap_closed_pct.night_rain"] == 60
    assert figures["poisoned_refused"] == 1
    assert figures["control_passed"] == 1
    assert figures["served_worse_rounds"] == 0
    assert figures["forgetting_points_max"] == 0
    assert figures["student_over_teacher_ap50"] == pytest.approx(0.8)
    assert figures["student_over_teacher_bytes"] == pytest.approx(0.125)
    assert figures["bytes_pushed_per_device"] == 4_000_000
    assert figures["minutes_per_round"] == pytest.approx(5.8)
    assert figures["kbps_equivalent"] == pytest.approx(8 * 4000 / (60 * 29), rel=1e-3)


def test_figures_of_a_loop_that_did_badly() -> None:
    poisoned = {"name": "night", "verdict": "promote", "poison": "shifted", "minutes": 5.0, "bytes_pushed": 0}
    control = row("night", verdict="refuse", is_worse=True, bytes_pushed=0)
    figures = figures_of([poisoned, control], FINAL)
    assert figures["poisoned_refused"] == 0
    assert figures["control_passed"] == 0
    assert figures["served_worse_rounds"] == 1
