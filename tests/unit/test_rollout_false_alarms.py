"""How often the evidence is wrong: equal models on unequal cameras, and models that really are worse."""

from __future__ import annotations

from collections import Counter

import pytest

from cloud.rollout.rollout import Rollout, Status
from fovea.core.release import Stage
from fovea.sim.fleet_truth import FleetTruth, ModelTruth
from tests.rollout_on_paper import has_reached_all, roll_out

EQUAL = ModelTruth()
WORSE = ModelTruth(agreement=EQUAL.agreement - 0.1)
UNEQUAL_CAMERAS = FleetTruth(difficulty_spread=0.12, slowness_spread=0.5, busy_spread=0.5)


def told(rollouts: list[Rollout]) -> str:
    return str(Counter((each.stage.value, each.status.value, str(each.reasons)[:60]) for each in rollouts))


@pytest.mark.parametrize("devices", [10, 30])
def test_of_equal_models_hardly_any_goes_back_and_most_reach_all(devices: int) -> None:
    rollouts = [roll_out(EQUAL, seed, devices) for seed in range(40)]
    assert sum(each.status is Status.BACK for each in rollouts) <= 2, told(rollouts)
    assert sum(has_reached_all(each) for each in rollouts) >= 32, told(rollouts)


def test_cameras_and_boards_that_differ_widely_are_no_fault_of_the_model() -> None:
    rollouts = [roll_out(EQUAL, seed, 30, fleet=UNEQUAL_CAMERAS) for seed in range(100, 120)]
    assert sum(each.status is Status.BACK for each in rollouts) <= 1, told(rollouts)
    assert sum(has_reached_all(each) for each in rollouts) >= 15, told(rollouts)


def test_a_model_that_is_a_tenth_worse_never_reaches_all() -> None:
    rollouts = [roll_out(WORSE, seed, 20) for seed in range(200)]
    assert not any(has_reached_all(each) for each in rollouts), told(rollouts)
    assert all(each.status is Status.BACK for each in rollouts), told(rollouts)


def test_a_model_that_is_a_tenth_worse_in_the_field_alone_is_taken_back_there() -> None:
    """What no shadow shows: in the canary only the devices beside it are there to compare. A canary of one or two
    cameras may give no verdict, and then a person is asked."""
    rollouts = [roll_out(WORSE, seed, 80, begin=Stage.CANARY) for seed in range(300, 320)]
    assert not any(has_reached_all(each) for each in rollouts), told(rollouts)
    assert sum(each.status is Status.BACK for each in rollouts) >= 14, told(rollouts)


def test_a_fleet_that_was_switched_on_just_now_is_not_held_up_for_ever() -> None:
    rollouts = [roll_out(EQUAL, seed, 20, lead_s=300.0) for seed in range(400, 415)]
    assert sum(has_reached_all(each) for each in rollouts) >= 12, told(rollouts)
    assert sum(each.status is Status.BACK for each in rollouts) <= 1, told(rollouts)


def test_a_model_that_is_twice_as_slow_or_asks_for_all_never_reaches_all() -> None:
    for bad in (ModelTruth(ms_p95=60.0), ModelTruth(asked_share=0.4)):
        rollouts = [roll_out(bad, seed, 20) for seed in range(500, 510)]
        assert not any(has_reached_all(each) for each in rollouts), told(rollouts)
