"""Pictures as a student sees them in training: letterboxed, mirrored, rescaled and recoloured, boxes with them."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from fovea.core.arrays import FloatArray, ImageArray
from fovea.core.frame import ImageSize, size_of
from fovea.core.geometry import areas
from fovea.core.letterbox import Letterbox
from fovea.runtime.manifest import ColorOrder, InputSpec
from fovea.runtime.preprocess import resize

SMALLEST_SIDE_PX = 2.5  # of the input: what is smaller can be neither learned nor called background
SMALLEST_SHARE = 0.3  # of a box that is left when the rest lies outside


@dataclass(frozen=True, slots=True)
class Augmentation:
    """How far pictures are varied: `mirrored` is a probability; `zoom` and `shift` are shares of the picture;
    the colour terms are the largest relative change of hue (of the circle), saturation and brightness.

    There is no mosaic: the objects of a 320 px input, at half their size, would be gone.
    """

    mirrored: float = 0.5
    zoom: float = 0.25
    shift: float = 0.08
    hue: float = 0.01
    saturation: float = 0.3
    brightness: float = 0.2


PLAIN = Augmentation(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Placing:
    """Where a frame lies in the input: x' = gain_x * x + left, y' = gain_y * y + top; gain_x < 0 mirrors it."""

    gain_x: float
    gain_y: float
    left: float
    top: float

    def boxes(self, boxes_xyxy: FloatArray) -> FloatArray:
        """Boxes f32[N, 4] of the frame as boxes of the input, not clipped."""
        x = boxes_xyxy[:, 0::2] * self.gain_x + self.left
        y = boxes_xyxy[:, 1::2] * self.gain_y + self.top
        x.sort(axis=1)
        return np.stack([x[:, 0], y[:, 0], x[:, 1], y[:, 1]], axis=1).astype(np.float32)

    def places(
        self, count: int, frame: ImageSize, spec: InputSpec, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """`count` places that frame and input both show: f32[count, 2] (x, y) in -1..1 of input and frame."""
        inputs, frames = [], []
        for gain, shift, side, limit in (
            (self.gain_x, self.left, frame.width, spec.width),
            (self.gain_y, self.top, frame.height, spec.height),
        ):
            low, high = sorted((shift, shift + gain * side))
            at = rng.uniform(max(low, 0.0), min(high, float(limit)), count)
            inputs.append(at / limit * 2 - 1)
            frames.append((at - shift) / (gain * side) * 2 - 1)
        return np.stack(inputs, axis=1).astype(np.float32), np.stack(frames, axis=1).astype(np.float32)


def place(
    resized: ImageArray, letterbox: Letterbox, spec: InputSpec, how: Augmentation, rng: np.random.Generator
) -> tuple[ImageArray, Placing]:
    """Put a picture that was resized as `letterbox` says into the input, varied: u8[H, W, 3] BGR, and where it is."""
    zoom = 1.0 + rng.uniform(-how.zoom, how.zoom)
    sign = -1.0 if rng.random() < how.mirrored else 1.0
    width, height = spec.width, spec.height
    centre_x = letterbox.left + letterbox.resized.width / 2 + rng.uniform(-how.shift, how.shift) * width
    centre_y = letterbox.top + letterbox.resized.height / 2 + rng.uniform(-how.shift, how.shift) * height
    left = centre_x - sign * zoom * letterbox.resized.width / 2
    top = centre_y - zoom * letterbox.resized.height / 2
    pad = (spec.pad_value,) * 3
    if how.zoom == how.shift == 0.0:  # exact, and as the runtime does it
        canvas = np.full((height, width, 3), spec.pad_value, np.uint8)
        down = slice(letterbox.top, letterbox.top + letterbox.resized.height)
        across = slice(letterbox.left, letterbox.left + letterbox.resized.width)
        canvas[down, across] = resized if sign > 0 else resized[:, ::-1]
    else:  # warpAffine maps the centres of pixels, boxes are edges: half a pixel apart on each side
        half_x, half_y = (sign * zoom - 1) / 2, (zoom - 1) / 2
        affine = np.array([[sign * zoom, 0, left + half_x], [0, zoom, top + half_y]])
        canvas = np.asarray(cv2.warpAffine(resized, affine, (width, height), borderValue=pad), np.uint8)
    gain_x, gain_y = letterbox.gains
    return canvas, Placing(sign * zoom * gain_x, zoom * gain_y, left, top)


def recolour(pixels: ImageArray, how: Augmentation, rng: np.random.Generator) -> ImageArray:
    """`pixels` u8[H, W, 3] BGR with hue, saturation and brightness moved at random."""
    if how.hue == how.saturation == how.brightness == 0.0:
        return pixels
    hue, saturation, brightness = rng.uniform(-1, 1, 3) * (how.hue, how.saturation, how.brightness)
    values = np.arange(256)
    tables = (
        (values + hue * 180) % 180,
        np.clip(values * (1 + saturation), 0, 255),
        np.clip(values * (1 + brightness), 0, 255),
    )
    planes = cv2.split(cv2.cvtColor(pixels, cv2.COLOR_BGR2HSV))
    moved = [cv2.LUT(plane, table.astype(np.uint8)) for plane, table in zip(planes, tables, strict=True)]
    return np.asarray(cv2.cvtColor(cv2.merge(moved), cv2.COLOR_HSV2BGR), np.uint8)


def shrink(pixels: ImageArray, spec: InputSpec) -> tuple[ImageArray, Letterbox]:
    """A frame as large as it is in the input, resized as the runtime does it, and the letterbox to place it with."""
    letterbox = Letterbox.fit(size_of(pixels), spec.size, spec.placement)
    return resize(pixels, letterbox.resized), letterbox


def to_tensor(pixels: ImageArray, spec: InputSpec) -> NDArray[np.float32]:
    """f32[3, H, W] as the network takes it."""
    ordered = pixels[..., ::-1] if spec.color is ColorOrder.RGB else pixels
    mean, std = np.array(spec.mean, np.float32), np.array(spec.std, np.float32)
    scaled = (ordered.astype(np.float32) * np.float32(spec.scale) - mean) / std
    return np.ascontiguousarray(scaled.transpose(2, 0, 1))


def clip_to_input(boxes_xyxy: FloatArray, spec: InputSpec) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Boxes cut off at the edge of the input, and which of them still show enough of an object to be learned."""
    limits = np.array([spec.width, spec.height] * 2, np.float32)
    clipped = np.clip(boxes_xyxy, 0.0, limits)
    sides = clipped[:, 2:] - clipped[:, :2]
    share = areas(clipped) / np.maximum(areas(boxes_xyxy), 1e-6)
    return clipped, (sides >= SMALLEST_SIDE_PX).all(axis=1) & (share >= SMALLEST_SHARE)
