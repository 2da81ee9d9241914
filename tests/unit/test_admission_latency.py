"""What a device takes for a batch, learned from what it took: exact on a line, robust off it, never negative."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fovea.core.errors import Malformed
from fovea.serving.latency_model import LatencyModel, Running


def learned(per_item_s: float, fixed_s: float, sizes: list[int]) -> LatencyModel:
    latency = LatencyModel()
    for step, size in enumerate(sizes):
        latency.observe(size, per_item_s * size + fixed_s, now_s=float(step))
    return latency


@given(st.floats(0.0005, 0.5), st.floats(0, 0.5))
def test_a_device_on_a_line_is_learned_from_a_few_batches_of_different_sizes(
    per_item_s: float, fixed_s: float
) -> None:
    latency = learned(per_item_s, fixed_s, [1, 8, 3, 5, 1, 8, 2, 7] * 5)
    for size in (1, 4, 8):
        assert latency.batch_s(size) == pytest.approx(per_item_s * size + fixed_s, rel=0.02)


def test_one_size_alone_says_twice_the_pictures_twice_the_time() -> None:
    latency = learned(0.01, 0.02, [1] * 10)
    assert latency.batch_s(1) == pytest.approx(0.03)
    assert latency.batch_s(8) == pytest.approx(0.24)


def test_a_slope_that_is_known_survives_a_long_time_of_batches_of_one() -> None:
    latency = learned(0.01, 0.05, [1, 8] * 20 + [1] * 500)
    assert latency.batch_s(8) == pytest.approx(0.13, rel=0.05)


def test_a_device_that_speeds_up_and_slows_down_at_batches_of_one_does_so_in_all_parts() -> None:
    latency = learned(0.025, 0.0, [1, 8] * 20 + [1] * 300)
    for step in range(200):
        latency.observe(1, 0.01 if step % 60 < 30 else 0.1, step)
        assert latency.saving(8) < 0.01, "company saved nothing, and nothing says that it would now"


def test_noise_moves_the_estimate_little() -> None:
    rng = np.random.default_rng(3)
    latency = LatencyModel()
    for step in range(300):
        size = int(rng.integers(1, 9))
        latency.observe(size, (0.004 * size + 0.01) * float(rng.uniform(0.7, 1.3)), step)
    assert latency.batch_s(1) == pytest.approx(0.014, rel=0.3)
    assert latency.batch_s(8) == pytest.approx(0.042, rel=0.3)


def test_one_stall_of_half_a_minute_does_not_shut_the_door() -> None:
    latency = learned(0.01, 0.0, [1, 4] * 10)
    latency.observe(4, 30.0, 100.0)
    assert latency.batch_s(4) < 2 * 0.04


def test_a_device_that_became_ten_times_slower_is_known_within_thirty_batches() -> None:
    latency = learned(0.01, 0.0, [1, 4] * 20)
    for step in range(30):
        latency.observe(4, 0.4, step)
    assert latency.batch_s(4) == pytest.approx(0.4, rel=0.3)


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(0, 10)), min_size=1, max_size=60))
def test_the_expected_time_is_never_negative_and_never_shrinks_with_the_batch(
    batches: list[tuple[int, float]],
) -> None:
    latency = LatencyModel()
    for step, (size, seconds) in enumerate(batches):
        latency.observe(size, seconds, step)
        expected_s = [latency.batch_s(size) for size in (1, 2, 8, 64)]
        assert expected_s[0] >= -1e-12
        assert expected_s == sorted(expected_s)


def test_what_a_batch_saves_is_the_fixed_part_that_its_pictures_share() -> None:
    assert learned(0.01, 0.03, [1, 8] * 20).saving(8) == pytest.approx(1 - 0.11 / 0.32, abs=0.02)
    assert learned(0.01, 0.0, [1, 8] * 20).saving(8) == pytest.approx(0.0, abs=0.01)
    assert learned(0.01, 0.03, [1, 8] * 20).saving(1) == 0.0


def test_no_saving_is_claimed_without_evidence() -> None:
    assert LatencyModel().saving(8) == 0.0
    assert learned(0.01, 0.01, [1] * 10).saving(8) == 0.0
    assert learned(0.0, 0.0, [1, 8]).saving(8) == 0.0


def test_nothing_is_promised_before_anything_is_known() -> None:
    latency = LatencyModel()
    assert (latency.batch_s(8), latency.silence_s(5.0)) == (0.0, float("inf"))
    latency.observe(1, 0.1, 6.0)
    assert latency.silence_s(7.5) == 1.5


def test_a_newcomer_waits_for_the_running_batch_the_full_ones_before_it_and_its_own() -> None:
    latency = learned(0.1, 1.0, [1, 8] * 20)
    running = Running(2, started_mono_s=10.0)  # takes 1.2 s
    assert latency.finish_in_s(0, 4, None, 10.5) == pytest.approx(1.1, rel=0.01)
    assert latency.finish_in_s(0, 4, running, 10.5) == pytest.approx(0.7 + 1.1, rel=0.01)
    assert latency.finish_in_s(3, 4, running, 10.5) == pytest.approx(0.7 + 1.4, rel=0.01)
    assert latency.finish_in_s(9, 4, running, 10.5) == pytest.approx(0.7 + 2 * 1.4 + 1.2, rel=0.01)


def test_a_batch_that_is_late_is_expected_to_need_as_much_again_so_a_device_that_hangs_promises_nothing() -> (
    None
):
    latency = learned(0.1, 0.0, [1, 8] * 20)
    running = Running(1, started_mono_s=0.0)
    left_s = [latency.left_s(running, now_s) for now_s in (0.0, 0.1, 0.2, 60.0)]
    assert left_s == pytest.approx([0.1, 0.0, 0.1, 59.9], abs=0.005)


@pytest.mark.parametrize("changes", [{"memory": 1.0}, {"outlier": 1.0}, {"memory": float("nan")}])
def test_a_model_without_memory_is_malformed(changes: dict[str, Any]) -> None:
    with pytest.raises(Malformed, match=r"^latency model: expected numbers above 1"):
        LatencyModel(**changes)
