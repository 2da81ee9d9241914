"""Idle cameras cost less, and are wide awake with the first frame in which something moves."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.idle import IdleSettings, IdleStep, IdleStepper, Pace
from fovea.core.errors import Malformed

TWO_MODELS = IdleSettings(models=2, least_fps=1.0)


def test_frames_and_model_step_down_while_nothing_moves() -> None:
    idle = IdleStepper(8.0, TWO_MODELS)
    assert idle.look(True, 100.0) == Pace(0, 8.0, 0)
    assert idle.look(False, 109.9) == Pace(0, 8.0, 0)
    assert idle.look(False, 110.0) == Pace(1, 4.0, 0)
    assert idle.look(False, 160.0) == Pace(2, 2.0, 1)
    assert idle.look(False, 10_000.0) == Pace(2, 2.0, 1)


@given(st.lists(st.tuples(st.booleans(), st.floats(0.01, 120)), min_size=1, max_size=40), st.floats(0.1, 60))
def test_an_active_frame_is_looked_at_by_the_usual_model_at_the_usual_rate(
    frames: list[tuple[bool, float]], fps: float
) -> None:
    idle, at_mono_s = IdleStepper(fps, TWO_MODELS), 0.0
    for is_active, passed_s in frames:
        at_mono_s += passed_s
        pace = idle.look(is_active, at_mono_s)
        if is_active:
            assert pace == Pace(0, fps, 0)
        assert min(fps, 1.0) <= pace.fps <= fps


@given(st.lists(st.floats(0.01, 30), min_size=2, max_size=40))
def test_without_motion_the_pace_only_falls(passed: list[float]) -> None:
    idle, at_mono_s = IdleStepper(10.0, TWO_MODELS), 0.0
    before = idle.look(True, at_mono_s)
    for passed_s in passed:
        at_mono_s += passed_s
        pace = idle.look(False, at_mono_s)
        assert pace.level >= before.level
        assert pace.fps <= before.fps
        assert pace.model >= before.model
        before = pace


def test_a_camera_that_never_saw_motion_begins_awake() -> None:
    idle = IdleStepper(5.0)
    assert idle.look(False, 1e6) == Pace(0, 5.0, 0)
    assert idle.look(False, 1e6 + 20).level == 1


def test_with_one_model_only_the_rate_steps_down() -> None:
    idle = IdleStepper(8.0, IdleSettings(models=1))
    idle.look(True, 0.0)
    assert idle.look(False, 100.0) == Pace(2, 2.0, 0)


def test_a_slow_camera_is_not_made_faster_by_the_least_rate() -> None:
    idle = IdleStepper(0.5, IdleSettings(least_fps=1.0))
    idle.look(True, 0.0)
    assert idle.look(False, 500.0).fps == 0.5


def test_a_clock_that_steps_back_does_not_put_the_camera_to_sleep() -> None:
    idle = IdleStepper(8.0)
    idle.look(True, 1000.0)
    assert idle.look(False, 10.0).level == 0
    assert idle.look(False, 21.0).level == 1


@pytest.mark.parametrize(
    "steps",
    [
        (IdleStep(60, 0.5), IdleStep(10, 0.2)),
        (IdleStep(10, 0.2), IdleStep(60, 0.5)),
        (IdleStep(10, 0.5, 1), IdleStep(60, 0.2, 0)),
    ],
)
def test_steps_that_do_not_go_down_are_refused(steps: tuple[IdleStep, ...]) -> None:
    with pytest.raises(Malformed, match="cost no more"):
        IdleSettings(steps)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_rate_or_time_that_makes_no_sense_is_refused(value: float) -> None:
    with pytest.raises(Malformed, match="usual_fps"):
        IdleStepper(value)
    with pytest.raises(Malformed, match="least_fps"):
        IdleSettings(least_fps=value)
    with pytest.raises(Malformed, match="after_s"):
        IdleStep(value, 0.5)
    with pytest.raises(Malformed, match="models"):
        IdleSettings(models=0)
