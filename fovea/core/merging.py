"""What all tiers say together about one frame.

Weighted box fusion (see `fovea.core.fusion`) with a trust in each tier, and one rule more: who does not know a class
is silent about it because blind, not because nothing was there, and does not pull down the score of who sees it. Nor
does who was shown other parts of the frame only.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fovea.core.detections import Detections, ModelRef
from fovea.core.errors import Malformed
from fovea.core.fusion import BoxSet, FusionSettings, fuse
from fovea.core.hard_case import TierAnswer
from fovea.core.routing import Tier


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """agent, edge, cloud: how far each tier is trusted, relative to the others (more than 0). iou: boxes of one class
    that overlap by more are one thing. absent_share: how much a tier that knows a class and saw nothing there pulls
    the score down, 0 (not at all) to 1 (as if it had said 0). The usual values were chosen on frames of
    street-v1 that no model was trained on."""

    agent: float = 1.0
    edge: float = 3.0
    cloud: float = 4.0
    iou: float = 0.55
    absent_share: float = 0.7

    def __post_init__(self) -> None:
        for name, trust in (("agent", self.agent), ("edge", self.edge), ("cloud", self.cloud)):
            if not (trust > 0 and math.isfinite(trust)):
                raise Malformed(f"merge settings {name}: expected a finite number above 0, got {trust}")
        FusionSettings(self.iou, self.absent_share)

    def trust_in(self, tier: Tier) -> float:
        return {Tier.AGENT: self.agent, Tier.EDGE: self.edge, Tier.CLOUD: self.cloud}[tier]


def merge_answers(
    answers: Sequence[TierAnswer], merged_ref: ModelRef, settings: MergeSettings = MergeSettings()
) -> Detections:
    """The answers of the tiers to one frame as one, best first, in the name of `merged_ref`.

    The answer of one tier alone stays as it is but for its name. The order of the answers does not matter. Raises
    Malformed when there is none, when a tier answers twice, and when they are not about the same image size.
    """
    tiers = [answer.tier for answer in answers]
    if not answers or len(set(tiers)) != len(tiers):
        raise Malformed(f"merging: expected one answer of each tier, at least one, got {tiers}")
    sizes = {answer.detections.image_size for answer in answers}
    if len(sizes) != 1:
        raise Malformed(f"merging: expected answers to one image, got sizes {sorted(map(str, sizes))}")
    size = sizes.pop()
    if len(answers) == 1:
        alone = answers[0].detections
        return Detections(alone.boxes_xyxy, alone.scores, alone.class_ids, size, merged_ref)
    ordered = sorted(answers, key=lambda answer: answer.tier)
    knows = [np.array(answer.labels.ids) for answer in ordered]
    present = np.unique(np.concatenate([answer.detections.class_ids for answer in ordered]))
    groups: dict[tuple[int, ...], list[int]] = {}
    for class_id in present.tolist():
        # A model that reports a class that its labels do not list knows it all the same.
        knowing = tuple(
            index
            for index, answer in enumerate(ordered)
            if class_id in knows[index] or class_id in answer.detections.class_ids
        )
        groups.setdefault(knowing, []).append(class_id)
    fusion = FusionSettings(settings.iou, settings.absent_share)
    fused = [
        fuse([_of_classes(ordered[index], classes, settings) for index in knowing], fusion)
        for knowing, classes in groups.items()
    ]
    if not fused:
        return Detections.empty(size, merged_ref)
    scores = np.concatenate([part.scores for part in fused])
    class_ids = np.concatenate([part.class_ids for part in fused])
    order = np.lexsort((class_ids, -scores))
    return Detections(
        np.concatenate([part.boxes_xyxy for part in fused])[order],
        scores[order],
        class_ids[order],
        size,
        merged_ref,
    )


def merged_ref(models: Sequence[ModelRef]) -> ModelRef:
    """The name of what these models say together, the same wherever it is made; a model alone keeps its own name.
    Raises Malformed when there is none."""
    if not models:
        raise Malformed("merged ref: expected at least one model, got none")
    if len(models) == 1:
        return models[0]
    digests = "\n".join(model.sha256 for model in models)
    return ModelRef(
        "+".join(model.name for model in models),
        "+".join(model.version for model in models),
        hashlib.sha256(digests.encode()).hexdigest(),
    )


def _of_classes(answer: TierAnswer, classes: list[int], settings: MergeSettings) -> BoxSet:
    seen = answer.detections
    kept = np.isin(seen.class_ids, classes)
    return BoxSet(
        seen.boxes_xyxy[kept],
        seen.scores[kept],
        seen.class_ids[kept],
        settings.trust_in(answer.tier),
        answer.looked_xyxy,
    )
