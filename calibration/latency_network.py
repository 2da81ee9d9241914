"""Trains the LSTM of `fovea.core.lstm_latency` with torch: from each stretch of answers to the next question."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fovea.core.errors import Malformed
from fovea.core.latency import LatencySample, checked_latency_ms
from fovea.core.lstm_latency import (
    ANSWER_INPUTS,
    MOST_FACTOR,
    QUESTION_INPUTS,
    LstmWeights,
    answer_inputs,
    question_inputs,
)

if TYPE_CHECKING:
    from torch import Tensor

_HELD_OUT = 0.2
"""The newest share of the questions that tells when to stop."""
_PATIENCE = 12
_MOST_GRADIENT = 1.0


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """cells, units: of the LSTM and its head. history: how many answers a question is foretold from in training."""

    cells: int = 12
    units: int = 12
    history: int = 32
    epochs: int = 120
    batch: int = 32
    learning_rate: float = 5e-3
    seed: int = 0

    def __post_init__(self) -> None:
        counts = (self.cells, self.units, self.history, self.epochs, self.batch)
        if min(counts) < 1 or not self.learning_rate > 0:
            raise Malformed(f"latency network: expected counts and a learning rate above 0, got {self}")


@dataclass(frozen=True, slots=True, eq=False)
class Questions:
    """Q questions with the answers known by then: answers f32[Q, L, 4] (the first `known` i64[Q] of each row),
    asked f32[Q, 3], log_mean f32[Q], latency_ms f32[Q]."""

    answers: Tensor
    known: Tensor
    asked: Tensor
    log_mean: Tensor
    latency_ms: Tensor

    def __len__(self) -> int:
        return len(self.known)

    def rows(self, chosen: Tensor | slice) -> Questions:
        return Questions(
            self.answers[chosen],
            self.known[chosen],
            self.asked[chosen],
            self.log_mean[chosen],
            self.latency_ms[chosen],
        )


class LatencyNetwork:
    """The network of `LstmPredictor` in torch; gates stand in the same order there and here."""

    def __init__(self, cells: int, units: int) -> None:
        from torch import nn

        self.lstm = nn.LSTM(ANSWER_INPUTS, cells, batch_first=True)
        self.head = nn.Linear(cells + QUESTION_INPUTS, units)
        self.out = nn.Linear(units, 1)
        nn.init.zeros_(self.out.weight)  # untrained, it says what the running mean says
        nn.init.zeros_(self.out.bias)

    def parameters(self) -> Iterator[Tensor]:
        for layer in (self.lstm, self.head, self.out):
            yield from layer.parameters()

    def foretell(self, questions: Questions) -> Tensor:
        """Foretold latency in ms, f32[Q]."""
        import torch

        hidden, _ = self.lstm(questions.answers)
        last = hidden[torch.arange(len(questions)), questions.known - 1]
        units = torch.tanh(self.head(torch.cat([last, questions.asked], dim=1)))
        factor: Tensor = self.out(units)[:, 0].clamp(-MOST_FACTOR, MOST_FACTOR)
        return torch.exp(questions.log_mean + factor)

    def weights(self, alpha: float) -> LstmWeights:
        """The values that run on a device."""
        import torch

        from_answer, from_state, offsets, more_offsets = self.lstm.parameters()
        kernel = torch.cat([from_answer.T, from_state.T])
        return LstmWeights(
            alpha,
            _array(kernel),
            _array(offsets + more_offsets),
            _array(self.head.weight.T),
            _array(self.head.bias),
            _array(self.out.weight[0]),
            float(self.out.bias.detach()[0]),
        )


def fit_network(samples: Sequence[LatencySample], alpha: float, settings: NetworkSettings) -> LstmWeights:
    """The weights with which the newest fifth of these questions is foretold best, by mean absolute error.

    Raises Malformed when fewer than ten questions were asked after an answer.
    """
    import torch

    questions = questions_of(samples, alpha, settings.history)
    if len(questions) < 10:
        raise Malformed(
            f"latency network: expected at least 10 questions to learn from, got {len(questions)}"
        )
    split = round(len(questions) * (1 - _HELD_OUT))
    fitted, held_out = questions.rows(slice(0, split)), questions.rows(slice(split, None))
    scale_ms = float(fitted.latency_ms.median())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        network = LatencyNetwork(settings.cells, settings.units)
        optimizer = torch.optim.Adam(network.parameters(), settings.learning_rate, weight_decay=1e-5)
        best, best_ms, waited = network.weights(alpha), _error_ms(network, held_out), 0
        for _ in range(settings.epochs):
            for rows in torch.split(torch.randperm(len(fitted)), settings.batch):
                batch = fitted.rows(rows)
                loss = (network.foretell(batch) - batch.latency_ms).abs().mean() / scale_ms
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                torch.nn.utils.clip_grad_norm_(network.parameters(), _MOST_GRADIENT)
                optimizer.step()
            error_ms, waited = _error_ms(network, held_out), waited + 1
            if error_ms < best_ms:
                best, best_ms, waited = network.weights(alpha), error_ms, 0
            if waited >= _PATIENCE:
                break
    return best


def questions_of(samples: Sequence[LatencySample], alpha: float, history: int) -> Questions:
    """All questions that were asked after an answer of their tier, in the order of asking, each with the last
    `history` answers that had come by then."""
    import torch

    rows: list[tuple[float, NDArray[np.float32], int, NDArray[np.float32], float, float]] = []
    for tier in sorted({sample.tier for sample in samples}):
        own = [sample for sample in samples if sample.tier is tier]
        inputs, log_means, answered_s = _seen_answers(own, alpha)
        for sample in own:
            known = int(np.searchsorted(answered_s, sample.context.at_mono_s, side="right"))
            if not known:
                continue
            seen = np.zeros((history, ANSWER_INPUTS), np.float32)
            kept = inputs[max(known - history, 0) : known]
            seen[: len(kept)] = kept
            since_s = sample.context.at_mono_s - answered_s[known - 1]
            asked = question_inputs(sample.context, since_s)
            rows.append(
                (sample.context.at_mono_s, seen, len(kept), asked, log_means[known - 1], sample.latency_ms)
            )
    rows.sort(key=lambda row: row[0])
    empty = np.empty((0, history, ANSWER_INPUTS), np.float32)
    return Questions(
        torch.from_numpy(np.stack([row[1] for row in rows]) if rows else empty),
        torch.tensor([row[2] for row in rows], dtype=torch.int64),
        torch.from_numpy(np.stack([row[3] for row in rows]) if rows else empty[:, 0, :QUESTION_INPUTS]),
        torch.tensor([row[4] for row in rows], dtype=torch.float32),
        torch.tensor([row[5] for row in rows], dtype=torch.float32),
    )


def _seen_answers(
    samples: Sequence[LatencySample], alpha: float
) -> tuple[NDArray[np.float32], list[float], NDArray[np.float64]]:
    """Of one tier in the order of answering: what the network sees of each, the running mean of the log latency after
    it, and when it came; as `LstmPredictor.observe` does it."""
    ordered = sorted(samples, key=lambda sample: sample.answered_mono_s)
    inputs, log_means = [], list[float]()
    log_mean: float | None = None
    before_s = ordered[0].answered_mono_s
    for sample in ordered:
        latency_ms = checked_latency_ms(sample.latency_ms)
        log_mean = math.log(latency_ms) if log_mean is None else log_mean
        since_s = sample.answered_mono_s - before_s
        inputs.append(answer_inputs(latency_ms, log_mean, sample.context, since_s))
        log_mean += alpha * (math.log(latency_ms) - log_mean)
        log_means.append(log_mean)
        before_s = sample.answered_mono_s
    return np.stack(inputs), log_means, np.array([sample.answered_mono_s for sample in ordered])


def _error_ms(network: LatencyNetwork, questions: Questions) -> float:
    import torch

    with torch.no_grad():
        return float((network.foretell(questions) - questions.latency_ms).abs().mean())


def _array(tensor: Tensor) -> NDArray[np.float32]:
    return tensor.detach().numpy().astype(np.float32).copy()
