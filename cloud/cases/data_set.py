"""A data set as it lies in a folder: labelled pictures, and what is said of each besides. COCO and YOLO are read into
this, and exports carry it, so that what was exported comes back as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from cloud.cases.stored_case import StoredCase
from fovea.core.arrays import FloatArray, IntArray
from fovea.core.detections import ModelRef
from fovea.core.errors import Malformed
from fovea.core.frame import FrameId
from fovea.core.hard_case import TierAnswer
from fovea.core.labels import LabelSet
from fovea.core.routing import Tier

COCO_FILE = "annotations.json"
YOLO_FILE = "data.yaml"
FACTS_FILE = "cases.json"
"""Beside a YOLO folder, whose label files have no place for it."""
IMAGES_FOLDER = "images"


class Format(StrEnum):
    """coco: images/ and annotations.json. yolo: images/, labels/ and data.yaml."""

    COCO = "coco"
    YOLO = "yolo"


@dataclass(frozen=True, slots=True, eq=False)
class LabelledPicture:
    """One picture with its boxes.

    boxes      f32[N, 4] xyxy in px of the picture, or in shares of it (`in_shares`); scores f32[N]; class_ids i32[N]
    size       (width, height) that the data set states, or None
    facts      what an export said of the case; empty for data from elsewhere
    """

    path: Path
    boxes_xyxy: FloatArray
    scores: FloatArray
    class_ids: IntArray
    in_shares: bool
    size: tuple[int, int] | None
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class DataSet:
    """`labels`: what its boxes may be, ids as everywhere in Fovea. `pictures` by their place in the data set;
    `refused` names those that cannot be read, with why. `skipped_boxes`: crowds and boxes without extent."""

    labels: LabelSet
    pictures: Sequence[LabelledPicture]
    refused: tuple[str, ...]
    skipped_boxes: int


@dataclass(frozen=True, slots=True)
class CaseFacts:
    """What a data set says of a case beyond its boxes; None where it does not."""

    frame_id: FrameId | None
    captured_at: datetime | None
    reasons: tuple[str, ...]
    send_probability: float
    tier: Tier | None
    model: ModelRef | None
    tags: tuple[str, ...]


def facts_told(case: StoredCase, answer: TierAnswer) -> dict[str, Any]:
    """What an export says of a case, as JSON has it."""
    model = answer.detections.model
    return {
        "date_captured": case.captured_at.isoformat(),
        "case_id": case.id,
        "camera": case.frame_id.camera,
        "boot_id": case.frame_id.boot_id,
        "sequence": case.frame_id.sequence,
        "reasons": list(case.reasons),
        "send_probability": case.send_probability,
        "answered_by": answer.tier.name.lower(),
        "model": str(model),
        "model_name": model.name,
        "model_version": model.version,
        "model_sha256": model.sha256,
        "condition": case.condition,
        "tags": list(case.tags),
    }


def read_facts(told: Mapping[str, Any]) -> CaseFacts:
    """The other way round; what is not there is None or usual. Raises Malformed, naming what makes no sense."""
    try:
        has_frame = "camera" in told and "boot_id" in told and "sequence" in told
        has_model = "model_name" in told and "model_version" in told and "model_sha256" in told
        return CaseFacts(
            FrameId(_text(told["camera"]), _text(told["boot_id"]), told["sequence"]) if has_frame else None,
            _instant(told.get("date_captured")),
            tuple(_text(word) for word in told.get("reasons", ())),
            float(told.get("send_probability", 1.0)),
            Tier[_text(told["answered_by"]).upper()] if "answered_by" in told else None,
            ModelRef(*(_text(told[f"model_{name}"]) for name in ("name", "version", "sha256")))
            if has_model
            else None,
            tuple(_text(word) for word in told.get("tags", ())),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(f"what is said of the case makes no sense: {error!r:.100}") from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, got {type(value).__name__}")
    return value


def _instant(value: object) -> datetime | None:
    """An instant of ISO 8601 (UTC where no zone is said); None for what is none, as dates of other tools may be."""
    if not isinstance(value, str):
        return None
    try:
        instant = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
