"""Between the values of `protos.calls` and `fovea.core` and the bytes on the wire.

Whatever bytes come in, reading them gives a checked value or raises Malformed or TooLarge. Writing raises Malformed
for what a message cannot hold, such as half a character in a name.
"""

from __future__ import annotations

import numpy as np

from fovea.core.arrays import ImageArray
from fovea.core.errors import Malformed
from fovea.core.frame import size_of
from fovea.core.hard_case import HardCase
from protos.calls import (
    Delivery,
    DeliveryReceipt,
    Description,
    DetectAnswer,
    DetectQuestion,
    Priority,
    ServiceLimits,
    Timings,
)
from protos.gen import cases_pb2 as wire_cases
from protos.gen import detect_pb2 as wire
from protos.message_parts import (
    candidates_from_message,
    candidates_to_message,
    detections_from_message,
    detections_to_message,
    frame_id_from_message,
    frame_id_to_message,
    labels_from_messages,
    labels_to_messages,
    model_from_message,
    model_to_message,
    mosaic_from_message,
    mosaic_to_message,
    optional_message,
    read_message,
    size_from_message,
    size_to_message,
    tier_answer_to_message,
    tier_answers_from_messages,
    time_from_message,
    time_to_message,
    writing,
)


def question_to_bytes(question: DetectQuestion) -> bytes:
    with writing("question"):
        message = wire.DetectRequest(
            frame_id=frame_id_to_message(question.frame_id),
            captured_at=time_to_message(question.captured_at),
            captured_mono_s=question.captured_mono_s,
            mosaic=optional_message(mosaic_to_message, question.mosaic),
            want_candidates=question.wants_candidates,
            priority=wire.Priority.Name(question.priority),
            answers=[tier_answer_to_message(answer) for answer in question.answers],
            reasons=question.reasons,
            send_probability=question.send_probability,
        )
        if isinstance(question.image, bytes):
            message.encoded = question.image
        else:
            message.raw.size.CopyFrom(size_to_message(size_of(question.image)))
            message.raw.bgr = question.image.tobytes()
        return message.SerializeToString()


def question_from_bytes(data: bytes) -> DetectQuestion:
    """Raises Malformed, or TooLarge for more boxes than a tier has reason to tell. An unknown priority, from a newer
    client, is a normal one."""
    message = read_message("question", wire.DetectRequest, data)
    known = {priority.value for priority in Priority}
    has_time = message.HasField("captured_at")
    captured_at = time_from_message("question", message.captured_at) if has_time else None
    return DetectQuestion(
        image=_image_from_message(message),
        frame_id=frame_id_from_message(message.frame_id) if message.HasField("frame_id") else None,
        captured_at=captured_at,
        captured_mono_s=message.captured_mono_s if message.HasField("captured_mono_s") else None,
        mosaic=mosaic_from_message(message.mosaic) if message.HasField("mosaic") else None,
        wants_candidates=message.want_candidates,
        priority=Priority(message.priority) if message.priority in known else Priority.NORMAL,
        answers=tier_answers_from_messages(message.answers),
        reasons=tuple(message.reasons),
        send_probability=message.send_probability if message.HasField("send_probability") else None,
    )


def answer_to_bytes(answer: DetectAnswer) -> bytes:
    with writing("answer"):
        return wire.DetectResponse(
            detections=detections_to_message(answer.detections),
            candidates=optional_message(candidates_to_message, answer.candidates),
            revision=answer.revision,
            degraded=answer.is_degraded,
            timings=wire.Timings(
                queue_ms=answer.timings.queue_ms,
                decode_ms=answer.timings.decode_ms,
                infer_ms=answer.timings.infer_ms,
                above_ms=answer.timings.above_ms,
            ),
            model=model_to_message(answer.model),
            labels=labels_to_messages(answer.labels),
            answers=[tier_answer_to_message(each) for each in answer.answers],
        ).SerializeToString()


def answer_from_bytes(data: bytes) -> DetectAnswer:
    """Raises Malformed, or TooLarge for more candidates or boxes than anyone needs."""
    message = read_message("answer", wire.DetectResponse, data)
    timings = message.timings
    return DetectAnswer(
        detections=detections_from_message(message.detections),
        model=model_from_message(message.model),
        labels=labels_from_messages(message.labels),
        candidates=candidates_from_message(message.candidates) if message.HasField("candidates") else None,
        revision=message.revision,
        is_degraded=message.degraded,
        timings=Timings(timings.queue_ms, timings.decode_ms, timings.infer_ms, timings.above_ms),
        answers=tier_answers_from_messages(message.answers),
    )


def description_request_to_bytes() -> bytes:
    return wire.DescribeRequest().SerializeToString()


def description_to_bytes(description: Description) -> bytes:
    with writing("description"):
        return wire.DescribeResponse(
            model=model_to_message(description.model),
            labels=labels_to_messages(description.labels),
            limits=wire.Limits(
                max_request_bytes=description.limits.max_request_bytes,
                max_pixels=description.limits.max_pixels,
                takes_mosaics=description.limits.takes_mosaics,
            ),
        ).SerializeToString()


def description_from_bytes(data: bytes) -> Description:
    """Raises Malformed."""
    message = read_message("description", wire.DescribeResponse, data)
    return Description(
        model_from_message(message.model),
        labels_from_messages(message.labels),
        ServiceLimits(
            message.limits.max_request_bytes, message.limits.max_pixels, message.limits.takes_mosaics
        ),
    )


def delivery_to_bytes(delivery: Delivery) -> bytes:
    """What a case is on the wire, and on disk."""
    case = delivery.case
    with writing("hard case"):
        return wire_cases.DeliverRequest(
            case=wire_cases.HardCase(
                jpeg=case.jpeg,
                frame_id=frame_id_to_message(case.frame_id),
                captured_at=time_to_message(case.captured_at),
                answers=[tier_answer_to_message(answer) for answer in case.answers],
                reasons=case.reasons,
                send_probability=case.send_probability,
            )
        ).SerializeToString()


def delivery_from_bytes(data: bytes) -> Delivery:
    """Raises Malformed, or TooLarge for more boxes than a tier has reason to tell."""
    message = read_message("delivery", wire_cases.DeliverRequest, data).case
    if not message.HasField("captured_at"):
        raise Malformed("hard case captured_at: expected a time, got none")
    return Delivery(
        HardCase(
            jpeg=message.jpeg,
            frame_id=frame_id_from_message(message.frame_id),
            captured_at=time_from_message("hard case", message.captured_at),
            answers=tier_answers_from_messages(message.answers),
            reasons=tuple(message.reasons),
            send_probability=message.send_probability,
        )
    )


def receipt_to_bytes(receipt: DeliveryReceipt) -> bytes:
    with writing("delivery receipt"):
        return wire_cases.DeliverResponse(id=receipt.id, is_new=receipt.is_new).SerializeToString()


def receipt_from_bytes(data: bytes) -> DeliveryReceipt:
    """Raises Malformed."""
    message = read_message("delivery receipt", wire_cases.DeliverResponse, data)
    return DeliveryReceipt(message.id, message.is_new)


def _image_from_message(message: wire.DetectRequest) -> bytes | ImageArray:
    match message.WhichOneof("image"):
        case "encoded":
            return message.encoded
        case "raw":
            size, bgr = size_from_message(message.raw.size), message.raw.bgr
            if len(bgr) != size.width * size.height * 3:
                raise Malformed(f"question raw image: expected {size} px of 3 bytes, got {len(bgr)} bytes")
            return np.frombuffer(bgr, np.uint8).reshape(size.height, size.width, 3)
        case _:
            raise Malformed("question: expected an image, got none")
