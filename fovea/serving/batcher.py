"""Who is looked at next, and together with whom: the policy of the queue, without clock, thread or loop.

The order is by arrival, where a higher priority counts as an earlier arrival by `aging_s` for each step. So everybody
gains rank by waiting, and nobody is overtaken by more than those who come within two steps after it.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from fovea.core.errors import Malformed
from fovea.serving.admission import Ask, Line, QueueLimits, Reason, Refused, judge_wait
from fovea.serving.latency_model import LatencyModel, Running
from protos.calls import Priority

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """max_wait_s: how long the first of a batch waits for company while the device is free, counted from its arrival.
    aging_s: the head start of each step of priority."""

    max_batch: int = 8
    max_wait_s: float = 0.0
    aging_s: float = 0.5

    def __post_init__(self) -> None:
        if not (self.max_batch >= 1 and self.max_wait_s >= 0 and self.aging_s >= 0):
            raise Malformed(f"batch policy: expected a batch of 1 or more and times of 0 or more, got {self}")


@dataclass(frozen=True, slots=True, eq=False)
class Item(Generic[T]):
    """Somebody who waits, with whatever the caller needs to find it again."""

    payload: T
    ask: Ask
    arrived_mono_s: float


@dataclass(frozen=True, slots=True)
class Admitted:
    """The newcomer waits now; `finish_in_s` is when it is expected to be finished."""

    finish_in_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Batch(Generic[T]):
    """Run these together now. `expired` were dropped on the way and want to be told."""

    items: tuple[Item[T], ...]
    expired: tuple[Item[T], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Wait(Generic[T]):
    """Nothing to run before `until_mono_s`, or before somebody comes (None). `expired` as above."""

    until_mono_s: float | None
    expired: tuple[Item[T], ...] = ()


class Batcher(Generic[T]):
    """The line before one device. Whoever was admitted leaves it exactly once: as expired (`take`), served
    (`finish`), failed (`fail`), by `cancel`, or refused by `close`."""

    def __init__(self, policy: BatchPolicy, limits: QueueLimits, latency: LatencyModel) -> None:
        self._policy = policy
        self._limits = limits
        self._latency = latency
        self._waiting: list[Item[T]] = []
        self._waiting_bytes = 0
        self._suspects: set[Item[T]] = set()
        self._wanted: dict[Item[T], None] = {}
        self._running: Running | None = None
        self._is_closed = False

    @property
    def running(self) -> Running | None:
        """What the device is busy with."""
        return self._running

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def judge(self, ask: Ask, now_s: float) -> Refused | None:
        """What `offer` would say to somebody who came now."""
        if self._is_closed:
            return Refused(Reason.STOPPING, "the server stopped before it was this picture's turn")
        return judge_wait(ask, self._line(ask, now_s), self._limits, now_s)

    def offer(self, item: Item[T]) -> Admitted | Refused:
        """Lets `item`, which has just arrived, wait for its turn, or says why not."""
        refused = self.judge(item.ask, item.arrived_mono_s)
        if refused is not None:
            return refused
        admitted = Admitted(self._line(item.ask, item.arrived_mono_s).finish_in_s)
        self._insert(item)
        return admitted

    def take(self, now_s: float) -> Batch[T] | Wait[T]:
        """What the device, which is free, does next. A batch that is taken is ended by `finish` or `fail`."""
        expired = self._remove(item for item in self._waiting if now_s >= item.ask.expires_mono_s)
        if not self._waiting:
            return Wait(None, expired)
        begin_mono_s = min(item.arrived_mono_s for item in self._waiting) + self._policy.max_wait_s
        if len(self._waiting) < self._policy.max_batch and now_s < begin_mono_s:
            return Wait(begin_mono_s, expired)
        chosen = self._remove(self._choose(now_s))
        self._wanted = dict.fromkeys(chosen)
        self._running = Running(len(chosen), now_s)
        return Batch(chosen, expired)

    def finish(self, now_s: float) -> tuple[Item[T], ...]:
        """The running batch was answered. Gives those of it who still want to know."""
        running = self._end_run()
        self._latency.observe(running.size, now_s - running.started_mono_s, now_s)
        return self._leave()

    def fail(self) -> tuple[Item[T], ...]:
        """The running batch could not be run. Gives those who have failed for good: who was alone. The others go back
        to their places, each to be run alone, so that the one who is to blame fails alone."""
        running = self._end_run()
        wanted = self._leave()
        if running.size == 1:
            return wanted
        for item in () if self._is_closed else wanted:
            self._suspects.add(item)
            self._insert(item)
        return ()

    def cancel(self, item: Item[T]) -> bool:
        """Nobody wants to know about `item` any more. False: it had left already."""
        if item in self._wanted:
            del self._wanted[item]
            return True
        return bool(self._remove([item] if item in self._waiting else []))

    def close(self) -> tuple[Item[T], ...]:
        """Nothing is begun from now on. Gives everybody who waits, and who is being looked at, to be refused."""
        self._is_closed = True
        return self._remove(list(self._waiting)) + self._leave()

    def _line(self, ask: Ask, now_s: float) -> Line:
        ahead = bisect_right(self._waiting, self._rank_s(ask.priority, now_s), key=self._rank_of)
        latency, max_batch = self._latency, self._policy.max_batch
        return Line(
            waiting=len(self._waiting),
            waiting_bytes=self._waiting_bytes,
            is_idle=not self._waiting and self._running is None,
            finish_in_s=latency.finish_in_s(ahead, max_batch, self._running, now_s),
            next_free_in_s=latency.left_s(self._running, now_s) + latency.batch_s(max_batch),
            silence_s=latency.silence_s(now_s),
        )

    def _choose(self, now_s: float) -> list[Item[T]]:
        """From the front of the line, as many as may go together."""
        first, *others = self._waiting
        chosen = [first]
        if first in self._suspects:
            return chosen
        for item in others:
            if len(chosen) == self._policy.max_batch or self._makes_late(chosen, now_s):
                break
            if item not in self._suspects:
                chosen.append(item)
        return chosen

    def _makes_late(self, chosen: list[Item[T]], now_s: float) -> bool:
        """Whether one more would make somebody late who is in time now."""
        without_s = now_s + self._latency.batch_s(len(chosen))
        with_s = now_s + self._latency.batch_s(len(chosen) + 1)
        return any(without_s <= item.ask.expires_mono_s < with_s for item in chosen)

    def _rank_s(self, priority: Priority, arrived_mono_s: float) -> float:
        return arrived_mono_s - (priority - Priority.LOW) * self._policy.aging_s

    def _rank_of(self, item: Item[T]) -> float:
        return self._rank_s(item.ask.priority, item.arrived_mono_s)

    def _insert(self, item: Item[T]) -> None:
        insort(self._waiting, item, key=self._rank_of)
        self._waiting_bytes += item.ask.size_bytes

    def _remove(self, items: Iterable[Item[T]]) -> tuple[Item[T], ...]:
        gone = tuple(items)
        for item in gone:
            self._waiting.remove(item)
            self._waiting_bytes -= item.ask.size_bytes
            self._suspects.discard(item)
        return gone

    def _end_run(self) -> Running:
        assert self._running is not None, "nothing was taken"
        running, self._running = self._running, None
        return running

    def _leave(self) -> tuple[Item[T], ...]:
        wanted, self._wanted = tuple(self._wanted), {}
        return wanted
