"""How fast the street is drawn on one core, without and with building the scene of a clip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

import cv2
import numpy as np

from fovea.bench.result import BenchResult, Setting
from fovea.sim.conditions import CONDITIONS
from fovea.sim.suite import Clip, Suite, load_suite

SUITE = "street-v1"


def run(
    frames: int = 20,
    clips: int = 2,
    conditions: Sequence[str] = CONDITIONS,
    progress: Callable[[str], None] = lambda condition: None,
) -> BenchResult:
    """Draws `frames` frames one after another of each of `clips` clips in each condition, in this process alone.

    Frames per second are those of a running clip; `scene_s.*` is what its first frame costs on top.
    """
    threads_before = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        figures, suite = dict[str, float](), load_suite(SUITE)
        frame_s: dict[str, float] = {}
        for condition in conditions:
            progress(condition)
            scene_s, frame_s[condition] = _measure(suite, condition, frames, clips)
            figures[f"fps_1core.{condition}"] = round(1 / frame_s[condition], 2)
            figures[f"scene_s.{condition}"] = round(scene_s, 3)
    finally:
        cv2.setNumThreads(threads_before)
    # Over all conditions: as many frames of each.
    figures["fps_1core"] = round(1 / float(np.mean(list(frame_s.values()))), 2)
    width, height = suite.frame_size
    settings: dict[str, Setting] = {
        "suite": SUITE,
        "width_px": width,
        "height_px": height,
        "frames": frames,
        "clips": clips,
    }
    return BenchResult.now("sim", settings, figures)


def _measure(suite: Suite, condition: str, frames: int, clips: int) -> tuple[float, float]:
    """Seconds for the scene of a clip, and seconds for one frame of a running clip."""
    scene_s, frame_s = [], []
    for number in range(clips):
        clip = suite.clip("val", condition, number)
        first_s = _draw_s(clip, 0)
        times_s = [_draw_s(clip, index) for index in range(1, frames + 1)]
        clip.release()
        frame_s.append(float(np.mean(times_s)))
        scene_s.append(max(first_s - frame_s[-1], 0.0))
    return float(np.mean(scene_s)), float(np.mean(frame_s))


def _draw_s(clip: Clip, index: int) -> float:
    begun = perf_counter()
    clip.frame(index)
    return perf_counter() - begun
