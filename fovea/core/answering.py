"""From candidates to the answer: calibrate, keep the best class of each box, cut at the answer threshold."""

from __future__ import annotations

import numpy as np

from fovea.core.detections import Candidates, Detections, Inference, ModelRef
from fovea.core.scores import ScoreCalibration

_HALVINGS = 40


def answer(
    candidates: Candidates, calibration: ScoreCalibration, min_score: float, model: ModelRef
) -> Inference:
    """The Inference that a detector gives for its candidates: detections with a calibrated score of `min_score` or
    more, one class per box, best first.

    Where a calibration maps two scores to the same float32, the raw scores decide, so it never changes the order.
    """
    if not len(candidates):
        return Inference(Detections.empty(candidates.image_size, model), candidates)
    ids = candidates.labels.ids
    calibrated = calibration.apply(candidates.class_scores, ids)
    channels = calibrated.argmax(axis=1)
    every = np.arange(len(calibrated))
    scores, raw = calibrated[every, channels], candidates.class_scores[every, channels]
    order = np.flatnonzero((scores >= min_score) & (raw > 0))
    order = order[np.lexsort((-raw[order], -scores[order]))]
    return Inference(
        Detections(
            candidates.boxes_xyxy[order],
            scores[order],
            np.array(ids, np.int32)[channels[order]],
            candidates.image_size,
            model,
        ),
        candidates,
    )


def raw_score_for(calibration: ScoreCalibration, class_ids: tuple[int, ...], min_score: float) -> float:
    """A raw score, 0..1, below which no class reaches a calibrated `min_score`: what is weaker is in no answer."""
    low, high = np.zeros((1, len(class_ids)), np.float32), np.ones((1, len(class_ids)), np.float32)
    for _ in range(_HALVINGS):
        middle = (low + high) * np.float32(0.5)
        reaches = calibration.apply(middle, class_ids) >= min_score
        low, high = np.where(reaches, low, middle), np.where(reaches, middle, high)
    return float(low.min())
