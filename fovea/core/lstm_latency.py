"""A small LSTM that foretells latencies: the answers so far move its state, the question at hand is read from it.

Fitted by `calibration.fit_latency`, carried as JSON, run here in numpy: some 20 us for an answer or a question.
What it foretells is the logarithm of the latency relative to a running mean (of the logarithm), so that a network
fitted on one machine is not lost on one that is twice as slow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fovea.core.arrays import FloatArray, frozen_floats
from fovea.core.errors import Malformed
from fovea.core.latency import (
    AskContext,
    EwmaPredictor,
    EwmaSettings,
    Forecast,
    LatencyPredictor,
    RecentErrors,
    checked_latency_ms,
)
from fovea.core.routing import Tier

LATENCY_FORMAT = 1
ANSWER_INPUTS = 4
"""Of an answer: log of latency over mean, log1p in flight, log1p kilobytes, log1p seconds since the one before."""
QUESTION_INPUTS = 3
"""Of a question: log1p in flight, log1p kilobytes, log1p seconds since the last answer."""
MOST_FACTOR = 4.0
"""|log(foretold / mean)| at most: an odd state must not promise a minute."""


@dataclass(frozen=True, slots=True, eq=False)
class LstmWeights:
    """H cells, K hidden units in the head.

    alpha         weight of the newest answer in the running mean of the log latency
    kernel        f32[4 + H, 4 H], gates in the order input, forget, cell, output; offsets f32[4 H]
    head, head_offsets  f32[H + 3, K], f32[K]: tanh layer over state and question
    out, out_offset     f32[K], the log of the factor on the mean
    """

    alpha: float
    kernel: FloatArray
    offsets: FloatArray
    head: FloatArray
    head_offsets: FloatArray
    out: FloatArray
    out_offset: float

    def __post_init__(self) -> None:
        EwmaSettings(self.alpha)
        cells = len(np.atleast_1d(self.offsets)) // 4
        units = len(np.atleast_1d(self.out))
        shapes: Mapping[str, tuple[int | None, ...]] = {
            "kernel": (ANSWER_INPUTS + cells, 4 * cells), "offsets": (4 * cells,),
            "head": (cells + QUESTION_INPUTS, units), "head_offsets": (units,), "out": (units,),
        }  # fmt: skip
        for name, shape in shapes.items():
            object.__setattr__(self, name, frozen_floats(f"lstm {name}", getattr(self, name), shape))
        if not cells or not units or not math.isfinite(self.out_offset):
            raise Malformed("lstm weights: expected at least one cell and one unit, and a finite out_offset")

    @property
    def cells(self) -> int:
        return len(self.offsets) // 4


@dataclass(slots=True)
class _Followed:
    log_mean: float
    hidden: FloatArray
    cell: FloatArray
    answered_mono_s: float
    errors: RecentErrors = field(default_factory=RecentErrors)


class LstmPredictor:
    """See `fovea.core.latency.LatencyPredictor`. A question without context is taken as one that goes alone."""

    def __init__(self, weights: LstmWeights) -> None:
        self.weights = weights
        self._followed: dict[Tier, _Followed] = {}

    def observe(self, tier: Tier, latency_ms: float, context: AskContext) -> None:
        latency_ms = checked_latency_ms(latency_ms)
        answered_mono_s = context.at_mono_s + latency_ms / 1000
        followed = self._followed.get(tier)
        if followed is None:
            nothing = np.zeros(self.weights.cells, np.float32)
            followed = _Followed(math.log(latency_ms), nothing, nothing, answered_mono_s)
            self._followed[tier] = followed
        else:
            followed.errors.add(latency_ms - self._mean_ms(followed, context))
        seen = answer_inputs(
            latency_ms, followed.log_mean, context, answered_mono_s - followed.answered_mono_s
        )
        followed.hidden, followed.cell = self._step(seen, followed.hidden, followed.cell)
        followed.log_mean += self.weights.alpha * (math.log(latency_ms) - followed.log_mean)
        followed.answered_mono_s = max(answered_mono_s, followed.answered_mono_s)

    def predict(self, tier: Tier, context: AskContext | None = None) -> Forecast | None:
        followed = self._followed.get(tier)
        if followed is None:
            return None
        asked = context or AskContext(followed.answered_mono_s)
        return followed.errors.forecast(self._mean_ms(followed, asked))

    def _step(self, seen: FloatArray, hidden: FloatArray, cell: FloatArray) -> tuple[FloatArray, FloatArray]:
        weights = self.weights
        gates = np.concatenate([seen, hidden]) @ weights.kernel + weights.offsets
        take, keep, fresh, give = gates.reshape(4, -1)
        cell = _sigmoid(keep) * cell + _sigmoid(take) * np.tanh(fresh)
        return (_sigmoid(give) * np.tanh(cell)).astype(np.float32), cell.astype(np.float32)

    def _mean_ms(self, followed: _Followed, context: AskContext) -> float:
        weights = self.weights
        asked = question_inputs(context, context.at_mono_s - followed.answered_mono_s)
        units = np.tanh(np.concatenate([followed.hidden, asked]) @ weights.head + weights.head_offsets)
        log_factor = float(units @ weights.out) + weights.out_offset
        log_factor = min(max(log_factor, -MOST_FACTOR), MOST_FACTOR)
        return checked_latency_ms(math.exp(min(followed.log_mean + log_factor, 30.0)))


def answer_inputs(latency_ms: float, log_mean: float, context: AskContext, since_s: float) -> FloatArray:
    """f32[4], what the network sees of an answer; `since_s` after the answer before it."""
    return np.array([math.log(latency_ms) - log_mean, *_known(context, since_s)], np.float32)


def question_inputs(context: AskContext, since_s: float) -> FloatArray:
    """f32[3], what it sees of a question; `since_s` after the last answer."""
    return np.array(_known(context, since_s), np.float32)


def predictor_to_json(predictor: LatencyPredictor) -> dict[str, Any]:
    """What a bundle carries of a predictor: its kind and its weights, nothing of what it observed."""
    match predictor:
        case EwmaPredictor():
            return {"format": LATENCY_FORMAT, "kind": "ewma", "alpha": predictor.settings.alpha}
        case LstmPredictor():
            weights = predictor.weights
            arrays = {name: getattr(weights, name).tolist() for name in _ARRAYS}
            numbers = {"alpha": weights.alpha, "out_offset": weights.out_offset}
            return {"format": LATENCY_FORMAT, "kind": "lstm", **numbers, **arrays}
        case _:
            raise Malformed(f"latency predictor: cannot write a {type(predictor).__name__}")


def predictor_from_json(data: Mapping[str, Any]) -> LatencyPredictor:
    """A fresh predictor of what `predictor_to_json` gave. Raises Malformed for anything else."""
    if data.get("format") != LATENCY_FORMAT:
        raise Malformed(
            f"latency predictor: expected format {LATENCY_FORMAT}, got {data.get('format')!r:.40}"
        )
    try:
        match data["kind"]:
            case "ewma":
                return EwmaPredictor(EwmaSettings(float(data["alpha"])))
            case "lstm":
                arrays: dict[str, Any] = {name: np.array(data[name], np.float32) for name in _ARRAYS}
                arrays |= {name: float(data[name]) for name in ("alpha", "out_offset")}
                return LstmPredictor(LstmWeights(**arrays))
            case kind:
                raise Malformed(f"latency predictor: expected ewma or lstm, got {kind!r:.40}")
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(
            f"latency predictor: expected kind and weights, got something else ({error})"
        ) from error


def _known(context: AskContext, since_s: float) -> tuple[float, float, float]:
    return (
        math.log1p(context.in_flight),
        math.log1p(context.payload_bytes / 1000),
        math.log1p(max(since_s, 0.0)),
    )


def _sigmoid(x: FloatArray) -> FloatArray:
    half: FloatArray = 0.5 * (1 + np.tanh(0.5 * x))
    return half


_ARRAYS = ("kernel", "offsets", "head", "head_offsets", "out")
