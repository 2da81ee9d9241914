"""Fitting latency predictors: judged on what came later, never on what was not known yet, the better one ships."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
import torch

from calibration.fit_latency import LEAST_SAMPLES, best_alpha, fit_latency, replay
from calibration.latency_network import LatencyNetwork, NetworkSettings, questions_of
from fovea.core.errors import Malformed
from fovea.core.latency import AskContext, EwmaPredictor, EwmaSettings, Forecast, LatencySample
from fovea.core.lstm_latency import LstmPredictor, predictor_from_json
from fovea.core.routing import Tier

QUICK = NetworkSettings(cells=6, units=6, history=12, epochs=40, batch=32, learning_rate=1e-2)


def trace(
    count: int,
    latency_ms: Callable[[np.random.Generator, int, int], float],
    seed: int = 0,
    gap_s: float = 0.05,
) -> list[LatencySample]:
    """A trace of random gaps and in-flight counts; `latency_ms(rng, index, in_flight)`."""
    rng = np.random.default_rng(seed)
    at_mono_s, samples = 50.0, []
    for index in range(count):
        at_mono_s += float(rng.exponential(gap_s))
        in_flight = int(rng.integers(0, 6))
        context = AskContext(at_mono_s, in_flight, 20_000)
        samples.append(LatencySample(Tier.EDGE, latency_ms(rng, index, in_flight), context))
    return samples


def queueing(rng: np.random.Generator, index: int, in_flight: int) -> float:
    return 10 + 12 * in_flight + float(rng.normal(0, 1))


def drifting(rng: np.random.Generator, index: int, in_flight: int) -> float:
    return 30 + 20 * np.sin(index / 60) + float(rng.normal(0, 2))


def test_a_network_wins_where_the_question_itself_tells_how_long_it_takes() -> None:
    fit = fit_latency(trace(400, queueing), settings=QUICK)
    assert fit.better == "lstm"
    assert fit.lstm.mae_ms < 0.6 * fit.ewma.mae_ms
    assert isinstance(fit.predictor, LstmPredictor)


def test_the_one_that_errs_less_is_the_one_that_ships() -> None:
    for seed in range(2):
        fit = fit_latency(trace(160, lambda rng, i, n: float(rng.uniform(10, 90)), seed), settings=QUICK)
        assert (fit.better == "lstm") == (fit.lstm.mae_ms < fit.ewma.mae_ms)
        assert isinstance(fit.predictor, LstmPredictor if fit.better == "lstm" else EwmaPredictor)


def test_a_fit_is_reported_as_json_with_the_predictor_that_ships() -> None:
    fit = fit_latency(trace(160, queueing), settings=QUICK)
    said = json.loads(json.dumps(fit.to_json(), allow_nan=False))
    assert said["better"] in said["mae_ms"]
    assert said["mae_ms"][said["better"]] == min(said["mae_ms"].values())
    assert type(predictor_from_json(said["predictor"])) is type(fit.predictor)
    assert said["fitted_on"] + said["judged_on"] <= 160


def test_the_same_trace_gives_the_same_fit_and_leaves_the_random_numbers_alone() -> None:
    samples = trace(160, queueing)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = fit_latency(samples, settings=QUICK)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert fit_latency(samples[::-1], settings=QUICK).to_json() == first.to_json()


def test_the_newer_part_is_never_fitted_on() -> None:
    samples = trace(200, queueing)
    changed = [
        sample if index < 150 else LatencySample(sample.tier, 5 * sample.latency_ms, sample.context)
        for index, sample in enumerate(samples)
    ]
    first, second = (fit_latency(each, 0.25, QUICK) for each in (samples, changed))
    assert second.alpha == first.alpha
    assert second.fitted_on == first.fitted_on <= 150
    assert second.ewma.mae_ms > first.ewma.mae_ms


def test_numpy_runs_the_network_as_torch_does() -> None:
    samples = trace(40, drifting)
    torch.manual_seed(1)
    network = LatencyNetwork(7, 5)
    torch.nn.init.normal_(network.out.weight)
    with torch.no_grad():
        expected = network.foretell(questions_of(samples, 0.3, 64)).numpy()
    spy = Spy(LstmPredictor(network.weights(0.3)))
    replay(spy, samples)
    assert spy.said_ms == pytest.approx(expected.tolist(), rel=1e-4)
    assert len(expected) > 30


class Spy:
    """Keeps what another predictor said, in the order of questions."""

    def __init__(self, inner: LstmPredictor | EwmaPredictor) -> None:
        self.inner = inner
        self.said_ms: list[float] = []
        self.observed = 0
        self.known_at: list[int] = []

    def observe(self, tier: Tier, latency_ms: float, context: AskContext) -> None:
        self.observed += 1
        self.inner.observe(tier, latency_ms, context)

    def predict(self, tier: Tier, context: AskContext | None = None) -> Forecast | None:
        forecast = self.inner.predict(tier, context)
        self.known_at.append(self.observed)
        if forecast is not None:
            self.said_ms.append(forecast.mean_ms)
        return forecast


def test_a_replay_knows_an_answer_only_after_it_came() -> None:
    slow = [
        LatencySample(Tier.EDGE, 1000.0, AskContext(at_mono_s)) for at_mono_s in (0.0, 0.1, 0.9, 1.05, 3.0)
    ]
    spy = Spy(EwmaPredictor())
    replayed = replay(spy, slow)
    assert spy.known_at == [0, 0, 0, 1, 4]
    assert replayed.questions == 2


def test_a_trace_that_drifts_wants_a_mean_that_follows_and_a_steady_one_does_not() -> None:
    assert best_alpha(trace(400, drifting)) > best_alpha(
        trace(400, lambda rng, i, n: 30 + float(rng.normal(0, 5)))
    )


def test_the_share_within_the_forecast_tail_is_measured() -> None:
    replayed = replay(
        EwmaPredictor(EwmaSettings(0.1)), trace(500, lambda rng, i, n: 20 + float(rng.exponential(10)))
    )
    assert 0.88 <= replayed.within_p95 <= 1


def test_a_trace_that_is_too_short_or_a_share_without_sense_is_refused() -> None:
    samples = trace(LEAST_SAMPLES, queueing)
    with pytest.raises(Malformed, match="expected at least 100 answers, got 99"):
        fit_latency(samples[:-1], settings=QUICK)
    for share in (0.0, 1.0, float("nan")):
        with pytest.raises(Malformed, match="judged_share"):
            fit_latency(samples, share, QUICK)
    with pytest.raises(Malformed, match="above 0"):
        NetworkSettings(cells=0)


def test_a_trace_whose_answers_all_came_too_late_is_refused() -> None:
    samples = trace(120, lambda rng, i, n: 60_000.0)
    with pytest.raises(Malformed, match="answers before the last"):
        fit_latency(samples, settings=QUICK)
    with pytest.raises(Malformed, match="no question of the trace"):
        replay(EwmaPredictor(), samples)
