"""What quantization brings and costs: INT8 against FP32, same weights, side by side on one thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from calibration.evaluate import compare, report
from calibration.quant_graph import check_qlinear_convs, convolutions, prepared
from calibration.quantize import input_tensors
from calibration.side_by_side import time_ratio
from fovea import zoo
from fovea.bench.model_runs import ModelJob, run_models
from fovea.bench.result import BenchResult
from fovea.bench.street_frames import SUITE, StoredFrames, Wanted, stored_frames
from fovea.bench.zoo import Progress
from fovea.core.arrays import ImageArray
from fovea.core.errors import Malformed
from fovea.runtime.bundle import Bundle
from fovea.runtime.manifest import Precision
from fovea.runtime.onnx_detector import OnnxDetector
from fovea.runtime.ort import open_session

FP32, INT8 = "street-student-fp32", "street-student-int8"


@dataclass(frozen=True, slots=True)
class QuantizeSettings:
    """frames: what AP is compared on. rounds: pairs of timings that the speed-up is the median of."""

    frames: Wanted = field(default_factory=Wanted)
    workers: int = 2
    rounds: int = 41
    resamples: int = 1000


def run(
    settings: QuantizeSettings,
    folder: Path,
    progress: Progress = Progress(),
    fp32: Path | None = None,
    int8: Path | None = None,
) -> BenchResult:
    """Compares two bundles (by default the bundled student) on frames that are kept in `folder`.

    Raises Malformed when `int8` was not made from `fp32`, Incompatible when ONNX Runtime on this machine does not run
    the 8-bit convolutions that its maker counted.
    """
    paths = (fp32 or zoo.path_of(FP32), int8 or zoo.path_of(INT8))
    before, after = (Bundle.open(path) for path in paths)
    _check_pair(before, after)
    frames = stored_frames(folder, settings.frames, settings.workers, progress.rendered)
    figures = _speed_figures(before, after, frames, settings.rounds) | _graph_figures(before, after, paths)
    jobs = [ModelJob("fp32", paths[0]), ModelJob("int8", paths[1])]
    runs = run_models(
        jobs, folder, settings.workers, lambda name, done: progress.seen(name, done, len(frames))
    )
    drop = compare(runs["fp32"].matches, runs["int8"].matches, None, settings.resamples)
    figures |= {
        "ap.fp32": report(runs["fp32"].matches).ap,
        "ap.int8": report(runs["int8"].matches).ap,
        "ap_drop_points": 100 * drop.value,
        "ap_drop_points_low": 100 * drop.low,
        "ap_drop_points_high": 100 * drop.high,
    }
    return BenchResult.now(
        "quantize",
        {
            "suite": SUITE,
            "split": settings.frames.split,
            "frames": len(frames),
            "fp32": str(before.ref),
            "int8": str(after.ref),
            "rounds": settings.rounds,
            "threads": 1,
        },
        {name: round(value, 5) for name, value in figures.items()},
    )


def _check_pair(before: Bundle, after: Bundle) -> None:
    parent = after.manifest.parent
    if after.manifest.precision is not Precision.INT8 or parent is None or parent.sha256 != before.ref.sha256:
        raise Malformed(f"quantize bench: {after.ref} is not an INT8 bundle made from {before.ref}")


def _speed_figures(before: Bundle, after: Bundle, frames: StoredFrames, rounds: int) -> dict[str, float]:
    """Speed-up of the network alone and of the whole detector (with preprocessing, decode and suppression)."""
    pictures = [frame.pixels for frame, _ in zip(frames, range(8), strict=False)]
    detectors = [OnnxDetector.open(bundle, "cpu", threads=1) for bundle in (before, after)]
    return {
        "speedup_1_thread": time_ratio(
            _network_call(before, pictures), _network_call(after, pictures), rounds, calls=1
        ),
        "speedup_detector_1_thread": time_ratio(
            lambda: detectors[0].detect(pictures),
            lambda: detectors[1].detect(pictures),
            max(rounds // 4, 3),
            1,
        ),
    }


def _network_call(bundle: Bundle, pictures: list[ImageArray]) -> Callable[[], object]:
    """A call that runs the network once over each picture."""
    session = open_session(bundle.model, "cpu", threads=1)
    feeds = [{bundle.manifest.input.tensor: tensor} for tensor in input_tensors(bundle, pictures)]
    outputs = [output.name for output in session.outputs]
    return lambda: [session.run(feed, outputs) for feed in feeds]


def _graph_figures(before: Bundle, after: Bundle, paths: tuple[Path, Path]) -> dict[str, float]:
    """Size, and the count of 8-bit convolutions against the one that was meant when the bundle was made."""
    expected = after.manifest.report.get("quantize.qlinear_conv_expected")
    if not isinstance(expected, (int, float)):
        raise Malformed(f"{after.ref}: its report does not say how many convolutions were quantized")
    sizes = np.array([path.stat().st_size for path in paths], np.float64)
    return {
        "qlinear_conv": check_qlinear_convs(after.model, int(expected)),
        "qlinear_conv_expected": float(expected),
        "conv": len(convolutions(prepared(before.model))),
        "size_ratio": float(sizes[1] / sizes[0]),
        "bytes.fp32": float(sizes[0]),
        "bytes.int8": float(sizes[1]),
    }
