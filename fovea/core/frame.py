"""One picture from one camera, with an identity that never changes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from fovea.core.arrays import ImageArray
from fovea.core.errors import Malformed

_LARGEST_SIDE_PX = 2**24
"""Beyond it a float32 box no longer tells neighbouring pixels apart."""

_LARGEST_SEQUENCE = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ImageSize:
    """Width and height of an image in whole pixels, 1 to 2**24."""

    width: int
    height: int

    def __post_init__(self) -> None:
        for name, side in (("width", self.width), ("height", self.height)):
            if not isinstance(side, int) or not 1 <= side <= _LARGEST_SIDE_PX:
                raise Malformed(
                    f"image size {name}: expected 1 to {_LARGEST_SIDE_PX} whole px, got {side!r:.40}"
                )

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


@dataclass(frozen=True, slots=True)
class FrameId:
    """Minted once by the camera that took the frame: `sequence` restarts with every `boot_id`."""

    camera: str
    boot_id: str
    sequence: int

    def __post_init__(self) -> None:
        if not self.camera or not self.boot_id:
            raise Malformed(
                f"frame id: expected a camera and a boot id, got {self.camera!r}, {self.boot_id!r}"
            )
        if not isinstance(self.sequence, int) or not 0 <= self.sequence <= _LARGEST_SEQUENCE:
            raise Malformed(f"frame id sequence: expected 0 to 2**63 - 1, got {self.sequence!r:.40}")

    def __str__(self) -> str:
        return f"{self.camera}/{self.boot_id}/{self.sequence}"


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """Pixels u8[H, W, 3] in BGR order, when they were captured (UTC), and on the monotonic clock (seconds).

    `pixels` becomes a read-only view, not a copy (6 MB for each full-HD frame): whoever makes a Frame gives the
    array away and fills a new one next time. Raises Malformed for any other shape, dtype or a time without a zone.
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
    where they come in. A contiguous array is not copied: the result is a view of the caller's memory.
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
