"""How much doubt about a box of each class counts for a gate: what is rare is worth more, as AP is a mean over
classes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from calibration.truth import GroundTruth

_LEAST_SHARE = 0.02
"""Of an average class: no class counts as rarer than that."""


def class_weights_of(truths: Iterable[GroundTruth]) -> dict[int, float]:
    """One over the square root of how common true boxes of the class are, 1 for the average box; empty where there is
    no true box at all."""
    ids = np.concatenate([np.empty(0, np.int32), *(truth.class_ids[~truth.ignore] for truth in truths)])
    classes, counts = np.unique(ids, return_counts=True)
    if not len(classes):
        return {}
    weights = 1 / np.sqrt(counts + _LEAST_SHARE * len(ids) / len(classes))
    weights *= len(ids) / (weights @ counts)
    return {int(class_id): float(weight) for class_id, weight in zip(classes, weights, strict=True)}
