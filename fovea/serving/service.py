"""The Detect service: reads a question, opens its picture, has it looked at, and answers or says why not."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

from fovea.core.arrays import ImageArray
from fovea.core.errors import FoveaError, Incompatible, Malformed
from fovea.core.frame import ImageSize, size_of
from fovea.runtime.image_header import read_header
from fovea.runtime.images import ImageLimits, decode_image
from fovea.serving.admission import Ask, DoorLimits, Reason, Refused, Unread, judge_arrival
from fovea.serving.answerer import Answerer
from fovea.serving.calls_under_way import CallsUnderWay
from fovea.serving.outcomes import Ending, NobodyWatches, Observer, Outcome, ending_of
from fovea.serving.worker import Look, Looked, Worker
from protos.calls import Description, DetectQuestion, ServiceLimits, Timings
from protos.codec import answer_to_bytes, description_to_bytes, question_from_bytes
from protos.rpc import status_of


class DetectService:
    """Answers `protos.rpc.DetectMethods` on one event loop. Each question succeeds or fails alone, and is counted as
    one of the outcomes, once."""

    def __init__(
        self,
        worker: Worker,
        openers: Executor,
        limits: ServiceLimits,
        answerer: Answerer,
        calls: CallsUnderWay,
        longest_wait_s: float,
        observer: Observer = NobodyWatches(),
    ) -> None:
        """`openers` open pictures, so that the loop never does; `longest_wait_s` is for calls without a deadline."""
        self._worker = worker
        self._openers = openers
        self._limits = limits
        self._door = DoorLimits(limits.max_request_bytes)
        self._answerer = answerer
        self._calls = calls
        self._longest_wait_s = longest_wait_s
        self._observer = observer
        self._unread = Unread()

    async def detect(self, request: bytes, context: Any) -> bytes:
        begun_mono_s = time.monotonic()
        left_s = context.time_remaining()
        given_s = self._longest_wait_s if left_s is None else left_s
        expires_mono_s = begun_mono_s + given_s
        ending = Ending(Outcome.FAILED, "unforeseen")
        try:
            reply = await self._calls.answered(self._detected(request, expires_mono_s))
            ending = Ending(Outcome.SERVED)
            return reply
        except FoveaError as error:
            ending = ending_of(error)
            await context.abort(*status_of(error))
            raise AssertionError("abort returns never") from error
        except asyncio.CancelledError:
            # gRPC cancels a call whose caller left, and one whose time is over: on the caller's clock, which is a
            # little ahead, because the time is rounded up by 1 % on the wire.
            is_over = time.monotonic() >= expires_mono_s - 0.02 * given_s - 0.01
            ending = Ending(Outcome.EXPIRED if is_over else Outcome.CANCELLED)
            raise
        finally:
            self._observer.call_ended(ending, time.monotonic() - begun_mono_s)

    async def describe(self, request: bytes, context: Any) -> bytes:
        try:
            return await self._calls.answered(self._described())
        except FoveaError as error:
            await context.abort(*status_of(error))
            raise AssertionError("abort returns never") from error

    async def _detected(self, request: bytes, expires_mono_s: float) -> bytes:
        left_s = expires_mono_s - time.monotonic()
        refused = judge_arrival(len(request), left_s, self._unread, self._door, not self._calls.takes_calls)
        if refused is not None:
            raise refused.error()
        question, pixels, decode_ms = await self._opened(request, expires_mono_s)
        looked = await self._worker.look(Look(pixels, expires_mono_s, question.priority))
        if question.mosaic is not None:
            looked = replace(looked, inference=question.mosaic.to_frame(looked.inference))
        return await self._replied(question, pixels, looked, decode_ms, expires_mono_s)

    async def _opened(
        self, request: bytes, expires_mono_s: float
    ) -> tuple[DetectQuestion, ImageArray, float]:
        self._hold(1, len(request))
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._openers, open_question, request, self._limits, self._worker, expires_mono_s
            )
        finally:
            self._hold(-1, -len(request))

    def _hold(self, count: int, size_bytes: int) -> None:
        self._unread = Unread(self._unread.count + count, self._unread.size_bytes + size_bytes)

    async def _replied(
        self,
        question: DetectQuestion,
        pixels: ImageArray,
        looked: Looked,
        decode_ms: float,
        expires_mono_s: float,
    ) -> bytes:
        answer = await self._answerer.answer(question, pixels, looked, expires_mono_s)
        timings = Timings(looked.queue_ms, decode_ms, looked.infer_ms, answer.timings.above_ms)
        reply = answer_to_bytes(replace(answer, timings=timings))
        self._observer.call_answered(timings)
        return reply

    async def _described(self) -> bytes:
        model, labels = self._worker.model
        return description_to_bytes(Description(model, labels, self._limits))


def open_question(
    request: bytes, limits: ServiceLimits, worker: Worker, expires_mono_s: float
) -> tuple[DetectQuestion, ImageArray, float]:
    """The question, its pixels u8[H, W, 3] BGR, and the milliseconds this took.

    The worker is asked before the picture is decoded, so that no work is done for one that it would refuse anyway.
    Raises Malformed, TooLarge, Incompatible (a mosaic where none are taken), and what `Worker.check` raises.
    """
    started_mono_s = time.monotonic()
    question = question_from_bytes(request)
    if question.mosaic is not None and not limits.takes_mosaics:
        raise Incompatible("question: expected a whole frame, got a mosaic of parts of one")
    size_bytes = 3 * _checked_pixel_count(question, limits)
    worker.check(Ask(expires_mono_s, question.priority, size_bytes))
    if isinstance(question.image, bytes):
        pixels = decode_image(question.image, ImageLimits(limits.max_request_bytes, limits.max_pixels))
    else:
        pixels = question.image
    _check_sizes(question, size_of(pixels))
    return question, pixels, (time.monotonic() - started_mono_s) * 1000


def _check_sizes(question: DetectQuestion, picture: ImageSize) -> None:
    mosaic = question.mosaic
    if mosaic is not None and mosaic.size != picture:
        raise Malformed(f"question image: expected a mosaic of {mosaic.size} px, got {picture} px")
    frame = picture if mosaic is None else mosaic.frame_size
    for answer in question.answers:
        if answer.detections.image_size != frame:
            raise Malformed(
                f"question answers: expected answers about {frame} px, as the picture has, "
                f"got one about {answer.detections.image_size} px"
            )


def _checked_pixel_count(question: DetectQuestion, limits: ServiceLimits) -> int:
    if isinstance(question.image, bytes):
        declared = read_header(question.image)
        width, height = declared.width, declared.height
    else:
        height, width = question.image.shape[:2]
    if width * height > limits.max_pixels:
        message = f"image: expected at most {limits.max_pixels} pixels, got {width}x{height}"
        raise Refused(Reason.TOO_LARGE, message).error()
    return width * height
