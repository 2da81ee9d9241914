"""All rules for what to ask, as one score for each frame: ours, the published ones, and chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calibration.ask_rules import RULES, WeakView
from calibration.cascade import Flags, Floats, top_share
from calibration.fit_gate import GateSamples
from fovea.core.features import FrameFeatures
from fovea.core.gate import Opinion
from fovea.core.learned_gate import LearnedGate

OURS, RANDOM, LINEAR, ORACLE = "ours", "random", "oric_linear", "oracle"
OTHERS = (RANDOM, "threshold", "ibt", "cross_entropy", "dcsb", LINEAR, "mass", "entropy")
"""The rules that ours is measured against."""
DRAWS = 8
"""How often chance is drawn, where it decides: always for random, among ties for the other rules."""


@dataclass(frozen=True, slots=True, eq=False)
class LinearRule:
    """Plain linear regression of the reward on the twelve features, in the manner of ORIC: weights f64[12], bias."""

    weights: Floats
    bias: float

    @classmethod
    def fit(cls, samples: GateSamples) -> LinearRule:
        """Least squares without a penalty, on the features as the gate computes with them."""
        columns = np.column_stack([samples.x.astype(np.float64), np.ones(len(samples.clips))])
        solved = np.linalg.lstsq(columns, samples.reward, rcond=None)[0]
        return cls(solved[:-1].astype(np.float64), float(solved[-1]))

    def scores(self, features: Sequence[FrameFeatures]) -> Floats:
        x = np.sqrt(np.stack([each.vector for each in features]).astype(np.float64))
        said: Floats = x @ self.weights + self.bias
        return said


def opinions_of(gate: LearnedGate, features: Sequence[FrameFeatures]) -> list[Opinion]:
    return [gate.judge(each) for each in features]


def gains_of(opinions: Sequence[Opinion]) -> Floats:
    """f64[F]: what our gate ranks by."""
    return np.array([opinion.expected_gain for opinion in opinions], np.float64)


def rule_scores(
    views: Sequence[WeakView], features: Sequence[FrameFeatures], linear: LinearRule
) -> dict[str, Floats]:
    """f64[F] for each of the rules but ours, chance and the oracle."""
    scores = {name: np.array([rule(view) for view in views], np.float64) for name, rule in RULES.items()}
    return scores | {LINEAR: linear.scores(features)}


def chosen(name: str, scores: Mapping[str, Floats], share: float, frames: int, seed: int = 0) -> Flags:
    """bool[F, D]: the frames that a rule asks first, `share` (0..1) of all; chance is drawn D times where it
    decides (see DRAWS), once where it does not."""
    if name == RANDOM:
        return np.column_stack(
            [top_share(np.random.default_rng(seed + n).random(frames), share) for n in range(DRAWS)]
        )
    own = scores[name]
    if len(np.unique(own)) == len(own):
        return top_share(own, share)[:, None]
    return np.column_stack([top_share(own, share, np.random.default_rng(seed + n)) for n in range(DRAWS)])
