"""Whether the kernel holds the wall clock for synchronised."""

from __future__ import annotations

import ctypes

_TIME_ERROR = 5
_STRUCT_BYTES = 512  # struct timex has 208 bytes on 64-bit machines and less on others


def is_clock_synced() -> bool | None:
    """What adjtimex(2) says, in microseconds of time; None where it cannot be asked (another system, a sandbox)."""
    try:
        adjtimex = ctypes.CDLL(None).adjtimex
    except (AttributeError, OSError, TypeError):
        return None
    # All zero: `modes` 0 asks and changes nothing.
    answer = adjtimex(ctypes.create_string_buffer(_STRUCT_BYTES))
    return None if answer < 0 else bool(answer != _TIME_ERROR)
