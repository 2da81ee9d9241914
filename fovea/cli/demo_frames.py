"""The frames of the measurement: a fixed part of the street's test split, or a person's own footage."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from calibration.truth import GroundTruth
from fovea.core.arrays import ImageArray
from fovea.core.errors import Malformed, NotFound

if TYPE_CHECKING:
    from edge_agent.capture.source import SourceSpec
    from fovea.cli.tier_plan import CameraPlan

STEP_S = 0.5
"""Between the frames of a clip: 2 frames per second, so that motion and tracks mean something."""

MOST_LIVE = 60
"""Frames taken of a live source: they come no faster than time goes by."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class DemoFrame:
    """One frame: `group` is its clip, `at_s` its time within it, `condition` is empty where nobody knows, `truth` is
    None where there is none."""

    group: str
    condition: str
    at_s: float
    pixels: ImageArray
    truth: GroundTruth | None = None


@dataclass(frozen=True, slots=True)
class Subset:
    """How much of the test split: `clips` of each condition, spread over all it has, `per_clip` frames of each."""

    clips: int
    per_clip: int

    @property
    def frames(self) -> int:
        from fovea.sim.conditions import CONDITIONS

        return len(CONDITIONS) * self.clips * self.per_clip


FULL = Subset(clips=6, per_clip=6)
SMALL = Subset(clips=1, per_clip=3)
"""For a quick look that proves nothing."""


def street_subset(subset: Subset, workers: int, progress: Progress) -> list[DemoFrame]:
    """Renders the frames, always the same ones, in `workers` processes; `progress` counts clips."""
    from fovea.sim.conditions import CONDITIONS
    from fovea.sim.suite import CLIPS_PER_CONDITION

    if not 1 <= subset.clips <= CLIPS_PER_CONDITION["test"]:
        raise Malformed(f"clips: expected 1 to {CLIPS_PER_CONDITION['test']}, got {subset.clips}")
    stride = CLIPS_PER_CONDITION["test"] // subset.clips
    jobs = [
        (condition, stride * number, subset.per_clip)
        for condition in CONDITIONS
        for number in range(subset.clips)
    ]
    frames: list[DemoFrame] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        for number, clip in enumerate(pool.map(_render_clip, jobs), start=1):
            frames += clip
            progress(number, len(jobs))
    return frames


def _render_clip(job: tuple[str, int, int]) -> list[DemoFrame]:
    """Frames 0.5 s apart around the middle of one clip."""
    import cv2

    from fovea.bench.street_frames import truth_of
    from fovea.sim.suite import load_suite

    cv2.setNumThreads(1)
    condition, number, per_clip = job
    clip = load_suite("street-v1").clip("test", condition, number)
    step = round(STEP_S * clip.fps)
    first = (clip.frame_count - step * per_clip) // 2
    frames = []
    for index in range(per_clip):
        frame = clip.frame(first + index * step)
        frames.append(DemoFrame(frame.clip_id, condition, index * STEP_S, frame.pixels, truth_of(frame)))
    return frames


def own_frames(cameras: Sequence[CameraPlan], wanted: int, progress: Progress) -> list[DemoFrame]:
    """About `wanted` frames of a person's own footage, each source from its beginning, 2 a second of a video.

    Pictures of a folder are taken one by one. Raises what opening raises, and NotFound when there is no frame at all.
    """
    frames: list[DemoFrame] = []
    for camera in cameras:
        share = -(-wanted // len(cameras))
        frames += _taken(camera.source, camera.name, share, partial(_shifted, progress, len(frames), wanted))
    if not frames:
        raise NotFound("no frame came from the footage given")
    return frames


def _shifted(progress: Progress, before: int, every: int, done: int) -> None:
    progress(before + done, every)


def _taken(spec: SourceSpec, group: str, wanted: int, progress: Callable[[int], None]) -> list[DemoFrame]:
    from edge_agent.capture.source import open_source
    from fovea.process.clock import SystemClock

    clock = SystemClock()
    source = open_source(spec, clock)
    try:
        # A file is counted in frames, a live source in time; pictures without a rate are taken one by one.
        every = max(round((source.facts.fps or 0.0) * STEP_S), 1)
        most = min(wanted, MOST_LIVE) if source.facts.is_live else wanted
        frames: list[DemoFrame] = []
        read, taken_s = 0, -STEP_S
        while len(frames) < most and source.advance():
            now_s = clock.monotonic_s()
            is_due = now_s - taken_s >= STEP_S if source.facts.is_live else read % every == 0
            read += 1
            if is_due:
                taken_s = now_s
                frames.append(DemoFrame(group, "", len(frames) * STEP_S, source.picture().pixels))
                progress(len(frames))
        return frames
    finally:
        source.close()
