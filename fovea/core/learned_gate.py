"""Applying a fitted gate: twelve features in, the probability that asking pays and the expected gain out.

Fitted by `calibration.fit_gate`, carried in the bundle as `gate.json`, applied here. Two forms, chosen by
measurement: boosted trees as flat arrays, and a small perceptron. Square roots of the features are taken first: most
of them are counts or masses with a long tail.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from fovea.core.arrays import FloatArray, IntArray
from fovea.core.errors import Malformed
from fovea.core.features import FEATURE_NAMES, FeatureSettings, FrameFeatures
from fovea.core.gate import Opinion, RuleGate
from fovea.core.routing import Reason
from fovea.core.scores import PlattCurve

GATE_FORMAT = 1


class Regressor(Protocol):
    """A fitted function of the features."""

    def apply(self, x: FloatArray) -> float:
        """Its value at x f32[12] = square roots of the features."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """A straight line and T boosted trees of at most N nodes: bias + slopes . x + the leaf value
    of each tree. The line is the prior: with few frames to fit on, the trees add little to it.

    slopes f32[12], feature i32[T, N] (-1 at a leaf), threshold f32[T, N] (x <= threshold goes left), left and right
    i32[T, N], value f32[T, N] (of leaves).
    """

    feature: IntArray
    threshold: FloatArray
    left: IntArray
    right: IntArray
    value: FloatArray
    slopes: FloatArray
    bias: float
    depth: int
    _nodes: list[list[_Node]] = field(init=False, repr=False)
    _slopes: list[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        shape = self.feature.shape
        if len(shape) != 2 or any(
            part.shape != shape for part in (self.threshold, self.left, self.right, self.value)
        ):
            raise Malformed(f"gate trees: expected five arrays of one shape [T, N], got {shape} and others")
        if self.feature.size and not (self.feature.min() >= -1 and self.feature.max() < len(FEATURE_NAMES)):
            raise Malformed(f"gate trees feature: expected -1 to {len(FEATURE_NAMES) - 1}")
        for side in (self.left, self.right):
            if side.size and not (side.min() >= 0 and side.max() < shape[1]):
                raise Malformed(f"gate trees: expected children within 0 to {shape[1] - 1}")
        if self.slopes.shape != (len(FEATURE_NAMES),) or not np.isfinite(self.slopes).all():
            raise Malformed(f"gate trees slopes: expected {len(FEATURE_NAMES)} finite numbers")
        if not (
            np.isfinite(self.value).all() and np.isfinite(self.threshold).all() and math.isfinite(self.bias)
        ):
            raise Malformed("gate trees: expected finite values and thresholds")
        object.__setattr__(self, "_nodes", _nodes_of(self))
        object.__setattr__(self, "_slopes", self.slopes.tolist())

    def apply(self, x: FloatArray) -> float:
        # Plain Python: for a few dozen shallow trees it takes half the time of the calls into numpy.
        values: list[float] = x.tolist()
        total = self.bias
        for nodes in self._nodes:
            node, levels = nodes[0], self.depth
            while levels and node[0] >= 0:
                node = nodes[node[2] if values[node[0]] <= node[1] else node[3]]
                levels -= 1
            total += node[4]
        for slope, value in zip(self._slopes, values, strict=True):
            total += slope * value
        return total


_Node = tuple[int, float, int, int, float]
"""feature, threshold, left, right, value"""


def _nodes_of(trees: Trees) -> list[list[_Node]]:
    columns = (trees.feature, trees.threshold, trees.left, trees.right, trees.value)
    of_trees = zip(*(column.tolist() for column in columns), strict=True)
    return [list(zip(*tree, strict=True)) for tree in of_trees]


@dataclass(frozen=True, slots=True, eq=False)
class Perceptron:
    """Layers of (weights f32[in, out], offsets f32[out]) with ReLU between, after (x - mean) / scale."""

    mean: FloatArray
    scale: FloatArray
    layers: tuple[tuple[FloatArray, FloatArray], ...]

    def __post_init__(self) -> None:
        width = len(FEATURE_NAMES)
        if self.mean.shape != (width,) or self.scale.shape != (width,) or not (self.scale > 0).all():
            raise Malformed(
                f"gate perceptron: expected a mean and a scale above 0 for each of {width} features"
            )
        for weights, offsets in self.layers:
            if weights.ndim != 2 or weights.shape[0] != width or offsets.shape != (weights.shape[1],):
                raise Malformed(f"gate perceptron: expected a layer of {width} inputs, got {weights.shape}")
            if not (np.isfinite(weights).all() and np.isfinite(offsets).all()):
                raise Malformed("gate perceptron: expected finite weights")
            width = weights.shape[1]
        if not self.layers or width != 1:
            raise Malformed(f"gate perceptron: expected layers that end in one output, got {width}")

    def apply(self, x: FloatArray) -> float:
        hidden = (x - self.mean) / self.scale
        for weights, offsets in self.layers[:-1]:
            hidden = np.maximum(hidden @ weights + offsets, 0)
        weights, offsets = self.layers[-1]
        return float((hidden @ weights + offsets)[0])


@dataclass(frozen=True, slots=True)
class StartPrice:
    """What a question has to promise to begin with (`fovea.core.price` moves it from there): gain per byte, and how
    many bytes a question usually has. Both above 0. The usual values are of street frames at quality 90."""

    gain_per_byte: float = 6e-7
    ask_bytes: float = 120_000.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not 0 < getattr(self, name) < math.inf:
                raise Malformed(
                    f"gate price {name}: expected a finite number above 0, got {getattr(self, name)}"
                )


@dataclass(frozen=True, slots=True, eq=False)
class LearnedGate:
    """The gate that a bundle carries. `asks` gives a logit that `ask_curve` makes a probability; `gain` the expected
    gain in AP of the set per frame asked (see `calibration.reward`); `price` is what asking costs to begin with. A
    hand-set gate names the reasons."""

    asks: Regressor
    ask_curve: PlattCurve
    gain: Regressor
    price: StartPrice = StartPrice()
    class_weights: Mapping[int, float] = field(default_factory=dict)
    """for `FeatureSettings.class_weights`: the features that it was fitted on"""
    wording: RuleGate = field(default_factory=RuleGate)

    def judge(self, features: FrameFeatures) -> Opinion:
        x = np.sqrt(features.vector)
        logit = self.asks.apply(x)
        p_ask = 1 / (
            1 + math.exp(-min(max(self.ask_curve.slope * logit + self.ask_curve.offset, -60.0), 60.0))
        )
        reasons = self.wording.judge(features).reasons
        if reasons == (Reason.SURE,) and p_ask >= 0.5:
            reasons = (Reason.EXPECTED_GAIN,)
        return Opinion(p_ask, self.gain.apply(x), reasons)


def gate_to_json(gate: LearnedGate) -> dict[str, Any]:
    """The object that a bundle carries as `gate.json`."""
    return {
        "format": GATE_FORMAT, "features": list(FEATURE_NAMES),
        "asks": _regressor_to_json(gate.asks), "gain": _regressor_to_json(gate.gain),
        "ask_curve": {"slope": gate.ask_curve.slope, "offset": gate.ask_curve.offset},
        "class_weights": {str(class_id): weight for class_id, weight in sorted(gate.class_weights.items())},
        "price": {"gain_per_byte": gate.price.gain_per_byte, "ask_bytes": gate.price.ask_bytes},
    }  # fmt: skip


def gate_from_json(data: Mapping[str, Any]) -> LearnedGate:
    """The gate of a `gate.json`. Raises Malformed for another format, other features, or parts that do not fit."""
    if data.get("format") != GATE_FORMAT:
        raise Malformed(f"gate: expected format {GATE_FORMAT}, got {data.get('format')!r:.40}")
    if data.get("features") != list(FEATURE_NAMES):
        raise Malformed("gate: was fitted on other features than this version looks at; fit it again")
    try:
        curve = PlattCurve(float(data["ask_curve"]["slope"]), float(data["ask_curve"]["offset"]))
        price = StartPrice(float(data["price"]["gain_per_byte"]), float(data["price"]["ask_bytes"]))
        weights = {int(class_id): float(weight) for class_id, weight in data["class_weights"].items()}
        FeatureSettings(class_weights=weights)
        return LearnedGate(
            _regressor_from_json(data["asks"]), curve, _regressor_from_json(data["gain"]), price, weights
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Malformed(
            f"gate: expected asks, gain, ask_curve, class_weights and price, got something else ({error})"
        ) from error


def _regressor_to_json(regressor: Regressor) -> dict[str, Any]:
    match regressor:
        case Trees():
            return {
                "kind": "trees", "bias": regressor.bias, "depth": regressor.depth,
                **{name: getattr(regressor, name).tolist() for name in _TREE_PARTS},
            }  # fmt: skip
        case Perceptron():
            layers = [{"weights": w.tolist(), "offsets": b.tolist()} for w, b in regressor.layers]
            return {
                "kind": "perceptron", "mean": regressor.mean.tolist(), "scale": regressor.scale.tolist(),
                "layers": layers,
            }  # fmt: skip
        case _:
            raise Malformed(f"gate: cannot write a {type(regressor).__name__}")


def _regressor_from_json(data: Mapping[str, Any]) -> Regressor:
    match data["kind"]:
        case "trees":
            parts: dict[str, Any] = {name: np.array(data[name], kind) for name, kind in _TREE_PARTS.items()}
            return Trees(**parts, bias=float(data["bias"]), depth=int(data["depth"]))
        case "perceptron":
            layers = tuple(
                (np.array(layer["weights"], np.float32), np.array(layer["offsets"], np.float32))
                for layer in data["layers"]
            )
            return Perceptron(np.array(data["mean"], np.float32), np.array(data["scale"], np.float32), layers)
        case kind:
            raise Malformed(f"gate: expected trees or perceptron, got {kind!r:.40}")


_TREE_PARTS: Mapping[str, type] = {
    "feature": np.int32, "threshold": np.float32, "left": np.int32, "right": np.int32, "value": np.float32,
    "slopes": np.float32,
}  # fmt: skip
