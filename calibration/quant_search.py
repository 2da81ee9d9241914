"""A small search for the best way to quantize one network: calibrator, per-channel weights, layers kept in float.

Every trial is scored by the caller, as a rule by average precision on a split of its own. The order of trials is
fixed and short, so the search is bounded and can be read from its table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from calibration.quant_graph import (
    check_qlinear_convs,
    convolution_blocks,
    expected_qlinear_convs,
    stem_nodes,
)
from calibration.quant_recipe import Calibration, Calibrator, QuantRecipe, quantize_graph
from calibration.side_by_side import time_ratio
from fovea.core.errors import Incompatible
from fovea.runtime.ort import OrtSession, open_session


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """calibrators: tried in order. same_score: differences up to this are taken as none. most_trials: at most so many
    graphs are scored. sensitivity_images: how many samples measure the damage of one layer."""

    calibrators: tuple[Calibrator, ...] = tuple(Calibrator)
    same_score: float = 0.002
    most_trials: int = 12
    sensitivity_images: int = 4


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """One quantized graph: what was done, its score, and how many times faster than FP32 it ran, side by side on one
    thread of this machine. `qlinear_convs` is both what was meant and what the runtime made of it."""

    label: str
    recipe: QuantRecipe
    model: bytes
    score: float
    speedup: float
    qlinear_convs: int


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    """The trial that won, and all of them in the order they were made."""

    best: Trial
    trials: tuple[Trial, ...]


def search(
    calibration: Calibration,
    score: Callable[[bytes], float],
    settings: SearchSettings = SearchSettings(),
    progress: Callable[[Trial], None] = lambda trial: None,
) -> SearchResult:
    """Tries recipes and keeps the best. Raises Incompatible when the runtime does not fuse what was quantized."""
    return _Search(calibration, score, settings, progress).run()


def layer_damage(calibration: Calibration, recipe: QuantRecipe, images: int) -> dict[str, float]:
    """The worst signal-to-noise ratio, in dB, of the graph's outputs when only one convolution and its activation are
    quantized, by the convolution's name. Low is bad."""
    samples = calibration.samples[:images]
    outputs = [output.name for output in calibration.graph.graph.output]
    plain = _outputs(
        open_session(calibration.graph.SerializeToString(), "cpu"), calibration, samples, outputs
    )
    damage = {}
    for conv, nodes in convolution_blocks(calibration.graph).items():
        if conv not in calibration.head | recipe.keep_float:
            session = open_session(quantize_graph(calibration, recipe, only=nodes), "cpu")
            damage[conv] = min(
                _signal_to_noise_db(before, after)
                for before, after in zip(plain, _outputs(session, calibration, samples, outputs), strict=True)
            )
    return damage


class _Search:
    def __init__(
        self,
        calibration: Calibration,
        score: Callable[[bytes], float],
        settings: SearchSettings,
        progress: Callable[[Trial], None],
    ) -> None:
        self._calibration, self._score = calibration, score
        self._settings, self._progress = settings, progress
        self._trials: list[Trial] = []

    def run(self) -> SearchResult:
        best = self._try("minmax, per channel", QuantRecipe())
        for calibrator in self._settings.calibrators:
            if calibrator is not Calibrator.MINMAX and self._has_room:
                trial = self._try(f"{calibrator}, per channel", QuantRecipe(calibrator))
                best = max(best, trial, key=lambda trial: trial.score)
        if self._has_room:
            per_tensor = dataclasses.replace(best.recipe, per_channel=False)
            best = self._better(best, self._try(f"{best.recipe.calibrator}, per tensor", per_tensor))
        stem = stem_nodes(self._calibration.graph) - self._calibration.head
        if stem and self._has_room:
            best = self._better(best, self._keeping(best, "first convolution", stem))
        return SearchResult(self._greedy(best), tuple(self._trials))

    @property
    def _has_room(self) -> bool:
        return len(self._trials) < self._settings.most_trials

    def _greedy(self, best: Trial) -> Trial:
        """Keeps the most damaging layers in float, worst first, for as long as each one pays."""
        if not self._has_room:
            return best
        damage = layer_damage(self._calibration, best.recipe, self._settings.sensitivity_images)
        blocks = convolution_blocks(self._calibration.graph)
        misses = 0
        for conv in sorted(damage, key=lambda name: damage[name]):
            if not self._has_room or misses == 2:
                break
            try:
                trial = self._keeping(best, f"{conv} ({damage[conv]:.1f} dB)", frozenset(blocks[conv]))
            except Incompatible:
                # ONNX Runtime quantizes the weights of a float convolution that lies between 8-bit tensors itself
                # (its WeightBiasQuantization), so where ReLU leaves nothing float around it no layer can be kept.
                break
            pays = trial.score > best.score + self._settings.same_score
            best, misses = (trial, 0) if pays else (best, misses + 1)
        return best

    def _keeping(self, best: Trial, label: str, nodes: frozenset[str]) -> Trial:
        recipe = dataclasses.replace(best.recipe, keep_float=best.recipe.keep_float | nodes)
        return self._try(f"{best.label} + {label} in float", recipe)

    def _better(self, best: Trial, trial: Trial) -> Trial:
        """The one with the higher score, or the faster one where the scores are the same."""
        if abs(trial.score - best.score) > self._settings.same_score:
            return max(best, trial, key=lambda trial: trial.score)
        return max(best, trial, key=lambda trial: trial.speedup)

    def _try(self, label: str, recipe: QuantRecipe) -> Trial:
        model = quantize_graph(self._calibration, recipe)
        graph, kept = self._calibration.graph, self._calibration.head | recipe.keep_float
        fused = check_qlinear_convs(model, expected_qlinear_convs(graph, kept))
        trial = Trial(label, recipe, model, self._score(model), self._speedup(model), fused)
        self._trials.append(trial)
        self._progress(trial)
        return trial

    def _speedup(self, model: bytes) -> float:
        sessions = [
            open_session(graph, "cpu") for graph in (self._calibration.graph.SerializeToString(), model)
        ]
        feeds = {self._calibration.input_name: self._calibration.samples[0]}
        outputs = [output.name for output in sessions[0].outputs]
        return time_ratio(lambda: sessions[0].run(feeds, outputs), lambda: sessions[1].run(feeds, outputs))


def _outputs(
    session: OrtSession, calibration: Calibration, samples: Sequence[np.ndarray], names: Sequence[str]
) -> list[np.ndarray]:
    """Each output over all samples."""
    runs = [session.run({calibration.input_name: sample}, names) for sample in samples]
    return [np.stack([run[index] for run in runs]) for index in range(len(names))]


def _signal_to_noise_db(before: np.ndarray, after: np.ndarray) -> float:
    noise = float(np.square(before - after).sum())
    return float(10 * np.log10(float(np.square(before).sum()) / max(noise, 1e-20) + 1e-20))
