"""What waits for the one thread that looks at frames: cameras with a frame, ended questions, lost cameras, chores."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from edge_agent.chore import Chore
from edge_agent.escalation import Ended
from edge_agent.turns import Turns


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """All that ended, was lost or came to be done, in order, and the one camera whose turn it is."""

    ended: tuple[Ended, ...] = ()
    lost: tuple[str, ...] = ()
    camera: str | None = None
    chores: tuple[Chore, ...] = ()


class Inbox:
    """Filled from many threads, emptied by one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._turns = Turns()
        self._ended: deque[Ended] = deque()
        self._lost: deque[str] = deque()
        self._chores: deque[Chore] = deque()
        self._is_closed = False

    def frame_ready(self, camera: str) -> None:
        with self._changed:
            self._turns.add(camera)
            self._changed.notify()

    def errand_ended(self, ended: Ended) -> None:
        with self._changed:
            self._ended.append(ended)
            self._changed.notify()

    def camera_lost(self, camera: str) -> None:
        with self._changed:
            self._lost.append(camera)
            self._changed.notify()

    def do(self, chore: Chore) -> None:
        """Cancelled at once when it is closed."""
        with self._changed:
            if not self._is_closed:
                self._chores.append(chore)
                self._changed.notify()
                return
        chore.cancel()

    def take(self, timeout_s: float | None) -> Work | None:
        """Waits until there is something, or `timeout_s` is over (an empty Work then). None: it is closed."""
        with self._changed:
            self._changed.wait_for(self._has_news, timeout_s)
            return None if self._is_closed else self._work()

    @property
    def waiting(self) -> int:
        """Cameras with a frame, and questions that ended."""
        with self._changed:
            return len(self._turns) + len(self._ended)

    @property
    def is_empty(self) -> bool:
        with self._changed:
            return not (self._ended or self._lost or len(self._turns))

    def close(self) -> None:
        """Whoever waits goes on with None; what is in it stays, but chores are cancelled."""
        with self._changed:
            self._is_closed = True
            chores, self._chores = self._chores, deque()
            self._changed.notify_all()
        for chore in chores:
            chore.cancel()

    def _has_news(self) -> bool:
        return self._is_closed or bool(self._ended or self._lost or self._chores or len(self._turns))

    def _work(self) -> Work:
        work = Work(tuple(self._ended), tuple(self._lost), self._turns.next(), tuple(self._chores))
        self._ended.clear()
        self._lost.clear()
        self._chores.clear()
        return work
