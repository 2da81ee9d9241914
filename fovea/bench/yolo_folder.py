"""Labelled images from a folder in the YOLO text form: `images/*.jpg` beside `labels/*.txt`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from calibration.predict import LabelledFrame
from calibration.truth import GroundTruth
from fovea.core.errors import Malformed, NotFound
from fovea.core.frame import ImageSize, size_of
from fovea.core.labels import LabelSet
from fovea.runtime.images import decode_image


def image_files(folder: Path) -> list[Path]:
    """The JPEG and PNG files in a folder, sorted by name. Raises NotFound when there is none."""
    files = sorted(path for path in folder.glob("*") if path.suffix.lower() in {".jpg", ".jpeg", ".png"})
    if not files:
        raise NotFound(f"no JPEG or PNG image in {folder}")
    return files


def labelled_images(images: Path, labels: Path, names: LabelSet, limit: int = 0) -> Iterator[LabelledFrame]:
    """Each image of a folder with the boxes of its text file (no file: nothing in it); `limit` 0 means all.

    A line is `channel x_centre y_centre width height`, in shares of the image. Raises NotFound, and Malformed for a
    line that is not that or a channel that `names` does not have.
    """
    for path in image_files(images)[: limit or None]:
        pixels = decode_image(path.read_bytes())
        yield LabelledFrame(path.stem, pixels, _truth(labels / f"{path.stem}.txt", size_of(pixels), names))


def _truth(path: Path, size: ImageSize, names: LabelSet) -> GroundTruth:
    if not path.exists():
        return GroundTruth.empty()
    rows = [_row(path, line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not rows:
        return GroundTruth.empty()
    table = np.array(rows)
    channels = table[:, 0].astype(int)
    if channels.min() < 0 or channels.max() >= len(names):
        raise Malformed(f"{path.name}: expected classes 0 to {len(names) - 1}, got {channels.max()}")
    centre, half = table[:, 1:3], table[:, 3:5] / 2
    corners = np.concatenate([centre - half, centre + half], axis=1)
    boxes = (corners * _sides(size)).astype(np.float32)
    return GroundTruth(boxes, np.array(names.ids, np.int32)[channels], np.zeros(len(boxes), bool))


def _sides(size: ImageSize) -> list[int]:
    return [size.width, size.height, size.width, size.height]


def _row(path: Path, line: str) -> list[float]:
    try:
        values = [float(word) for word in line.split()]
    except ValueError as error:
        raise Malformed(f"{path.name}: expected numbers, got {line!r:.80}") from error
    if len(values) != 5:
        raise Malformed(f"{path.name}: expected 5 numbers in a line, got {line!r:.80}")
    return values
