"""Can this board run a model, does it answer as it did when it was made, and how fast?"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fovea.core.detections import ModelRef
from fovea.core.errors import Incompatible
from fovea.runtime.bundle import Bundle
from fovea.runtime.dry_run import dry_run
from fovea.runtime.golden import check_golden, read_golden
from fovea.runtime.onnx_detector import OnnxDetector
from fovea.runtime.pipeline import StageTimings

_FRAME_SHAPE = (540, 960, 3)


@dataclass(frozen=True, slots=True)
class BoardReport:
    """What was found. Times are wall-clock ms for one frame of 960x540 px, on this machine at this moment."""

    model: ModelRef
    machine: str
    runtime: str
    first_run_ms: float
    golden_frames: int
    frames: int
    threads: int
    p50_ms: float
    p95_ms: float
    stages_ms: Mapping[str, float]


def check_board(path: Path, frames: int, threads: int, timeout_s: float) -> BoardReport:
    """Runs the bundle in a child process, then here: golden frames first, then `frames` frames of noise.

    Raises what `Bundle.open` and `dry_run` raise, and Incompatible when the golden frames are answered otherwise
    than where the bundle was made.
    """
    bundle = Bundle.open(path)
    trial = dry_run(path, timeout_s=timeout_s)
    detector = OnnxDetector.open(bundle, device="cpu", threads=threads)
    try:
        verdict = check_golden(bundle.parts, detector)
        if not verdict.is_same:
            raise Incompatible(f"{bundle.ref}: this board answers differently: {verdict.reason}")
        timings = _time(detector, frames)
    finally:
        detector.close()
    golden = read_golden(bundle.parts)
    totals_ms = [timing.total_ms for timing in timings]
    return BoardReport(
        model=bundle.ref,
        machine=f"{platform.machine()}, {platform.system()} {platform.release()}",
        runtime=trial.onnxruntime,
        first_run_ms=trial.first_run_ms,
        golden_frames=0 if golden is None else len(golden.frames),
        frames=frames,
        threads=threads,
        p50_ms=float(np.percentile(totals_ms, 50)),
        p95_ms=float(np.percentile(totals_ms, 95)),
        stages_ms={
            "preprocess": float(np.median([timing.preprocess_ms for timing in timings])),
            "network": float(np.median([timing.run_ms for timing in timings])),
            "decode": float(np.median([timing.decode_ms for timing in timings])),
        },
    )


def _time(detector: OnnxDetector, frames: int) -> list[StageTimings]:
    """One fresh frame each time: some runtimes leak, or look faster, when the input never changes."""
    rng = np.random.default_rng(0)
    return [detector.detect_timed([rng.integers(0, 256, _FRAME_SHAPE, np.uint8)])[1] for _ in range(frames)]
