"""Fits the latency predictor of a tier: a running mean and an LSTM on the older part of a trace, judged on the newer.

Both are judged as they run: told of answers when they come, asked when a question is. The one with the smaller mean
absolute error is the one to ship.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from calibration.latency_network import NetworkSettings, fit_network
from fovea.core.errors import Malformed
from fovea.core.latency import EwmaPredictor, EwmaSettings, LatencyPredictor, LatencySample
from fovea.core.lstm_latency import LstmPredictor, predictor_to_json

ALPHAS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
LEAST_SAMPLES = 100


@dataclass(frozen=True, slots=True)
class Replayed:
    """How a predictor did on a part of a trace: mean absolute error in ms, the share of answers (0..1) that came
    within its 95 % forecast, and how many questions it was asked about."""

    mae_ms: float
    within_p95: float
    questions: int


@dataclass(frozen=True, slots=True, eq=False)
class LatencyFit:
    """predictor: the better one, fresh. lstm and ewma: both on the newer part of the trace. alpha: the best running
    mean's on the older part, whose samples number `fitted_on`."""

    better: Literal["lstm", "ewma"]
    predictor: LatencyPredictor
    ewma: Replayed
    lstm: Replayed
    alpha: float
    fitted_on: int

    def to_json(self) -> dict[str, Any]:
        """The predictor as a bundle carries it, and what was measured."""
        return {
            "predictor": predictor_to_json(self.predictor),
            "better": self.better,
            "mae_ms": {"lstm": self.lstm.mae_ms, "ewma": self.ewma.mae_ms},
            "within_p95": {"lstm": self.lstm.within_p95, "ewma": self.ewma.within_p95},
            "alpha": self.alpha,
            "fitted_on": self.fitted_on,
            "judged_on": self.lstm.questions,
        }


def fit_latency(
    samples: Sequence[LatencySample],
    judged_share: float = 0.3,
    settings: NetworkSettings = NetworkSettings(),
) -> LatencyFit:
    """Fits on the older questions and compares on the newest `judged_share` of them.

    Only answers that had come when the newer part began are fitted on. Raises Malformed for fewer than 100 samples or
    a share outside 0.1 to 0.9.
    """
    if not 0.1 <= judged_share <= 0.9:
        raise Malformed(f"latency fit judged_share: expected 0.1 to 0.9, got {judged_share}")
    if len(samples) < LEAST_SAMPLES:
        raise Malformed(f"latency fit: expected at least {LEAST_SAMPLES} answers, got {len(samples)}")
    ordered = sorted(samples, key=lambda sample: sample.context.at_mono_s)
    judged_from_s = ordered[round(len(ordered) * (1 - judged_share))].context.at_mono_s
    older = [sample for sample in ordered if sample.answered_mono_s < judged_from_s]
    if len(older) < LEAST_SAMPLES // 2:
        raise Malformed(
            f"latency fit: expected at least {LEAST_SAMPLES // 2} answers before the last {judged_share:.0%} of the "
            f"questions, got {len(older)}"
        )
    alpha = best_alpha(older)
    weights = fit_network(older, alpha, settings)
    ewma = replay(EwmaPredictor(EwmaSettings(alpha)), ordered, judged_from_s)
    lstm = replay(LstmPredictor(weights), ordered, judged_from_s)
    if lstm.mae_ms < ewma.mae_ms:
        return LatencyFit("lstm", LstmPredictor(weights), ewma, lstm, alpha, len(older))
    return LatencyFit("ewma", EwmaPredictor(EwmaSettings(alpha)), ewma, lstm, alpha, len(older))


def best_alpha(samples: Sequence[LatencySample]) -> float:
    """The weight of the newest answer with which a running mean errs least on these samples."""
    errors_ms = [replay(EwmaPredictor(EwmaSettings(alpha)), samples).mae_ms for alpha in ALPHAS]
    return ALPHAS[int(np.argmin(errors_ms))]


def replay(
    predictor: LatencyPredictor, samples: Sequence[LatencySample], judged_from_s: float = -np.inf
) -> Replayed:
    """Lives through the trace: an answer is told when it came, and a question is foretold when it was asked, so never
    from answers that were still under way. Questions from `judged_from_s` on count.

    Raises Malformed when none counts (nothing was known of any of them, or all are older).
    """
    events = [(sample.context.at_mono_s, 1, index) for index, sample in enumerate(samples)]
    events += [(sample.answered_mono_s, 0, index) for index, sample in enumerate(samples)]
    errors_ms: list[float] = []
    is_within: list[bool] = []
    for at_mono_s, is_question, index in sorted(events):
        sample = samples[index]
        if not is_question:
            predictor.observe(sample.tier, sample.latency_ms, sample.context)
            continue
        forecast = predictor.predict(sample.tier, sample.context)
        if forecast is None or at_mono_s < judged_from_s:
            continue
        errors_ms.append(abs(forecast.mean_ms - sample.latency_ms))
        is_within.append(sample.latency_ms <= forecast.p95_ms)
    if not errors_ms:
        raise Malformed("latency replay: no question of the trace was asked after an answer of its tier")
    return Replayed(float(np.mean(errors_ms)), float(np.mean(is_within)), len(errors_ms))
