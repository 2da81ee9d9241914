"""Reads a YOLO folder: data.yaml, pictures, and one label file for each."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from cloud.cases.data_set import FACTS_FILE, YOLO_FILE, DataSet, LabelledPicture
from fovea.core.errors import Malformed, NotFound
from fovea.core.labels import Label, LabelSet, label_named

_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".img")
_SPLITS = ("train", "val", "test")

_Row = tuple[int, list[float], float]
"""Channel, xyxy in shares of the picture, score"""


def read_yolo(folder: Path, index: str = YOLO_FILE) -> DataSet:
    """The data set in `folder`, described by the file `index` there: all pictures of its train, val and test folders
    and lists. A picture without a label file shows nothing. Polygons become their boxes. Raises NotFound, and
    Malformed, naming the file, when the description makes no sense; pictures whose labels do not are refused by
    name."""
    described = _described(folder / index)
    channels = _channels(described.get("names"), index)
    told = _facts(folder / FACTS_FILE)
    pictures, refused, skipped = [], [], 0
    for path in _pictures(folder, described, index):
        labels_file = _labels_file(path)
        try:
            rows, without_extent = _rows(labels_file, len(channels))
        except Malformed as error:
            refused.append(f"{path.name}: {error}")
            continue
        skipped += without_extent
        pictures.append(
            LabelledPicture(
                path,
                np.array([box for _, box, _ in rows], np.float32).reshape(-1, 4),
                np.array([score for _, _, score in rows], np.float32),
                np.array([channels[channel].id for channel, _, _ in rows], np.int32),
                in_shares=True,
                size=None,
                facts=told.get(path.name, {}),
            )
        )
    return DataSet(LabelSet(tuple(dict.fromkeys(channels))), pictures, tuple(refused), skipped)


def _described(path: Path) -> dict[str, Any]:
    try:
        described = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise NotFound(f"no YOLO data set: {path} is not there") from error
    except OSError as error:
        raise NotFound(f"no YOLO data set: cannot read {path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Malformed(f"{path.name}: expected YAML, got something else") from error
    if not isinstance(described, dict):
        raise Malformed(f"{path.name}: expected names and folders, got {type(described).__name__}")
    return described


def _channels(names: object, index: str) -> list[Label]:
    """Labels by channel; `names` is a list, or a mapping from 0 on without a gap."""
    if isinstance(names, dict) and set(names) == set(range(len(names))):
        names = [names[channel] for channel in range(len(names))]
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise Malformed(
            f"{index}: names: expected a list, or numbers from 0 on with a name each, got {names!r:.80}"
        )
    return [label_named(name) for name in names]


def _pictures(folder: Path, described: Mapping[str, Any], index: str) -> list[Path]:
    """Each once, by name."""
    root = folder / str(described.get("path") or "")
    if not root.resolve().is_relative_to(folder.resolve()):
        root = folder  # as it was called on the machine of who made it
    found: dict[Path, None] = {}
    for split in _SPLITS:
        places = described.get(split) or []
        for place in [places] if isinstance(places, str) else places:
            for path in _pictures_at(root / str(place), folder, f"{index}: {split}"):
                found[path.resolve()] = None
    return sorted(found)


def _pictures_at(place: Path, folder: Path, what: str) -> list[Path]:
    if not place.resolve().is_relative_to(folder.resolve()):
        raise Malformed(f"{what}: expected a place below the folder, got {str(place)!r:.120}")
    if place.is_dir():
        return [path for path in sorted(place.rglob("*")) if path.suffix.lower() in _ENDINGS]
    if place.suffix == ".txt" and place.is_file():
        lines = place.read_text(encoding="utf-8", errors="replace").splitlines()
        listed = [place.parent / line.strip() for line in lines if line.strip()]
        outside = [path for path in listed if not path.resolve().is_relative_to(folder.resolve())]
        if outside:
            raise Malformed(f"{what}: expected places below the folder, got {str(outside[0])!r:.120}")
        return listed
    raise NotFound(f"{what}: {place} is not there")


def _labels_file(picture: Path) -> Path:
    """As everybody has it: the last `images` of the path becomes `labels`."""
    parts = list(picture.parts)
    for place in range(len(parts) - 2, -1, -1):
        if parts[place] == "images":
            parts[place] = "labels"
            break
    return Path(*parts).with_suffix(".txt")


def _rows(path: Path, channels: int) -> tuple[list[_Row], int]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return [], 0
    except (OSError, UnicodeDecodeError) as error:
        raise Malformed(f"{path.name}: expected lines of numbers, got something else") from error
    rows = [
        _row(line, channels, f"{path.name}, line {at + 1}") for at, line in enumerate(lines) if line.strip()
    ]
    kept = [row for row in rows if row[1][2] > row[1][0] and row[1][3] > row[1][1]]
    return kept, len(rows) - len(kept)


def _row(line: str, channels: int, what: str) -> _Row:
    try:
        values = [float(word) for word in line.split()]
    except ValueError:
        values = []
    is_box, is_polygon = len(values) in (5, 6), len(values) >= 7 and len(values) % 2 == 1
    if not (is_box or is_polygon) or not all(math.isfinite(value) for value in values):
        raise Malformed(f"{what}: expected a class and 4 numbers, or a class and the points of a polygon")
    channel = int(values[0])
    if channel != values[0] or not 0 <= channel < channels:
        raise Malformed(f"{what}: expected a class of 0 to {channels - 1}, got {values[0]:g}")
    if is_polygon:
        return channel, _around(values[1:]), 1.0
    x, y, width, height = values[1:5]
    score = values[5] if len(values) == 6 else 1.0
    if not 0 <= score <= 1:
        raise Malformed(f"{what}: expected a score of 0 to 1, got {score:g}")
    return channel, [x - width / 2, y - height / 2, x + width / 2, y + height / 2], score


def _around(points: Sequence[float]) -> list[float]:
    return [min(points[::2]), min(points[1::2]), max(points[::2]), max(points[1::2])]


def _facts(path: Path) -> dict[str, Any]:
    """What an export of Fovea said of its pictures; nothing in data from elsewhere."""
    if not path.is_file():
        return {}
    try:
        told = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise Malformed(f"{path.name}: expected JSON, got something else") from error
    if not isinstance(told, dict) or not all(isinstance(facts, dict) for facts in told.values()):
        raise Malformed(f"{path.name}: expected an object for each picture")
    return told
