"""The price of a question: what it asks for, and how well it uses a budget."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fovea.core.budget import TokenBucket
from fovea.core.errors import Malformed
from fovea.core.price import AskPrice, PriceSettings

SIZE_BYTES = 60_000.0


def run(gains: np.ndarray, start: float, share: float, fps: float = 5.0) -> np.ndarray:
    """Which frames are asked when `share` of them may be."""
    bucket = TokenBucket(share * fps, burst=max(2.0, share * fps * 20))
    price = AskPrice(PriceSettings(start))
    asked = np.zeros(len(gains), bool)
    for index, gain in enumerate(gains):
        now_s = 100.0 + index / fps
        level = bucket.available(now_s) / bucket.burst
        if gain / SIZE_BYTES >= price.now(level, now_s) and bucket.take(now_s):
            asked[index] = True
    return asked


@pytest.mark.parametrize("wrong_by", [0.02, 1.0, 50.0])
def test_the_budget_is_used_and_not_more_however_wrong_the_first_price_is(wrong_by: float) -> None:
    gains = np.random.default_rng(0).lognormal(-4, 1.0, 6000)
    right = float(np.quantile(gains, 0.8)) / SIZE_BYTES
    asked = run(gains, right * wrong_by, share=0.2)[3000:]
    assert 0.17 <= asked.mean() <= 0.21


def test_almost_all_is_gained_that_the_best_choice_of_as_many_frames_would_gain() -> None:
    gains = np.random.default_rng(1).lognormal(-4, 1.0, 6000)
    asked = run(gains, float(np.median(gains)) / SIZE_BYTES, share=0.2)
    best = np.sort(gains)[::-1][: asked.sum()].sum()
    assert gains[asked].sum() > 0.9 * best
    assert gains[asked].sum() > 1.8 * asked.mean() * gains.sum()


def test_after_a_quiet_hour_the_first_worthy_frame_is_asked() -> None:
    quiet = np.full(3600, 1e-9)
    busy = np.random.default_rng(2).lognormal(-4, 1.0, 100)
    asked = run(np.concatenate([quiet, busy]), 1e-2 / SIZE_BYTES, share=0.2, fps=1.0)
    assert asked[3600]


@given(st.floats(0, 1), st.floats(0, 1))
def test_an_emptier_bucket_is_never_cheaper(one: float, other: float) -> None:
    low, high = sorted((one, other))
    settings = PriceSettings(1e-6)
    assert AskPrice(settings).now(low, 0.0) >= AskPrice(settings).now(high, 0.0)


@given(st.lists(st.tuples(st.floats(-2, 2), st.floats(-1e6, 1e6)), min_size=1, max_size=30))
def test_the_price_stays_finite_and_above_nothing_whatever_the_clock_does(
    steps: list[tuple[float, float]],
) -> None:
    price = AskPrice(PriceSettings(1e-6))
    for level, now_s in steps:
        value = price.now(level, now_s)
        assert 0 < value < math.inf


def test_a_price_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(Malformed, match="finite gain per byte above 0, got 0"):
        PriceSettings(0)
    with pytest.raises(Malformed, match="target level within 0 to 1"):
        PriceSettings(1e-6, target_level=1.5)
