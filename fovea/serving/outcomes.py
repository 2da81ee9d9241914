"""How a call ends, and who is told of it. Each call ends exactly once, so the outcomes add up to the calls."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from fovea.core.errors import Cancelled, DeadlineExceeded, FoveaError, RejectedError, RetryableError
from fovea.serving.admission import NoRoom
from protos.calls import Timings


class Outcome(StrEnum):
    """served: answered. refused: not looked at, and told why. expired: its time was over. cancelled: the caller left.
    failed: this side is to blame."""

    SERVED = "served"
    REFUSED = "refused"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Ending:
    """How one call ended; `reason` is a word from a small set, empty where the outcome says it all."""

    outcome: Outcome
    reason: str = ""


class Observer(Protocol):
    """Is told what happens, from any thread, and returns at once."""

    def call_ended(self, ending: Ending, seconds: float) -> None:
        """A Detect call ended after `seconds`."""
        ...

    def call_answered(self, timings: Timings) -> None:
        """Where the time of an answer went."""
        ...

    def delivery_ended(self, ending: Ending, seconds: float) -> None:
        """The delivery of a case ended after `seconds`."""
        ...

    def batch_ran(self, size: int, seconds: float) -> None:
        """The device was busy for `seconds` with a batch of `size`."""
        ...


class NobodyWatches:
    """An Observer that takes no notice."""

    def call_ended(self, ending: Ending, seconds: float) -> None:
        pass

    def call_answered(self, timings: Timings) -> None:
        pass

    def delivery_ended(self, ending: Ending, seconds: float) -> None:
        pass

    def batch_ran(self, size: int, seconds: float) -> None:
        pass


def ending_of(error: FoveaError) -> Ending:
    """How a call ends that is answered with `error`."""
    match error:
        case DeadlineExceeded():
            return Ending(Outcome.EXPIRED)
        case Cancelled():
            return Ending(Outcome.CANCELLED)
        case NoRoom():
            return Ending(Outcome.REFUSED, error.reason)
        case RetryableError() | RejectedError():
            return Ending(Outcome.REFUSED, _snake_case(type(error).__name__))
        case _:
            return Ending(Outcome.FAILED, _snake_case(type(error).__name__))


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
