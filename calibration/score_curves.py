"""Fitting one score curve to boxes that were right or wrong: Platt's line on the logit, or isotonic with a slope.

Both start from a prior curve, given as a few made-up boxes along it, so that a handful of real boxes cannot bend the
curve far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fovea.core.scores import PiecewiseCurve, PlattCurve, ScoreCurve

FloatVector = NDArray[np.float64]

_PRIOR_SCORES = np.linspace(0.05, 0.95, 19)
_PRIOR_WEIGHT = 1.0
_SLOPE = 0.02
"""The share of the plain score in an isotonic curve: keeps flat steps rising, so the order of boxes stays."""
_BIN_EDGES = np.concatenate([[0, 0.002, 0.005, 0.01, 0.02, 0.035], np.linspace(0.05, 1, 20)])
_EDGE = 1e-6
_LOWEST_SLOPE = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """Boxes by raw score f64[N] with how right each was, 0..1 f64[N], how much it counts f64[N], and the group of the
    frame it came from i[N]."""

    scores: FloatVector
    correct: FloatVector
    weights: FloatVector
    group: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.scores)

    def rows(self, chosen: NDArray[np.bool_]) -> Outcomes:
        """The outcomes where `chosen` is true."""
        return Outcomes(self.scores[chosen], self.correct[chosen], self.weights[chosen], self.group[chosen])


def joined(parts: Sequence[Outcomes]) -> Outcomes:
    """All outcomes of the parts, in order."""
    return Outcomes(
        np.concatenate([part.scores for part in parts]),
        np.concatenate([part.correct for part in parts]),
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.group for part in parts]),
    )


def prior_outcomes(curve: ScoreCurve) -> Outcomes:
    """Made-up boxes, one at each of 19 scores, right as often as `curve` says."""
    probability = curve.apply(_PRIOR_SCORES.astype(np.float32)).astype(np.float64)
    count = len(_PRIOR_SCORES)
    return Outcomes(
        _PRIOR_SCORES.copy(), probability, np.full(count, _PRIOR_WEIGHT), np.full(count, -1, np.intp)
    )


def fit_platt(outcomes: Outcomes) -> PlattCurve:
    """The line on the logit with the highest likelihood (Platt 1999), by damped Newton steps; slope kept positive."""
    logits = _logit(outcomes.scores)
    design = np.stack([logits, np.ones_like(logits)], axis=1)
    line = np.array([1.0, 0.0])
    for _ in range(50):
        probability = 0.5 * (1 + np.tanh(0.5 * (design @ line)))
        slope_of_loss = design.T @ (outcomes.weights * (probability - outcomes.correct))
        curvature = outcomes.weights * np.maximum(probability * (1 - probability), 1e-9)
        step = np.linalg.solve(design.T @ (design * curvature[:, None]) + 1e-6 * np.eye(2), slope_of_loss)
        step *= min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-12))
        line -= step
        line[0] = max(line[0], _LOWEST_SLOPE)
        if np.abs(step).max() < 1e-8:
            break
    return PlattCurve(float(line[0]), float(line[1]))


def fit_isotonic(outcomes: Outcomes) -> PiecewiseCurve:
    """Rising steps over bins of the score (pool adjacent violators), joined by lines, plus a little of the score."""
    bin_of = np.clip(np.searchsorted(_BIN_EDGES, outcomes.scores, side="right") - 1, 0, len(_BIN_EDGES) - 2)
    weight = np.bincount(bin_of, weights=outcomes.weights, minlength=len(_BIN_EDGES) - 1)
    used = np.flatnonzero(weight > 0)
    x = np.bincount(bin_of, weights=outcomes.weights * outcomes.scores)[used] / weight[used]
    y = np.bincount(bin_of, weights=outcomes.weights * outcomes.correct)[used] / weight[used]
    rising = pool_adjacent_violators(y.astype(np.float64), weight[used].astype(np.float64))
    inside = (x > _EDGE) & (x < 1 - _EDGE)
    x, rising = x[inside], rising[inside]
    knots_x = np.concatenate([[0.0], x, [1.0]])
    knots_y = np.concatenate([[0.0], rising, [rising[-1]]])
    return PiecewiseCurve(
        knots_x.astype(np.float32), ((1 - _SLOPE) * knots_y + _SLOPE * knots_x).astype(np.float32)
    )


def pool_adjacent_violators(values: FloatVector, weights: FloatVector) -> FloatVector:
    """The never-falling f64[N] that is nearest to `values` in weighted squares (Ayer et al. 1955)."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (value_b, weight_b, count_b), (value_a, weight_a, count_a) = blocks.pop(), blocks.pop()
            total = weight_a + weight_b
            blocks.append(((value_a * weight_a + value_b * weight_b) / total, total, count_a + count_b))
    values_of_blocks = np.array([block[0] for block in blocks], np.float64)
    return np.repeat(values_of_blocks, [block[2] for block in blocks])


def log_loss(curve: ScoreCurve, outcomes: Outcomes) -> float:
    """Summed negative log likelihood of the outcomes under the curve, in nats."""
    probability = np.clip(
        curve.apply(outcomes.scores.astype(np.float32)).astype(np.float64), _EDGE, 1 - _EDGE
    )
    gain = outcomes.correct * np.log(probability) + (1 - outcomes.correct) * np.log(1 - probability)
    return float(-(outcomes.weights * gain).sum())


def _logit(scores: FloatVector) -> FloatVector:
    inside = np.clip(scores, _EDGE, 1 - _EDGE)
    return np.asarray(np.log(inside / (1 - inside)))
