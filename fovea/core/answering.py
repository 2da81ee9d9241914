"""From candidates to the answer: calibrate, keep the best class of each box, cut at the answer threshold."""

from __future__ import annotations

import numpy as np

from fovea.core.detections import Candidates, Detections, Inference, ModelRef
from fovea.core.scores import ScoreCalibration


def answer(
    candidates: Candidates, calibration: ScoreCalibration, min_score: float, model: ModelRef
) -> Inference:
    """The Inference that a detector gives for its candidates: detections with a calibrated score of `min_score` or
    more, one class per box, best first.

    Where a calibration maps two scores to the same float32, the raw scores decide, so it never changes the order.
    """
    ids = np.array(candidates.labels.ids, np.int32)
    calibrated = calibration.apply(candidates.class_scores, candidates.labels.ids)
    if not len(candidates):
        return Inference(Detections.empty(candidates.image_size, model), candidates)
    channels = calibrated.argmax(axis=1)
    scores = calibrated[np.arange(len(calibrated)), channels]
    raw = candidates.class_scores[np.arange(len(calibrated)), channels]
    order = np.lexsort((-raw, -scores))
    order = order[(scores[order] >= min_score) & (raw[order] > 0)]
    return Inference(
        Detections(
            candidates.boxes_xyxy[order], scores[order], ids[channels[order]], candidates.image_size, model
        ),
        candidates,
    )
