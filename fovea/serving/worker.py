"""One thread that runs the model on what the queue gives it. The queue is policy, the worker a loop, the model a
contract: `Worker` is all that the service knows of the three."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from fovea.core.arrays import ImageArray
from fovea.core.detections import Inference, ModelRef
from fovea.core.errors import DeadlineExceeded, DetectorFailed, FoveaError, Unavailable
from fovea.core.labels import LabelSet
from fovea.core.ports import Detector
from fovea.serving.admission import Ask, QueueLimits, Refused
from fovea.serving.batcher import Batch, Batcher, BatchPolicy, Item
from fovea.serving.latency_model import LatencyModel
from fovea.serving.outcomes import NobodyWatches, Observer
from protos.calls import Priority

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """One picture that waits to be looked at, u8[H, W, 3] BGR; worthless after `expires_mono_s` (time.monotonic)."""

    pixels: ImageArray
    expires_mono_s: float
    priority: Priority = Priority.NORMAL

    @property
    def ask(self) -> Ask:
        return Ask(self.expires_mono_s, self.priority, self.pixels.nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class Looked:
    """What came of it, by which model, and how long it waited and was looked at."""

    inference: Inference
    model: ModelRef
    labels: LabelSet
    queue_ms: float
    infer_ms: float


class Worker(Protocol):
    """Gets pictures looked at."""

    @property
    def model(self) -> tuple[ModelRef, LabelSet]:
        """What would look now, and what it can see."""
        ...

    def check(self, ask: Ask) -> None:
        """Raises what `look` would raise at once for such a picture if it came now. From any thread."""
        ...

    async def look(self, order: Look) -> Looked:
        """The answer to one picture. Cancelling the wait harms no other picture.

        Raises Overloaded at once when the picture has no place or would be too late, DeadlineExceeded without looking
        when its time is over by its turn, Unavailable when the worker stops, and what the detector raises.
        """
        ...

    def waiting(self) -> int:
        """Pictures that wait for their turn. From any thread."""
        ...

    def busy_s(self) -> float:
        """Seconds that the batch under way has taken so far, 0 when there is none, infinite for a worker that broke:
        who feeds a watchdog asks this. From any thread."""
        ...

    def refuse_all(self) -> None:
        """From now on nothing is begun: who waits or is being looked at, and who comes later, gets Unavailable."""
        ...

    async def stop(self, longest_s: float) -> bool:
        """Refuses all and waits for the batch under way, after which the detector may be closed. False: the model
        took longer than `longest_s`, and is left behind in a thread that does not keep the process alive."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    """What an item of the queue carries: the picture, and where the answer is awaited."""

    order: Look
    answer: asyncio.Future[Looked]


_Item = Item[_Waiter]
_Told = tuple[_Item, Looked | BaseException]
"""Somebody, and the answer or the error that it gets."""


class BatchingWorker:
    """A Worker over one detector, which it does not own: whoever built the detector closes it.

    Used from the event loop that `start` was called on. Each batch costs one wake-up of the loop, whatever its size.
    """

    _loop: asyncio.AbstractEventLoop  # set by `start`

    def __init__(
        self,
        detector: Detector,
        policy: BatchPolicy = BatchPolicy(),
        limits: QueueLimits = QueueLimits(),
        latency: LatencyModel | None = None,
        observer: Observer = NobodyWatches(),
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`latency` is what is known of the detector's speed already."""
        self._detector = detector
        self._batcher: Batcher[_Waiter] = Batcher(policy, limits, latency or LatencyModel())
        self._observer = observer
        self._monotonic_s = monotonic_s
        self._turn = threading.Condition()  # guards the batcher and the flags; the thread waits on it
        self._stops = False
        self._is_broken = False
        self._thread = threading.Thread(target=self._run, name="detector", daemon=True)

    @property
    def model(self) -> tuple[ModelRef, LabelSet]:
        return self._detector.ref, self._detector.labels

    def start(self) -> None:
        """Begins to take pictures, for the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def check(self, ask: Ask) -> None:
        with self._turn:
            refused = self._batcher.judge(ask, self._monotonic_s())
        if refused is not None:
            raise refused.error()

    async def look(self, order: Look) -> Looked:
        waiter = _Waiter(order, self._loop.create_future())
        with self._turn:
            item = Item(waiter, order.ask, self._monotonic_s())
            verdict = self._batcher.offer(item)
            self._turn.notify()
        if isinstance(verdict, Refused):
            raise verdict.error()
        try:
            return await waiter.answer
        except asyncio.CancelledError:
            with self._turn:
                self._batcher.cancel(item)
            raise

    def waiting(self) -> int:
        with self._turn:
            return len(self._batcher)

    def busy_s(self) -> float:
        with self._turn:
            if self._is_broken:
                return float("inf")
            running = self._batcher.running
            return 0.0 if running is None else self._monotonic_s() - running.started_mono_s

    def refuse_all(self) -> None:
        self._stop_with(lambda: Unavailable("the server stopped before the picture was looked at"))

    async def stop(self, longest_s: float) -> bool:
        self.refuse_all()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, longest_s)
        return not self._thread.is_alive()

    def _stop_with(self, error: Callable[[], FoveaError]) -> None:
        with self._turn:
            self._stops = True
            refused = self._batcher.close()
            self._turn.notify()
        self._tell((item, error()) for item in refused)

    def _run(self) -> None:
        try:
            while (batch := self._next_batch()) is not None:
                self._run_batch(batch)
        except BaseException:
            _log.exception("the worker broke; nothing is looked at until the process is started again")
            self._is_broken = True
            self._stop_with(lambda: DetectorFailed("the worker broke, see the log of the server"))

    def _next_batch(self) -> Batch[_Waiter] | None:
        """Waits for the next batch; None when it is over."""
        with self._turn:
            while not self._stops:
                now_s = self._monotonic_s()
                step = self._batcher.take(now_s)
                self._tell((item, _expired(item, now_s)) for item in step.expired)
                if isinstance(step, Batch):
                    return step
                self._turn.wait(None if step.until_mono_s is None else step.until_mono_s - now_s)
        return None

    def _run_batch(self, batch: Batch[_Waiter]) -> None:
        begun_s = self._monotonic_s()
        try:
            inferences = self._detector.detect([item.payload.order.pixels for item in batch.items])
            answers = dict(zip(batch.items, inferences, strict=True))
        except BaseException as error:  # whatever a model raises, the thread that runs it goes on
            self._end_failed(batch, error)
            return
        labels, ended_s = self._detector.labels, self._monotonic_s()
        with self._turn:
            served = self._batcher.finish(ended_s)
        self._observer.batch_ran(len(batch.items), ended_s - begun_s)
        infer_ms = (ended_s - begun_s) * 1000
        self._tell(
            (item, _looked(answers[item], labels, (begun_s - item.arrived_mono_s) * 1000, infer_ms))
            for item in served
        )

    def _end_failed(self, batch: Batch[_Waiter], error: BaseException) -> None:
        if not isinstance(error, Exception) or isinstance(error, StopIteration):  # what no task may raise
            error = DetectorFailed(f"the model raised {error!r:.300}")
        with self._turn:
            failed = self._batcher.fail()
        if not failed:
            _log.warning("a batch of %d did not run, one by one from here: %r", len(batch.items), error)
        self._tell((item, error) for item in failed)

    def _tell(self, ended: Iterable[_Told]) -> None:
        """Wakes the loop once for all of them. A loop that has ended waits for nobody."""
        told = list(ended)
        if told:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(_set_answers, told)


def _set_answers(told: list[_Told]) -> None:
    for item, answer in told:
        awaited = item.payload.answer
        if awaited.done():  # who waited has left
            continue
        if isinstance(answer, Looked):
            awaited.set_result(answer)
        else:
            awaited.set_exception(answer)


def _looked(inference: Inference, labels: LabelSet, queue_ms: float, infer_ms: float) -> Looked:
    """In the name of the model that looked: another one may stand in its place by now."""
    return Looked(inference, inference.detections.model, labels, queue_ms, infer_ms)


def _expired(item: _Item, now_s: float) -> DeadlineExceeded:
    return DeadlineExceeded(f"the time was over after {now_s - item.arrived_mono_s:.3f} s in the queue")
