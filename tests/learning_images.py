"""Small labelled images and snapshots: bright rectangles on noise, so that a few steps can learn something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import numpy as np

from cloud.learn.dataset import LabelledImage, Origin, Snapshot
from fovea.core.detections import ModelRef
from fovea.core.labels import LabelSet
from fovea.runtime.bundle import Bundle
from fovea.runtime.images import encode_jpeg
from fovea.zoo.catalogue import path_of

STREET = LabelSet.from_names(("person", "bicycle", "car", "bus", "truck"))
TEACHER = ModelRef("teacher", "1.0", "ab" * 32)
START = datetime(2026, 3, 1, tzinfo=UTC)


@cache
def zoo(name: str) -> Bundle:
    """A bundled model, opened once."""
    return Bundle.open(path_of(name))


def image(number: int, origin: Origin = Origin.NEW, boxes: int = 2, by_teacher: bool = True) -> LabelledImage:
    """A frame of 160x90 px with `boxes` rectangles that are cars; each number is another one, from another camera."""
    rng = np.random.default_rng(number)
    pixels = rng.integers(60, 90, (90, 160, 3), np.uint8)
    corners = rng.uniform((0, 0), (110, 60), (boxes, 2))
    found = np.concatenate([corners, corners + rng.uniform(15, 40, (boxes, 2))], axis=1).astype(np.float32)
    for x1, y1, x2, y2 in found.astype(int):
        pixels[y1:y2, x1:x2] = rng.integers(150, 255, 3)
    return LabelledImage(
        id=f"{origin}-{number}", jpeg=encode_jpeg(pixels), boxes_xyxy=found, class_ids=np.full(boxes, STREET.ids[2]),
        weights=np.full(boxes, 0.8, np.float32), ignore_xyxy=np.zeros((0, 4), np.float32), origin=origin,
        camera=f"camera-{number}", captured_at=START + timedelta(hours=number),
        teacher=TEACHER if by_teacher else None,
    )  # fmt: skip


def snapshot(folder: Path, images: Sequence[LabelledImage] = ()) -> Snapshot:
    """A snapshot of these images, or of six of each origin."""
    six_each = [
        replace(image(number, origin), teacher=None if origin is Origin.GOLDEN else TEACHER)
        for origin in Origin
        for number in range(6)
    ]
    return Snapshot.write(folder, images or six_each, STREET, val_share=0.2)
