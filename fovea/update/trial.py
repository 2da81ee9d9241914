"""Tries a model in a child process: does it run, does it answer as it did where it was made, is it fast enough?

`python -m fovea.update.trial MODEL` is the child; `ChildTrial` is the parent's side.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Final

import numpy as np

from fovea.core.errors import FoveaError, Incompatible
from fovea.runtime.bundle import Bundle
from fovea.runtime.dry_run import EXIT_REFUSED, ask_child, refusal_line, try_model
from fovea.runtime.golden import check_golden
from fovea.runtime.onnx_detector import OnnxDetector

_FRAME_SHAPE: Final = (540, 960, 3)
_TIMED_FRAMES: Final = 12
_NICENESS: Final = 10


@dataclass(frozen=True, slots=True)
class ChildTrial:
    """A `Trial` in a process of its own, which a graph may take down; it yields to the one that looks at frames."""

    threads: int = 1
    timeout_s: float = 300.0

    def try_model(self, path: Path, max_ms: float | None) -> None:
        """The quickest of a dozen frames has to be within `max_ms`: the board is busy with its own work meanwhile, so
        only a model that is too slow even then is refused here; the 95th percentile is for the probation."""
        arguments = ["--threads", str(self.threads)]
        if max_ms is not None:
            arguments += ["--max-ms", str(max_ms)]
        ask_child("fovea.update.trial", path, arguments, self.timeout_s)


def try_bundle(path: Path, threads: int, max_ms: float | None) -> float:
    """What the child does, in this process; gives the ms of the quickest frame. Raises as `Trial.try_model` does."""
    report = try_model(path)
    if not report.is_finite:
        raise Incompatible(f"{path.name}: it answers with numbers that are none (NaN or infinite)")
    bundle = Bundle.open(path)
    detector = OnnxDetector.open(bundle, "cpu", threads)
    try:
        verdict = check_golden(bundle.parts, detector)
        if not verdict.is_same:
            raise Incompatible(f"{bundle.ref}: this device answers differently: {verdict.reason}")
        quickest_ms = _quickest_ms(detector)
    finally:
        detector.close()
    if max_ms is not None and quickest_ms > max_ms:
        raise Incompatible(f"{bundle.ref}: too slow, {quickest_ms:.1f} ms at best, allowed are {max_ms:g} ms")
    return quickest_ms


def _quickest_ms(detector: OnnxDetector) -> float:
    rng = np.random.default_rng(0)
    times_ms = []
    for _ in range(_TIMED_FRAMES):
        pixels = rng.integers(0, 256, _FRAME_SHAPE, np.uint8)
        begun = perf_counter()
        detector.detect([pixels])
        times_ms.append(1000 * (perf_counter() - begun))
    return min(times_ms)


def main(arguments: Sequence[str]) -> int:
    """The child: prints what it measured, or why the model is refused."""
    parser = argparse.ArgumentParser(prog="fovea.update.trial")
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--max-ms", type=float, default=None)
    options = parser.parse_args(arguments)
    os.nice(_NICENESS)
    try:
        quickest_ms = try_bundle(options.model, options.threads, options.max_ms)
    except FoveaError as error:
        print(refusal_line(error))
        return EXIT_REFUSED
    print(json.dumps({"quickest_ms": quickest_ms}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
