"""Each camera against itself: views, boards and busy streets are no fault of a model, a loss of agreement is."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cloud.rollout.deciding import Move
from cloud.rollout.sequential import NOTHING_KNOWN, WeightedSums
from cloud.rollout.shift import UNKNOWN, difference, difference_since, shift_of
from fovea.core.release import Stage
from tests.unit.test_rollout_deciding import NEW, OLD, decided, desired, fleet, report


def sums(mean: float, n: int, spread: float = 0.2) -> WeightedSums:
    """`n` observations of weight 1."""
    return WeightedSums(n, float(n), n * mean, n * (mean**2 + spread**2), float(n))


def test_nothing_is_known_of_devices_that_were_hardly_seen() -> None:
    assert shift_of([]) == UNKNOWN
    assert shift_of([(sums(0.8, 9), sums(0.8, 900)), (sums(0.8, 900), sums(0.8, 9))]) == UNKNOWN
    assert difference(UNKNOWN, shift_of([(sums(0.8, 900), sums(0.8, 900))]), 0.05) == NOTHING_KNOWN


def test_a_camera_with_a_difficult_view_is_compared_with_itself() -> None:
    hard = shift_of([(sums(0.5, 900), sums(0.5, 900))])
    others = shift_of([(sums(0.8, 900), sums(0.8, 900))] * 20)
    band = difference(hard, others, 0.05)
    assert band.value == pytest.approx(0)
    assert band.low < 0 < band.high


def test_what_changes_for_all_is_nobodys_fault() -> None:
    night = [(sums(0.6, 900), sums(0.8, 900))]
    assert difference(shift_of(night * 3), shift_of(night * 20), 0.05).value == pytest.approx(0)


def test_a_loss_is_seen_whatever_the_cameras_look_at() -> None:
    means = np.linspace(0.5, 0.9, 5)
    worse = shift_of([(sums(m - 0.1, 900), sums(m, 900)) for m in means])
    same = shift_of([(sums(m, 900), sums(m, 900)) for m in means])
    band = difference(worse, same, 0.05)
    assert band.value == pytest.approx(-0.1)
    assert band.high < -0.03


def test_devices_that_do_not_agree_on_the_change_make_it_less_sure() -> None:
    def shifted(*changes: float) -> float:
        return shift_of([(sums(0.7 + change, 900), sums(0.7, 900)) for change in changes]).since

    assert shifted(-0.2, 0.0, 0.2) > 10 * shifted(0.0, 0.0, 0.0)


def test_more_frames_make_the_part_since_surer_and_leave_the_part_before() -> None:
    few, many = (shift_of([(sums(0.8, n), sums(0.8, 100))] * 3) for n in (100, 10_000))
    assert many.since < few.since / 50
    assert many.before == pytest.approx(few.before)


def test_a_short_past_makes_the_difference_unsure_but_does_not_hold_up_for_ever() -> None:
    new, old = (shift_of([(sums(0.8, 50_000), sums(0.8, 60))] * 3) for _ in range(2))
    assert difference(new, old, 0.05).low < -0.03
    assert difference_since(new, old, 0.05).low > -0.03


def test_weights_are_those_of_the_observations_that_count() -> None:
    """A device that was seen little says little."""
    shift = shift_of([(sums(0.9, 10), sums(0.7, 10)), (sums(0.7, 10_000), sums(0.7, 10_000))])
    assert shift.value < 0.001
    assert shift.devices == 2


def test_a_canary_on_difficult_cameras_goes_on() -> None:
    reports = fleet(Stage.CANARY, mean=0.5, n=400, mean_before=0.5)
    assert decided(Stage.CANARY, reports).move is Move.ADVANCE


def test_a_canary_on_slow_boards_and_busy_streets_goes_on() -> None:
    slow = {"p95_ms": 90.0, "p95_before_ms": 88.0, "asked": (1000, 600), "asked_before": 0.58}
    decision = decided(Stage.CANARY, fleet(Stage.CANARY, mean=0.8, n=2000, **slow))
    assert decision.move is Move.ADVANCE, decision.reasons


def test_a_model_that_is_slow_on_fast_boards_goes_back_though_others_are_slower_still() -> None:
    decision = decided(Stage.CANARY, fleet(Stage.CANARY, n=400, p95_ms=28.0, p95_before_ms=15.0))
    assert decision.move is Move.BACK
    assert decision.reasons == ("p95 latency 28.0 ms against 15.0 ms without it",)


def test_a_quarter_into_which_nobody_new_falls_has_nothing_more_to_show() -> None:
    """A handful of cameras: those of the canary are those of the quarter."""
    wanted = desired(Stage.QUARTER)
    names = [f"camera-{index}" for index in range(200)]
    inside = next(name for name in names if wanted.for_device(name).run == NEW)
    outside = [name for name in names if wanted.for_device(name).run == OLD][:3]
    before = report(inside, NEW, n=400)
    state = replace(before.state, boot_id="now")
    ran_it = replace(before, before=replace(before.state, boot_id="before"), state=state)
    decision = decided(Stage.QUARTER, [ran_it, *(report(name) for name in outside)])
    assert decision.move is Move.ADVANCE, decision.reasons
    assert math.isnan(decision.difference.value)


def test_cameras_of_which_nothing_is_known_from_before_do_not_hold_a_rollout_up() -> None:
    """They were all switched on a moment ago; what the shadow has shown on the same frames stands."""
    reports = fleet(Stage.CANARY, n=400)
    strangers = [
        replace(each, before=replace(each.before, agreement=None)) if each.before else each
        for each in reports
    ]
    decision = decided(Stage.CANARY, strangers)
    assert decision.move is Move.ADVANCE, decision.reasons
