"""Fits the gate: from twelve features of a frame to the gain of asking about it, and to whether asking pays.

Two heads. The gain head regresses the context reward (`calibration.reward`). The ask head separates frames whose gain
pays from those that can be kept, by focal loss (Lin et al. 2017), which looks away from what is clear already; the
rare frames with the largest gains, where keeping costs most, are drawn ten times as often. Its logit is made a
probability on frames it was not fitted on. Both heads are a ridge line plus boosted trees on what the line leaves;
the perceptron is the other form that was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.cascade import CascadeTable, Floats, top_share
from calibration.gain_share import gain_share
from fovea.core.arrays import FloatArray
from fovea.core.errors import Malformed
from fovea.core.features import FEATURE_NAMES
from fovea.core.learned_gate import LearnedGate, Perceptron, Regressor, Trees
from fovea.core.scores import PlattCurve

_LEAST_FRAMES = 60
PRIOR_FEATURES = ("entropy_sum",)
"""What a gate looks at before it has learned anything."""
PRIOR_ROWS = [FEATURE_NAMES.index(name) for name in PRIOR_FEATURES]


@dataclass(frozen=True, slots=True, eq=False)
class GateSamples:
    """F frames to fit on: features f32[F, 12], reward f64[F], the clip that each frame is of, and where it is known
    how many objects more are found (`calibration.reward.found_more`) f64[F]."""

    features: FloatArray
    reward: Floats
    clips: tuple[str, ...]
    found_more: Floats | None = None

    def __post_init__(self) -> None:
        expected = (len(self.clips), len(FEATURE_NAMES))
        if self.found_more is not None and not (
            self.found_more.shape == self.reward.shape and np.isfinite(self.found_more).all()
        ):
            raise Malformed(
                f"gate samples found_more: expected {len(self.clips)} finite numbers, got {self.found_more.shape}"
            )
        if self.features.shape != expected or self.reward.shape != expected[:1]:
            raise Malformed(
                f"gate samples: expected features {expected} and a reward for each clip, "
                f"got {self.features.shape} and {self.reward.shape}"
            )
        if not (np.isfinite(self.features).all() and np.isfinite(self.reward).all()):
            raise Malformed("gate samples: expected finite features and rewards, got NaN or infinity")
        if len(self.clips) < _LEAST_FRAMES:
            raise Malformed(f"gate samples: expected {_LEAST_FRAMES} frames or more, got {len(self.clips)}")

    @property
    def x(self) -> FloatArray:
        """f32[F, 12]: what the gate computes with."""
        roots: FloatArray = np.sqrt(self.features).astype(np.float32)
        return roots

    def rows(self, keep: NDArray[np.bool_]) -> GateSamples:
        """The frames that are kept."""
        clips = tuple(clip for clip, is_kept in zip(self.clips, keep, strict=True) if is_kept)
        found_more = None if self.found_more is None else self.found_more[keep]
        return GateSamples(self.features[keep], self.reward[keep], clips, found_more)


class Form(StrEnum):
    """What a head is."""

    TREES = "trees"
    PERCEPTRON = "perceptron"


@dataclass(frozen=True, slots=True)
class GateFitSettings:
    """pays_share: a frame pays when its reward is among this share of the highest (and above 0). edge_share and
    edge_weight: the share with the largest rewards counts this many times. focal_gamma: how much the ask head looks
    away from clear frames. steady: how much of the gain head's target is what the number of objects found makes
    likely, instead of the reward itself. trees, depth, rate, least_leaf_share, ridge: how freely the heads may bend;
    form: what they are."""

    form: Form = Form.TREES
    pays_share: float = 0.7
    steady: float = 0.5
    edge_share: float = 0.05
    edge_weight: float = 10.0
    focal_gamma: float = 2.0
    trees: int = 20
    depth: int = 2
    rate: float = 0.05
    least_leaf_share: float = 0.05
    ridge: float = 1000.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (
            0 < self.edge_share < self.pays_share < 1 and self.edge_weight >= 1 and self.focal_gamma >= 0
        ):
            raise Malformed(f"gate fit settings: expected 0 < edge_share < pays_share < 1, got {self}")
        if not 0 <= self.steady <= 1:
            raise Malformed(f"gate fit settings steady: expected 0 to 1, got {self.steady}")


def fit_gate(samples: GateSamples, settings: GateFitSettings = GateFitSettings()) -> LearnedGate:
    """A gate of the form that the settings say. The probability is calibrated by predictions on clips left out in
    turn.

    Raises Malformed where no frame pays, or all do.
    """
    pays = pays_of(samples.reward, settings)
    weights = sample_weights(samples.reward, settings)

    def ask_head(keep: NDArray[np.bool_]) -> Regressor:
        return fit_head(samples.x[keep], pays[keep].astype(float), weights[keep], settings, is_logistic=True)

    logits = out_of_fold(samples, ask_head)
    everything = np.ones(len(samples.clips), bool)
    return LearnedGate(
        asks=ask_head(everything), ask_curve=fit_platt(logits, pays), gain=_gain_head(samples, settings)
    )


def gain_out_of_fold(samples: GateSamples, settings: GateFitSettings) -> Floats:
    """f64[F]: the gain that is expected of each frame by a head fitted without the frame's clip."""
    return out_of_fold(samples, lambda keep: _gain_head(samples.rows(keep), settings))


def fit_head(
    x: FloatArray, y: Floats, weights: Floats, settings: GateFitSettings, is_logistic: bool
) -> Regressor:
    """A head of the form that the settings say."""
    fit = fit_trees if settings.form is Form.TREES else fit_perceptron
    return fit(x, y, weights, settings, is_logistic)


def _gain_head(samples: GateSamples, settings: GateFitSettings) -> Regressor:
    target = steadied(samples, settings.steady)
    return fit_head(samples.x, target, np.ones(len(target)), settings, is_logistic=False)


def steadied(samples: GateSamples, share: float) -> Floats:
    """The reward, without its tails, and `share` of it replaced by what the number of objects found more makes
    likely. AP hangs on few frames with rare objects; counts are blunter, but much less a matter of luck."""
    reward = tamed(samples.reward)
    if samples.found_more is None or not np.ptp(samples.found_more):
        return reward
    found = tamed(samples.found_more)
    slope, offset = np.polyfit(found, reward, 1)
    mixed: Floats = (1 - share) * reward + share * (max(slope, 0.0) * found + offset)
    return mixed


TRIAL_SHARES = (0.1, 0.2, 0.3)


@dataclass(frozen=True, slots=True)
class GateTrial:
    """How a form did on clips left out: its gain share at each of TRIAL_SHARES."""

    form: Form
    shares: tuple[float, ...]

    @property
    def mean(self) -> float:
        return sum(self.shares) / len(self.shares)


def try_forms(
    samples: GateSamples, table: CascadeTable, settings: GateFitSettings = GateFitSettings()
) -> list[GateTrial]:
    """Each form fitted on four fifths of the clips in turn and asked about the rest."""
    trials = []
    for form in Form:
        expected = gain_out_of_fold(samples, replace(settings, form=form))
        shares = (
            gain_share(table, top_share(expected, share), top_share(samples.reward, share))
            for share in TRIAL_SHARES
        )
        trials.append(GateTrial(form, tuple(shares)))
    return trials


def pays_of(reward: Floats, settings: GateFitSettings) -> NDArray[np.bool_]:
    """bool[F]: frames that are worth asking about. Raises Malformed where none is, or all are."""
    pays: NDArray[np.bool_] = (reward > 0) & (reward >= np.quantile(reward, 1 - settings.pays_share))
    if not pays.any() or pays.all():
        raise Malformed(
            f"gate samples: expected frames that gain from asking and frames that do not, got {int(pays.sum())} "
            f"of {len(pays)} that gain"
        )
    return pays


def sample_weights(reward: Floats, settings: GateFitSettings) -> Floats:
    """f64[F]: how often each frame counts; the edge cases ten times."""
    is_edge = reward >= np.quantile(reward, 1 - settings.edge_share)
    weights: Floats = np.where(is_edge, settings.edge_weight, 1.0)
    return weights


def tamed(reward: Floats) -> Floats:
    """The reward with its tails drawn in to the 1st and 99th percentile: a handful of frames must not bend a head."""
    low, high = np.quantile(reward, (0.01, 0.99))
    drawn_in: Floats = np.clip(reward, low, high)
    return drawn_in


def fit_trees(
    x: FloatArray, y: Floats, weights: Floats, settings: GateFitSettings, is_logistic: bool
) -> Trees:
    """A ridge line, then trees on the gradient of what is left: of the focal loss for 0/1 targets (`is_logistic`),
    of the squared error otherwise."""
    slopes, bias = _ridge(x, y, weights, settings.ridge, is_logistic)
    value: Floats = (x @ slopes + bias).astype(np.float64)
    trees = []
    for number in range(settings.trees):
        pull = _focal_pull(value, y, settings.focal_gamma) if is_logistic else y - value
        tree = _grown(x, pull, weights, settings, number)
        value = value + settings.rate * tree.predict(x)
        trees.append(tree)
    return _as_arrays(trees, slopes, bias, settings)


def out_of_fold(
    samples: GateSamples, fit: Callable[[NDArray[np.bool_]], Regressor], folds: int = 5
) -> Floats:
    """f64[F]: for each frame what a head says that was fitted without the frame's clip."""
    names = sorted(set(samples.clips))
    fold_of = {clip: index % folds for index, clip in enumerate(names)}
    fold = np.array([fold_of[clip] for clip in samples.clips])
    said = np.zeros(len(samples.clips))
    for number in sorted(set(fold.tolist())):
        head = fit(fold != number)
        for row in np.flatnonzero(fold == number):
            said[row] = head.apply(samples.x[row])
    return said


def fit_platt(logits: Floats, pays: NDArray[np.bool_], steps: int = 200) -> PlattCurve:
    """Slope and offset by which sigmoid(slope * logit + offset) is the probability of `pays` (Platt 1999)."""
    slope, offset = 1.0, 0.0
    low, high = 1 / (np.count_nonzero(~pays) + 2), (pays.sum() + 1) / (pays.sum() + 2)
    target = np.where(pays, high, low)
    for _ in range(steps):
        p = 1 / (1 + np.exp(-np.clip(slope * logits + offset, -60, 60)))
        curve = p * (1 - p) + 1e-9
        gradient = np.array([((p - target) * logits).sum(), (p - target).sum()])
        hessian = np.array(
            [[(curve * logits**2).sum(), (curve * logits).sum()], [(curve * logits).sum(), curve.sum()]]
        )
        step = np.linalg.solve(hessian + 1e-6 * np.eye(2), gradient)
        slope, offset = slope - step[0], offset - step[1]
        if np.abs(step).max() < 1e-9:
            break
    return PlattCurve(max(float(slope), 1e-3), float(offset))


def _ridge(
    x: FloatArray, y: Floats, weights: Floats, ridge: float, is_logistic: bool
) -> tuple[FloatArray, float]:
    """Slopes f32[12] and bias of the line, of standardised features, so that one ridge suits all.

    Few frames want a prior: the line is drawn not towards none, but towards the best line of PRIOR_FEATURES alone,
    which rank frames well on every pair of models that was looked at.
    """
    mean, scale = x.mean(axis=0), x.std(axis=0) + 1e-6
    z = (x - mean) / scale
    target = np.where(y > 0, 2.0, -2.0) if is_logistic else y
    left = target - float(np.average(target, weights=weights))
    prior = z[:, PRIOR_ROWS].sum(axis=1)
    strength = max(float((weights * prior) @ left / ((weights * prior) @ prior + 1e-9)), 0.0)
    left = left - strength * prior
    gram = (z * weights[:, None]).T @ z + ridge * len(z) / 100 * np.eye(z.shape[1])
    slopes = np.linalg.solve(gram, (z * weights[:, None]).T @ left)
    slopes[PRIOR_ROWS] += strength
    slopes = slopes / scale
    bias = float(np.average(target - z @ (slopes * scale), weights=weights)) - float(slopes @ mean)
    return slopes.astype(np.float32), bias


def _focal_pull(value: Floats, y: Floats, gamma: float) -> Floats:
    """Minus the derivative of the focal loss by the logit."""
    p = 1 / (1 + np.exp(-np.clip(value, -30, 30)))
    right = np.where(y > 0, p, 1 - p)
    sign = np.where(y > 0, 1.0, -1.0)
    log_right = np.log(np.maximum(right, 1e-12))
    pull: Floats = sign * (1 - right) ** gamma * (1 - right - gamma * right * log_right)
    return pull


def _grown(x: FloatArray, pull: Floats, weights: Floats, settings: GateFitSettings, number: int) -> Any:
    from sklearn.tree import DecisionTreeRegressor

    tree = DecisionTreeRegressor(
        max_depth=settings.depth,
        min_samples_leaf=max(5, round(settings.least_leaf_share * len(x))),
        random_state=settings.seed + number,
    )
    drawn = np.random.default_rng(settings.seed + number).random(len(x)) < 0.7
    return tree.fit(x[drawn], pull[drawn], sample_weight=weights[drawn])


def _as_arrays(trees: Sequence[Any], slopes: FloatArray, bias: float, settings: GateFitSettings) -> Trees:
    nodes = max((tree.tree_.node_count for tree in trees), default=1)
    # Without trees there is one that is a leaf of value 0: an empty table would lose its shape in JSON.
    shape = (max(len(trees), 1), nodes)
    feature, left, right = np.full(shape, -1, np.int32), np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    threshold, value = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for row, tree in enumerate(trees):
        parts, count = tree.tree_, tree.tree_.node_count
        is_leaf = parts.children_left < 0
        feature[row, :count] = np.where(is_leaf, -1, parts.feature)
        threshold[row, :count] = np.where(is_leaf, 0, parts.threshold)
        left[row, :count] = np.where(is_leaf, 0, parts.children_left)
        right[row, :count] = np.where(is_leaf, 0, parts.children_right)
        value[row, :count] = settings.rate * parts.value[:, 0, 0]
    return Trees(feature, threshold, left, right, value, slopes, bias, settings.depth)


def fit_perceptron(
    x: FloatArray, y: Floats, weights: Floats, settings: GateFitSettings, is_logistic: bool, width: int = 24
) -> Perceptron:
    """The other form: two hidden layers, weight decay, Adam; the same losses as `fit_trees`."""
    import torch

    torch.manual_seed(settings.seed)
    mean, scale = x.mean(axis=0), x.std(axis=0) + 1e-6
    inputs = torch.tensor((x - mean) / scale, dtype=torch.float32)
    spread = 1.0 if is_logistic else float(y.std() + 1e-9)
    target = torch.tensor(y / spread, dtype=torch.float32)
    weight = torch.tensor(weights / weights.mean(), dtype=torch.float32)
    net = torch.nn.Sequential(
        torch.nn.Linear(x.shape[1], width), torch.nn.ReLU(),
        torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 1),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.05)
    for _ in range(400):
        optimizer.zero_grad()
        said = net(inputs)[:, 0]
        if is_logistic:
            right = torch.sigmoid(torch.where(target > 0, said, -said)).clamp(1e-6, 1.0)
            loss = -((1 - right) ** settings.focal_gamma) * torch.log(right)
        else:
            loss = torch.nn.functional.huber_loss(said, target, reduction="none")
        (loss * weight).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    layers = [layer for layer in net if isinstance(layer, torch.nn.Linear)]
    arrays = [(each.weight.detach().numpy().T, each.bias.detach().numpy()) for each in layers]
    arrays[-1] = (arrays[-1][0] * spread, arrays[-1][1] * spread)
    return Perceptron(
        mean.astype(np.float32),
        scale.astype(np.float32),
        tuple((np.ascontiguousarray(w, np.float32), np.asarray(b, np.float32)) for w, b in arrays),
    )
