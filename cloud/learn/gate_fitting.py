"""Fits the gate of a new student on cases: what asking the tier above would have added to its own answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calibration.cascade import CascadeFrame, CascadeTable
from calibration.class_weights import class_weights_of
from calibration.fit_gate import Form, GateFitSettings, GateSamples, fit_gate
from calibration.reward import context_reward, found_more
from cloud.learn.looked_at import Seen, gate_of, is_asked
from fovea.core.arrays import FloatArray
from fovea.core.deciding import DecideSettings
from fovea.core.detections import Detections, ModelRef
from fovea.core.errors import Malformed
from fovea.core.features import FeatureSettings, weighed_doubts
from fovea.core.hard_case import TierAnswer
from fovea.core.labels import LabelSet
from fovea.core.learned_gate import LearnedGate, StartPrice
from fovea.core.merging import merge_answers
from fovea.core.routing import Tier
from fovea.runtime.bundle import Bundle

USUAL_SHARE = 0.25
"""A new gate begins with the price at which this share of the frames is asked, or as many as the champion asks where
that is less: a new student must not cost more than the old one."""
_LEAST_SHARE = 0.05
_MANY_FRAMES = 150
_FEW = GateFitSettings(trees=0, ridge=1e4)
"""For a hundred frames: no trees, and a line that hardly leaves the prior."""
_MERGED = ModelRef("merged", "0", "0" * 64)


@dataclass(frozen=True, slots=True, eq=False)
class AskedFrame:
    """What the student saw in a frame, and what the tier above says of it."""

    seen: Seen
    upper: TierAnswer


@dataclass(frozen=True, slots=True, eq=False)
class FittedGate:
    """`share` of the frames it was fitted on would be asked at its price; `mean_gain` is what asking about one gains,
    in AP of the set."""

    gate: LearnedGate
    frames: int
    share: float
    mean_gain: float

    @property
    def form(self) -> str:
        """What its heads are: few frames make a line."""
        return "trees" if self.frames >= _MANY_FRAMES else "line"


def fit_gate_on(frames: Sequence[AskedFrame], labels: LabelSet, asked_before: float) -> FittedGate:
    """`labels` are the student's; `asked_before` is the share of these frames that the champion asks about. Raises
    Malformed where nothing can be learned: fewer than 60 frames, or none or all gain from asking."""
    weights = class_weights_of(frame.seen.frame.truth for frame in frames)
    table = CascadeTable.of(
        [
            CascadeFrame(each.seen.frame.group, each.seen.frame.truth, each.seen.weak, _merged(each, labels))
            for each in frames
        ],
        labels.ids,
    )
    reward = context_reward(table, contexts_per_share=2)
    samples = GateSamples(
        features=np.stack([_weighed(each.seen, weights) for each in frames]),
        reward=reward,
        clips=tuple(each.seen.frame.group for each in frames),
        found_more=found_more(table),
    )
    # Trees, not the perceptron: they were taken wherever both were tried, and cost a tenth of the time.
    settings = replace(GateFitSettings(), form=Form.TREES) if len(frames) >= _MANY_FRAMES else _FEW
    gate = replace(fit_gate(samples, settings), class_weights=weights)
    share = min(USUAL_SHARE, max(asked_before, _LEAST_SHARE))
    gate = replace(gate, price=_price(gate, frames, weights, share))
    return FittedGate(gate, len(frames), share, float(reward.mean()))


def asked_share(seen: Sequence[Seen], bundle: Bundle) -> float:
    """Share of the frames that the gate of `bundle` asks about."""
    gate = gate_of(bundle)
    return float(np.mean([is_asked(each.opinion, gate, len(each.frame.jpeg)) for each in seen]))


def upper_answer(seen: Seen, teacher: Detections | None, labels: LabelSet) -> TierAnswer | None:
    """What the tier above said of the frame, in px of its picture: the edge's answer, else the cloud's, else that of
    the teacher. None where nobody looked."""
    case = seen.frame.case
    for tier in (Tier.EDGE, Tier.CLOUD):
        found = case.find_answer(tier)
        if found is not None and found.detections.image_size == seen.weak.image_size:
            return found
    if teacher is not None and teacher.image_size == seen.weak.image_size:
        return TierAnswer(Tier.CLOUD, teacher, labels)
    return None


def _merged(frame: AskedFrame, labels: LabelSet) -> Detections:
    own = TierAnswer(Tier.AGENT, frame.seen.weak, labels)
    return merge_answers([own, frame.upper], _MERGED)


def _weighed(seen: Seen, weights: Mapping[int, float]) -> FloatArray:
    """The features f32[12] that a gate with these class weights sees."""
    entropy, mass = weighed_doubts(seen.weak, len(seen.told), FeatureSettings(class_weights=weights))
    vector: FloatArray = replace(seen.features, entropy_sum=entropy, weak_mass=mass).vector
    return vector


def _price(
    gate: LearnedGate, frames: Sequence[AskedFrame], weights: Mapping[int, float], share: float
) -> StartPrice:
    gains = []
    for each in frames:
        entropy, mass = weighed_doubts(
            each.seen.weak, len(each.seen.told), FeatureSettings(class_weights=weights)
        )
        opinion = gate.judge(replace(each.seen.features, entropy_sum=entropy, weak_mass=mass))
        is_worth = opinion.p_ask >= DecideSettings().ask_from
        gains.append((opinion.expected_gain or 0.0) if is_worth else 0.0)
    usual_bytes = float(np.mean([len(each.seen.frame.jpeg) for each in frames]))
    per_byte = float(np.quantile(np.array(gains) / usual_bytes, 1 - share))
    if not np.isfinite(per_byte):
        raise Malformed("gate price: expected finite gains")
    return StartPrice(max(per_byte, 1e-12), usual_bytes)
