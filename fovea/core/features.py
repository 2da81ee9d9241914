"""Twelve plain numbers about one frame: all that a gate may look at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter

import numpy as np

from fovea.core.arrays import FloatArray, ImageArray, frozen_boxes
from fovea.core.detections import Candidates, Detections
from fovea.core.errors import Malformed

_STEP_PX = 32
_MOST_CROWDED = 32
"""Crowding is taken over this many of the best boxes: its cost is quadratic."""


@dataclass(frozen=True, slots=True)
class FeatureSettings:
    """Which scores count as what.

    sure_from    an answered (calibrated) score at or above is certain
    noise_below  raw candidates below say nothing
    class_weights  how much doubt about a box of a class (by id; 1 for others) counts. With them the two features of
                   doubt, entropy_sum and weak_mass, are of the calibrated scores of all that was answered; without,
                   of the raw scores of the candidates
    """

    sure_from: float = 0.6
    noise_below: float = 0.05
    class_weights: Mapping[int, float] | None = None

    def __post_init__(self) -> None:
        for name, score in (("sure_from", self.sure_from), ("noise_below", self.noise_below)):
            if not 0 <= score <= 1:
                raise Malformed(f"feature settings {name}: expected 0 to 1, got {score}")
        if self.class_weights is not None and not all(
            0 <= weight < math.inf for weight in self.class_weights.values()
        ):
            raise Malformed("feature settings class_weights: expected finite numbers of 0 or more")

    @property
    def candidates_from(self) -> float:
        """Candidates with a lower raw score change no feature."""
        return self.noise_below if self.class_weights is None else 1.0


@dataclass(frozen=True, slots=True, eq=False)
class SceneFacts:
    """What is known of a frame beside the boxes; the defaults say that nobody looked.

    vanished_count     tracks that were there a moment ago, are not now, and did not leave by the border
    motion_boxes_xyxy  f32[M, 4] px: where something moves
    contrast           standard deviation of the light, 0..0.5, see `contrast_of`
    """

    vanished_count: int = 0
    motion_boxes_xyxy: FloatArray = field(default_factory=lambda: np.empty((0, 4), np.float32))
    contrast: float = 0.0

    def __post_init__(self) -> None:
        if self.vanished_count < 0 or not (math.isfinite(self.contrast) and self.contrast >= 0):
            raise Malformed(
                "scene facts: expected a vanished_count and a contrast of 0 or more, got "
                f"{self.vanished_count}, {self.contrast}"
            )
        object.__setattr__(
            self, "motion_boxes_xyxy", frozen_boxes("motion boxes_xyxy", self.motion_boxes_xyxy)
        )


@dataclass(frozen=True, slots=True)
class FrameFeatures:
    """The features in their order, which a fitted gate relies on; each is finite and 0 or more."""

    box_count: float
    """boxes answered"""
    top_score: float
    """the best score, 0 without a box"""
    mean_score: float
    """their mean score, 0 without one"""
    entropy_sum: float
    """bits: the binary entropy of the score of every candidate that is not noise, added up; which scores, and by
    which weights, say the settings"""
    weak_mass: float
    """scores of the candidates that are not noise and are not told, added up likewise: what may be overlooked"""
    uncertain_count: float
    """answered boxes below `sure_from`"""
    smallest_share: float
    """side of the smallest answered box as a share of the frame's, sqrt(box area / frame area); 1 without one"""
    crowding: float
    """mean over the answered boxes of the largest IoU with another one: where boxes hide each other"""
    vanished_count: float
    """tracks lost from view just now, see `SceneFacts`"""
    unexplained_motion: float
    """share of the frame that moves and is covered by no answered box, 0..1"""
    contrast: float
    """standard deviation of the light, 0..0.5: fog and night are flat"""
    change: float
    """how much the sum of the answered scores differs from that of the frame before"""

    def __post_init__(self) -> None:
        values = self.values
        if sum(values) < math.inf and min(values) >= 0:  # a NaN anywhere makes the sum one
            return
        for name, value in zip(FEATURE_NAMES, values, strict=True):
            if not 0 <= value < math.inf:
                raise Malformed(f"feature {name}: expected a finite number of 0 or more, got {value}")

    @property
    def values(self) -> tuple[float, ...]:
        """All twelve in the order of FEATURE_NAMES."""
        values: tuple[float, ...] = _values(self)
        return values

    @property
    def vector(self) -> FloatArray:
        """`values` as f32[12]."""
        return np.array(self.values, np.float32)


FEATURE_NAMES: tuple[str, ...] = tuple(each.name for each in fields(FrameFeatures))
_values = attrgetter(*FEATURE_NAMES)


def frame_features(
    candidates: Candidates,
    detections: Detections,
    scene: SceneFacts = SceneFacts(),
    previous: FrameFeatures | None = None,
    settings: FeatureSettings = FeatureSettings(),
    weak: Detections | None = None,
) -> FrameFeatures:
    """The features of one frame, from what the model saw, what it answers, and what is known beside. `weak` is all
    that it answers, the boxes too weak to be told among them; `detections` when it is left out.

    `previous` are the features of the same camera's frame before; without them `change` is 0. What is answered is
    taken to be the strongest of the candidates: merged answers of several models do not tell which they came from.
    """
    scores: list[float] = detections.scores.tolist()
    boxes: list[list[float]] = detections.boxes_xyxy.tolist()
    doubts = (
        _raw_doubts(candidates, len(scores), settings)
        if settings.class_weights is None
        else weighed_doubts(weak or detections, len(scores), settings)
    )
    frame_px = float(detections.image_size.width * detections.image_size.height)
    count, total = len(scores), sum(scores)
    return FrameFeatures(
        box_count=float(count),
        top_score=max(scores, default=0.0),
        mean_score=total / count if count else 0.0,
        entropy_sum=doubts[0],
        weak_mass=doubts[1],
        uncertain_count=float(sum(score < settings.sure_from for score in scores)),
        smallest_share=min(math.sqrt(min(map(_area, boxes), default=frame_px) / frame_px), 1.0),
        crowding=_crowding(boxes[:_MOST_CROWDED]),
        vanished_count=float(scene.vanished_count),
        unexplained_motion=min(_unexplained_px(scene.motion_boxes_xyxy.tolist(), boxes) / frame_px, 1.0),
        contrast=scene.contrast,
        change=abs(total - previous.box_count * previous.mean_score) if previous else 0.0,
    )


def contrast_of(pixels: ImageArray) -> float:
    """Standard deviation of the light of u8[H, W, 3], 0..0.5, from one pixel in 32 x 32."""
    light = pixels[::_STEP_PX, ::_STEP_PX, 1].ravel().astype(np.float32)
    mean = float(light.sum()) / light.size
    return math.sqrt(max(float(light @ light) / light.size - mean * mean, 0.0)) / 255


# Plain Python from here on: for the few boxes of a frame it takes less time than the calls into numpy.


def weighed_doubts(answered: Detections, told: int, settings: FeatureSettings) -> tuple[float, float]:
    """entropy_sum and weak_mass by class weights, of all that was answered, best first; the first `told` are told."""
    weights, log2 = settings.class_weights or {}, math.log2
    entropy = mass = 0.0
    for row, (score, class_id) in enumerate(
        zip(answered.scores.tolist(), answered.class_ids.tolist(), strict=True)
    ):
        if score < settings.noise_below:
            break
        weight = weights.get(class_id, 1.0)
        if 0 < score < 1:
            entropy -= weight * (score * log2(score) + (1 - score) * log2(1 - score))
        if row >= told:
            mass += weight * score
    return entropy, mass


def _raw_doubts(candidates: Candidates, told: int, settings: FeatureSettings) -> tuple[float, float]:
    raw = sorted(
        (score for score in candidates.best_scores.tolist() if score >= settings.noise_below), reverse=True
    )
    return _entropy_sum(raw), sum(raw[told:])


def _entropy_sum(raw: list[float]) -> float:
    """Bits; scores of 0..1."""
    log2 = math.log2
    return -sum(p * log2(p) + (1 - p) * log2(1 - p) for p in raw if 0 < p < 1)


def _area(box: list[float]) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _crowding(boxes: list[list[float]]) -> float:
    if not boxes:
        return 0.0
    nearest = [0.0] * len(boxes)
    for row, a in enumerate(boxes):
        ax1, ay1, ax2, ay2 = a
        for other in range(row):
            bx1, by1, bx2, by2 = boxes[other]
            if ax1 < bx2 and bx1 < ax2 and ay1 < by2 and by1 < ay2:
                both = (min(ax2, bx2) - max(ax1, bx1)) * (min(ay2, by2) - max(ay1, by1))
                either = (ax2 - ax1) * (ay2 - ay1) + (bx2 - bx1) * (by2 - by1) - both
                overlap = both / either if either > 0 else 0.0  # two lines that cross have no area
                nearest[row] = max(nearest[row], overlap)
                nearest[other] = max(nearest[other], overlap)
    return sum(nearest) / len(boxes)


def _unexplained_px(motion: list[list[float]], boxes: list[list[float]]) -> float:
    """Overlaps among boxes are not told apart: a motion box is covered by the sum of what lies on it, 1 at most."""
    total = 0.0
    for moving in motion:
        mx1, my1, mx2, my2 = moving
        left = _area(moving)
        for x1, y1, x2, y2 in boxes:
            if mx1 < x2 and x1 < mx2 and my1 < y2 and y1 < my2:
                left -= (min(mx2, x2) - max(mx1, x1)) * (min(my2, y2) - max(my1, y1))
        total += max(left, 0.0)
    return total
