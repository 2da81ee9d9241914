"""AP, size and speed of the bundled models on the street suite: one table that says what each tier is worth."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from calibration.evaluate import MatchTable, compare, interval, report
from fovea import zoo
from fovea.bench.model_runs import ModelJob, ModelRun, run_models
from fovea.bench.result import BenchResult
from fovea.bench.street_frames import SUITE, StoredFrames, Wanted, stored_frames
from fovea.core.errors import NotFound
from fovea.runtime.bundle import Bundle

MODELS = {
    "cloud": "street-cloud",
    "edge": "street-edge",
    "student_fp32": "street-student-fp32",
    "student_int8": "street-student-int8",
    "student_day_int8": "street-student-day-int8",
}
"""Figure name to model name, the slowest first, so that no process is left alone with it at the end."""
PAIRS = (("edge", "student_int8"), ("cloud", "edge"), ("student_int8", "student_fp32"))
"""Whose gain over whom is published with a paired interval."""


@dataclass(frozen=True, slots=True)
class ZooSettings:
    """frames: which. models: figure names, see MODELS. workers: processes side by side, each with `threads` ONNX
    Runtime threads on `device`. resamples: of the bootstrap intervals."""

    frames: Wanted = field(default_factory=Wanted)
    models: tuple[str, ...] = tuple(MODELS)
    workers: int = 2
    threads: int = 1
    device: str = "cpu"
    resamples: int = 1000


@dataclass(frozen=True, slots=True)
class Progress:
    """How the caller hears of progress: clips rendered of all, frames seen by a model of all."""

    rendered: Callable[[int, int], None] = lambda done, every: None
    seen: Callable[[str, int, int], None] = lambda name, done, every: None


def run(settings: ZooSettings, folder: Path, progress: Progress = Progress()) -> BenchResult:
    """Evaluates the bundled models. `folder` keeps the rendered frames, for the next run too.

    Raises NotFound for a model that is not bundled, BrokenError when one cannot be run.
    """
    unknown = [name for name in settings.models if name not in MODELS]
    if unknown:
        raise NotFound(f"model {unknown[0]!r}: there are {', '.join(MODELS)}")
    jobs = [
        ModelJob(name, zoo.path_of(MODELS[name]), settings.device, settings.threads)
        for name in settings.models
    ]
    frames = stored_frames(folder, settings.frames, settings.workers, progress.rendered)
    runs = run_models(
        jobs, folder, settings.workers, lambda name, done: progress.seen(name, done, len(frames))
    )
    figures = model_figures(jobs, runs) | ap_figures(
        {name: runs[name].matches for name in settings.models}, frames, settings.resamples
    )
    return BenchResult.now("zoo", _settings(settings, frames), figures)


def model_figures(jobs: Sequence[ModelJob], runs: Mapping[str, ModelRun]) -> dict[str, float]:
    """Parameters, bytes, and the median time of a frame: from pixels to answer, and in the network alone."""
    figures: dict[str, float] = {}
    for job in jobs:
        manifest = Bundle.open(job.bundle).manifest
        if manifest.parameters is not None:
            figures[f"params.{job.name}"] = manifest.parameters
        figures[f"bytes.{job.name}"] = job.bundle.stat().st_size
        device = "cpu" if job.device == "cpu" else "device"
        figures[f"{device}_ms.{job.name}"] = round(runs[job.name].frame_ms, 3)
        figures[f"{device}_network_ms.{job.name}"] = round(runs[job.name].network_ms, 3)
    return figures


def ap_figures(tables: Mapping[str, MatchTable], frames: StoredFrames, resamples: int) -> dict[str, float]:
    """AP (0..1) of each model in each condition and over all frames, with intervals, and the gains of PAIRS."""
    by_condition: dict[str, Collection[str] | None] = {**frames.groups_by_condition(), "all": None}
    figures: dict[str, float] = {}
    for name, table in tables.items():
        for condition, groups in by_condition.items():
            found = report(table, groups)
            spread = interval(table, groups, resamples)
            for figure, value in (
                ("ap", found.ap),
                ("ap50", found.ap50),
                ("ap_low", spread.low),
                ("ap_high", spread.high),
            ):
                figures[f"{figure}.{name}.{condition}"] = round(value, 5)
    for better, other in PAIRS:
        if better in tables and other in tables:
            gain = compare(tables[better], tables[other], None, resamples)
            for figure, value in (("gain", gain.value), ("gain_low", gain.low), ("gain_high", gain.high)):
                figures[f"{figure}.{better}_over_{other}.all"] = round(value, 5)
    return figures


def _settings(settings: ZooSettings, frames: StoredFrames) -> dict[str, str | int | float | bool]:
    return {
        "suite": SUITE,
        "split": settings.frames.split,
        "frames": len(frames),
        "frames_per_clip": settings.frames.per_clip,
        "clips_per_condition": settings.frames.clips_per_condition,
        "device": settings.device,
        "workers": settings.workers,
        "threads": settings.threads,
        "resamples": settings.resamples,
    }
