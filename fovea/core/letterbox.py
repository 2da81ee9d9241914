"""Fitting a frame into a model's input, and the exact way back for boxes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from fovea.core.arrays import FloatArray
from fovea.core.frame import ImageSize
from fovea.core.geometry import clip_boxes


class Placement(StrEnum):
    """Where the resized frame lies in the model's input; the rest is padding. STRETCH fills it, aspect or not."""

    CENTER = "center"
    TOP_LEFT = "top_left"
    STRETCH = "stretch"


@dataclass(frozen=True, slots=True)
class Letterbox:
    """The mapping between a frame and a model input: resize to `resized`, then shift by `left`, `top` px.

    Each axis has its own gain, taken from the rounded size that the resize really produces. One common gain is off
    by up to 4.7 px on long thin frames.
    """

    frame: ImageSize
    target: ImageSize
    resized: ImageSize
    left: int
    top: int

    @classmethod
    def fit(cls, frame: ImageSize, target: ImageSize, placement: Placement = Placement.CENTER) -> Letterbox:
        """The letterbox that shows the whole frame as large as it fits, each side at least 1 px."""
        if placement is Placement.STRETCH:
            return cls(frame, target, target, 0, 0)
        gain = min(target.width / frame.width, target.height / frame.height)
        resized = ImageSize(
            width=min(max(round(frame.width * gain), 1), target.width),
            height=min(max(round(frame.height * gain), 1), target.height),
        )
        if placement is Placement.TOP_LEFT:
            return cls(frame, target, resized, 0, 0)
        return cls(
            frame,
            target,
            resized,
            left=(target.width - resized.width) // 2,
            top=(target.height - resized.height) // 2,
        )

    @property
    def gains(self) -> tuple[float, float]:
        """Input px per frame px, along x and y."""
        return self.resized.width / self.frame.width, self.resized.height / self.frame.height

    def to_input(self, boxes_xyxy: FloatArray) -> FloatArray:
        """Boxes of the frame f32[N, 4] as boxes of the model input."""
        gain_x, gain_y = self.gains
        scale = np.array([gain_x, gain_y, gain_x, gain_y])
        shift = np.array([self.left, self.top, self.left, self.top])
        moved: FloatArray = (boxes_xyxy * scale + shift).astype(np.float32)
        return moved

    def to_frame(self, boxes_xyxy: FloatArray) -> FloatArray:
        """Boxes of the model input f32[N, 4] as boxes of the frame, clipped to it; the inverse of `to_input`."""
        gain_x, gain_y = self.gains
        scale = np.array([gain_x, gain_y, gain_x, gain_y])
        shift = np.array([self.left, self.top, self.left, self.top])
        moved = boxes_xyxy - shift
        moved /= scale
        return clip_boxes(moved, self.frame)
