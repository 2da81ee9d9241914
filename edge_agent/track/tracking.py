"""What the tracker tells: things that are followed, and how they are doing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fovea.core.detections import Detections, ModelRef
from fovea.core.frame import ImageSize
from fovea.core.routing import Tier

Box = tuple[float, float, float, float]
"""x1, y1, x2, y2 in px of the frame."""


@dataclass(frozen=True, slots=True)
class Track:
    """One thing that is followed. `id` is never used again by the same Tracker.

    box_xyxy        where it is now, within the frame, in px; a guess from its motion while it is not seen
    score           0..1; of the last look, or of a late answer that was surer and is not old; fades while not seen
    started_mono_s  the capture time of the frame in which it was first seen
    seen_mono_s     the capture time of the last frame in which anybody saw it
    hits            how many looks it was seen in
    is_confirmed    seen often enough to be told to others
    tier            whose eyes stand behind the score
    """

    id: int
    class_id: int
    box_xyxy: Box
    score: float
    started_mono_s: float
    seen_mono_s: float
    hits: int
    is_confirmed: bool
    tier: Tier


@dataclass(frozen=True, slots=True)
class Tracking:
    """What is followed after one frame, or after one late answer.

    tracks    in view now, unconfirmed ones and those missed for a moment included; by id
    vanished  confirmed, not seen in this frame, and neither at the border nor hidden by another track; by id
    ended     confirmed ones that were given up just now, where they were last; they never come back
    """

    at_mono_s: float
    image_size: ImageSize
    tracks: tuple[Track, ...]
    vanished: tuple[Track, ...]
    ended: tuple[Track, ...]

    @property
    def confirmed(self) -> tuple[Track, ...]:
        """Those of `tracks` that may be told to others."""
        return tuple(track for track in self.tracks if track.is_confirmed)

    def detections(self, model: ModelRef) -> Detections:
        """The confirmed tracks as an answer to this frame, best first, in the name of `model`."""
        best_first = sorted(self.confirmed, key=lambda track: -track.score)
        return Detections(
            np.array([track.box_xyxy for track in best_first], np.float32).reshape(-1, 4),
            np.array([track.score for track in best_first], np.float32),
            np.array([track.class_id for track in best_first], np.int32),
            self.image_size,
            model,
        )
