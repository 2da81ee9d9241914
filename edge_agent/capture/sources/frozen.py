"""Tells a camera that hangs from one that looks at something still: its pictures are the same to the last bit."""

from __future__ import annotations

import zlib

from fovea.core.arrays import ImageArray

_COARSE_STEP = 16
_FINE_ROWS = 4


class FrozenWatch:
    """Looks at the pictures of one camera, over its reconnects too. Keeps digests, never pixels.

    Two digests: a coarse one of every 16th pixel for each picture (0.03 ms for full HD); only where that stands still
    is every 4th row digested as well, so that the clock that a camera writes into its corner counts as life.
    """

    def __init__(self, after_s: float | None) -> None:
        self._after_s = after_s
        self._coarse: int | None = None
        self._fine: int | None = None
        self._since_s = 0.0

    def look(self, pixels: ImageArray, at_s: float) -> bool:
        """Whether the very same picture has been coming for `after_s` or longer."""
        if self._after_s is None:
            return False
        coarse = _digest(pixels[::_COARSE_STEP, ::_COARSE_STEP])
        fine = _digest(pixels[::_FINE_ROWS]) if coarse == self._coarse else None
        is_same = fine is not None and fine == self._fine
        # The first repetition has no fine digest to compare with yet: the count begins with it.
        if not is_same:
            self._since_s = at_s
        self._coarse, self._fine = coarse, fine
        return is_same and at_s - self._since_s >= self._after_s


def _digest(pixels: ImageArray) -> int:
    height, width = pixels.shape[:2]
    return zlib.crc32(pixels.tobytes()) ^ (int(height) << 32) ^ (int(width) << 48)
