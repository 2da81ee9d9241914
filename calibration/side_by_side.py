"""How many times faster one thing is than another, measured in turns so that a busy machine slows both alike."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np


def time_ratio(
    slow: Callable[[], object], fast: Callable[[], object], rounds: int = 15, calls: int = 3, warm_up: int = 2
) -> float:
    """Median over `rounds` of (time of `calls` calls of `slow`) / (the same of `fast`), taken in turns."""
    for _ in range(warm_up):
        slow()
        fast()
    return float(np.median([_time_s(slow, calls) / _time_s(fast, calls) for _ in range(rounds)]))


def _time_s(call: Callable[[], object], calls: int) -> float:
    begun = perf_counter()
    for _ in range(calls):
        call()
    return perf_counter() - begun
