"""The Detect service: reads a question, opens its picture, has it looked at, and answers or says why not."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from concurrent.futures import Executor
from typing import Any

from fovea.core.arrays import ImageArray
from fovea.core.errors import DetectorFailed, FoveaError, TooLarge, Unavailable
from fovea.runtime.images import ImageLimits, decode_image
from fovea.serving.worker import Look, Worker
from protos.calls import Description, DetectAnswer, DetectQuestion, ServiceLimits, Timings
from protos.codec import answer_to_bytes, description_to_bytes, question_from_bytes
from protos.rpc import status_of

_log = logging.getLogger(__name__)


class DetectService:
    """Answers `protos.rpc.DetectMethods` on one event loop. Each question succeeds or fails alone."""

    def __init__(
        self, worker: Worker, openers: Executor, limits: ServiceLimits, revision: int, longest_wait_s: float
    ) -> None:
        """`openers` open pictures, so that the loop never does; `longest_wait_s` is for calls without a deadline."""
        self._worker = worker
        self._openers = openers
        self._limits = limits
        self._revision = revision
        self._longest_wait_s = longest_wait_s
        self._takes_calls = True
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def detect(self, request: bytes, context: Any) -> bytes:
        return await self._replied(self._detected(request, context), context)

    async def describe(self, request: bytes, context: Any) -> bytes:
        return await self._replied(self._described(), context)

    async def drain(self, grace_s: float) -> bool:
        """Refuses what comes from now on and waits for what is under way. False: some of it took longer."""
        self._takes_calls = False
        try:
            await asyncio.wait_for(self._idle.wait(), grace_s)
        except TimeoutError:
            return False
        return True

    async def _replied(self, work: Awaitable[bytes], context: Any) -> bytes:
        """The reply, or the call aborted with the status that stands for the error."""
        self._under_way += 1
        self._idle.clear()
        try:
            return await work
        except FoveaError as error:
            failure = error
        except Exception:
            _log.exception("a call failed in a way that nobody foresaw")
            failure = DetectorFailed("internal error, see the log of the server")
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()
        await context.abort(*status_of(failure))
        raise AssertionError("abort returns never")

    async def _detected(self, request: bytes, context: Any) -> bytes:
        if not self._takes_calls:
            raise Unavailable("the server is stopping")
        left_s = context.time_remaining()
        expires_mono_s = time.monotonic() + (self._longest_wait_s if left_s is None else left_s)
        opened = asyncio.get_running_loop().run_in_executor(
            self._openers, open_question, request, self._limits
        )
        question, pixels, decode_ms = await opened
        looked = await self._worker.look(Look(pixels, expires_mono_s, question.priority))
        return answer_to_bytes(
            DetectAnswer(
                detections=looked.inference.detections,
                model=looked.model,
                labels=looked.labels,
                candidates=looked.inference.candidates if question.wants_candidates else None,
                revision=self._revision,
                timings=Timings(looked.queue_ms, decode_ms, looked.infer_ms),
            )
        )

    async def _described(self) -> bytes:
        model, labels = self._worker.model
        return description_to_bytes(Description(model, labels, self._limits))


def open_question(request: bytes, limits: ServiceLimits) -> tuple[DetectQuestion, ImageArray, float]:
    """The question, its pixels u8[H, W, 3] BGR, and the milliseconds this took. Raises Malformed and TooLarge."""
    started_mono_s = time.monotonic()
    question = question_from_bytes(request)
    if isinstance(question.image, bytes):
        pixels = decode_image(question.image, ImageLimits(limits.max_request_bytes, limits.max_pixels))
    else:
        pixels = question.image
        if pixels.shape[0] * pixels.shape[1] > limits.max_pixels:
            raise TooLarge(
                f"image: expected at most {limits.max_pixels} pixels, got {pixels.shape[1]}x{pixels.shape[0]}"
            )
    return question, pixels, (time.monotonic() - started_mono_s) * 1000
