"""Sheets as a COCO data set; boxes to set aside are `iscrowd` 1, as the COCO evaluation understands it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cloud.labels.drawn import DrawnBoxes
from cloud.labels.exchange import Returned, Sheet, case_id_in
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from fovea.core.labels import Label

INDEX = "annotations.json"


class CocoSheets:
    """The COCO format of instances. What goes beyond it are keys that other tools ignore."""

    def write(self, folder: Path, sheets: Sequence[Sheet], classes: Sequence[Label]) -> None:
        """Writes annotations.json. Category ids are Fovea's class ids: the contiguous COCO ones for COCO names."""
        annotations: list[dict[str, Any]] = []
        for number, sheet in enumerate(sheets, start=1):
            annotations += _annotations(sheet, number, len(annotations) + 1)
        whole = {
            "info": {"description": "frames of Fovea, for people to label"},
            "images": [_image(sheet, number) for number, sheet in enumerate(sheets, start=1)],
            "annotations": annotations,
            "categories": [{"id": label.id, "name": label.name} for label in classes],
        }
        (folder / INDEX).write_text(json.dumps(whole), encoding="utf-8")

    def read(self, data: bytes) -> list[Returned]:
        """Every image that the file lists, also those without a box. Raises Malformed."""
        whole = parsed(data, "COCO")
        names = {
            number: _str(row, "name", f"category {number}")
            for number, row in _by_id(whole, "categories").items()
        }
        boxes: dict[int, list[dict[str, Any]]] = defaultdict(list)
        images = _by_id(whole, "images")
        for number, row in _by_id(whole, "annotations").items():
            image = row.get("image_id")
            if image not in images:
                raise Malformed(f"COCO annotation {number}: image_id: no image {image!r:.40}")
            boxes[image].append(row)
        return [_returned(row, number, boxes[number], names) for number, row in images.items()]


def parsed(data: bytes, what: str) -> dict[str, Any]:
    """A JSON object. Raises Malformed."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{what}: expected JSON: {error}") from error
    if not isinstance(value, dict):
        raise Malformed(f"{what}: expected a JSON object, got {type(value).__name__}")
    return value


def _image(sheet: Sheet, number: int) -> dict[str, Any]:
    size = sheet.drawn.image_size
    return {
        "id": number,
        "file_name": f"images/{sheet.file_name}",
        "width": size.width,
        "height": size.height,
        "date_captured": sheet.captured_at.isoformat(),
        "case_id": sheet.case_id,
        "camera": sheet.camera,
        "prefilled_by": sheet.prefilled_by,
        "labelled_by": sheet.said_by,
    }


def _annotations(sheet: Sheet, image: int, first: int) -> list[dict[str, Any]]:
    drawn = sheet.drawn
    rows = zip(drawn.boxes_xyxy.tolist(), drawn.labels, drawn.ignore.tolist(), sheet.scores, strict=True)
    return [
        {
            "id": first + place,
            "image_id": image,
            "category_id": label.id,
            "bbox": [x1, y1, x2 - x1, y2 - y1],
            "area": (x2 - x1) * (y2 - y1),
            "iscrowd": int(ignore),
        }
        | ({} if score is None else {"score": score})
        for place, ((x1, y1, x2, y2), label, ignore, score) in enumerate(rows)
    ]


def _returned(
    row: Mapping[str, Any], number: int, boxes: Sequence[Mapping[str, Any]], names: Mapping[int, str]
) -> Returned:
    what = f"COCO image {number}"
    case_id = case_id_in(row.get("case_id")) or case_id_in(row.get("file_name"))
    if case_id is None:
        raise Malformed(f"{what}: expected the id of a case in file_name, got {row.get('file_name')!r:.120}")
    drawn, flags = list[tuple[list[float], str]](), list[bool]()
    for box in boxes:
        name = names.get(box.get("category_id", -1))
        if name is None:
            raise Malformed(f"{what}: annotation {box['id']}: no category {box.get('category_id')!r:.40}")
        drawn.append((_xyxy(box, what), name))
        flags.append(bool(box.get("iscrowd", 0)))
    try:
        size = ImageSize(row.get("width", 0), row.get("height", 0))
        found = DrawnBoxes.of(drawn, size, flags)
    except Malformed as error:
        raise Malformed(f"{what}: {error}") from error
    untouched = bool(row.get("prefilled_by")) and all("score" in box for box in boxes)
    said_by = row.get("labelled_by")
    return Returned(case_id, found, said_by if isinstance(said_by, str) else None, untouched)


def _xyxy(box: Mapping[str, Any], what: str) -> list[float]:
    given = box.get("bbox")
    if (
        not isinstance(given, list)
        or len(given) != 4
        or not all(isinstance(edge, int | float) for edge in given)
    ):
        raise Malformed(f"{what}: annotation {box['id']}: bbox: expected four numbers, got {given!r:.80}")
    x, y, width, height = given
    return [x, y, x + width, y + height]


def _by_id(whole: Mapping[str, Any], key: str) -> dict[int, dict[str, Any]]:
    rows = whole.get(key)
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and type(row.get("id")) is int for row in rows
    ):
        raise Malformed(f"COCO {key}: expected a list of objects, each with an id")
    return {row["id"]: row for row in rows}


def _str(row: Mapping[str, Any], key: str, what: str) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        raise Malformed(f"COCO {what}: {key}: expected a name, got {value!r:.80}")
    return value
