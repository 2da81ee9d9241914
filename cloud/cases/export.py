"""Writes cases as a data set that others can read: COCO, or a YOLO folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import numpy as np

from cloud.cases.data_set import COCO_FILE, FACTS_FILE, IMAGES_FOLDER, YOLO_FILE, facts_told
from cloud.cases.data_set import Format as Format  # part of what an export is told
from cloud.cases.stored_case import StoredCase
from fovea.core.arrays import FloatArray
from fovea.core.errors import BrokenError, Malformed, NotFound, StoreCorrupt
from fovea.core.frame import ImageSize
from fovea.core.hard_case import TierAnswer
from fovea.core.labels import Label
from fovea.core.routing import Tier


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """tier: whose answer becomes the labels, None the highest that looked. Boxes below `min_score` are left out."""

    format: Format = Format.COCO
    tier: Tier | None = None
    min_score: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.min_score <= 1:
            raise Malformed(f"export min_score: expected 0 to 1, got {self.min_score}")


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What was written. `unanswered` cases were left out, as the tier has not looked at them; `damaged` names those
    whose picture is missing, not what was sent, or was deleted meanwhile."""

    images: int
    boxes: int
    unanswered: int
    damaged: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Sample:
    """One labelled picture: boxes f32[N, 4] in px of the picture."""

    case: StoredCase
    answer: TierAnswer
    file_name: str
    boxes_xyxy: FloatArray
    scores: list[float]
    class_ids: list[int]


class _Writer(Protocol):
    def add(self, sample: _Sample) -> None: ...

    def finish(self, labels: Sequence[Label]) -> None: ...


def export_cases(
    cases: Iterable[StoredCase],
    load_image: Callable[[StoredCase], bytes],
    folder: Path,
    settings: ExportSettings = ExportSettings(),
) -> ExportReport:
    """Writes `cases` with their pictures, byte for byte, into `folder`, which is made or has to be empty.

    The index file comes last: a folder without it is not whole. Classes are named as the models name them; a case
    whose picture is damaged is left out and reported. Raises Malformed for a folder with something in it, and
    BrokenError when it cannot be written.
    """
    unanswered, images, boxes, damaged = 0, 0, 0, list[str]()
    labels: dict[int, Label] = {}
    try:
        _prepare(folder)
        writer: _Writer = _CocoWriter(folder) if settings.format is Format.COCO else _YoloWriter(folder)
        for case in cases:
            answer = case.find_answer(settings.tier)
            if answer is None:
                unanswered += 1
                continue
            try:
                image = load_image(case)
            except (StoreCorrupt, NotFound) as error:
                damaged.append(str(error))
                continue
            sample = _sample(case, answer, settings.min_score)
            (folder / IMAGES_FOLDER / sample.file_name).write_bytes(image)
            labels.update(_labels_of(answer))
            writer.add(sample)
            images, boxes = images + 1, boxes + len(sample.class_ids)
        writer.finish([labels[class_id] for class_id in sorted(labels)])
    except OSError as error:
        raise BrokenError(f"cannot write to {folder}: {error.strerror or error}") from error
    return ExportReport(images, boxes, unanswered, tuple(damaged))


class _CocoWriter:
    """Category ids are Fovea's class ids: the contiguous COCO ones for COCO names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._images: list[dict[str, Any]] = []
        self._annotations: list[dict[str, Any]] = []

    def add(self, sample: _Sample) -> None:
        case, number = sample.case, len(self._images) + 1
        self._images.append(
            {
                "id": number,
                "file_name": f"{IMAGES_FOLDER}/{sample.file_name}",
                "width": case.image_size.width,
                "height": case.image_size.height,
                **facts_told(case, sample.answer),
            }
        )
        rows = zip(sample.boxes_xyxy.tolist(), sample.scores, sample.class_ids, strict=True)
        for (x1, y1, x2, y2), score, class_id in rows:
            self._annotations.append(
                {
                    "id": len(self._annotations) + 1,
                    "image_id": number,
                    "category_id": class_id,
                    "bbox": [x1, y1, x2 - x1, y2 - y1],
                    "area": (x2 - x1) * (y2 - y1),
                    "iscrowd": 0,
                    "score": score,
                }
            )

    def finish(self, labels: Sequence[Label]) -> None:
        whole = {
            "info": {"description": "cases of Fovea, labelled by its models"},
            "images": self._images,
            "annotations": self._annotations,
            "categories": [{"id": label.id, "name": label.name} for label in labels],
        }
        (self._folder / COCO_FILE).write_text(json.dumps(whole), encoding="utf-8")


class _YoloWriter:
    """Channels count the classes that the models can see, in the order of their ids; they are known only at the end,
    so the label files are written then."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._samples: list[tuple[str, list[int], FloatArray]] = []
        self._facts: dict[str, dict[str, Any]] = {}

    def add(self, sample: _Sample) -> None:
        stem = PurePosixPath(sample.file_name).stem
        size = sample.case.image_size
        shares = _times(sample.boxes_xyxy, 1 / size.width, 1 / size.height)
        self._samples.append((stem, sample.class_ids, shares))
        self._facts[sample.file_name] = facts_told(sample.case, sample.answer)

    def finish(self, labels: Sequence[Label]) -> None:
        channel = {label.id: place for place, label in enumerate(labels)}
        (self._folder / "labels").mkdir(exist_ok=True)
        for stem, class_ids, shares in self._samples:
            lines = [
                f"{channel[class_id]} {(x1 + x2) / 2:.6f} {(y1 + y2) / 2:.6f} {x2 - x1:.6f} {y2 - y1:.6f}\n"
                for class_id, (x1, y1, x2, y2) in zip(class_ids, shares.tolist(), strict=True)
            ]
            (self._folder / "labels" / f"{stem}.txt").write_text("".join(lines), encoding="utf-8")
        names = "".join(
            f"  {place}: {json.dumps(label.name, ensure_ascii=False)}\n" for place, label in enumerate(labels)
        )
        (self._folder / FACTS_FILE).write_text(json.dumps(self._facts), encoding="utf-8")
        said = f"train: images\nval: images\nnames:\n{names}"
        (self._folder / YOLO_FILE).write_text(said, encoding="utf-8")


def _prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise Malformed(f"export: expected an empty folder, {folder} has something in it")
    (folder / IMAGES_FOLDER).mkdir()


def _sample(case: StoredCase, answer: TierAnswer, min_score: float) -> _Sample:
    seen = answer.detections
    kept = np.flatnonzero(seen.scores >= min_score)
    boxes = _scaled(seen.boxes_xyxy[kept], seen.image_size, case.image_size)
    name = f"{case.id[:24]}{PurePosixPath(case.image_path).suffix}"
    return _Sample(case, answer, name, boxes, seen.scores[kept].tolist(), seen.class_ids[kept].tolist())


def _scaled(boxes_xyxy: FloatArray, given: ImageSize, wanted: ImageSize) -> FloatArray:
    """A tier may have looked at the frame in another size than it was sent in."""
    if given == wanted:
        return boxes_xyxy
    return _times(boxes_xyxy, wanted.width / given.width, wanted.height / given.height)


def _times(boxes_xyxy: FloatArray, x: float, y: float) -> FloatArray:
    scaled: FloatArray = (boxes_xyxy * np.array([x, y, x, y])).astype(np.float32)
    return scaled


def _labels_of(answer: TierAnswer) -> Iterator[tuple[int, Label]]:
    """All that the model can see, and what it named without saying that it can."""
    known = {label.id: label for label in answer.labels}
    for class_id in answer.detections.class_ids.tolist():
        known.setdefault(class_id, Label(class_id, f"class {class_id}"))
    yield from known.items()
