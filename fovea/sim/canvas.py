"""Small supersampled canvases on which one thing is drawn, and the sprites they become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from fovea.sim.camera import Camera, Points

Image = NDArray[np.uint8]
Box = tuple[int, int, int, int]
Colour = Sequence[float]
Pair = Sequence[float]

MARGIN_PX = 320  # how far beyond the frame a thing is still drawn, to know how much of it is outside
SOLID_ALPHA = 96  # from here on a pixel counts as the thing itself
_SHIFT = 4
_ONE = 1 << _SHIFT


@dataclass(frozen=True, slots=True, eq=False)
class Sprite:
    """One drawn thing: premultiplied `bgr` u8[h,w,3] and `alpha` u8[h,w] at pixel (x, y).

    `box_xyxy` is the tight box of the silhouette in px, not clipped to the frame.
    """

    x_px: int
    y_px: int
    bgr: Image
    alpha: Image
    box_xyxy: tuple[float, float, float, float]


class Canvas:
    """A drawing surface in frame pixels, supersampled so that small things keep their shape."""

    def __init__(self, camera: Camera, extent_px: tuple[float, float, float, float]) -> None:
        width, height = camera.size_px
        self.x0 = int(max(np.floor(extent_px[0]) - 3, -MARGIN_PX))
        self.y0 = int(max(np.floor(extent_px[1]) - 3, -MARGIN_PX))
        x1 = int(min(np.ceil(extent_px[2]) + 3, width + MARGIN_PX))
        y1 = int(min(np.ceil(extent_px[3]) + 3, height + MARGIN_PX))
        self.width, self.height = max(x1 - self.x0, 1), max(y1 - self.y0, 1)
        longest = max(self.width, self.height)
        self.scale = 4 if longest <= 56 else 3 if longest <= 90 else 2 if longest <= 170 else 1
        self.camera = camera
        self.image: Image = np.zeros((self.height * self.scale, self.width * self.scale, 4), np.uint8)
        self._line = cv2.LINE_AA if self.scale == 1 else cv2.LINE_8
        self._grid = self.scale * _ONE
        self._offset = np.array([self.x0, self.y0], np.float64)

    def fixed(self, points_px: Points) -> NDArray[np.int32]:
        """Pixels [N,2] as the fixed-point coordinates of this canvas."""
        return ((points_px - self._offset) * self._grid).clip(-2e6, 2e6).astype(np.int32)

    def _point(self, p: Pair) -> tuple[int, int]:
        return int((p[0] - self.x0) * self._grid), int((p[1] - self.y0) * self._grid)

    def convex_fixed(self, points: NDArray[np.int32], colour: Colour) -> None:
        """Fill a convex polygon given in `fixed` coordinates [N,2]."""
        cv2.fillConvexPoly(self.image, points, (*colour, 255), self._line, _SHIFT)

    def convex(self, points_px: Sequence[Pair], colour: Colour) -> None:
        """Fill a convex polygon given as px pairs."""
        points = np.array([self._point(p) for p in points_px], np.int32)
        cv2.fillConvexPoly(self.image, points, (*colour, 255), self._line, _SHIFT)

    def polygon(self, points_px: Points, colour: Colour) -> None:
        """Fill any polygon [N,2] px."""
        cv2.fillPoly(self.image, [self.fixed(points_px)], (*colour, 255), self._line, _SHIFT)

    def line(self, a_px: Pair, b_px: Pair, width_px: float, colour: Colour) -> None:
        """A round-ended stroke."""
        thick = max(int(width_px * self.scale + 0.5), 1)
        cv2.line(self.image, self._point(a_px), self._point(b_px), (*colour, 255), thick, self._line, _SHIFT)

    def polyline(self, points_px: Points, width_px: float, colour: Colour, closed: bool = False) -> None:
        """A stroke through points [N,2] px."""
        thick = max(int(width_px * self.scale + 0.5), 1)
        cv2.polylines(self.image, [self.fixed(points_px)], closed, (*colour, 255), thick, self._line, _SHIFT)

    def disc(self, centre_px: Pair, radius_px: float, colour: Colour) -> None:
        """A filled circle."""
        radius = max(int(radius_px * self._grid), _ONE // 2)
        cv2.circle(self.image, self._point(centre_px), radius, (*colour, 255), -1, self._line, _SHIFT)

    def finish(self) -> Sprite | None:
        """The sprite drawn so far, or None when nothing was."""
        alpha_fine = cv2.extractChannel(self.image, 3)
        solid = cv2.compare(alpha_fine, SOLID_ALPHA, cv2.CMP_GE)
        x, y, w, h = cv2.boundingRect(solid)
        if w == 0 or h == 0:
            return None
        k = self.scale
        box = (self.x0 + x / k, self.y0 + y / k, self.x0 + (x + w) / k, self.y0 + (y + h) / k)
        if k > 1:
            small = cv2.resize(self.image, (self.width, self.height), interpolation=cv2.INTER_AREA)
            alpha: Image = cv2.extractChannel(small, 3)
        else:
            small, alpha = self.image, alpha_fine
        bgr = cv2.cvtColor(small, cv2.COLOR_BGRA2BGR)
        return Sprite(self.x0, self.y0, bgr, alpha, box)


def extent_of(points_px: Points, pad_px: float = 0.0) -> tuple[float, float, float, float]:
    """The (x0, y0, x1, y1) of points [N,2] px, padded."""
    x0, y0 = points_px.min(axis=0)
    x1, y1 = points_px.max(axis=0)
    return float(x0) - pad_px, float(y0) - pad_px, float(x1) + pad_px, float(y1) + pad_px


def overlap(sprite: Sprite, size_px: tuple[int, int]) -> Box | None:
    """The part of the frame a sprite covers as x0, y0, x1, y1, or None when outside."""
    h, w = sprite.alpha.shape
    x0, y0 = max(sprite.x_px, 0), max(sprite.y_px, 0)
    x1, y1 = min(sprite.x_px + w, size_px[0]), min(sprite.y_px + h, size_px[1])
    return (x0, y0, x1, y1) if x1 > x0 and y1 > y0 else None


def crop(sprite: Sprite, box: Box) -> tuple[Image, Image]:
    """The sprite's (bgr, alpha) views for a frame box."""
    rows = slice(box[1] - sprite.y_px, box[3] - sprite.y_px)
    cols = slice(box[0] - sprite.x_px, box[2] - sprite.x_px)
    return sprite.bgr[rows, cols], sprite.alpha[rows, cols]


def blend(target: Image, bgr: Image, alpha: Image) -> None:
    """Lay premultiplied `bgr` over `target` (both u8[h,w,3]) in place."""
    clear = cv2.cvtColor(cv2.bitwise_not(alpha), cv2.COLOR_GRAY2BGR)
    cv2.multiply(target, clear, dst=target, scale=1.0 / 255.0)
    cv2.add(target, bgr, dst=target)


def smeared(sprite: Sprite, dx_px: float, dy_px: float) -> Sprite:
    """The sprite blurred along its motion during the exposure; its box stays that of mid-exposure."""
    length = float(np.hypot(dx_px, dy_px))
    if length < 1.6:
        return sprite
    stages = max(int(np.ceil(np.log2(min(length, 48.0)))), 1)
    shifts = [(round(dx_px * 2**j / 2**stages), round(dy_px * 2**j / 2**stages)) for j in range(stages)]
    pad_x, pad_y = sum(abs(x) for x, _ in shifts), sum(abs(y) for _, y in shifts)
    both = cv2.merge([sprite.bgr, sprite.alpha])
    both = cv2.copyMakeBorder(both, pad_y, pad_y, pad_x, pad_x, cv2.BORDER_CONSTANT)
    for x, y in shifts:  # each halving doubles the number of exposures in the sum
        both = _average_with_shifted(both, x, y)
    left, up = sum(x for x, _ in shifts) // 2, sum(y for _, y in shifts) // 2
    bgr, alpha = cv2.cvtColor(both, cv2.COLOR_BGRA2BGR), cv2.extractChannel(both, 3)
    place = sprite.x_px - pad_x - left, sprite.y_px - pad_y - up
    return Sprite(*place, bgr, alpha, sprite.box_xyxy)


def _average_with_shifted(image: Image, x: int, y: int) -> Image:
    if x == 0 and y == 0:
        return image
    height, width = image.shape[:2]
    to = (slice(max(y, 0), height + min(y, 0)), slice(max(x, 0), width + min(x, 0)))
    of = (slice(max(-y, 0), height + min(-y, 0)), slice(max(-x, 0), width + min(-x, 0)))
    out: Image = cv2.multiply(image, (0.5, 0.5, 0.5, 0.5))
    cv2.addWeighted(image[to], 0.5, image[of], 0.5, 0.0, dst=out[to])
    return out
