"""Frames into the input tensor of a model: resize, place, reorder, scale, in as few passes as there are."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from fovea.core.arrays import ImageArray
from fovea.core.frame import ImageSize, size_of
from fovea.core.letterbox import Letterbox
from fovea.runtime.manifest import ColorOrder, InputDtype, InputSpec, TensorLayout


class Preprocessor:
    """Writes frames into one reused buffer. Not for two callers at once.

    A table of 256 values per channel holds the whole formula (scale, mean, standard deviation, number type), so
    each pixel is read once after the resize and no temporary float image exists; the padding is written only when
    the shape of the frames changes.
    """

    def __init__(self, spec: InputSpec) -> None:
        self._spec = spec
        # The tables are in the order of the input's channels.
        values = np.arange(256, dtype=np.float64)[None, :] * spec.scale - np.array(spec.mean)[:, None]
        self._tables = (values / np.array(spec.std)[:, None]).astype(np.dtype(spec.dtype.value))
        self._buffer = np.empty((0, *self._shape_of_one()), self._tables.dtype)
        self._padded_for: list[Letterbox | None] = []

    def fill(self, frames: list[ImageArray], flipped: bool = False) -> tuple[NDArray[Any], list[Letterbox]]:
        """The input tensor for frames u8[H, W, 3] BGR and the letterbox of each. The tensor is valid until the next
        call. `flipped` mirrors each frame left to right inside its letterbox."""
        if len(self._buffer) < len(frames):
            self._buffer = np.empty((len(frames), *self._shape_of_one()), self._tables.dtype)
            self._padded_for = [None] * len(frames)
        boxes = [self._fill_one(row, pixels, flipped) for row, pixels in enumerate(frames)]
        return self._buffer[: len(frames)], boxes

    def _fill_one(self, row: int, pixels: ImageArray, flipped: bool) -> Letterbox:
        letterbox, target, size = self._padded_for[row], self._buffer[row], size_of(pixels)
        if letterbox is None or letterbox.frame != size:
            letterbox = Letterbox.fit(size, self._spec.size, self._spec.placement)
            self._pad(target)
            self._padded_for[row] = letterbox
        resized = resize(pixels, letterbox.resized)
        if flipped:
            resized = cv2.flip(resized, 1)
        down = slice(letterbox.top, letterbox.top + letterbox.resized.height)
        across = slice(letterbox.left, letterbox.left + letterbox.resized.width)
        for channel in range(3):
            plane = cv2.extractChannel(resized, self._source_channel(channel))
            if self._spec.layout is TensorLayout.NCHW:
                self._convert(plane, channel, target[channel, down, across])
            else:
                self._convert(plane, channel, target[down, across, channel])
        return letterbox

    def _convert(self, plane: ImageArray, channel: int, out: NDArray[Any]) -> None:
        if self._spec.dtype is InputDtype.UINT8 or self._spec.layout is TensorLayout.NHWC:
            out[...] = plane if self._spec.dtype is InputDtype.UINT8 else self._tables[channel][plane]
        else:
            cv2.LUT(plane, self._tables[channel], dst=out)

    def _source_channel(self, channel: int) -> int:
        return 2 - channel if self._spec.color is ColorOrder.RGB else channel

    def _pad(self, target: NDArray[Any]) -> None:
        for channel in range(3):
            value = self._tables[channel, self._spec.pad_value]
            if self._spec.layout is TensorLayout.NCHW:
                target[channel] = value
            else:
                target[..., channel] = value

    def _shape_of_one(self) -> tuple[int, int, int]:
        height, width = self._spec.height, self._spec.width
        return (3, height, width) if self._spec.layout is TensorLayout.NCHW else (height, width, 3)


def resize(pixels: ImageArray, size: ImageSize) -> ImageArray:
    """`pixels` u8[H, W, 3] at `size`: halved by exact averages while it is twice as large or more, then bilinear.

    Bilinear is what the networks were trained with, but below half the size it skips pixels and lets the noise of a
    night camera through. YOLOX-nano on 64 COCO images, enlarged, with a noise of 20 grey levels, AP bilinear /
    halved / averaged: shrunk by 3.1, 0.315 / 0.343 / 0.339; by 4.6, 0.306 / 0.321 / 0.342; without noise the three
    are within 0.01, which so few images cannot tell apart. Halving costs 1 to 4 ms on a full-HD frame, averaging by
    a factor that is not whole 5 to 35 ms (one busy x86 core).

    The exact kind of bilinear gives the same bits on x86 and ARM; the plain kind differs by 1 or 2 grey levels in 7
    to 27 % of the pixels, which moved a student's logits by up to 0.67. It costs 0.2 ms more from full HD.
    """
    while _is_twice(pixels, size):
        half = (pixels.shape[1] // 2, pixels.shape[0] // 2)
        pixels = cv2.resize(pixels, half, interpolation=cv2.INTER_AREA)
    if size == size_of(pixels):
        return pixels
    resized: ImageArray = cv2.resize(pixels, (size.width, size.height), interpolation=cv2.INTER_LINEAR_EXACT)
    return resized


def _is_twice(pixels: ImageArray, size: ImageSize) -> bool:
    """Twice `size` or more on both sides, which are even, so that halving moves no pixel."""
    height, width = pixels.shape[:2]
    return height >= 2 * size.height and width >= 2 * size.width and not (height % 2 or width % 2)
