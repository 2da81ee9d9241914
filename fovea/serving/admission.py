"""Who may come in and who may wait: judges only. What cannot be done in time is refused at once, with a reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fovea.core.errors import (
    DeadlineExceeded,
    FoveaError,
    Malformed,
    Overloaded,
    TooLarge,
    Unavailable,
)
from protos.calls import Priority

_SHORTEST_RETRY_S = 0.01
_LONGEST_RETRY_S = 30.0


class Reason(StrEnum):
    """Why somebody is refused; the word that metrics and dashboards show."""

    STOPPING = "stopping"
    EXPIRED = "expired"
    TOO_LARGE = "too_large"
    UNREAD_FULL = "unread_full"
    QUEUE_FULL = "queue_full"
    QUEUE_BYTES_FULL = "queue_bytes_full"
    TOO_LATE = "too_late"


class NoRoom(Overloaded):
    """Overloaded, and which rule said so."""

    def __init__(self, message: str, retry_after_s: float | None, reason: Reason) -> None:
        super().__init__(message, retry_after_s)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Refused:
    """A verdict; `error` is what the caller is told."""

    reason: Reason
    message: str
    retry_after_s: float | None = None

    def error(self) -> FoveaError:
        match self.reason:
            case Reason.STOPPING:
                return Unavailable(self.message)
            case Reason.EXPIRED:
                return DeadlineExceeded(self.message)
            case Reason.TOO_LARGE:
                return TooLarge(self.message)
            case _:
                return NoRoom(self.message, self.retry_after_s, self.reason)


@dataclass(frozen=True, slots=True)
class DoorLimits:
    """What is taken in before it is read: the size of one request, and how many unread ones are held."""

    max_request_bytes: int
    max_unread: int = 64
    max_unread_bytes: int = 256_000_000


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How many opened pictures may wait, and how sure it has to be that they are finished in time.

    margin_s: how long before its deadline a picture has to be expected to be finished. stale_after_s: a device that
    has been idle so long is tried again, whatever is known of it: an estimate that refuses everyone is never mended.
    """

    max_items: int = 64
    max_bytes: int = 512_000_000
    margin_s: float = 0.005
    stale_after_s: float = 5.0

    def __post_init__(self) -> None:
        if not (
            self.max_items >= 1 and self.max_bytes >= 1 and self.margin_s >= 0 and self.stale_after_s >= 0
        ):
            raise Malformed(f"queue limits: expected room for 1 or more and times of 0 or more, got {self}")


@dataclass(frozen=True, slots=True)
class Unread:
    """Requests that are held and not read yet."""

    count: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Ask:
    """What a picture asks of the queue: `size_bytes` of memory, an answer before `expires_mono_s`, a rank."""

    expires_mono_s: float
    priority: Priority = Priority.NORMAL
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """What a newcomer finds. finish_in_s: when it is expected to be finished itself, next_free_in_s: when there will
    be room, silence_s: since the last batch."""

    waiting: int
    waiting_bytes: int
    is_idle: bool
    finish_in_s: float
    next_free_in_s: float
    silence_s: float


def judge_arrival(
    size_bytes: int, left_s: float, unread: Unread, limits: DoorLimits, is_stopping: bool
) -> Refused | None:
    """The verdict on a request of which nothing is known but its size and its time."""
    if is_stopping:
        return Refused(Reason.STOPPING, "the server is stopping")
    if size_bytes > limits.max_request_bytes:
        return Refused(
            Reason.TOO_LARGE,
            f"question: expected at most {limits.max_request_bytes} bytes, got {size_bytes}",
        )
    if left_s <= 0:
        return Refused(Reason.EXPIRED, "the time was over when the question came")
    is_full = unread.count >= limits.max_unread or (
        unread.count > 0 and unread.size_bytes + size_bytes > limits.max_unread_bytes
    )
    if is_full:
        message = f"{unread.count} questions of {unread.size_bytes} bytes wait to be read"
        return Refused(Reason.UNREAD_FULL, message, _SHORTEST_RETRY_S)
    return None


def judge_wait(ask: Ask, line: Line, limits: QueueLimits, now_s: float) -> Refused | None:
    """The verdict on a picture that wants to wait for its turn."""
    left_s = ask.expires_mono_s - now_s
    if left_s <= 0:
        return Refused(Reason.EXPIRED, "the time was over before the picture came to the queue")
    if line.waiting >= limits.max_items:
        message = f"{line.waiting} pictures wait already"
        return Refused(Reason.QUEUE_FULL, message, _retry_s(line.next_free_in_s))
    if line.waiting and line.waiting_bytes + ask.size_bytes > limits.max_bytes:
        message = f"pictures of {line.waiting_bytes} bytes wait already"
        return Refused(Reason.QUEUE_BYTES_FULL, message, _retry_s(line.next_free_in_s))
    if line.is_idle and line.silence_s > limits.stale_after_s:
        return None
    late_s = line.finish_in_s + limits.margin_s - left_s
    if late_s > 0:
        message = (
            f"it would be finished in {line.finish_in_s * 1000:.0f} ms, and {left_s * 1000:.0f} ms are left"
        )
        return Refused(Reason.TOO_LATE, message, _retry_s(late_s))
    return None


def _retry_s(seconds: float) -> float:
    return min(max(seconds, _SHORTEST_RETRY_S), _LONGEST_RETRY_S)
