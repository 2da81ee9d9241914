"""What a look takes, measured in this process one model at a time: enough for a grid search, which wants orders of
magnitude; `fovea bench tiers` measures the servers themselves."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fovea.bench.cascade_recording import JPEG_QUALITY, Trio
from fovea.bench.tiers_outcome import TierTimes
from fovea.core.arrays import ImageArray
from fovea.core.errors import Malformed
from fovea.runtime.atomic_file import write_atomically
from fovea.runtime.bundle import Bundle
from fovea.runtime.images import encode_jpeg
from fovea.runtime.onnx_detector import OnnxDetector

_WARM_UP = 2


def tier_times(trio: Trio, pixels: Sequence[ImageArray], kept: Path) -> TierTimes:
    """Times of the three models on these frames u8[H, W, 3], one CPU thread each. They are kept in a file, so that a
    search that is taken up again reckons with the same. Raises Malformed for a damaged file or fewer than 3 frames.
    """
    if kept.exists():
        return _read(kept)
    if len(pixels) <= _WARM_UP:
        raise Malformed(f"tier times: expected more than {_WARM_UP} frames, got {len(pixels)}")
    (camera_s, camera_cpu_s), (edge_s, edge_cpu_s), (cloud_s, cloud_cpu_s) = (
        _looked(path, pixels) for path in (trio.camera, trio.edge, trio.cloud)
    )
    encode_s, encode_cpu_s = _timed(lambda each: encode_jpeg(each, JPEG_QUALITY), pixels)
    times = TierTimes(
        camera_s, encode_s, edge_s, cloud_s, camera_cpu_s, encode_cpu_s, edge_cpu_s, cloud_cpu_s
    )
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(kept, json.dumps(asdict(times)).encode())
    return times


def _looked(path: Path, pixels: Sequence[ImageArray]) -> tuple[tuple[float, ...], float]:
    detector = OnnxDetector.open(Bundle.open(path), "cpu", 1)
    try:
        return _timed(lambda each: detector.detect([each]), pixels)
    finally:
        detector.close()


def _timed(
    act: Callable[[ImageArray], object], pixels: Sequence[ImageArray]
) -> tuple[tuple[float, ...], float]:
    """Seconds of each frame but the first, and mean CPU seconds of the process."""
    for each in pixels[:_WARM_UP]:
        act(each)
    times_s, begun_cpu_s = [], time.process_time()
    for each in pixels[_WARM_UP:]:
        begun_s = time.perf_counter()
        act(np.ascontiguousarray(each))
        times_s.append(time.perf_counter() - begun_s)
    return tuple(times_s), (time.process_time() - begun_cpu_s) / len(times_s)


def _read(path: Path) -> TierTimes:
    try:
        data: dict[str, Any] = json.loads(path.read_bytes())
        loaded: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in data.items()}
        return TierTimes(**loaded)
    except (ValueError, TypeError, AttributeError) as error:
        raise Malformed(f"{path}: expected the times of a run before; delete it to measure again") from error
