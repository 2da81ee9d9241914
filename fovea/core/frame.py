"""One picture from one camera, with an identity that never changes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from fovea.core.arrays import ImageArray
from fovea.core.errors import Malformed


@dataclass(frozen=True, slots=True)
class ImageSize:
    """Width and height of an image in pixels, both at least 1."""

    width: int
    height: int

    def __post_init__(self) -> None:
        if self.width < 1 or self.height < 1:
            raise Malformed(f"image size: expected at least 1x1 px, got {self.width}x{self.height}")

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


@dataclass(frozen=True, slots=True)
class FrameId:
    """Minted once by the camera that took the frame: `sequence` restarts with every `boot_id`."""

    camera: str
    boot_id: str
    sequence: int

    def __post_init__(self) -> None:
        if not self.camera or not self.boot_id or self.sequence < 0:
            raise Malformed(
                "frame id: expected a camera, a boot id and a sequence of 0 or more, "
                f"got {self.camera!r}, {self.boot_id!r}, {self.sequence}"
            )

    def __str__(self) -> str:
        return f"{self.camera}/{self.boot_id}/{self.sequence}"


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """Pixels u8[H, W, 3] in BGR order, when they were captured (UTC), and on the monotonic clock (seconds).

    `pixels` is made read-only. Raises Malformed for any other shape, dtype or a time without a zone.
    """

    id: FrameId
    pixels: ImageArray
    captured_at: datetime
    captured_mono_s: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "pixels", checked_pixels(self.pixels))
        if self.captured_at.tzinfo is None:
            raise Malformed("frame captured_at: expected a time with a zone (UTC), got one without")
        if not math.isfinite(self.captured_mono_s):
            raise Malformed(f"frame captured_mono_s: expected a finite number, got {self.captured_mono_s}")

    @property
    def size(self) -> ImageSize:
        return size_of(self.pixels)


def checked_pixels(pixels: object) -> ImageArray:
    """`pixels` as a contiguous read-only u8[H, W, 3] array; Malformed says what it was instead.

    Grey, BGRA, 16-bit and float images are refused here, not guessed at: `fovea.runtime.images` converts them
    where they come in. An array that is already read-only and contiguous is passed through without a copy.
    """
    if not isinstance(pixels, np.ndarray):
        raise Malformed(f"pixels: expected a uint8 array [H, W, 3], got {type(pixels).__name__}")
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.size == 0:
        raise Malformed(f"pixels: expected a uint8 array [H, W, 3], got {pixels.dtype} {list(pixels.shape)}")
    view = np.ascontiguousarray(pixels).view()
    view.flags.writeable = False
    return view


def size_of(pixels: ImageArray) -> ImageSize:
    """The size of an image array [H, W, ...]."""
    return ImageSize(width=int(pixels.shape[1]), height=int(pixels.shape[0]))
