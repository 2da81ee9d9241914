"""Which of several models, with how many threads, a machine can afford: a few measured frames, then a plain rule."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np

from fovea.core.arrays import ImageArray
from fovea.core.errors import FoveaError, Malformed
from fovea.core.frame import ImageSize
from fovea.runtime.bundle import Bundle
from fovea.runtime.onnx_detector import OnnxDetector

QUALITY_FIGURES = ("ap.all", "ap")
"""Of a bundle's report, the first that is there: how good the model is, 0..1."""
FULL_FRAME = ImageSize(960, 540)
_WARM_UP = 2
_FIRST_FRAMES = 4
_HOPELESS = 3.0
"""A variant whose first frames take so many times the target is not measured any further."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One model as it may be run. quality: 0..1 as its report says, None where it says nothing."""

    path: Path
    name: str
    input_size: ImageSize
    parameters: int
    quality: float | None
    threads: int

    @classmethod
    def of(cls, path: Path, bundle: Bundle, threads: int) -> Self:
        manifest = bundle.manifest
        size = ImageSize(manifest.input.width, manifest.input.height)
        return cls(path, str(bundle.ref), size, manifest.parameters or 0, quality_of(bundle), threads)


def quality_of(bundle: Bundle) -> float | None:
    """0..1, how good the model is as its report says; None where it says nothing."""
    report = bundle.manifest.report
    figures = (report[name] for name in QUALITY_FIGURES if name in report)
    return next((figure for figure in figures if isinstance(figure, float) and 0 <= figure <= 1), None)


@dataclass(frozen=True, slots=True)
class Trial:
    """What a variant took for a frame, from pixels to answer, over `frames` frames. is_cut_short: it was plainly too
    slow after the first few."""

    variant: Variant
    p50_ms: float
    p95_ms: float
    frames: int
    is_cut_short: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """The trial that was chosen. meets_target: False when none did and the fastest was taken. reason: for people."""

    trial: Trial
    meets_target: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Tuned:
    """Everything that was tried, what could not be (file name and why), and what was chosen."""

    trials: tuple[Trial, ...]
    refused: tuple[tuple[str, str], ...]
    choice: Choice


@dataclass(frozen=True, slots=True)
class TuneSettings:
    """target_ms: what 19 of 20 frames may take at most. frames: measured for each variant. frame_size: as the camera
    gives them. device: auto, cpu or cuda:N. threads: the counts to try; empty: powers of two up to the usable
    cores."""

    target_ms: float
    frames: int = 30
    frame_size: ImageSize = FULL_FRAME
    device: str = "cpu"
    threads: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.target_ms < float("inf"):
            raise Malformed(f"autotune target_ms: expected a finite number above 0, got {self.target_ms}")
        if self.frames < 5 or any(count < 1 for count in self.threads):
            raise Malformed(
                "autotune: expected at least 5 frames and thread counts of at least 1, got "
                f"{self.frames} and {list(self.threads)}"
            )


class FrameTimer(Protocol):
    """A variant that is ready to be timed."""

    def time_ms(self, pixels: ImageArray) -> float:
        """What one frame takes."""
        ...

    def close(self) -> None: ...


OpenTimer = Callable[[Bundle, int, str], FrameTimer]


def choose(trials: Sequence[Trial], target_ms: float) -> Choice:
    """Of the variants whose 95 % latency is within the target the best one; of one model the fewest threads.

    Best is the highest quality where each of them has a figure, else the largest input, then the most parameters.
    When none is within the target, the fastest. Raises Malformed without a trial.
    """
    if not trials:
        raise Malformed("autotune: expected at least one variant that runs, got none")
    within = [trial for trial in trials if trial.p95_ms <= target_ms and not trial.is_cut_short]
    if not within:
        fastest = min(trials, key=lambda trial: (trial.p95_ms, trial.variant.threads, trial.variant.name))
        return Choice(
            fastest,
            False,
            f"none is within {target_ms:g} ms; this is the fastest, p95 {fastest.p95_ms:.1f} ms",
        )
    by_quality = all(trial.variant.quality is not None for trial in within)
    best = min(
        within, key=lambda trial: (*_merit(trial.variant, by_quality), trial.variant.threads, trial.p95_ms)
    )
    word = "quality" if by_quality else "input size"
    return Choice(
        best,
        True,
        f"the best by {word} within {target_ms:g} ms, p95 {best.p95_ms:.1f} ms, with the fewest threads",
    )


def autotune(
    paths: Sequence[Path],
    settings: TuneSettings,
    check: Callable[[Path], object] = lambda path: None,
    progress: Callable[[str], None] = lambda text: None,
    open_timer: OpenTimer | None = None,
) -> Tuned:
    """Measures every bundle with every thread count, one after another, and chooses.

    `check` is called with each file first and may refuse it by raising a FoveaError (a dry run in a child process,
    for models that nobody ran here yet). More threads are not tried where twice as many did not help. What cannot be
    opened or run is left out and named. Raises Malformed when nothing could be run, with the first reason.
    """
    trials: list[Trial] = []
    refused: list[tuple[str, str]] = []
    counts = settings.threads or thread_counts(usable_cores())
    for path in dict.fromkeys(paths):
        try:
            check(path)
            bundle = Bundle.open(path)
            trials += _tried(path, bundle, counts, settings, progress, open_timer or DetectorTimer.open)
        except FoveaError as error:
            refused.append((path.name, str(error)))
            progress(f"{path.name}: left out ({error})")
    if not trials and refused:
        raise Malformed(f"autotune: none of the models runs here; {refused[0][0]}: {refused[0][1]}")
    return Tuned(tuple(trials), tuple(refused), choose(trials, settings.target_ms))


def measure(
    timer: FrameTimer, frames: Iterable[ImageArray], variant: Variant, target_ms: float = float("inf")
) -> Trial:
    """Times fresh frames; the first two warm up and do not count. Ends after four that each take three times the
    target. Raises Malformed when there are no more frames than that."""
    times_ms: list[float] = []
    for number, pixels in enumerate(frames):
        took_ms = timer.time_ms(pixels)
        if number < _WARM_UP:
            continue
        times_ms.append(took_ms)
        if len(times_ms) == _FIRST_FRAMES and min(times_ms) > _HOPELESS * target_ms:
            return Trial(variant, *_quantiles(times_ms), len(times_ms), is_cut_short=True)
    if not times_ms:
        raise Malformed(f"autotune: expected more than {_WARM_UP} frames to measure on")
    return Trial(variant, *_quantiles(times_ms), len(times_ms))


class DetectorTimer:
    """Times the detector that would run."""

    def __init__(self, detector: OnnxDetector) -> None:
        self._detector = detector

    @classmethod
    def open(cls, bundle: Bundle, threads: int, device: str) -> DetectorTimer:
        return cls(OnnxDetector.open(bundle, device, threads))

    def time_ms(self, pixels: ImageArray) -> float:
        return self._detector.detect_timed([pixels])[1].total_ms

    def close(self) -> None:
        self._detector.close()


def thread_counts(cores: int) -> tuple[int, ...]:
    """1, 2, 4 ... and `cores` itself."""
    counts = [1 << power for power in range(max(cores, 1).bit_length()) if 1 << power <= cores]
    return tuple(sorted({*counts, max(cores, 1)}))


def usable_cores(root: Path = Path("/")) -> int:
    """Cores that this process may use: its affinity, and the CPU quota of its container (cgroup v2), rounded down."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = (root / "sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        if quota != "max":
            cores = min(cores, int(quota) // int(period))
    except (OSError, ValueError, ZeroDivisionError):
        pass
    return max(cores, 1)


def _tried(
    path: Path,
    bundle: Bundle,
    counts: Sequence[int],
    settings: TuneSettings,
    progress: Callable[[str], None],
    open_timer: OpenTimer,
) -> list[Trial]:
    trials: list[Trial] = []
    for threads in sorted(set(counts)):
        variant = Variant.of(path, bundle, threads)
        timer = open_timer(bundle, threads, settings.device)
        try:
            trial = measure(timer, _noise(settings), variant, settings.target_ms)
        finally:
            timer.close()
        progress(f"{path.name}, {threads} thread(s): p50 {trial.p50_ms:.1f} ms, p95 {trial.p95_ms:.1f} ms")
        trials.append(trial)
        if len(trials) > 1 and trial.p50_ms > 0.95 * trials[-2].p50_ms:
            break
    return trials


def _noise(settings: TuneSettings) -> Iterable[ImageArray]:
    """A fresh frame each time: some runtimes look faster when the input never changes."""
    rng = np.random.default_rng(0)
    size = settings.frame_size
    for _ in range(settings.frames + _WARM_UP):
        yield rng.integers(0, 256, (size.height, size.width, 3), np.uint8)


def _merit(variant: Variant, by_quality: bool) -> tuple[float, float]:
    """Small is good."""
    if by_quality and variant.quality is not None:
        return -variant.quality, 0.0
    return -float(variant.input_size.width * variant.input_size.height), -float(variant.parameters)


def _quantiles(times_ms: Sequence[float]) -> tuple[float, float]:
    return float(np.percentile(times_ms, 50)), float(np.percentile(times_ms, 95))
