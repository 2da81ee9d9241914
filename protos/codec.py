"""Between the values of `protos.calls` and `fovea.core` and the bytes on the wire.

Whatever bytes come in, reading them gives a checked value or raises Malformed or TooLarge. Writing raises Malformed
for what a message cannot hold, such as half a character in a name.
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

from fovea.core.arrays import FloatArray, ImageArray
from fovea.core.detections import Candidates, Detections, ModelRef, ScoreKind
from fovea.core.errors import Malformed, TooLarge
from fovea.core.frame import FrameId, ImageSize, size_of
from fovea.core.labels import Label, LabelSet
from protos.calls import Description, DetectAnswer, DetectQuestion, Priority, ServiceLimits, Timings
from protos.gen import detect_pb2 as wire

_MOST_CELLS = 4_000_000
"""Boxes times channels of one Candidates message: a few bytes on the wire must not ask for gigabytes here."""

_WIRE_KIND = {
    ScoreKind.PER_CLASS: wire.SCORE_KIND_PER_CLASS,
    ScoreKind.ONE_PER_BOX: wire.SCORE_KIND_ONE_PER_BOX,
}
_KIND = {number: kind for kind, number in _WIRE_KIND.items()}

AnyMessage = TypeVar("AnyMessage", bound=Message)


def question_to_bytes(question: DetectQuestion) -> bytes:
    with _writing("question"):
        message = wire.DetectRequest(
            frame_id=_frame_id_to_message(question.frame_id),
            captured_at=_time_to_message(question.captured_at),
            captured_mono_s=question.captured_mono_s,
            regions=[
                wire.Box(x1=x1, y1=y1, x2=x2, y2=y2) for x1, y1, x2, y2 in question.regions_xyxy.tolist()
            ],
            camera_answer=_optional(detections_to_message, question.camera_answer),
            want_candidates=question.wants_candidates,
            priority=wire.Priority.Name(question.priority),
        )
        if isinstance(question.image, bytes):
            message.encoded = question.image
        else:
            message.raw.size.CopyFrom(_size_to_message(size_of(question.image)))
            message.raw.bgr = question.image.tobytes()
        return message.SerializeToString()


def question_from_bytes(data: bytes) -> DetectQuestion:
    """Raises Malformed. An unknown priority, from a newer client, is a normal one."""
    message = _read("question", wire.DetectRequest, data)
    known = {priority.value for priority in Priority}
    return DetectQuestion(
        image=_image_from_message(message),
        frame_id=_frame_id_from_message(message.frame_id) if message.HasField("frame_id") else None,
        captured_at=_time_from_message(message.captured_at) if message.HasField("captured_at") else None,
        captured_mono_s=message.captured_mono_s if message.HasField("captured_mono_s") else None,
        regions_xyxy=np.array([[box.x1, box.y1, box.x2, box.y2] for box in message.regions], np.float32),
        camera_answer=(
            detections_from_message(message.camera_answer) if message.HasField("camera_answer") else None
        ),
        wants_candidates=message.want_candidates,
        priority=Priority(message.priority) if message.priority in known else Priority.NORMAL,
    )


def answer_to_bytes(answer: DetectAnswer) -> bytes:
    with _writing("answer"):
        return wire.DetectResponse(
            detections=detections_to_message(answer.detections),
            candidates=_optional(candidates_to_message, answer.candidates),
            revision=answer.revision,
            degraded=answer.is_degraded,
            timings=wire.Timings(
                queue_ms=answer.timings.queue_ms,
                decode_ms=answer.timings.decode_ms,
                infer_ms=answer.timings.infer_ms,
            ),
            model=_model_to_message(answer.model),
            labels=_labels_to_messages(answer.labels),
        ).SerializeToString()


def answer_from_bytes(data: bytes) -> DetectAnswer:
    """Raises Malformed, or TooLarge for more candidates than anyone needs."""
    message = _read("answer", wire.DetectResponse, data)
    timings = message.timings
    return DetectAnswer(
        detections=detections_from_message(message.detections),
        model=_model_from_message(message.model),
        labels=_labels_from_messages(message.labels),
        candidates=candidates_from_message(message.candidates) if message.HasField("candidates") else None,
        revision=message.revision,
        is_degraded=message.degraded,
        timings=Timings(timings.queue_ms, timings.decode_ms, timings.infer_ms),
    )


def description_request_to_bytes() -> bytes:
    return wire.DescribeRequest().SerializeToString()


def description_to_bytes(description: Description) -> bytes:
    with _writing("description"):
        return wire.DescribeResponse(
            model=_model_to_message(description.model),
            labels=_labels_to_messages(description.labels),
            limits=wire.Limits(
                max_request_bytes=description.limits.max_request_bytes,
                max_pixels=description.limits.max_pixels,
            ),
        ).SerializeToString()


def description_from_bytes(data: bytes) -> Description:
    """Raises Malformed."""
    message = _read("description", wire.DescribeResponse, data)
    return Description(
        _model_from_message(message.model),
        _labels_from_messages(message.labels),
        ServiceLimits(message.limits.max_request_bytes, message.limits.max_pixels),
    )


def detections_to_message(detections: Detections) -> wire.Detections:
    return wire.Detections(
        boxes_xyxy=detections.boxes_xyxy.ravel().tolist(),
        scores=detections.scores.tolist(),
        class_ids=detections.class_ids.tolist(),
        image_size=_size_to_message(detections.image_size),
        model=_model_to_message(detections.model),
    )


def detections_from_message(message: wire.Detections) -> Detections:
    """Raises Malformed."""
    return Detections(
        _boxes("detections", message.boxes_xyxy),
        np.array(message.scores, np.float32),
        np.array(message.class_ids, np.int32),
        _size_from_message(message.image_size),
        _model_from_message(message.model),
    )


def candidates_to_message(candidates: Candidates) -> wire.Candidates:
    rows, channels = np.nonzero(candidates.class_scores)
    return wire.Candidates(
        boxes_xyxy=candidates.boxes_xyxy.ravel().tolist(),
        pair_boxes=rows.tolist(),
        pair_channels=channels.tolist(),
        pair_scores=candidates.class_scores[rows, channels].tolist(),
        kind=_WIRE_KIND[candidates.kind],
        labels=_labels_to_messages(candidates.labels),
        image_size=_size_to_message(candidates.image_size),
    )


def candidates_from_message(message: wire.Candidates) -> Candidates:
    """Raises Malformed, or TooLarge for a matrix of scores beyond 4 million cells."""
    if message.kind not in _KIND:
        raise Malformed(f"candidates kind: expected one of {sorted(_KIND)}, got {message.kind}")
    boxes, labels = _boxes("candidates", message.boxes_xyxy), _labels_from_messages(message.labels)
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
    return Candidates(boxes, matrix, _KIND[message.kind], labels, _size_from_message(message.image_size))


def _read(name: str, message_type: type[AnyMessage], data: bytes) -> AnyMessage:
    try:
        return message_type.FromString(data)
    except DecodeError as error:
        raise Malformed(f"{name}: expected a {message_type.DESCRIPTOR.full_name} message: {error}") from error


@contextmanager
def _writing(name: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, OverflowError) as error:
        raise Malformed(f"{name}: not to be written as a message: {error}") from error


def _optional(write: Any, value: Any) -> Any:
    return None if value is None else write(value)


def _image_from_message(message: wire.DetectRequest) -> bytes | ImageArray:
    match message.WhichOneof("image"):
        case "encoded":
            return message.encoded
        case "raw":
            size, bgr = _size_from_message(message.raw.size), message.raw.bgr
            if len(bgr) != size.width * size.height * 3:
                raise Malformed(f"question raw image: expected {size} px of 3 bytes, got {len(bgr)} bytes")
            return np.frombuffer(bgr, np.uint8).reshape(size.height, size.width, 3)
        case _:
            raise Malformed("question: expected an image, got none")


def _boxes(name: str, values: Any) -> FloatArray:
    flat = np.array(values, np.float32)
    if flat.size % 4:
        raise Malformed(f"{name} boxes_xyxy: expected 4 numbers for each box, got {flat.size} in all")
    return flat.reshape(-1, 4)


def _frame_id_to_message(frame_id: FrameId | None) -> wire.FrameId | None:
    if frame_id is None:
        return None
    return wire.FrameId(camera=frame_id.camera, boot_id=frame_id.boot_id, sequence=frame_id.sequence)


def _frame_id_from_message(message: wire.FrameId) -> FrameId:
    return FrameId(message.camera, message.boot_id, message.sequence)


def _time_to_message(instant: datetime | None) -> Timestamp | None:
    if instant is None:
        return None
    message = Timestamp()
    message.FromDatetime(instant)
    return message


def _time_from_message(message: Timestamp) -> datetime:
    try:
        if not 0 <= message.nanos < 1_000_000_000:
            raise ValueError(f"{message.nanos} ns of a second")
        return message.ToDatetime(UTC)
    except (ValueError, OverflowError) as error:
        raise Malformed(
            f"question captured_at: expected a time between years 1 and 9999, got {error}"
        ) from error


def _size_to_message(size: ImageSize) -> wire.ImageSize:
    return wire.ImageSize(width=size.width, height=size.height)


def _size_from_message(message: wire.ImageSize) -> ImageSize:
    return ImageSize(message.width, message.height)


def _model_to_message(model: ModelRef) -> wire.ModelRef:
    return wire.ModelRef(name=model.name, version=model.version, sha256=model.sha256)


def _model_from_message(message: wire.ModelRef) -> ModelRef:
    return ModelRef(message.name, message.version, message.sha256)


def _labels_to_messages(labels: LabelSet) -> list[wire.Label]:
    return [wire.Label(id=label.id, name=label.name) for label in labels]


def _labels_from_messages(messages: Iterable[wire.Label]) -> LabelSet:
    return _label_set(tuple((message.id, message.name) for message in messages))


@lru_cache(maxsize=16)
def _label_set(labels: tuple[tuple[int, str], ...]) -> LabelSet:
    """Kept, because every answer of a server names the same ones."""
    return LabelSet(tuple(Label(*label) for label in labels))
