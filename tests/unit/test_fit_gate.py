"""Fitting the gate, and applying what was fitted."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from calibration.fit_gate import (
    GateFitSettings,
    GateSamples,
    fit_gate,
    fit_perceptron,
    fit_platt,
    fit_trees,
    out_of_fold,
    pays_of,
    sample_weights,
)
from fovea.core.errors import Malformed
from fovea.core.features import FEATURE_NAMES, FrameFeatures
from fovea.core.learned_gate import LearnedGate, Perceptron, Trees, gate_from_json, gate_to_json
from fovea.core.routing import Reason

MASS = FEATURE_NAMES.index("weak_mass")
VANISHED = FEATURE_NAMES.index("vanished_count")


def samples(frames: int = 600, seed: int = 0, noise: float = 0.3) -> GateSamples:
    """The gain grows with the weak mass, jumps with a vanished track, and is noisy."""
    rng = np.random.default_rng(seed)
    features = rng.gamma(1.0, 1.0, (frames, len(FEATURE_NAMES))).astype(np.float32)
    features[:, VANISHED] = rng.random(frames) < 0.15
    reward = 0.5 * np.log1p(features[:, MASS]) + 0.8 * features[:, VANISHED] - 0.4
    reward = reward + noise * rng.standard_normal(frames)
    return GateSamples(features, reward, tuple(f"clip-{index // 4}" for index in range(frames)))


def features_of(values: np.ndarray) -> FrameFeatures:
    return FrameFeatures(*(float(value) for value in values))


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(np.argsort(np.argsort(a)), np.argsort(np.argsort(b)))[0, 1])


def test_frames_that_gain_more_get_a_higher_opinion_on_clips_never_seen() -> None:
    gate = fit_gate(samples())
    fresh = samples(200, seed=1, noise=0.0)
    opinions = [gate.judge(features_of(row)) for row in fresh.features]
    gains = np.array([opinion.expected_gain for opinion in opinions], float)
    asks = np.array([opinion.p_ask for opinion in opinions])
    assert rank_correlation(gains, fresh.reward) > 0.8
    assert rank_correlation(asks, fresh.reward) > 0.7


def test_the_probability_says_how_often_asking_pays() -> None:
    settings = GateFitSettings(pays_share=0.3)
    learned = samples(1500)
    gate = fit_gate(learned, settings)
    fresh = samples(1500, seed=2)
    level = np.quantile(learned.reward, 1 - settings.pays_share)
    p_ask = np.array([gate.judge(features_of(row)).p_ask for row in fresh.features])
    pays = fresh.reward >= level
    for low, high in ((0.0, 0.2), (0.2, 0.5), (0.5, 1.0)):
        chosen = (p_ask >= low) & (p_ask < high)
        assert abs(p_ask[chosen].mean() - pays[chosen].mean()) < 0.12


def test_arrays_give_what_the_fitted_trees_give() -> None:
    pytest.importorskip("sklearn", reason="fitting needs scikit-learn (the train extra)")
    data = samples(300)
    settings = GateFitSettings(trees=5)
    trees = fit_trees(data.x, data.reward, np.ones(300), settings, is_logistic=False)
    assert isinstance(trees, Trees)
    by_hand = np.array([_walk(trees, row) for row in data.x])
    applied = np.array([trees.apply(row) for row in data.x])
    np.testing.assert_allclose(applied, by_hand, rtol=1e-5, atol=1e-6)
    assert np.var(data.reward - applied) < 0.8 * np.var(data.reward)


def _walk(trees: Trees, x: np.ndarray) -> float:
    total = trees.bias + float(trees.slopes @ x)
    for tree in range(len(trees.feature)):
        node = 0
        while trees.feature[tree, node] >= 0:
            goes_left = x[trees.feature[tree, node]] <= trees.threshold[tree, node]
            node = int((trees.left if goes_left else trees.right)[tree, node])
        total += float(trees.value[tree, node])
    return total


def test_a_gate_survives_its_json() -> None:
    gate = fit_gate(samples(200), GateFitSettings(trees=4))
    again = gate_from_json(json.loads(json.dumps(gate_to_json(gate))))
    for row in samples(80, seed=4).features[:20]:
        first, second = gate.judge(features_of(row)), again.judge(features_of(row))
        assert first.p_ask == pytest.approx(second.p_ask, abs=1e-6)
        assert first.expected_gain == pytest.approx(second.expected_gain, abs=1e-6)


def test_the_perceptron_learns_the_same_and_survives_its_json() -> None:
    pytest.importorskip("torch", reason="the perceptron is fitted with torch (the train extra)")
    data = samples(400)
    net = fit_perceptron(data.x, data.reward, np.ones(400), GateFitSettings(), is_logistic=False)
    assert isinstance(net, Perceptron)
    fresh = samples(150, seed=7, noise=0.0)
    assert rank_correlation(np.array([net.apply(row) for row in fresh.x]), fresh.reward) > 0.6
    gate = fit_gate(data, GateFitSettings(trees=2))
    mixed = LearnedGate(gate.asks, gate.ask_curve, net)
    again = gate_from_json(json.loads(json.dumps(gate_to_json(mixed))))
    assert again.gain.apply(fresh.x[0]) == pytest.approx(net.apply(fresh.x[0]), rel=1e-5)


def test_out_of_fold_never_asks_a_head_about_its_own_clips() -> None:
    data = samples(120)
    seen: list[np.ndarray] = []

    class Constant:
        def apply(self, x: np.ndarray) -> float:
            return float(len(seen))

    def fit(keep: np.ndarray) -> Constant:
        seen.append(keep)
        return Constant()

    said = out_of_fold(data, fit)
    for row, number in enumerate(said):
        assert not seen[int(number) - 1][row]
        clip_mates = [data.clips.index(data.clips[row])]
        assert not seen[int(number) - 1][clip_mates].any()


def test_a_gate_without_rule_reasons_says_that_it_expects_a_gain() -> None:
    gate = fit_gate(samples(200), GateFitSettings(trees=4))
    sure = LearnedGate(gate.asks, fit_platt(np.zeros(50), np.ones(50, bool)), gate.gain)
    opinion = sure.judge(FrameFeatures(*([0.0] * len(FEATURE_NAMES))))
    assert opinion.p_ask > 0.5
    assert opinion.reasons == (Reason.EXPECTED_GAIN,)


def test_the_platt_curve_of_informative_logits_is_steep_and_of_noise_is_flat() -> None:
    rng = np.random.default_rng(0)
    pays = rng.random(2000) < 0.3
    informed = fit_platt(np.where(pays, 1.0, -1.0) + rng.standard_normal(2000), pays)
    noise = fit_platt(rng.standard_normal(2000), pays)
    assert informed.slope > 1.5 > 0.2 > noise.slope


def test_edge_cases_count_ten_times() -> None:
    reward = np.arange(100.0)
    weights = sample_weights(reward, GateFitSettings())
    assert weights[-1] == 10
    assert np.count_nonzero(weights == 10) == 5
    assert pays_of(reward, GateFitSettings(pays_share=0.3)).sum() == 30


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"features": np.full((80, 12), np.nan)}, "expected finite features"),
        ({"features": np.zeros((80, 3))}, r"expected features \(80, 12\)"),
        ({"clips": ("a",) * 10, "features": np.zeros((10, 12)), "reward": np.zeros(10)}, "60 frames or more"),
    ],
)
def test_samples_that_nothing_can_be_learned_from_are_refused(change: dict[str, object], words: str) -> None:
    parts = {"features": np.zeros((80, 12)), "reward": np.zeros(80), "clips": ("a",) * 80} | change
    with pytest.raises(Malformed, match=words):
        GateSamples(**parts)  # type: ignore[arg-type]


def test_frames_none_of_which_gains_are_refused() -> None:
    with pytest.raises(Malformed, match="expected frames that gain from asking"):
        fit_gate(GateSamples(np.zeros((80, 12), np.float32), np.full(80, -1.0), ("a",) * 80))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 9}, "expected format 1, got 9"),
        ({"features": ["other"]}, "fitted on other features"),
        ({"asks": {"kind": "forest"}}, "expected trees or perceptron"),
        ({"price": {"gain_per_byte": 0, "ask_bytes": 1000}}, "gate price gain_per_byte: expected a finite"),
        ({"price": {"gain_per_byte": 1e-6}}, "expected asks, gain, ask_curve, class_weights and price"),
        ({"class_weights": {"0": -1}}, "class_weights: expected finite numbers"),
        ({"class_weights": 3}, "expected asks, gain, ask_curve, class_weights and price"),
        ({"gain": {}}, "expected asks, gain, ask_curve, class_weights and price"),
    ],
)
def test_a_gate_of_another_kind_is_refused(change: dict[str, object], words: str) -> None:
    data = gate_to_json(fit_gate(samples(100), GateFitSettings(trees=2)))
    with pytest.raises(Malformed, match=words):
        gate_from_json({**data, **change})


@given(st.integers(1, 8), st.integers(1, 40), st.integers(0, 7), st.integers(0, 2**32 - 1))
@example(trees=1, nodes=1, depth=0, seed=0)
@example(trees=3, nodes=40, depth=64, seed=1)
def test_trees_say_what_walking_them_node_by_node_says(trees: int, nodes: int, depth: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (trees, nodes)
    feature = rng.integers(-1, len(FEATURE_NAMES), shape).astype(np.int32)
    left, right = (rng.integers(0, nodes, shape).astype(np.int32) for _ in range(2))
    threshold, value = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    slopes = rng.normal(size=len(FEATURE_NAMES)).astype(np.float32)
    gate = Trees(feature, threshold, left, right, value, slopes, 0.25, depth)
    for x in rng.normal(size=(5, len(FEATURE_NAMES))).astype(np.float32):
        expected = 0.25 + float(slopes @ x)
        for tree in range(trees):
            node = 0
            for _ in range(depth):
                if feature[tree, node] < 0:
                    break
                goes_left = x[feature[tree, node]] <= threshold[tree, node]
                node = int((left if goes_left else right)[tree, node])
            expected += float(value[tree, node])
        assert gate.apply(x) == pytest.approx(expected, abs=1e-5)


def test_a_gate_without_trees_comes_back_from_json() -> None:
    gate = fit_gate(samples(), GateFitSettings(trees=0, ridge=1e4))
    again = gate_from_json(json.loads(json.dumps(gate_to_json(gate), allow_nan=False)))
    features = features_of(samples(1 + 60, seed=3).features[0])
    assert again.judge(features) == gate.judge(features)
