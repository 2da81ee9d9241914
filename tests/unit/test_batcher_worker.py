"""The thread that runs the model: neighbours do not harm each other, and nothing that a model does stops it."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from fovea.core.arrays import ImageArray
from fovea.core.detections import Inference
from fovea.core.errors import DeadlineExceeded, DetectorFailed, FoveaError, Overloaded, Unavailable
from fovea.core.ports import Detector
from fovea.serving.admission import Ask, QueueLimits
from fovea.serving.batcher import BatchPolicy
from fovea.serving.worker import BatchingWorker, Look, Looked
from tests.fakes import FakeDetector

WAIT_S = 20.0
POISON = 13


class PickyDetector(FakeDetector):
    """Raises `reaction` for a batch with a picture of shade POISON in it, and can be held before it looks."""

    def __init__(self, reaction: BaseException | None = None) -> None:
        super().__init__()
        self.reaction = reaction or DetectorFailed("poisoned")
        self.tried: list[list[int]] = []
        self.begun = threading.Semaphore(0)
        self.may_look = threading.Event()
        self.may_look.set()

    def detect(self, frames: Sequence[ImageArray]) -> list[Inference]:
        self.begun.release()
        assert self.may_look.wait(WAIT_S)
        shades = [int(frame[0, 0, 0]) for frame in frames]
        self.tried.append(shades)
        if POISON in shades:
            raise self.reaction
        return super().detect(frames)


class Miscounting(FakeDetector):
    """Forgets the last picture."""

    def detect(self, frames: Sequence[ImageArray]) -> list[Inference]:
        return super().detect(frames)[:-1]


@asynccontextmanager
async def working(detector: Detector, **parts: Any) -> AsyncIterator[BatchingWorker]:
    worker = BatchingWorker(detector, **parts)
    worker.start()
    try:
        yield worker
    finally:
        assert await worker.stop(WAIT_S)


def order(shade: int, left_s: float = WAIT_S) -> Look:
    return Look(np.full((4, 4, 3), shade, np.uint8), time.monotonic() + left_s)


async def looks(worker: BatchingWorker, shades: Sequence[int]) -> list[Looked | BaseException]:
    """All at once."""
    return await asyncio.gather(*(worker.look(order(shade)) for shade in shades), return_exceptions=True)


async def queued() -> None:
    """Lets every task that was just made, and those that it makes, come to the queue: a few rounds of the loop."""
    for _ in range(5):
        await asyncio.sleep(0)


@asynccontextmanager
async def held(detector: PickyDetector, worker: BatchingWorker) -> AsyncIterator[None]:
    """The device is busy with a picture of shade 0 as long as the block lasts; then all that came meanwhile goes."""
    detector.may_look.clear()
    first = asyncio.create_task(worker.look(order(0)))
    assert await asyncio.to_thread(detector.begun.acquire, timeout=WAIT_S)
    try:
        yield
    finally:
        detector.may_look.set()
        await first


async def test_those_who_came_while_the_device_was_busy_are_looked_at_together_and_one_too_many_next() -> (
    None
):
    detector = PickyDetector()
    async with working(detector, policy=BatchPolicy(max_batch=4)) as worker:
        async with held(detector, worker):
            task = asyncio.create_task(looks(worker, [1, 2, 3, 4, 5]))
            await queued()
        answers = await task
    assert [type(answer) for answer in answers] == [Looked] * 5
    assert detector.tried == [[0], [1, 2, 3, 4], [5]]


@pytest.mark.parametrize(
    "reaction",
    [DetectorFailed("poisoned"), ValueError("poisoned"), SystemExit("poisoned"), StopIteration("poisoned")],
    ids=lambda reaction: type(reaction).__name__,
)
async def test_a_picture_that_the_model_dies_of_fails_alone_and_the_worker_goes_on(
    reaction: BaseException,
) -> None:
    detector = PickyDetector(reaction)
    async with working(detector) as worker:
        async with held(detector, worker):
            task = asyncio.create_task(looks(worker, [1, POISON, 2]))
            await queued()
        answers = await task
        assert [isinstance(answer, Looked) for answer in answers] == [True, False, True]
        assert isinstance(answers[1], Exception)
        assert "poisoned" in str(answers[1])
        assert isinstance((await looks(worker, [3]))[0], Looked)
    assert detector.tried == [[0], [1, POISON, 2], [1], [POISON], [2], [3]]


async def test_a_model_that_answers_fewer_pictures_than_it_was_given_has_failed() -> None:
    async with working(Miscounting()) as worker:
        answers = await looks(worker, [1, 2])
    assert all(isinstance(answer, ValueError) for answer in answers)


async def test_who_leaves_while_waiting_or_looked_at_harms_no_neighbour() -> None:
    detector = PickyDetector()
    async with working(detector) as worker:
        async with held(detector, worker):
            waiting = [asyncio.create_task(worker.look(order(shade))) for shade in (1, 2, 3)]
            await queued()
            waiting[1].cancel()
            await asyncio.wait([waiting[1]])
        assert isinstance(await waiting[0], Looked) and isinstance(await waiting[2], Looked)
        detector.may_look.clear()
        looked_at = [asyncio.create_task(worker.look(order(4)))]
        while detector.tried[-1] != [1, 3] or not detector.begun.acquire(blocking=False):
            await asyncio.sleep(0.001)
        looked_at[0].cancel()
        detector.may_look.set()
        assert isinstance((await looks(worker, [5]))[0], Looked)
    assert [1, 3] in detector.tried


async def test_who_expired_by_its_turn_is_told_and_not_looked_at() -> None:
    detector = PickyDetector()
    async with working(detector) as worker:
        async with held(detector, worker):
            late = asyncio.create_task(worker.look(order(1, left_s=0.05)))
            await asyncio.sleep(0.1)
        with pytest.raises(DeadlineExceeded, match="in the queue"):
            await late
    assert detector.tried == [[0]]


async def test_a_full_queue_refuses_at_once_and_a_check_says_so_before_any_work_is_done() -> None:
    detector = PickyDetector()
    async with working(detector, limits=QueueLimits(max_items=1)) as worker:
        async with held(detector, worker):
            waiting = asyncio.create_task(worker.look(order(1)))
            await queued()
            with pytest.raises(Overloaded, match="1 pictures wait already"):
                await worker.look(order(2))
            with pytest.raises(Overloaded):
                worker.check(Ask(time.monotonic() + WAIT_S))
        assert isinstance(await waiting, Looked)
        worker.check(Ask(time.monotonic() + WAIT_S))


async def test_a_stop_refuses_all_who_wait_or_are_looked_at_and_is_over_in_time_though_the_model_hangs() -> (
    None
):
    detector = PickyDetector()
    worker = BatchingWorker(detector)
    worker.start()
    detector.may_look.clear()
    tasks = [asyncio.create_task(worker.look(order(1)))]
    assert await asyncio.to_thread(detector.begun.acquire, timeout=WAIT_S)
    tasks.append(asyncio.create_task(worker.look(order(2))))
    await queued()
    assert worker.busy_s() > 0
    assert not await worker.stop(longest_s=0.05)
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(answer) for answer in answers] == [Unavailable, Unavailable]
    assert worker.busy_s() > 0, "whoever closes the detector can know that it still runs"
    with pytest.raises(Unavailable):
        await worker.look(order(3))
    detector.may_look.set()
    assert await worker.stop(WAIT_S)
    assert worker.busy_s() == 0


async def test_in_a_storm_of_calls_that_leave_expire_and_fail_each_ends_once_and_nobody_is_left_waiting() -> (
    None
):
    detector, dice = PickyDetector(), random.Random(7)
    ended: Counter[str] = Counter()
    asked = 0

    async def call(worker: BatchingWorker) -> None:
        shade = POISON if dice.random() < 0.1 else dice.randrange(14, 200)
        task = asyncio.create_task(worker.look(order(shade, left_s=dice.choice([0.0, 0.002, 0.01, WAIT_S]))))
        if dice.random() < 0.2:
            await asyncio.sleep(dice.random() * 0.003)
            task.cancel()
        try:
            await task
            ended["served"] += 1
        except asyncio.CancelledError:
            ended["cancelled"] += 1
        except FoveaError as error:
            ended[type(error).__name__] += 1

    async with working(detector, policy=BatchPolicy(3), limits=QueueLimits(5, margin_s=0.0)) as worker:
        for _ in range(60):
            count = dice.randrange(1, 12)
            asked += count
            await asyncio.gather(*(call(worker) for _ in range(count)))
            await asyncio.sleep(dice.random() * 0.002)
        assert isinstance((await looks(worker, [1]))[0], Looked)
    assert sum(ended.values()) == asked
    assert ended["served"] > 0 and ended["DetectorFailed"] > 0
    assert set(ended) <= {"served", "cancelled", "DeadlineExceeded", "DetectorFailed", "NoRoom"}
