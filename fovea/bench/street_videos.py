"""Street clips as video files, for benchmarks that read cameras; drawn once, then found again."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import cv2

from fovea.core.errors import BrokenError
from fovea.sim.suite import load_suite

SUITE = "street-v1"


class Coding(Enum):
    """How frames lie in the file, and its ending."""

    RAW = "avi"
    """YUV 4:2:0 as a hardware decoder hands it over: reading costs next to nothing"""
    MPEG4 = "mp4"
    """MPEG-4 Part 2: what OpenCV's own FFmpeg writes everywhere"""


@dataclass(frozen=True, slots=True)
class StreetVideo:
    """A file: `frames` frames of each of some clips of a camera that belongs to no split, one after another, every
    `stride`-th of the clip's 10 a second."""

    clips: tuple[tuple[str, int], ...]
    frames: int
    stride: int = 1
    fps: float = 10.0
    coding: Coding = Coding.MPEG4

    @property
    def file_name(self) -> str:
        told = "-".join(f"{condition}{number}" for condition, number in self.clips)
        return f"{SUITE}-{told}-{self.frames}x{self.stride}-{self.fps:g}fps.{self.coding.value}"


def street_videos(
    folder: Path, videos: Sequence[StreetVideo], workers: int, progress: Callable[[int, int], None]
) -> list[Path]:
    """The files in `folder`, those missing drawn now; `progress(done, all)` hears of each that was. Raises
    BrokenError when a file cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [video for video in videos if not (folder / video.file_name).is_file()]
    if missing:
        jobs = [(folder, video) for video in missing]
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(workers, len(jobs)), context) as pool:
            for done, future in enumerate(as_completed(pool.submit(_draw, *job) for job in jobs), start=1):
                future.result()
                progress(done, len(jobs))
    return [folder / video.file_name for video in videos]


def _draw(folder: Path, video: StreetVideo) -> None:
    cv2.setNumThreads(1)
    suite = load_suite(SUITE)
    path = folder / video.file_name
    # Beside its name first, so that a file that is there is whole.
    part = path.with_name(f"part-{path.name}")
    code = 0 if video.coding is Coding.RAW else cv2.VideoWriter.fourcc(*"mp4v")
    writer = cv2.VideoWriter(str(part), cv2.CAP_FFMPEG, code, video.fps, suite.frame_size)
    if not writer.isOpened():
        raise BrokenError(f"cannot write a video to {part}")
    try:
        for condition, number in video.clips:
            clip = suite.camera_clip(condition, 3, number)
            for frame in clip.frames(count=video.frames, stride=video.stride):
                writer.write(frame.pixels)
            clip.release()
    finally:
        writer.release()
    part.replace(path)
