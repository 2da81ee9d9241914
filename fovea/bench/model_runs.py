"""Runs several models over the same stored frames, each in a process of its own, a few processes side by side."""

from __future__ import annotations

import multiprocessing
import queue
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from calibration.evaluate import MatchTable, match
from calibration.matching import BoxSize
from calibration.truth import EvaluatedFrame
from fovea.bench.street_frames import CLASS_IDS, StoredFrames
from fovea.core.errors import BrokenError, FoveaError
from fovea.runtime.onnx_detector import OnnxDetector

_POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class ModelJob:
    """One model to run: a name for figures, the bundle file, where it runs."""

    name: str
    bundle: Path
    device: str = "cpu"
    threads: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class ModelRun:
    """What came of a job: all matches, and the median time of one frame, from pixels to answer and in the network
    alone."""

    matches: MatchTable
    frame_ms: float
    network_ms: float


def run_models(
    jobs: Sequence[ModelJob], frames: Path, workers: int, progress: Callable[[str, int], None]
) -> dict[str, ModelRun]:
    """Runs every job over the frames stored in a folder; `progress(name, frames_done)` is told now and then.

    Raises BrokenError when a process ends without an answer or a model fails.
    """
    context = multiprocessing.get_context("spawn")
    messages: Any = context.Queue()
    waiting, running, done = list(jobs), dict[str, SpawnProcess](), dict[str, ModelRun]()
    try:
        while len(done) < len(jobs):
            while waiting and len(running) < workers:
                job = waiting.pop(0)
                process = context.Process(target=_run_one, args=(job, frames, messages), daemon=True)
                process.start()
                running[job.name] = process
            _take_message(messages, running, done, progress)
    finally:
        for process in running.values():
            process.terminate()
    return done


def _take_message(
    messages: Any,
    running: dict[str, SpawnProcess],
    done: dict[str, ModelRun],
    progress: Callable[[str, int], None],
) -> None:
    try:
        name, said = messages.get(timeout=_POLL_S)
    except queue.Empty:
        dead = [name for name, process in running.items() if not process.is_alive()]
        # A process that just ended may still have its answer on the way: look once more.
        if dead and messages.empty():
            raise BrokenError(f"{dead[0]}: its process ended without an answer") from None
        return
    if isinstance(said, int):
        progress(name, said)
    elif isinstance(said, ModelRun):
        done[name] = said
        running.pop(name).join()
    else:
        raise BrokenError(f"{name}: {said}")


def _run_one(job: ModelJob, folder: Path, messages: Any) -> None:
    """The body of a child process: progress as ints, then a ModelRun, or the error as text."""
    cv2.setNumThreads(1)
    try:
        messages.put((job.name, _look(job, StoredFrames.open(folder), messages)))
    except FoveaError as error:
        messages.put((job.name, str(error)))


def _look(job: ModelJob, frames: StoredFrames, messages: Any) -> ModelRun:
    detector = OnnxDetector.open(job.bundle, job.device, job.threads)
    seen: list[EvaluatedFrame] = []
    frame_ms, network_ms = list[float](), list[float]()
    for number, frame in enumerate(frames, start=1):
        answers, timings = detector.detect_timed([frame.pixels])
        seen.append(EvaluatedFrame(frame.group, frame.truth, answers[0].candidates))
        frame_ms.append(timings.total_ms)
        network_ms.append(timings.run_ms)
        if number % 8 == 0:
            messages.put((job.name, number))
    detector.close()
    table = match(seen, CLASS_IDS, (BoxSize.ALL,))
    return ModelRun(table, float(np.median(frame_ms)), float(np.median(network_ms)))
