"""Sheets as Label Studio tasks: what the teacher saw goes out as predictions, what people said comes back as
annotations (https://labelstud.io/guide/export: the JSON format). Boxes there are in per cent of the picture."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from cloud.labels.drawn import DrawnBoxes
from cloud.labels.exchange import Returned, Sheet, case_id_in
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from fovea.core.labels import Label

INDEX = "tasks.json"
CONFIG = "label_config.xml"
IGNORE = "ignore"
"""A second label of a box, or a note on it: counts on neither side."""


class LabelStudioSheets:
    """`image_url` is put before the name of each picture: a folder that Label Studio serves
    (/data/local-files/?d=...) or a URL; images/ where pictures are uploaded by hand."""

    def __init__(self, image_url: str = "images/") -> None:
        self._image_url = image_url

    def write(self, folder: Path, sheets: Sequence[Sheet], classes: Sequence[Label]) -> None:
        """Writes tasks.json, to be imported, and label_config.xml, for the project's labelling interface."""
        tasks = [self._task(sheet, number) for number, sheet in enumerate(sheets, start=1)]
        (folder / CONFIG).write_text(_config(classes), encoding="utf-8")
        (folder / INDEX).write_text(json.dumps(tasks, ensure_ascii=False), encoding="utf-8")

    def read(self, data: bytes) -> list[Returned]:
        """Every task that somebody has annotated; predictions alone are nobody's word. Raises Malformed."""
        try:
            tasks = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise Malformed(f"Label Studio: expected JSON: {error}") from error
        if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
            raise Malformed("Label Studio: expected a list of tasks, as its export in the JSON format is")
        found = (_returned(task, f"Label Studio task {task.get('id')}") for task in tasks)
        return [returned for returned in found if returned is not None]

    def _task(self, sheet: Sheet, number: int) -> dict[str, Any]:
        task: dict[str, Any] = {
            "id": number,
            "data": {
                "image": f"{self._image_url}{sheet.file_name}",
                "case_id": sheet.case_id,
                "camera": sheet.camera,
                "captured_at": sheet.captured_at.isoformat(),
            },
        }
        results = _results(sheet)
        if sheet.prefilled_by:
            scores = [score for score in sheet.scores if score is not None]
            mean = sum(scores) / len(scores) if scores else 0.0
            task["predictions"] = [{"model_version": sheet.prefilled_by, "score": mean, "result": results}]
        elif sheet.said_by:
            task["annotations"] = [{"result": results, "was_cancelled": False, "said_by": sheet.said_by}]
        return task


def _results(sheet: Sheet) -> list[dict[str, Any]]:
    drawn, size = sheet.drawn, sheet.drawn.image_size
    rows = zip(drawn.boxes_xyxy.tolist(), drawn.labels, drawn.ignore.tolist(), sheet.scores, strict=True)
    return [
        {
            "id": f"{sheet.case_id[:8]}-{place}",
            "type": "rectanglelabels",
            "from_name": "label",
            "to_name": "image",
            "original_width": size.width,
            "original_height": size.height,
            "image_rotation": 0,
            "value": {
                "x": 100 * x1 / size.width,
                "y": 100 * y1 / size.height,
                "width": 100 * (x2 - x1) / size.width,
                "height": 100 * (y2 - y1) / size.height,
                "rotation": 0,
                "rectanglelabels": [label.name, IGNORE] if ignore else [label.name],
            },
        }
        | ({} if score is None else {"score": score})
        for place, ((x1, y1, x2, y2), label, ignore, score) in enumerate(rows)
    ]


def _config(classes: Sequence[Label]) -> str:
    labels = "".join(f"    <Label value={quoteattr(label.name)}/>\n" for label in classes)
    return (
        "<View>\n"
        '  <Image name="image" value="$image" zoom="true"/>\n'
        '  <RectangleLabels name="label" toName="image" choice="multiple">\n'
        f'{labels}    <Label value="{IGNORE}" background="#888888"/>\n'
        "  </RectangleLabels>\n"
        "</View>\n"
    )


def _returned(task: Mapping[str, Any], what: str) -> Returned | None:
    annotations = task.get("annotations", [])
    if not isinstance(annotations, list) or not all(isinstance(each, dict) for each in annotations):
        raise Malformed(f"{what}: annotations: expected a list, as the export in the JSON format has")
    if not annotations:
        return None
    data = task.get("data")
    if not isinstance(data, dict):
        raise Malformed(f"{what}: data: expected an object, got {data!r:.80}")
    case_id = case_id_in(data.get("case_id")) or case_id_in(data.get("image"))
    if case_id is None:
        raise Malformed(f"{what}: expected the id of a case in data.case_id or data.image, got {data!r:.120}")
    kept = [each for each in annotations if not each.get("was_cancelled")]
    newest = max(kept or annotations, key=lambda each: str(each.get("updated_at", "")))
    results = newest.get("result", [])
    if not isinstance(results, list) or not all(isinstance(each, dict) for each in results):
        raise Malformed(f"{what}: result: expected a list of objects")
    rectangles = [each for each in results if each.get("type") == "rectanglelabels"]
    size = _size(rectangles, what)
    boxes, flags = list[tuple[list[float], str]](), list[bool]()
    for each in rectangles:
        value = each.get("value")
        if not isinstance(value, dict):
            raise Malformed(f"{what}: value: expected an object, got {value!r:.80}")
        name, ignore = _name(each, value, what)
        boxes.append((_xyxy(value, size, what), name))
        flags.append(ignore)
    try:
        drawn = DrawnBoxes.of(boxes, size, flags)
    except Malformed as error:
        raise Malformed(f"{what}: {error}") from error
    return Returned(case_id, drawn, _said_by(newest), is_usable=bool(kept))


def _size(rectangles: Sequence[Mapping[str, Any]], what: str) -> ImageSize:
    """1x1 where there is no box, which fits any picture: there is nothing to be scaled."""
    if not rectangles:
        return ImageSize(1, 1)
    try:
        return ImageSize(rectangles[0].get("original_width", 0), rectangles[0].get("original_height", 0))
    except Malformed as error:
        raise Malformed(f"{what}: original_width, original_height: {error}") from error


def _name(result: Mapping[str, Any], value: Mapping[str, Any], what: str) -> tuple[str, bool]:
    given = value.get("rectanglelabels")
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise Malformed(f"{what}: rectanglelabels: expected names, got {given!r:.80}")
    meta = result.get("meta")
    notes = meta.get("text", []) if isinstance(meta, dict) else []
    names = [each for each in given if each != IGNORE]
    if len(names) != 1:
        raise Malformed(
            f"{what}: rectanglelabels: expected one class (and perhaps {IGNORE}), got {given!r:.80}"
        )
    return names[0], IGNORE in given or IGNORE in notes


def _xyxy(value: Mapping[str, Any], size: ImageSize, what: str) -> list[float]:
    """The upright box around one that may be turned about its top left corner."""
    try:
        x, y = float(value["x"]) * size.width / 100, float(value["y"]) * size.height / 100
        width, height = float(value["width"]) * size.width / 100, float(value["height"]) * size.height / 100
        turned = math.radians(float(value.get("rotation", 0)))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Malformed(
            f"{what}: value: expected x, y, width and height in per cent, got {value!r:.120}"
        ) from error
    cos, sin = math.cos(turned), math.sin(turned)
    corners = [(a * cos - b * sin, a * sin + b * cos) for a in (0.0, width) for b in (0.0, height)]
    xs, ys = [x + a for a, _ in corners], [y + b for _, b in corners]
    return [min(xs), min(ys), max(xs), max(ys)]


def _said_by(annotation: Mapping[str, Any]) -> str | None:
    by = annotation.get("completed_by", annotation.get("said_by"))
    if isinstance(by, dict):
        by = by.get("email") or by.get("id")
    return (
        None
        if by is None or isinstance(by, bool) or by == ""
        else f"user {by}"
        if isinstance(by, int)
        else str(by)
    )
