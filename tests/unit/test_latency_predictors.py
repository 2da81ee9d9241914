"""Predictors of latency: what they say before, while and after they learn, and how they travel."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fovea.core.errors import Malformed
from fovea.core.latency import AskContext, EwmaPredictor, EwmaSettings, LatencyPredictor, LatencySample
from fovea.core.lstm_latency import (
    ANSWER_INPUTS,
    QUESTION_INPUTS,
    LstmPredictor,
    LstmWeights,
    predictor_from_json,
    predictor_to_json,
)
from fovea.core.routing import Tier


def random_weights(seed: int = 0, cells: int = 5, units: int = 4, size: float = 0.5) -> LstmWeights:
    rng = np.random.default_rng(seed)

    def some(*shape: int) -> np.ndarray:
        return rng.normal(0, size, shape).astype(np.float32)

    return LstmWeights(
        0.2, some(ANSWER_INPUTS + cells, 4 * cells), some(4 * cells), some(cells + QUESTION_INPUTS, units),
        some(units), some(units), 0.1,
    )  # fmt: skip


def predictors() -> list[LatencyPredictor]:
    return [EwmaPredictor(), LstmPredictor(random_weights())]


def tell(predictor: LatencyPredictor, latencies_ms: list[float], tier: Tier = Tier.EDGE) -> float:
    """One question after another; gives the time after them."""
    at_mono_s = 100.0
    for latency_ms in latencies_ms:
        predictor.observe(tier, latency_ms, AskContext(at_mono_s, 1, 20_000))
        at_mono_s += latency_ms / 1000 + 0.1
    return at_mono_s


@pytest.mark.parametrize("predictor", predictors())
def test_nothing_is_foretold_of_a_tier_that_never_answered(predictor: LatencyPredictor) -> None:
    tell(predictor, [20.0, 30.0])
    assert predictor.predict(Tier.CLOUD) is None
    assert predictor.predict(Tier.EDGE) is not None


@pytest.mark.parametrize("predictor", predictors())
def test_tiers_do_not_disturb_each_other(predictor: LatencyPredictor) -> None:
    tell(predictor, [20.0] * 5)
    before = predictor.predict(Tier.EDGE, AskContext(200.0))
    tell(predictor, [900.0] * 5, Tier.CLOUD)
    assert predictor.predict(Tier.EDGE, AskContext(200.0)) == before


@pytest.mark.parametrize("predictor", predictors())
def test_asking_for_a_forecast_changes_nothing(predictor: LatencyPredictor) -> None:
    tell(predictor, [20.0, 25.0, 30.0])
    context = AskContext(200.0, 3, 5000)
    assert predictor.predict(Tier.EDGE, context) == predictor.predict(Tier.EDGE, context)


@given(st.lists(st.floats(0, 1e7), min_size=1, max_size=30), st.integers(0, 50), st.integers(0, 10**8))
def test_forecasts_are_finite_and_the_tail_is_never_below_the_mean(
    latencies_ms: list[float], in_flight: int, payload_bytes: int
) -> None:
    for predictor in (EwmaPredictor(), LstmPredictor(random_weights(3, size=5.0))):
        at_mono_s = tell(predictor, latencies_ms)
        forecast = predictor.predict(Tier.EDGE, AskContext(at_mono_s, in_flight, payload_bytes))
        assert forecast is not None
        assert 0 < forecast.mean_ms <= forecast.p95_ms < math.inf


@given(st.lists(st.floats(0.1, 1e5), min_size=1, max_size=30), st.floats(0.01, 1))
def test_a_running_mean_stays_within_what_it_saw(latencies_ms: list[float], alpha: float) -> None:
    predictor = EwmaPredictor(EwmaSettings(alpha))
    tell(predictor, latencies_ms)
    forecast = predictor.predict(Tier.EDGE)
    assert forecast is not None
    assert min(latencies_ms) * (1 - 1e-9) <= forecast.mean_ms <= max(latencies_ms) * (1 + 1e-9)


def test_a_running_mean_moves_by_its_weight() -> None:
    predictor = EwmaPredictor(EwmaSettings(0.25))
    tell(predictor, [100.0, 200.0])
    forecast = predictor.predict(Tier.EDGE)
    assert forecast is not None
    assert forecast.mean_ms == pytest.approx(125.0)


def test_the_tail_is_what_nineteen_of_twenty_answers_stay_below() -> None:
    rng = np.random.default_rng(0)
    predictor, within = EwmaPredictor(EwmaSettings(0.1)), []
    for index, latency_ms in enumerate(50 + rng.exponential(20, 800)):
        forecast = predictor.predict(Tier.EDGE)
        if forecast is not None and index > 100:
            within.append(latency_ms <= forecast.p95_ms)
        predictor.observe(Tier.EDGE, float(latency_ms), AskContext(index * 0.2))
    assert 0.9 <= np.mean(within) <= 0.99


def test_an_untrained_network_says_what_the_geometric_running_mean_says() -> None:
    weights = random_weights()
    silent = LstmWeights(
        0.5, weights.kernel, weights.offsets, weights.head, weights.head_offsets, np.zeros(4, np.float32), 0.0
    )
    predictor = LstmPredictor(silent)
    tell(predictor, [10.0, 40.0])
    forecast = predictor.predict(Tier.EDGE)
    assert forecast is not None
    assert forecast.mean_ms == pytest.approx(20.0)


def test_a_network_on_a_slower_machine_foretells_as_much_more() -> None:
    latencies_ms = [20.0, 22.0, 30.0, 21.0, 60.0]
    forecasts = []
    for factor in (1.0, 3.0):
        predictor = LstmPredictor(random_weights(5))
        for index, latency_ms in enumerate(latencies_ms):
            context = AskContext(index * 0.5 - factor * latency_ms / 1000, 1, 1000)
            predictor.observe(Tier.EDGE, factor * latency_ms, context)
        forecast = predictor.predict(Tier.EDGE, AskContext(3.0, 2, 1000))
        assert forecast is not None
        forecasts.append(forecast.mean_ms)
    assert forecasts[1] == pytest.approx(3 * forecasts[0], rel=1e-4)


def test_what_is_in_flight_matters_to_a_network() -> None:
    predictor = LstmPredictor(random_weights(1))
    at_mono_s = tell(predictor, [20.0, 30.0, 25.0])
    alone, busy = (predictor.predict(Tier.EDGE, AskContext(at_mono_s, count)) for count in (0, 9))
    assert alone is not None and busy is not None
    assert alone.mean_ms != busy.mean_ms


@pytest.mark.parametrize("predictor", [*predictors(), EwmaPredictor(EwmaSettings(0.05))])
def test_a_predictor_travels_as_json_and_goes_on_the_same(predictor: LatencyPredictor) -> None:
    other = predictor_from_json(json.loads(json.dumps(predictor_to_json(predictor), allow_nan=False)))
    assert type(other) is type(predictor)
    at_mono_s = tell(predictor, [20.0, 35.0, 28.0])
    tell(other, [20.0, 35.0, 28.0])
    context = AskContext(at_mono_s, 2, 40_000)
    assert other.predict(Tier.EDGE, context) == predictor.predict(Tier.EDGE, context)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"format": 2, "kind": "ewma", "alpha": 0.2},
        {"format": 1, "kind": "oracle"},
        {"format": 1, "kind": "ewma"},
        {"format": 1, "kind": "ewma", "alpha": "much"},
        {"format": 1, "kind": "ewma", "alpha": 0},
        {"format": 1, "kind": "lstm", "alpha": 0.2, "kernel": []},
        predictor_to_json(LstmPredictor(random_weights())) | {"head": [[1.0, 2.0]]},
        predictor_to_json(LstmPredictor(random_weights())) | {"out": [float("nan")] * 4},
        predictor_to_json(LstmPredictor(random_weights())) | {"out_offset": float("inf")},
    ],
)
def test_json_that_is_no_predictor_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(Malformed):
        predictor_from_json(data)


@pytest.mark.parametrize("latency_ms", [-1.0, math.nan, math.inf])
def test_a_latency_that_is_no_time_is_refused(latency_ms: float) -> None:
    for predictor in predictors():
        with pytest.raises(Malformed, match="latency_ms"):
            predictor.observe(Tier.EDGE, latency_ms, AskContext(0.0))
        assert predictor.predict(Tier.EDGE) is None
    with pytest.raises(Malformed, match="latency_ms"):
        LatencySample(Tier.EDGE, latency_ms, AskContext(0.0))


def test_a_context_or_weight_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(Malformed, match="at_mono_s"):
        AskContext(math.nan)
    with pytest.raises(Malformed, match="counts of 0 or more"):
        AskContext(0.0, -1)
    for alpha in (0.0, 1.1, math.nan):
        with pytest.raises(Malformed, match="alpha"):
            EwmaSettings(alpha)
