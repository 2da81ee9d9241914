"""Frames as recordings of three tiers have them, small enough to reckon with by hand."""

from __future__ import annotations

import numpy as np

from calibration.truth import GroundTruth
from fovea.bench.cascade_recording import RecordedFrame
from fovea.bench.tiers_outcome import TierTimes
from fovea.core.detections import Detections, ModelRef
from fovea.core.features import FEATURE_NAMES, FrameFeatures
from fovea.core.frame import ImageSize
from fovea.core.labels import label_named

SIZE = ImageSize(640, 480)
PERSON = label_named("person").id
NOBODY = FrameFeatures(*[0.0] * len(FEATURE_NAMES))
TIMES = TierTimes((0.01,), (0.01,), (0.02,), (0.2,), 0.01, 0.002, 0.03, 0.4)


def seen(tier: str, boxes: list[list[float]], score: float = 0.9) -> Detections:
    return Detections(
        np.array(boxes, np.float32).reshape(-1, 4),
        np.full(len(boxes), score, np.float32),
        np.full(len(boxes), PERSON, np.int32),
        SIZE,
        ModelRef(tier, "1", "0" * 64),
    )


def frame(clip: str, number: int) -> RecordedFrame:
    """Two people who walk fast: the camera sees one, the edge one, badly placed, and the cloud both."""
    x = 200.0 * number
    people = [[x, 0, x + 50, 100], [x, 200, x + 50, 300]]
    return RecordedFrame(
        clip=clip,
        condition="day",
        clip_index=0,
        at_s=number / 2,
        truth=GroundTruth(np.array(people, np.float32), np.full(2, PERSON, np.int32), np.zeros(2, bool)),
        features=NOBODY,
        edge_features=NOBODY,
        camera=seen("camera", people[:1]),
        edge=seen("edge", [[x + 10, 0, x + 60, 100]], 0.2),
        cloud=seen("cloud", people),
        jpeg_bytes=100,
    )


FRAMES = [frame(clip, number) for clip in ("a", "b") for number in range(3)]
