"""Random frames with boxes that partly find the truth, for the tests of everything that evaluates."""

from __future__ import annotations

import numpy as np

from calibration.truth import EvaluatedFrame, GroundTruth
from fovea.core.detections import Candidates, ScoreKind
from fovea.core.frame import ImageSize
from fovea.core.labels import LabelSet

LABELS = LabelSet.from_names(["person", "car", "dog"])
SIZE = ImageSize(320, 192)


def random_frames(
    count: int, seed: int, frames_per_clip: int = 3, ignore_share: float = 0.2, jitter_px: float = 4.0
) -> list[EvaluatedFrame]:
    """Frames of 0 to 6 true boxes; about 3 in 4 are found, with noise, and some boxes are found where nothing is."""
    rng = np.random.default_rng(seed)
    frames = []
    for index in range(count):
        truth = _random_truth(rng, int(rng.integers(0, 7)), ignore_share)
        seen = _seen(rng, truth, jitter_px)
        frames.append(EvaluatedFrame(f"clip-{index // frames_per_clip}", truth, seen))
    return frames


def _random_truth(rng: np.random.Generator, count: int, ignore_share: float) -> GroundTruth:
    ids = np.array(LABELS.ids, np.int32)
    return GroundTruth(
        _random_boxes(rng, count), ids[rng.integers(0, len(ids), count)], rng.random(count) < ignore_share
    )


def _seen(rng: np.random.Generator, truth: GroundTruth, jitter_px: float) -> Candidates:
    found = rng.random(len(truth)) < 0.75
    noisy = truth.boxes_xyxy[found] + rng.normal(0, jitter_px, (int(found.sum()), 4))
    invented = _random_boxes(rng, int(rng.integers(0, 5)))
    boxes = _ordered(np.concatenate([noisy, invented]))
    scores = np.zeros((len(boxes), len(LABELS)))
    channel = [LABELS.ids.index(class_id) for class_id in truth.class_ids[found]]
    scores[np.arange(len(noisy)), channel] = rng.beta(4, 2, len(noisy))
    scores[len(noisy) :] = rng.beta(1, 4, (len(invented), len(LABELS)))
    return Candidates(boxes, scores, ScoreKind.PER_CLASS, LABELS, SIZE)


def _random_boxes(rng: np.random.Generator, count: int) -> np.ndarray:
    corner = rng.uniform(0, (280, 150), (count, 2))
    return np.concatenate([corner, corner + rng.uniform(8, 120, (count, 2))], axis=1)


def _ordered(boxes: np.ndarray) -> np.ndarray:
    return np.concatenate(
        [np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], axis=1
    )
