"""What the cloud does with what comes: answers questions and keeps their frames, and takes cases from spools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from datetime import UTC, datetime

from cloud.cases.writer import AskedFrame, CaseCounter, CaseKeeper, CaseWriter, Fate, Way, fate_of
from fovea.core.arrays import ImageArray
from fovea.core.errors import FoveaError
from fovea.core.frame import size_of
from fovea.core.hard_case import HardCase
from fovea.core.merging import MergeSettings
from fovea.core.routing import Tier
from fovea.serving.answerer import all_answers, merged_answer
from fovea.serving.worker import Looked
from protos.calls import DeliveryReceipt, DetectAnswer, DetectQuestion

ASKED = "asked"
"""The reason of a frame of which nobody said why it was asked about."""


class KeepingAnswerer:
    """An Answerer that merges what all tiers saw and hands the frame to the writer. A question that does not say
    which frame it is about (somebody tries a picture) is answered and not kept."""

    def __init__(
        self,
        writer: CaseWriter,
        counter: CaseCounter,
        settings: MergeSettings = MergeSettings(),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._writer = writer
        self._counter = counter
        self._settings = settings
        self._now = now

    async def answer(
        self, question: DetectQuestion, pixels: ImageArray, looked: Looked, expires_mono_s: float
    ) -> DetectAnswer:
        answers = all_answers(question, looked, Tier.CLOUD)
        merged = merged_answer(question, looked, answers, self._settings)
        if question.frame_id is None:
            self._counter.count(Way.LIVE, Fate.UNNAMED)
            return merged
        self._writer.offer(
            AskedFrame(
                picture=question.image,
                size=size_of(pixels),
                frame_id=question.frame_id,
                captured_at=question.captured_at or self._now(),
                answers=answers,
                reasons=question.reasons or (ASKED,),
                send_probability=question.send_probability or 1.0,
            )
        )
        return merged


class StoreDesk:
    """A CaseDesk before a store, whose work is done by `threads`."""

    def __init__(self, keeper: CaseKeeper, threads: Executor, counter: CaseCounter) -> None:
        self._keeper = keeper
        self._threads = threads
        self._counter = counter

    async def deliver(self, case: HardCase) -> DeliveryReceipt:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._deliver, case)

    def _deliver(self, case: HardCase) -> DeliveryReceipt:
        """On a thread: what was begun is ended and counted, also when the sender has left."""
        try:
            receipt = self._keeper.add(case)
        except FoveaError:
            self._counter.count(Way.DELIVERED, Fate.FAILED)
            raise
        self._counter.count(Way.DELIVERED, fate_of(receipt))
        return DeliveryReceipt(receipt.id, receipt.is_new)
