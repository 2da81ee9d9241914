"""Privacy masks: parts of the picture that nobody sees, blackened on the capture thread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from fovea.core.arrays import ImageArray
from fovea.core.errors import Malformed

Point = tuple[float, float]

_SHIFT = 4  # fillPoly takes sixteenths of a pixel


@dataclass(frozen=True, slots=True)
class Polygon:
    """Three or more corners (x, y), each 0 to 1 of the frame's width and height."""

    points: tuple[Point, ...]

    def __post_init__(self) -> None:
        if len(self.points) < 3:
            raise Malformed(f"polygon: expected 3 corners or more, got {len(self.points)}")
        for point in self.points:
            if len(point) != 2 or not all(math.isfinite(share) and 0 <= share <= 1 for share in point):
                raise Malformed(f"polygon: expected corners (x, y) of 0 to 1, got {point!r:.60}")

    def in_px(self, width: int, height: int) -> np.ndarray:
        """f64[N, 2]: the corners in px of a frame of that size, on the edges between pixels."""
        return np.array(self.points, np.float64) * (width, height)


class PrivacyMask:
    """All masks of a camera. Any resolution: they are shares of the frame."""

    def __init__(self, polygons: Sequence[Polygon] = ()) -> None:
        self._polygons = tuple(polygons)

    def apply(self, pixels: ImageArray) -> ImageArray:
        """u8[H, W, 3] with every pixel black that a polygon touches; written into `pixels` where that can be
        written to, a copy else."""
        if not self._polygons:
            return pixels
        masked = pixels if pixels.flags.writeable and pixels.flags.c_contiguous else pixels.copy()
        height, width = pixels.shape[:2]
        for polygon in self._polygons:
            # OpenCV counts from the centre of a pixel. Its fill leaves out pixels where a polygon is thin, so the
            # outline is drawn on top of it: a mask may hide a pixel too many, never one too few.
            corners = np.round((polygon.in_px(width, height) - 0.5) * (1 << _SHIFT)).astype(np.int32)
            cv2.fillPoly(masked, [corners], (0, 0, 0), lineType=cv2.LINE_8, shift=_SHIFT)
            cv2.polylines(masked, [corners], True, (0, 0, 0), thickness=2, lineType=cv2.LINE_8, shift=_SHIFT)
        return masked
