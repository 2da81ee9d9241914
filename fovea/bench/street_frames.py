"""The frames of a split of the street suite, rendered once into a folder and shared by all models and processes."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from calibration.predict import LabelledFrame
from calibration.truth import GroundTruth
from fovea.core.arrays import ImageArray
from fovea.core.labels import label_named
from fovea.sim.conditions import CONDITIONS
from fovea.sim.frame import StreetFrame
from fovea.sim.suite import CLIPS_PER_CONDITION, load_suite

SUITE = "street-v1"
CLASS_IDS = tuple(label_named(name).id for name in ("person", "bicycle", "car", "bus", "truck"))
"""The classes that street objects have."""

_PIXELS, _TRUTH = "pixels.npy", "truth.json"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which frames: `per_clip` of each of the first `clips` clips of these conditions of a split (0: all that it has;
    the training split has no end, so there it has to be said)."""

    split: str = "test"
    per_clip: int = 3
    clips: int = 0
    conditions: tuple[str, ...] = CONDITIONS

    @property
    def clips_per_condition(self) -> int:
        most = CLIPS_PER_CONDITION.get(self.split, self.clips)
        return min(self.clips or most, most)


@dataclass(frozen=True, slots=True, eq=False)
class StoredFrames:
    """Frames in a folder: `pixels` u8[N, H, W, 3] stay on disk until they are looked at."""

    pixels: NDArray[np.uint8]
    rows: tuple[dict[str, Any], ...]

    @classmethod
    def open(cls, folder: Path) -> StoredFrames:
        """The frames that `render_frames` put there."""
        rows = json.loads((folder / _TRUTH).read_text(encoding="utf-8"))["frames"]
        return cls(np.load(folder / _PIXELS, mmap_mode="r"), tuple(rows))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[LabelledFrame]:
        for row, pixels in zip(self.rows, self.pixels, strict=True):
            truth = GroundTruth(
                np.array(row["boxes"], np.float32).reshape(-1, 4),
                np.array(row["class_ids"], np.int32),
                np.array(row["ignore"], bool),
            )
            yield LabelledFrame(row["group"], np.asarray(pixels), truth)

    def groups_by_condition(self) -> dict[str, set[str]]:
        """The clips of each condition that is there."""
        groups: dict[str, set[str]] = {}
        for row in self.rows:
            groups.setdefault(row["condition"], set()).add(row["group"])
        return groups


def stored_frames(
    folder: Path, wanted: Wanted, workers: int, progress: Callable[[int, int], None]
) -> StoredFrames:
    """The wanted frames, taken from `folder` if they lie there and are what the suite still draws, else rendered.

    `progress(done, all)` counts clips.
    """
    if _is_current(folder, wanted):
        return StoredFrames.open(folder)
    return render_frames(folder, wanted, workers, progress)


def render_frames(
    folder: Path, wanted: Wanted, workers: int, progress: Callable[[int, int], None]
) -> StoredFrames:
    """Renders the wanted frames into `folder`, clip by clip in `workers` processes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _TRUTH).unlink(missing_ok=True)
    jobs = [
        (wanted, condition, n) for condition in wanted.conditions for n in range(wanted.clips_per_condition)
    ]
    width, height = load_suite(SUITE).frame_size
    shape = (len(jobs) * wanted.per_clip, height, width, 3)
    pixels = np.lib.format.open_memmap(folder / _PIXELS, mode="w+", dtype=np.uint8, shape=shape)
    rows: list[dict[str, Any]] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        for number, frames in enumerate(pool.map(_render_clip, jobs), start=1):
            for frame_pixels, row in frames:
                pixels[len(rows)] = frame_pixels
                rows.append(row)
            progress(number, len(jobs))
    pixels.flush()
    text = json.dumps({"wanted": _key(wanted), "frames": rows})
    (folder / _TRUTH).write_text(text, encoding="utf-8")
    return StoredFrames.open(folder)


def labelled(frame: StreetFrame) -> LabelledFrame:
    """A street frame as evaluations want it; the clip is its group."""
    return LabelledFrame(frame.clip_id, frame.pixels, truth_of(frame))


def truth_of(frame: StreetFrame) -> GroundTruth:
    """The truth of a street frame; what a detector is not asked for is marked as ignored."""
    return GroundTruth(
        np.array([thing.box_xyxy for thing in frame.objects], np.float32).reshape(-1, 4),
        np.array([thing.class_id for thing in frame.objects], np.int32),
        np.array([thing.ignore for thing in frame.objects], bool),
    )


def _render_clip(job: tuple[Wanted, str, int]) -> list[tuple[ImageArray, dict[str, Any]]]:
    cv2.setNumThreads(1)
    wanted, condition, number = job
    clip = load_suite(SUITE).clip(wanted.split, condition, number)
    step = (clip.frame_count - clip.fps) // wanted.per_clip
    return [
        (frame.pixels, _row(frame, condition))
        for frame in (clip.frame(clip.fps // 2 + k * step) for k in range(wanted.per_clip))
    ]


def _row(frame: StreetFrame, condition: str) -> dict[str, Any]:
    truth = truth_of(frame)
    return {
        "group": frame.clip_id,
        "condition": condition,
        "boxes": truth.boxes_xyxy.tolist(),
        "class_ids": truth.class_ids.tolist(),
        "ignore": truth.ignore.tolist(),
    }


def _key(wanted: Wanted) -> list[Any]:
    return [SUITE, wanted.split, wanted.per_clip, wanted.clips_per_condition, *wanted.conditions]


def _is_current(folder: Path, wanted: Wanted) -> bool:
    """Whether the folder holds these frames and the first clip still looks the same."""
    if not (folder / _TRUTH).exists():
        return False
    if json.loads((folder / _TRUTH).read_text(encoding="utf-8"))["wanted"] != _key(wanted):
        return False
    stored = StoredFrames.open(folder)
    drawn = _render_clip((wanted, wanted.conditions[0], 0))
    return all(
        np.array_equal(pixels, stored.pixels[index]) and row == stored.rows[index]
        for index, (pixels, row) in enumerate(drawn)
    )
