"""Street frames as labelled images: with the truth of the renderer for a person's, or with a teacher's answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from calibration.predict import LabelledFrame
from calibration.truth import GroundTruth
from cloud.learn.dataset import LabelledImage, Origin
from fovea.core.labels import LabelSet
from fovea.core.ports import Detector
from fovea.runtime.atomic_file import write_atomically
from fovea.runtime.images import decode_image, encode_jpeg
from fovea.sim.frame import StreetFrame
from fovea.sim.suite import Clip, load_suite

SUITE = "street-v1"
JPEG_QUALITY = 93
TAKEN_FROM, IGNORED_FROM = 0.35, 0.1
"""Calibrated scores of a teacher: below the first a box is no label, between the two nothing is known there."""
_FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class StreetShare:
    """Some frames of a split: `clips` clips from `first` on, `per_clip` frames of each."""

    split: str
    condition: str
    first: int
    clips: int
    per_clip: int


def street_images(folder: Path, share: StreetShare, origin: Origin) -> Iterator[LabelledImage]:
    """The frames of a share with their true labels; each clip is a camera. Rendered once and kept in `folder`."""
    for number in range(share.first, share.first + share.clips):
        name = f"{share.split}-{share.condition}-{number:05d}-{share.per_clip}"
        for index in range(share.per_clip):
            path = folder / f"{name}-{index}.json"
            if not path.is_file():
                _render(folder, name, share, number)
            yield _read(path, share, number, origin)


def labelled_by_teacher(image: LabelledImage, teacher: Detector, labels: LabelSet) -> LabelledImage:
    """The same image with what the teacher answers: sure boxes count by their score, doubtful ones are ignored."""
    [inference] = teacher.detect([decode_image(image.jpeg)])
    seen = inference.detections
    is_known = np.isin(seen.class_ids, labels.ids)
    is_taken = is_known & (seen.scores >= TAKEN_FROM)
    is_doubtful = is_known & (seen.scores >= IGNORED_FROM) & ~is_taken
    return replace(
        image, boxes_xyxy=seen.boxes_xyxy[is_taken], class_ids=seen.class_ids[is_taken],
        weights=seen.scores[is_taken], ignore_xyxy=seen.boxes_xyxy[is_doubtful], teacher=teacher.ref,
    )  # fmt: skip


def as_evaluated(image: LabelledImage) -> LabelledFrame:
    """A truthfully labelled image as evaluations want it; the camera is its group."""
    boxes = np.concatenate([image.boxes_xyxy, image.ignore_xyxy])
    # An ignored box may be of any class: it stands once for each that the street has.
    is_ignored = np.arange(len(boxes)) >= len(image.boxes_xyxy)
    known = np.concatenate([image.class_ids, np.full(len(image.ignore_xyxy), -1, np.int32)])
    rows, ids = [], []
    for row, class_id in enumerate(known.tolist()):
        for each in STREET_IDS if class_id < 0 else (class_id,):
            rows.append(row)
            ids.append(each)
    truth = GroundTruth(boxes[rows], np.array(ids, np.int32), is_ignored[rows])
    return LabelledFrame(image.camera, decode_image(image.jpeg), truth)


STREET_IDS = LabelSet.from_names(("person", "bicycle", "car", "bus", "truck")).ids


def _render(folder: Path, name: str, share: StreetShare, number: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    clip = load_suite(SUITE).clip(share.split, share.condition, number)
    for index, frame in enumerate(_frames(clip, share.per_clip)):
        write_atomically(folder / f"{name}-{index}.jpg", encode_jpeg(frame.pixels, JPEG_QUALITY))
        facts = [
            [list(map(float, thing.box_xyxy)), thing.class_id, bool(thing.ignore)] for thing in frame.objects
        ]
        write_atomically(folder / f"{name}-{index}.json", json.dumps(facts).encode())
    clip.release()


def _frames(clip: Clip, count: int) -> Iterator[StreetFrame]:
    step = (clip.frame_count - clip.fps) // count
    for k in range(count):
        yield clip.frame(clip.fps // 2 + k * step)


def _read(path: Path, share: StreetShare, number: int, origin: Origin) -> LabelledImage:
    objects: Sequence[Any] = json.loads(path.read_bytes())
    boxes = np.array([box for box, _, _ in objects], np.float32).reshape(-1, 4)
    ids = np.array([class_id for _, class_id, _ in objects], np.int32)
    is_ignored = np.array([is_ignored for _, _, is_ignored in objects], bool)
    is_asked = ~is_ignored & np.isin(ids, STREET_IDS)
    return LabelledImage(
        id=path.stem, jpeg=path.with_suffix(".jpg").read_bytes(), boxes_xyxy=boxes[is_asked],
        class_ids=ids[is_asked], weights=np.ones(int(is_asked.sum()), np.float32), ignore_xyxy=boxes[is_ignored],
        origin=origin, camera=f"{SUITE}/{share.split}/{share.condition}/{number}", condition=share.condition,
        captured_at=_FIRST_DAY + timedelta(hours=number),
    )  # fmt: skip
