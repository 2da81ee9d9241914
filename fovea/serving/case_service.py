"""The Case service: reads a case, has it put away safely, and gives a receipt or says why not."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Executor
from typing import Any

from fovea.core.errors import FoveaError, Overloaded, TooLarge, Unavailable
from fovea.core.hard_case import HardCase
from fovea.runtime.image_header import read_header
from fovea.serving.answerer import CaseDesk
from fovea.serving.calls_under_way import CallsUnderWay
from fovea.serving.outcomes import Ending, NobodyWatches, Observer, Outcome, ending_of
from protos.calls import ServiceLimits
from protos.codec import delivery_from_bytes, receipt_to_bytes
from protos.rpc import status_of

_MOST_AT_ONCE = 8
"""Deliveries that are under way; each holds its picture in memory."""
_RETRY_AFTER_S = 1.0


class CaseService:
    """Answers `protos.rpc.CaseMethods` on one event loop. Each delivery succeeds or fails alone."""

    def __init__(
        self,
        desk: CaseDesk,
        openers: Executor,
        limits: ServiceLimits,
        calls: CallsUnderWay,
        observer: Observer = NobodyWatches(),
    ) -> None:
        self._desk = desk
        self._openers = openers
        self._limits = limits
        self._calls = calls
        self._observer = observer
        self._under_way = 0

    async def deliver(self, request: bytes, context: Any) -> bytes:
        begun_mono_s = time.monotonic()
        ending = Ending(Outcome.FAILED, "unforeseen")
        try:
            reply = await self._calls.answered(self._delivered(request))
            ending = Ending(Outcome.SERVED)
            return reply
        except FoveaError as error:
            ending = ending_of(error)
            await context.abort(*status_of(error))
            raise AssertionError("abort returns never") from error
        except asyncio.CancelledError:
            ending = Ending(Outcome.CANCELLED)
            raise
        finally:
            self._observer.delivery_ended(ending, time.monotonic() - begun_mono_s)

    async def _delivered(self, request: bytes) -> bytes:
        if not self._calls.takes_calls:
            raise Unavailable("the server is stopping")
        if len(request) > self._limits.max_request_bytes:
            raise TooLarge(
                f"case: expected at most {self._limits.max_request_bytes} bytes, got {len(request)}"
            )
        if self._under_way >= _MOST_AT_ONCE:
            raise Overloaded(f"{self._under_way} cases are being put away already", _RETRY_AFTER_S)
        self._under_way += 1
        try:
            loop = asyncio.get_running_loop()
            case = await loop.run_in_executor(self._openers, read_case, request, self._limits)
            return receipt_to_bytes(await self._desk.deliver(case))
        finally:
            self._under_way -= 1


def read_case(request: bytes, limits: ServiceLimits) -> HardCase:
    """The case of a delivery. Raises Malformed, also for a picture that is none, and TooLarge for its size in px."""
    case = delivery_from_bytes(request).case
    declared = read_header(case.jpeg)
    if declared.width * declared.height > limits.max_pixels:
        raise TooLarge(
            f"case: expected at most {limits.max_pixels} pixels, got {declared.width}x{declared.height}"
        )
    return case
