"""One thread that runs the model, and the seam behind which queueing, batching and admission have their place.

The queue is policy, the worker is a loop, the model is a contract: `Worker` is all that the service knows of the
three. `OneAtATime` is the plainest of them: first come, first served, a batch of one.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from fovea.core.arrays import ImageArray
from fovea.core.detections import Inference, ModelRef
from fovea.core.errors import DeadlineExceeded, Unavailable
from fovea.core.labels import LabelSet
from fovea.core.ports import Detector
from protos.calls import Priority

_STOPPING = "the server stopped before it was this picture's turn"


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """One picture that waits to be looked at, u8[H, W, 3] BGR; worthless after `expires_mono_s` (time.monotonic)."""

    pixels: ImageArray
    expires_mono_s: float
    priority: Priority = Priority.NORMAL


@dataclass(frozen=True, slots=True, eq=False)
class Looked:
    """What came of it, by which model, and how long it waited and was looked at."""

    inference: Inference
    model: ModelRef
    labels: LabelSet
    queue_ms: float
    infer_ms: float


class Worker(Protocol):
    """Gets pictures looked at. Used from one event loop."""

    @property
    def model(self) -> tuple[ModelRef, LabelSet]:
        """What would look now, and what it can see."""
        ...

    async def look(self, order: Look) -> Looked:
        """The answer to one picture. Cancelling the wait harms no other picture.

        Raises DeadlineExceeded without looking when the order has expired by its turn, and what the detector raises.
        """
        ...

    def refuse_waiting(self) -> None:
        """From now on nothing is begun: who waits for a turn, or comes later, gets Unavailable."""
        ...

    async def stop(self) -> None:
        """Waits for the picture that is being looked at, after which the detector may be closed."""
        ...


class OneAtATime:
    """A Worker over one detector, which it does not own: whoever built the detector closes it."""

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="detector")
        self._refuses = False

    @property
    def model(self) -> tuple[ModelRef, LabelSet]:
        return self._detector.ref, self._detector.labels

    async def look(self, order: Look) -> Looked:
        if self._refuses:
            raise Unavailable(_STOPPING)
        turn = self._thread.submit(self._run, order, time.monotonic())
        try:
            return await asyncio.wrap_future(turn)
        except asyncio.CancelledError:
            if self._refuses and turn.cancelled() and not _is_cancelling():
                raise Unavailable(_STOPPING) from None
            raise

    def refuse_waiting(self) -> None:
        self._refuses = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def stop(self) -> None:
        self.refuse_waiting()
        await asyncio.to_thread(self._thread.shutdown, wait=True)

    def _run(self, order: Look, asked_mono_s: float) -> Looked:
        started_mono_s = time.monotonic()
        waited_s = started_mono_s - asked_mono_s
        if started_mono_s >= order.expires_mono_s:
            raise DeadlineExceeded(f"the time was over after {waited_s:.3f} s in the queue")
        [inference] = self._detector.detect([order.pixels])
        return Looked(
            inference,
            self._detector.ref,
            self._detector.labels,
            queue_ms=waited_s * 1000,
            infer_ms=(time.monotonic() - started_mono_s) * 1000,
        )


def _is_cancelling() -> bool:
    """True when the caller gave up, as against the thing that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
