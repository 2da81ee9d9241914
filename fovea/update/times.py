"""The latest times of something, for the percentile that probations and rollouts go by."""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

_KEPT: Final = 500
_LEAST: Final = 20
"""A 95th percentile of fewer says nothing."""


class LatestTimes:
    """Not safe for threads."""

    def __init__(self) -> None:
        self._latest_ms: deque[float] = deque(maxlen=_KEPT)

    def add(self, ms: float) -> None:
        self._latest_ms.append(ms)

    def p95_ms(self) -> float | None:
        """None until there are enough."""
        if len(self._latest_ms) < _LEAST:
            return None
        return round(float(np.percentile(np.array(self._latest_ms), 95)), 3)
