"""The street that a learning camera sees: clips of one condition after another, drawn once into a folder.

Every clip has a name of its own that no suite has, so no bundled model has seen one. What cases, golden frames and
the test are made of are clips of different roles: two roles never share a street.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

import cv2
import numpy as np

from calibration.predict import LabelledFrame
from calibration.truth import GroundTruth
from cloud.cases.stored_case import StoredCase
from cloud.learn.dataset import LabelledImage, Origin
from fovea.bench.street_frames import CLASS_IDS, SUITE
from fovea.core.frame import FrameId
from fovea.runtime.atomic_file import write_atomically
from fovea.runtime.images import decode_image, encode_jpeg
from fovea.sim.frame import StreetObject
from fovea.sim.suite import Clip, clip_seed

CAMERA = "street"
JPEG_QUALITY = 90
_FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)
_HOURS_OF_A_ROLE = 5000
_FRAMES_OF_A_CLIP = 100


class Role(StrEnum):
    """What the frames of a clip are for. truth: the student that is trained on true labels, to know what there is to
    gain. audit: frames that the camera sends at random."""

    CASE = "case"
    AUDIT = "audit"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class StreetClips:
    """`clips` clips of a condition for a role, `per_clip` frames of each."""

    role: Role
    condition: str
    clips: int
    per_clip: int


@dataclass(frozen=True, slots=True, eq=False)
class CameraFrame:
    """One frame as the camera took it: a JPEG file, who it is, when it was, and what is really in it."""

    jpeg: bytes
    frame_id: FrameId
    captured_at: datetime
    condition: str
    objects: tuple[StreetObject, ...]

    @property
    def group(self) -> str:
        return f"{self.condition}/{self.frame_id.boot_id}/{self.frame_id.sequence // _FRAMES_OF_A_CLIP}"

    @property
    def truth(self) -> GroundTruth:
        return GroundTruth(
            np.array([thing.box_xyxy for thing in self.objects], np.float32).reshape(-1, 4),
            np.array([thing.class_id for thing in self.objects], np.int32),
            np.array([thing.ignore for thing in self.objects], bool),
        )

    def evaluated(self) -> LabelledFrame:
        return LabelledFrame(self.group, decode_image(self.jpeg), self.truth)

    def truly_labelled(self, origin: Origin) -> LabelledImage:
        """With what is really there for labels."""
        asked = [thing for thing in self.objects if not thing.ignore and thing.class_id in CLASS_IDS]
        left = [thing.box_xyxy for thing in self.objects if thing.ignore]
        return LabelledImage(
            id=str(self.frame_id), jpeg=self.jpeg, origin=origin, camera=CAMERA, condition=self.condition,
            boxes_xyxy=np.array([thing.box_xyxy for thing in asked], np.float32).reshape(-1, 4),
            class_ids=np.array([thing.class_id for thing in asked], np.int32),
            weights=np.ones(len(asked), np.float32), captured_at=self.captured_at,
            ignore_xyxy=np.array(left, np.float32).reshape(-1, 4),
        )  # fmt: skip


class Street:
    """Draws frames into `folder` and finds them there; knows the truth of every frame that it has given out."""

    def __init__(self, folder: Path, conditions: Sequence[str], workers: int) -> None:
        self._folder, self._conditions, self._workers = folder, tuple(conditions), workers
        self._known: dict[FrameId, tuple[StreetObject, ...]] = {}

    def frames(self, wanted: StreetClips) -> Iterator[CameraFrame]:
        """The frames clip by clip, drawn in `workers` processes where they are not there yet."""
        jobs = [(self._folder, wanted, number) for number in range(wanted.clips)]
        missing = [job for job in jobs if not _path(*job, wanted.per_clip - 1).with_suffix(".json").is_file()]
        if missing:
            with ProcessPoolExecutor(self._workers, multiprocessing.get_context("spawn")) as pool:
                list(pool.map(_draw, missing))
        for number in range(wanted.clips):
            for index in range(wanted.per_clip):
                yield self._frame(wanted, number, index)

    def truth_of(self, case: StoredCase) -> tuple[StreetObject, ...] | None:
        """What is really in the frame of a case; None for one that is not of this street."""
        return self._known.get(case.frame_id)

    def _frame(self, wanted: StreetClips, number: int, index: int) -> CameraFrame:
        path = _path(self._folder, wanted, number, index)
        things = json.loads(path.with_suffix(".json").read_bytes())
        objects = tuple(StreetObject(**{**thing, "box_xyxy": tuple(thing["box_xyxy"])}) for thing in things)
        boot = f"{wanted.role}-{wanted.condition}"
        frame_id = FrameId(CAMERA, boot, number * _FRAMES_OF_A_CLIP + index)
        self._known[frame_id] = objects
        return CameraFrame(
            path.with_suffix(".jpg").read_bytes(),
            frame_id,
            self._at(wanted, number, index),
            wanted.condition,
            objects,
        )

    def _at(self, wanted: StreetClips, number: int, index: int) -> datetime:
        """Each clip in an hour of its own: nothing of one is beside anything of another."""
        place = self._conditions.index(wanted.condition) * len(Role) + list(Role).index(wanted.role)
        return _FIRST_DAY + timedelta(hours=place * _HOURS_OF_A_ROLE + number, seconds=2 * index)


def _path(folder: Path, wanted: StreetClips, number: int, index: int) -> Path:
    return folder / f"{wanted.role}-{wanted.condition}-{number:04d}-{index}of{wanted.per_clip}"


def _draw(job: tuple[Path, StreetClips, int]) -> None:
    cv2.setNumThreads(1)
    folder, wanted, number = job
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{SUITE}/loop-{wanted.role}/{wanted.condition}/{number:04d}"
    clip = Clip(name, wanted.condition, clip_seed(SUITE, f"loop-{wanted.role}", wanted.condition, number))
    step = (clip.frame_count - clip.fps) // wanted.per_clip
    for index in range(wanted.per_clip):
        frame = clip.frame(clip.fps // 2 + index * step)
        path = _path(folder, wanted, number, index)
        write_atomically(path.with_suffix(".jpg"), encode_jpeg(frame.pixels, JPEG_QUALITY))
        told = json.dumps([asdict(thing) for thing in frame.objects])
        write_atomically(path.with_suffix(".json"), told.encode())
