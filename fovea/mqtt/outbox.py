"""What waits to be sent: bounded, the oldest goes first when there is no room, and nothing goes uncounted."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Lane(StrEnum):
    """Kinds of messages, the most urgent first; each has its own room, so that results never push out events."""

    LATEST = "latest"
    """retained: the last one of each topic counts, earlier ones are forgotten"""
    EVENTS = "events"
    RESULTS = "results"


@dataclass(frozen=True, slots=True)
class Message:
    """Something for one topic; `encode` makes the bytes when it is sent, not where it is put in."""

    topic: str
    encode: Callable[[], bytes]
    lane: Lane

    @property
    def is_retained(self) -> bool:
        return self.lane is Lane.LATEST


class Outbox:
    """Who is sent next. Not safe for threads: whoever owns it holds a lock."""

    def __init__(self, max_events: int, max_results: int) -> None:
        self._room = {Lane.EVENTS: max_events, Lane.RESULTS: max_results}
        self._latest: dict[str, Message] = {}
        self._unsent: dict[str, Message] = {}
        self._waiting: dict[Lane, deque[Message]] = {Lane.EVENTS: deque(), Lane.RESULTS: deque()}
        self._dropped: Counter[Lane] = Counter()

    def put(self, message: Message) -> None:
        """Adds a message; where its lane is full the oldest of the lane is dropped and counted."""
        if message.lane is Lane.LATEST:
            self._latest[message.topic] = message
            self._unsent[message.topic] = message
            return
        waiting = self._waiting[message.lane]
        waiting.append(message)
        while len(waiting) > self._room[message.lane]:
            waiting.popleft()
            self._dropped[message.lane] += 1

    def take(self) -> Message | None:
        """The next to send, or None; within a lane in the order of putting."""
        if self._unsent:
            return self._unsent.pop(next(iter(self._unsent)))
        for lane in (Lane.EVENTS, Lane.RESULTS):
            if self._waiting[lane]:
                return self._waiting[lane].popleft()
        return None

    def put_back(self, message: Message) -> None:
        """It was taken but could not be sent: it comes first again, unless something newer made it pointless."""
        if message.lane is Lane.LATEST:
            if message.topic not in self._unsent and self._latest.get(message.topic) is message:
                self._unsent[message.topic] = message
        elif len(self._waiting[message.lane]) < self._room[message.lane]:
            self._waiting[message.lane].appendleft(message)
        else:
            self._dropped[message.lane] += 1

    def repeat_latest(self) -> None:
        """Everything that is retained is to be sent again: the other side may have forgotten it."""
        self._unsent = dict(self._latest)

    def forget(self, message: Message) -> None:
        """It is not repeated any more, unless something newer stands in its place."""
        if self._latest.get(message.topic) is message:
            del self._latest[message.topic]

    def has_latest(self, topic: str) -> bool:
        return topic in self._latest

    @property
    def dropped(self) -> Mapping[Lane, int]:
        return {lane: self._dropped[lane] for lane in self._room}

    def __len__(self) -> int:
        return len(self._unsent) + sum(len(waiting) for waiting in self._waiting.values())
