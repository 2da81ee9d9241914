"""Takes a data set into the case store: pictures with labels that others made. Twice changes nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import numpy as np

from cloud.cases.coco_reading import read_coco
from cloud.cases.data_set import DataSet, Format, LabelledPicture, read_facts
from cloud.cases.stored_case import Receipt
from cloud.cases.yolo_reading import read_yolo
from fovea.core.detections import Detections, ModelRef
from fovea.core.errors import Malformed, RejectedError
from fovea.core.frame import FrameId, ImageSize, size_of
from fovea.core.geometry import clip_boxes
from fovea.core.hard_case import HardCase, TierAnswer
from fovea.core.labels import LabelSet
from fovea.core.routing import Tier
from fovea.runtime.images import ImageLimits, decode_image

IMPORTED = "imported"
"""The reason of a case that no camera sent, and its camera where nobody says which it was."""
_DIGITS = 12


class Importable(Protocol):
    """What takes cases: `cloud.cases.store.CaseStore`."""

    def add_always(self, case: HardCase, size: ImageSize | None = None) -> Receipt:
        """See there."""
        ...

    def tag(self, case_ids: Sequence[str], words: Sequence[str]) -> None:
        """See there."""
        ...


@dataclass(frozen=True, slots=True)
class ImportSettings:
    """camera: whose pictures these are, and tier: whose answer their labels are, where the data set does not say.
    tags: words for all of them. limits: what is refused before it is opened."""

    format: Format = Format.COCO
    camera: str = IMPORTED
    tier: Tier = Tier.CLOUD
    tags: tuple[str, ...] = ()
    limits: ImageLimits = ImageLimits()  # noqa: RUF009


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What was taken. `new` of the `images` had not been there. `skipped_boxes`: crowds, and boxes without extent or
    outside of their picture. `refused` names the pictures that were not taken, with why."""

    images: int
    new: int
    boxes: int
    skipped_boxes: int
    refused: tuple[str, ...]


def import_cases(
    store: Importable,
    folder: Path,
    settings: ImportSettings = ImportSettings(),
    now: datetime | None = None,
) -> ImportReport:
    """Takes every picture of the data set in `folder`, byte for byte, with its labels as the answer of one tier.

    What Fovea exported comes back as the case it was. Other pictures get an id that follows from their bytes, so
    that the same data set again adds nothing. Raises NotFound and Malformed for a description that makes no sense,
    before anything is taken.
    """
    data_set = read_coco(folder) if settings.format is Format.COCO else read_yolo(folder)
    taken_at = now or datetime.now(UTC)
    images = new = boxes = 0
    skipped, refused = data_set.skipped_boxes, list(data_set.refused)
    for picture in data_set.pictures:
        try:
            case, size, tags = _case(picture, data_set, settings, taken_at)
            receipt = store.add_always(case, size)
        except RejectedError as error:
            refused.append(f"{picture.path.name}: {error}")
            continue
        words = tuple(dict.fromkeys((*settings.tags, *tags)))
        if words:
            store.tag([receipt.case_id], words)
        kept = len(case.answers[0].detections)
        skipped += len(picture.boxes_xyxy) - kept
        images, new, boxes = images + 1, new + receipt.is_new, boxes + kept
    return ImportReport(images, new, boxes, skipped, tuple(refused))


def _case(
    picture: LabelledPicture, data_set: DataSet, settings: ImportSettings, taken_at: datetime
) -> tuple[HardCase, ImageSize, tuple[str, ...]]:
    facts = read_facts(picture.facts)
    data = _bytes_of(picture.path, settings.limits)
    size = size_of(decode_image(data, settings.limits))
    if picture.size is not None and picture.size != (size.width, size.height):
        width, height = picture.size
        raise Malformed(f"expected {width}x{height} px, as the data set says, got {size}")
    digest = hashlib.sha256(data).hexdigest()
    model = facts.model or ModelRef(IMPORTED, "1", _digest_of(data_set.labels))
    tier = settings.tier if facts.tier is None else facts.tier
    answer = TierAnswer(tier, _detections(picture, size, model), data_set.labels)
    case = HardCase(
        data,
        facts.frame_id or FrameId(settings.camera, f"{IMPORTED}-{digest[:_DIGITS]}", 0),
        facts.captured_at or taken_at,
        (answer,),
        facts.reasons or (IMPORTED,),
        facts.send_probability,
    )
    return case, size, facts.tags


def _detections(picture: LabelledPicture, size: ImageSize, model: ModelRef) -> Detections:
    """Best first, cut to the picture; what is outside of it is left out."""
    boxes = picture.boxes_xyxy
    if picture.in_shares:
        sides = np.array([size.width, size.height] * 2, np.float32)
        boxes = (boxes * sides).astype(np.float32)
    boxes = clip_boxes(boxes, size)
    kept = np.flatnonzero((boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1]))
    order = kept[np.argsort(-picture.scores[kept], kind="stable")]
    return Detections(boxes[order], picture.scores[order], picture.class_ids[order], size, model)


def _bytes_of(path: Path, limits: ImageLimits) -> bytes:
    try:
        if path.stat().st_size > limits.max_bytes:
            raise Malformed(f"expected at most {limits.max_bytes} bytes, got {path.stat().st_size}")
        return path.read_bytes()
    except OSError as error:
        raise Malformed(f"it cannot be read: {error.strerror or error}") from error


def _digest_of(labels: LabelSet) -> str:
    return hashlib.sha256("\n".join(_names(labels)).encode()).hexdigest()


def _names(labels: LabelSet) -> Iterator[str]:
    yield IMPORTED
    yield from labels.names
