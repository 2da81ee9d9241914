"""Fits the gates of camera and edge on street clips that no model was trained on, and prices them on others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from calibration.fit_gate import GateFitSettings, GateSamples, GateTrial, fit_gate, try_forms
from calibration.gate_rules import LinearRule, opinions_of
from fovea.bench.cascade_recording import ClipSpan, RecordedFrame, Trio, record_clips
from fovea.bench.gate_replay import start_price
from fovea.bench.gate_set import AskFrame, AskSet, class_weights, first_asks, second_asks
from fovea.bench.street_frames import CLASS_IDS
from fovea.core.learned_gate import LearnedGate, StartPrice
from fovea.sim.conditions import CONDITIONS

FIRST_UNTRAINED_CLIP = 5000
"""Training clips from this index on were never used for training."""
START_SHARE = 0.25
"""A gate starts with the price at which this share of validation frames is asked."""

MANY_FRAMES = 150
"""From so many frames on a gate is fitted freely."""
FEW = GateFitSettings(trees=0, ridge=1e4)
"""For a hundred frames: no trees, and a line that hardly leaves the prior."""

Step = Callable[[str, int, int], None]
"""What is being recorded, how many clips are done, of how many."""


@dataclass(frozen=True, slots=True)
class GateSample:
    """How many clips of each condition are recorded for fitting, for prices and for the report."""

    fit_clips: int = 30
    val_clips: int = 10
    test_clips: int = 16
    workers: int = 1

    def spans(self, split: str) -> list[ClipSpan]:
        """The clips of "train", "val" or "test"; condition by condition within each index, so that a recording that
        was broken off has some of each."""
        count = {"train": self.fit_clips, "val": self.val_clips, "test": self.test_clips}[split]
        start = FIRST_UNTRAINED_CLIP if split == "train" else 0
        walk = 16 if split == "test" else 8
        return [
            ClipSpan(split, condition, start + number, walk)
            for number in range(count)
            for condition in CONDITIONS
        ]


def recorded(sample: GateSample, split: str, trio: Trio, folder: Path, step: Step) -> list[RecordedFrame]:
    """The recorded frames of a split; what lies in `folder` already is taken from there."""
    spans = sample.spans(split)
    return record_clips(spans, trio, folder, sample.workers, lambda done, every: step(split, done, every))


@dataclass(frozen=True, slots=True)
class Pair:
    """Who asks whom: "camera" the edge, or "edge" the cloud."""

    asks: str
    frames_of: Callable[[Sequence[RecordedFrame], float], list[AskFrame]]

    def ask_set(self, frames: Sequence[RecordedFrame], lasts_s: float) -> AskSet:
        return AskSet.of(self.frames_of(frames, lasts_s), CLASS_IDS)


CAMERA_ASKS, EDGE_ASKS = Pair("camera", first_asks), Pair("edge", second_asks)


@dataclass(frozen=True, slots=True, eq=False)
class FittedGate:
    """A gate with its price, the plain line that it is measured against, and how both forms did when they were tried
    on clips left out (gain shares by form)."""

    gate: LearnedGate
    linear: LinearRule
    trials: Sequence[GateTrial]


def samples_of(asks: AskSet) -> GateSamples:
    return GateSamples(asks.features, asks.reward, asks.clips, asks.found_more)


def fit_and_price(fit: AskSet, val: AskSet, settings: GateFitSettings = GateFitSettings()) -> FittedGate:
    """Tries the forms on clips left out, fits the better one on all of `fit` and finds the price on `val`. Of fewer
    than MANY_FRAMES frames nothing is tried, and the gate hardly leaves its prior.

    Raises Malformed when there are too few frames, or none or all gain from asking.
    """
    if len(fit) < MANY_FRAMES:
        return FittedGate(fit_few(fit, val), LinearRule.fit(samples_of(fit)), ())
    weights = class_weights(fit.frames)
    fit, val = fit.weighed(weights), val.weighed(weights)
    samples = samples_of(fit)
    trials = try_forms(samples, fit.table, settings)
    best = max(trials, key=lambda trial: trial.mean)
    gate = replace(fit_gate(samples, replace(settings, form=best.form)), class_weights=weights)
    return FittedGate(priced(gate, val), LinearRule.fit(samples), trials)


def priced(gate: LearnedGate, val: AskSet) -> LearnedGate:
    """The gate with the price at which START_SHARE of `val`, with the gate's own features, is asked."""
    opinions = opinions_of(gate, [frame.features for frame in val.frames])
    usual = float(np.mean(val.jpeg_bytes))
    return replace(gate, price=StartPrice(start_price(opinions, val.jpeg_bytes, START_SHARE), usual))


def fit_few(fit: AskSet, val: AskSet | None = None) -> LearnedGate:
    """A gate for few frames: the prior's two features, weighed by how far they go with the reward. Its price is found
    on `val`, where there is one."""
    weights = class_weights(fit.frames)
    fit = fit.weighed(weights)
    gate = replace(fit_gate(samples_of(fit), FEW), class_weights=weights)
    return priced(gate, fit if val is None else val.weighed(weights))
