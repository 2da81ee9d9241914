"""Between the values of `fovea.core` and the parts that messages are made of, for `protos.codec`.

Whatever comes in, reading it gives a checked value or raises Malformed or TooLarge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp

from fovea.core.arrays import FloatArray
from fovea.core.detections import Candidates, Detections, ModelRef, ScoreKind
from fovea.core.errors import Malformed, TooLarge
from fovea.core.frame import FrameId, ImageSize
from fovea.core.hard_case import TierAnswer
from fovea.core.labels import Label, LabelSet
from fovea.core.mosaic import MOST_TILES, Mosaic, Tile
from fovea.core.routing import Tier
from protos.gen import detect_pb2 as wire

_MOST_CELLS = 4_000_000
"""Boxes times channels of one Candidates message: a few bytes on the wire must not ask for gigabytes here."""

_MOST_BOXES = 1000
"""Of one tier's answer: merging compares each with each, which is to cost milliseconds and megabytes."""

_WIRE_KIND = {
    ScoreKind.PER_CLASS: wire.SCORE_KIND_PER_CLASS,
    ScoreKind.ONE_PER_BOX: wire.SCORE_KIND_ONE_PER_BOX,
}
_KIND = {number: kind for kind, number in _WIRE_KIND.items()}

AnyMessage = TypeVar("AnyMessage", bound=Message)


def detections_to_message(detections: Detections) -> wire.Detections:
    return wire.Detections(
        boxes_xyxy=detections.boxes_xyxy.ravel().tolist(),
        scores=detections.scores.tolist(),
        class_ids=detections.class_ids.tolist(),
        image_size=size_to_message(detections.image_size),
        model=model_to_message(detections.model),
    )


def detections_from_message(message: wire.Detections) -> Detections:
    """Raises Malformed."""
    return Detections(
        _boxes("detections", message.boxes_xyxy),
        np.array(message.scores, np.float32),
        np.array(message.class_ids, np.int32),
        size_from_message(message.image_size),
        model_from_message(message.model),
    )


def candidates_to_message(candidates: Candidates) -> wire.Candidates:
    rows, channels = np.nonzero(candidates.class_scores)
    return wire.Candidates(
        boxes_xyxy=candidates.boxes_xyxy.ravel().tolist(),
        pair_boxes=rows.tolist(),
        pair_channels=channels.tolist(),
        pair_scores=candidates.class_scores[rows, channels].tolist(),
        kind=_WIRE_KIND[candidates.kind],
        labels=labels_to_messages(candidates.labels),
        image_size=size_to_message(candidates.image_size),
    )


def candidates_from_message(message: wire.Candidates) -> Candidates:
    """Raises Malformed, or TooLarge for a matrix of scores beyond 4 million cells."""
    if message.kind not in _KIND:
        raise Malformed(f"candidates kind: expected one of {sorted(_KIND)}, got {message.kind}")
    boxes, labels = _boxes("candidates", message.boxes_xyxy), labels_from_messages(message.labels)
    rows, channels = np.array(message.pair_boxes, np.int64), np.array(message.pair_channels, np.int64)
    scores = np.array(message.pair_scores, np.float32)
    if not len(rows) == len(channels) == len(scores):
        raise Malformed(
            "candidates pairs: expected as many boxes as channels and scores, "
            f"got {len(rows)}, {len(channels)} and {len(scores)}"
        )
    cells = len(boxes) * len(labels)
    if cells > _MOST_CELLS:
        raise TooLarge(f"candidates: expected at most {_MOST_CELLS} scores, got {len(boxes)} x {len(labels)}")
    if len(rows) and (rows.max() >= len(boxes) or channels.max() >= len(labels)):
        raise Malformed(
            f"candidates pairs: expected boxes below {len(boxes)} and channels below {len(labels)}, "
            f"got {rows.max()} and {channels.max()}"
        )
    if len(np.unique(rows * len(labels) + channels)) < len(rows):
        raise Malformed("candidates pairs: expected each pair of box and channel once, got one twice")
    matrix = np.zeros((len(boxes), len(labels)), np.float32)
    matrix[rows, channels] = scores
    return Candidates(boxes, matrix, _KIND[message.kind], labels, size_from_message(message.image_size))


def tier_answer_to_message(answer: TierAnswer) -> wire.TierAnswer:
    return wire.TierAnswer(
        tier=answer.tier,
        detections=detections_to_message(answer.detections),
        labels=labels_to_messages(answer.labels),
        looked=_boxes_to_messages(answer.looked_xyxy),
    )


def tier_answers_from_messages(messages: Iterable[wire.TierAnswer]) -> tuple[TierAnswer, ...]:
    """Raises Malformed, also for a tier that nobody knows here, and TooLarge for one with more than 1000 boxes."""
    return tuple(_tier_answer(message) for message in messages)


def _tier_answer(message: wire.TierAnswer) -> TierAnswer:
    count = len(message.detections.scores)
    if count > _MOST_BOXES:
        raise TooLarge(f"answer of a tier: expected at most {_MOST_BOXES} boxes, got {count}")
    looked = [[box.x1, box.y1, box.x2, box.y2] for box in message.looked]
    if len(looked) > _MOST_BOXES:
        raise TooLarge(f"answer of a tier: expected at most {_MOST_BOXES} parts, got {len(looked)}")
    return TierAnswer(
        _tier(message.tier),
        detections_from_message(message.detections),
        labels_from_messages(message.labels),
        np.array(looked, np.float32) if looked else None,
    )


def mosaic_to_message(mosaic: Mosaic) -> wire.Mosaic:
    return wire.Mosaic(
        frame_size=size_to_message(mosaic.frame_size),
        size=size_to_message(mosaic.size),
        tiles=[
            wire.Tile(x=t.x, y=t.y, width=t.width, height=t.height, at_x=t.at_x, at_y=t.at_y)
            for t in mosaic.tiles
        ],
    )


def mosaic_from_message(message: wire.Mosaic) -> Mosaic:
    """Raises Malformed, also for more tiles than a mosaic has."""
    if len(message.tiles) > MOST_TILES:
        raise Malformed(f"mosaic: expected at most {MOST_TILES} tiles, got {len(message.tiles)}")
    return Mosaic(
        size_from_message(message.frame_size),
        size_from_message(message.size),
        tuple(Tile(t.x, t.y, t.width, t.height, t.at_x, t.at_y) for t in message.tiles),
    )


def _boxes_to_messages(boxes_xyxy: FloatArray | None) -> list[wire.Box]:
    rows = [] if boxes_xyxy is None else boxes_xyxy.tolist()
    return [wire.Box(x1=x1, y1=y1, x2=x2, y2=y2) for x1, y1, x2, y2 in rows]


def _tier(number: int) -> Tier:
    try:
        return Tier(number)
    except ValueError:
        raise Malformed(f"tier: expected one of {[tier.value for tier in Tier]}, got {number}") from None


def read_message(name: str, message_type: type[AnyMessage], data: bytes) -> AnyMessage:
    try:
        return message_type.FromString(data)
    except DecodeError as error:
        raise Malformed(f"{name}: expected a {message_type.DESCRIPTOR.full_name} message: {error}") from error


@contextmanager
def writing(name: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, OverflowError) as error:
        raise Malformed(f"{name}: not to be written as a message: {error}") from error


def optional_message(write: Any, value: Any) -> Any:
    return None if value is None else write(value)


def _boxes(name: str, values: Any) -> FloatArray:
    flat = np.array(values, np.float32)
    if flat.size % 4:
        raise Malformed(f"{name} boxes_xyxy: expected 4 numbers for each box, got {flat.size} in all")
    return flat.reshape(-1, 4)


def frame_id_to_message(frame_id: FrameId | None) -> wire.FrameId | None:
    if frame_id is None:
        return None
    return wire.FrameId(camera=frame_id.camera, boot_id=frame_id.boot_id, sequence=frame_id.sequence)


def frame_id_from_message(message: wire.FrameId) -> FrameId:
    return FrameId(message.camera, message.boot_id, message.sequence)


def time_to_message(instant: datetime | None) -> Timestamp | None:
    if instant is None:
        return None
    message = Timestamp()
    message.FromDatetime(instant)
    return message


def time_from_message(name: str, message: Timestamp) -> datetime:
    try:
        if not 0 <= message.nanos < 1_000_000_000:
            raise ValueError(f"{message.nanos} ns of a second")
        return message.ToDatetime(UTC)
    except (ValueError, OverflowError) as error:
        raise Malformed(
            f"{name} captured_at: expected a time between years 1 and 9999, got {error}"
        ) from error


def size_to_message(size: ImageSize) -> wire.ImageSize:
    return wire.ImageSize(width=size.width, height=size.height)


def size_from_message(message: wire.ImageSize) -> ImageSize:
    return ImageSize(message.width, message.height)


def model_to_message(model: ModelRef) -> wire.ModelRef:
    return wire.ModelRef(name=model.name, version=model.version, sha256=model.sha256)


def model_from_message(message: wire.ModelRef) -> ModelRef:
    return ModelRef(message.name, message.version, message.sha256)


def labels_to_messages(labels: LabelSet) -> list[wire.Label]:
    return [wire.Label(id=label.id, name=label.name) for label in labels]


def labels_from_messages(messages: Iterable[wire.Label]) -> LabelSet:
    return _label_set(tuple((message.id, message.name) for message in messages))


@lru_cache(maxsize=64)
def _label_set(labels: tuple[tuple[int, str], ...]) -> LabelSet:
    """Kept, because every answer of a server names the same ones."""
    return LabelSet(tuple(Label(*label) for label in labels))
