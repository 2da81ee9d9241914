"""What happens inside an agent, as told to whoever counts it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from fovea.core.result import FrameResult


class ErrandEnding(StrEnum):
    """How a question to the tier above ended; every question ends in exactly one way."""

    ANSWERED = "answered"
    EXPIRED = "expired"
    """its time was over before it could be sent"""
    LATE = "late"
    """no answer came in time"""
    REFUSED = "refused"
    """the other side had no room"""
    UNREACHED = "unreached"
    """the other side could not be reached"""
    REJECTED = "rejected"
    """the other side, or this one, found question or answer unsound"""
    CANCELLED = "cancelled"
    """given up on this side, for the agent ends"""
    FAILED = "failed"
    """the other side broke on it"""


@dataclass(frozen=True, slots=True, eq=False)
class FrameSeen:
    """The first published answer to a frame.

    latency_s     from its capture to its publication
    decide_cpu_s  CPU time of the thread for features, gate and decision; None where nothing was decided
    """

    camera: str
    result: FrameResult
    latency_s: float
    decide_cpu_s: float | None = None
    decide_wall_s: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AnswerSeen:
    """A later answer to a frame, published. `latency_s` is from the capture of the frame to this publication."""

    camera: str
    result: FrameResult
    latency_s: float


@dataclass(frozen=True, slots=True)
class ErrandSeen:
    """A question that ended: `sent_bytes` of picture went out, `seconds` passed from the offer to the end."""

    camera: str
    ending: ErrandEnding
    sent_bytes: int
    seconds: float


class Observer(Protocol):
    """Counts. Called from the threads of the agent: each method returns at once."""

    def frame_seen(self, seen: FrameSeen) -> None: ...

    def answer_seen(self, seen: AnswerSeen) -> None: ...

    def frame_failed(self, camera: str) -> None:
        """The model, or a step after it, broke on a frame, which has no answer."""
        ...

    def errand_seen(self, seen: ErrandSeen) -> None: ...


class Observers:
    """Several observers as one."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = tuple(observers)

    def frame_seen(self, seen: FrameSeen) -> None:
        for observer in self._observers:
            observer.frame_seen(seen)

    def answer_seen(self, seen: AnswerSeen) -> None:
        for observer in self._observers:
            observer.answer_seen(seen)

    def frame_failed(self, camera: str) -> None:
        for observer in self._observers:
            observer.frame_failed(camera)

    def errand_seen(self, seen: ErrandSeen) -> None:
        for observer in self._observers:
            observer.errand_seen(seen)
