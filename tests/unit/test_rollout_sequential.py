"""Confidence sequences: they hold at every look, narrow with evidence, and weigh by how a frame came to be sent."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.rollout.sequential import LEAST_EFFECTIVE_N, NO_SUMS, Band, WeightedSums, band
from fovea.core.errors import Malformed


def sums_of(x: np.ndarray, w: np.ndarray) -> WeightedSums:
    return WeightedSums(len(x), float(w.sum()), float(w @ x), float(w @ (x * x)), float(w @ w))


def test_looking_after_every_frame_rarely_sees_what_is_not_there() -> None:
    rng = np.random.default_rng(0)
    false_alarms, streams, alpha = 0, 300, 0.05
    for _ in range(streams):
        x = rng.choice([-0.4, 0.0, 0.4], 1500)  # of mean 0
        ones = np.ones(len(x))
        running = [np.cumsum(each) for each in (ones, x, x * x)]
        for n in range(40, len(x), 5):
            seen = WeightedSums(n, n, running[1][n - 1], running[2][n - 1], n)
            found = band(seen, alpha)
            if found.low > 0 or found.high < 0:
                false_alarms += 1
                break
    assert false_alarms / streams <= alpha


def test_a_real_difference_is_found_and_sooner_when_it_is_larger() -> None:
    rng = np.random.default_rng(1)

    def frames_until_sure(mean: float) -> int:
        x = rng.normal(mean, 0.3, 20_000)
        for n in range(40, len(x), 20):
            if band(sums_of(x[:n], np.ones(n)), 0.05).low > 0:
                return n
        return len(x)

    assert frames_until_sure(0.2) < frames_until_sure(0.05) < 5000


def test_weights_undo_that_hard_frames_are_sent_more_often() -> None:
    rng = np.random.default_rng(2)
    is_hard = rng.random(60_000) < 0.3
    x = np.where(is_hard, 0.3, 0.9) + rng.normal(0, 0.05, len(is_hard))
    probability = np.where(is_hard, 0.5, 0.05)
    sent = rng.random(len(x)) < probability
    found = band(sums_of(x[sent], 1 / probability[sent]), 0.05)
    assert found.low < x.mean() < found.high
    assert abs(found.value - x.mean()) < 0.02 < abs(x[sent].mean() - x.mean())


def test_few_observations_say_nothing() -> None:
    few = WeightedSums(10, 10.0, 9.0, 9.0, 10.0)
    assert few.effective_n < LEAST_EFFECTIVE_N
    assert band(few, 0.05).low == -math.inf
    assert math.isnan(band(NO_SUMS, 0.05).value)


def test_one_frame_with_a_huge_weight_is_one_frame() -> None:
    sums = sums_of(np.r_[np.ones(100), 0.0], np.r_[np.ones(100), 1e6])
    assert sums.effective_n < 2
    assert band(sums, 0.05).high == math.inf


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(1, 50), st.integers(0, 3)), min_size=1, max_size=200))
def test_sums_of_devices_are_the_sums_of_their_frames(frames: list[tuple[float, float, int]]) -> None:
    x, w, device = (np.array(each, np.float64) for each in zip(*frames, strict=True))
    parts = [sums_of(x[device == d], w[device == d]) for d in range(4)]
    total = WeightedSums.of(parts)
    assert total.n == len(x)
    assert total.mean == pytest.approx(np.average(x, weights=w), abs=1e-9)
    assert total.variance >= 0


@given(st.integers(31, 5000), st.floats(0.01, 0.2))
def test_the_interval_narrows_with_frames_and_widens_with_certainty(n: int, alpha: float) -> None:
    def width(frames: int, at: float) -> float:
        found = band(WeightedSums(frames, frames, 0.5 * frames, 0.3 * frames, frames), at)
        return found.high - found.low

    assert width(2 * n, alpha) < width(n, alpha) < width(n, alpha / 2)


def test_a_difference_of_bands_keeps_both_uncertainties() -> None:
    assert Band(0.5, 0.4, 0.6) - Band(0.3, 0.2, 0.5) == Band(0.2, -0.09999999999999998, 0.39999999999999997)


@pytest.mark.parametrize("alpha", [0, 1, -1, float("nan")])
def test_an_alpha_that_is_no_chance_is_refused(alpha: float) -> None:
    with pytest.raises(Malformed, match="alpha"):
        band(NO_SUMS, alpha)
