"""The learning rate ends where the run ends, by clock or by batches; plans scale with one dial."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.learning_rate import FLOOR, Horizon, rate_factor
from cloud.train_plan import MODELS, plan_for


def test_without_a_budget_the_clock_does_not_count() -> None:
    assert Horizon(200).progress(50, elapsed_s=1e6) == 0.25


def test_with_a_budget_the_nearer_end_decides() -> None:
    horizon = Horizon(100, budget_s=60)
    assert horizon.progress(10, 30) == 0.5
    assert horizon.progress(90, 30) == 0.9


@given(st.integers(0, 10_000), st.floats(0, 1e5))
def test_progress_is_a_share(batches: int, elapsed_s: float) -> None:
    assert 0.0 <= Horizon(100, 60).progress(batches, elapsed_s) <= 1.0


def test_the_rate_warms_up_peaks_and_falls_to_the_floor() -> None:
    assert rate_factor(0.0, 0, 100) == pytest.approx(0.01)
    assert rate_factor(0.0, 99, 100) == 1.0
    assert rate_factor(1.0, 5000, 100) == pytest.approx(FLOOR)


@given(st.floats(0, 1), st.floats(0, 1))
def test_after_the_warm_up_the_rate_only_falls(a: float, b: float) -> None:
    early, late = sorted((a, b))
    assert rate_factor(late, 1000, 100) <= rate_factor(early, 1000, 100)


@pytest.mark.parametrize("model", MODELS)
def test_every_plan_has_an_architecture_and_a_size_that_its_strides_divide(model: str) -> None:
    plan = plan_for(model)
    assert plan.architecture.is_file()
    assert all(side % 32 == 0 for side in plan.export_hw_px)


def test_the_day_student_sees_only_days_and_is_the_same_net() -> None:
    day, full = plan_for("student-day"), plan_for("student")
    assert day.conditions == ("day",)
    assert day.architecture == full.architecture
    assert len(full.conditions) > 1


def test_the_dial_scales_images_seen() -> None:
    small, large = plan_for("edge", 1.0), plan_for("edge", 4.0)
    assert (large.train.clips * large.epochs) / (small.train.clips * small.epochs) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("model", "dial"), [("teacher", 1.0), ("edge", 0.0), ("edge", -1.0), ("edge", float("nan"))]
)
def test_a_plan_that_makes_no_sense_is_refused(model: str, dial: float) -> None:
    with pytest.raises(ValueError, match="expected"):
        plan_for(model, dial)
