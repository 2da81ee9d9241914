"""Reads a COCO data set: images, annotations with boxes, categories by name."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cloud.cases.data_set import COCO_FILE, IMAGES_FOLDER, DataSet, LabelledPicture
from fovea.core.errors import Malformed, NotFound
from fovea.core.labels import Label, LabelSet, label_named

_Box = tuple[list[float], float, int]
"""xyxy in px, score, class id"""


def read_coco(folder: Path, index: str = COCO_FILE) -> DataSet:
    """The data set in `folder`, described by the file `index` there. Pictures lie where `file_name` says, below the
    folder or below its images/. Raises NotFound, and Malformed, naming the file and the entry, when the description
    makes no sense; pictures that are not there are refused by name."""
    whole = _json_object(folder / index)
    labels = _labels(_list_of(whole, "categories", index), index)
    boxes, skipped = _boxes(_list_of(whole, "annotations", index), labels, index)
    pictures, refused = [], []
    for place, image in enumerate(_list_of(whole, "images", index)):
        name, number = image.get("file_name"), image.get("id")
        if not isinstance(name, str) or not name or not isinstance(number, int):
            raise Malformed(f"{index}: image {place}: expected an id and a file_name, got {image!r:.120}")
        path = find_below(folder, name)
        if path is None:
            refused.append(f"{name}: there is no such picture below the folder")
            continue
        pictures.append(_picture(path, image, boxes.pop(number, [])))
    known = {image["id"] for image in whole["images"]}
    strangers = [number for number in boxes if number not in known]
    if strangers:
        raise Malformed(f"{index}: annotations of image {strangers[0]}: there is no such image")
    return DataSet(LabelSet(tuple(dict.fromkeys(labels.values()))), pictures, tuple(refused), skipped)


def find_below(folder: Path, name: str) -> Path | None:
    """The file of this name below `folder` or its images/; None where there is none, or it would be elsewhere."""
    for root in (folder, folder / IMAGES_FOLDER):
        path = root / name
        if path.resolve().is_relative_to(folder.resolve()) and path.is_file():
            return path
    return None


def _picture(path: Path, image: Mapping[str, Any], boxes: list[_Box]) -> LabelledPicture:
    width, height = image.get("width"), image.get("height")
    size = (width, height) if isinstance(width, int) and isinstance(height, int) else None
    return LabelledPicture(
        path,
        np.array([box for box, _, _ in boxes], np.float32).reshape(-1, 4),
        np.array([score for _, score, _ in boxes], np.float32),
        np.array([class_id for _, _, class_id in boxes], np.int32),
        in_shares=False,
        size=size,
        facts=image,
    )


def _labels(categories: list[dict[str, Any]], index: str) -> dict[int, Label]:
    """By category id, whatever the ids: the 80 or 91 ids of COCO, or others."""
    labels: dict[int, Label] = {}
    for place, category in enumerate(categories):
        number, name = category.get("id"), category.get("name")
        if not isinstance(number, int) or not isinstance(name, str) or number in labels:
            raise Malformed(
                f"{index}: category {place}: expected an id of its own and a name, got {category!r:.120}"
            )
        labels[number] = label_named(name)
    if not labels:
        raise Malformed(f"{index}: expected categories, got none")
    return labels


def _boxes(
    annotations: list[dict[str, Any]], labels: Mapping[int, Label], index: str
) -> tuple[dict[int, list[_Box]], int]:
    boxes: dict[int, list[_Box]] = defaultdict(list)
    skipped = 0
    for place, annotation in enumerate(annotations):
        number, category = annotation.get("image_id"), annotation.get("category_id")
        if not isinstance(number, int) or not isinstance(category, int) or category not in labels:
            raise Malformed(
                f"{index}: annotation {place}: expected an image_id and a category_id of the categories, got "
                f"{number!r:.40}, {category!r:.40}"
            )
        x, y, width, height = _numbers(annotation.get("bbox"), 4, f"{index}: annotation {place}: bbox")
        [score] = _numbers([annotation.get("score", 1.0)], 1, f"{index}: annotation {place}: score")
        if annotation.get("iscrowd") or width <= 0 or height <= 0:
            skipped += 1
            continue
        if not 0 <= score <= 1:
            raise Malformed(f"{index}: annotation {place}: score: expected 0 to 1, got {score:g}")
        boxes[number].append(([x, y, x + width, y + height], score, labels[category].id))
    return boxes, skipped


def _numbers(values: object, count: int, what: str) -> list[float]:
    try:
        numbers = [float(value) for value in values if not isinstance(value, str)]  # type: ignore[attr-defined]
    except (TypeError, ValueError, OverflowError):
        numbers = []
    if len(numbers) != count or not all(math.isfinite(number) for number in numbers):
        raise Malformed(f"{what}: expected {count} finite numbers, got {values!r:.80}")
    return numbers


def _json_object(path: Path) -> dict[str, Any]:
    try:
        whole = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise NotFound(f"no COCO data set: {path} is not there") from error
    except OSError as error:
        raise NotFound(f"no COCO data set: cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{path.name}: expected JSON, got something else ({str(error)[:120]})") from error
    if not isinstance(whole, dict):
        raise Malformed(f"{path.name}: expected a JSON object, got {type(whole).__name__}")
    return whole


def _list_of(whole: Mapping[str, Any], name: str, index: str) -> list[dict[str, Any]]:
    values = whole.get(name)
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise Malformed(f"{index}: {name}: expected a list of objects, got {values!r:.60}")
    return values
