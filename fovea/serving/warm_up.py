"""Runs a detector before anybody waits for it, and learns how long its batches take."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from fovea.core.ports import Detector
from fovea.serving.latency_model import LatencyModel

_HEIGHT_WIDTH = (720, 1280)
_TRIES = 3
_LONG_S = 2.0
"""When runs of one size have taken so long together, what they tell is enough."""


def measured_latency(
    detector: Detector, max_batch: int, monotonic_s: Callable[[], float] = time.monotonic
) -> LatencyModel:
    """What a batch of 1 and of `max_batch` takes, each the best of three, so that a busy machine is not mistaken for
    a slow device; of one or two where a run is so long that the start would be felt. A first run counts for nothing:
    it may take 30 s for memory, kernels and caches. Raises what the detector raises."""
    latency = LatencyModel()
    frame = np.random.default_rng(0).integers(0, 256, (*_HEIGHT_WIDTH, 3), np.uint8)
    detector.detect([frame])
    for size in sorted({1, max_batch}):
        took_s: list[float] = []
        while len(took_s) < _TRIES and sum(took_s) < _LONG_S:
            begun_s = monotonic_s()
            detector.detect([frame] * size)
            took_s.append(monotonic_s() - begun_s)
        latency.observe(size, min(took_s), monotonic_s())
    return latency
