"""What agent and edge know about the tier above: the seam, and how it stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from fovea.core.arrays import ImageArray
from fovea.core.hard_case import HardCase
from protos.calls import DeliveryReceipt, DetectAnswer, DetectQuestion


class LinkStatus(StrEnum):
    """up: answers. poor: it is there, but answers late, or fails; one question in a while tries whether it is better.
    down: nobody is there; nothing is sent but a look now and then whether somebody is."""

    UP = "up"
    POOR = "poor"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class LinkState:
    """How the link stands since `since_mono_s`, and what there is to say about the change.

    away_s        for how long it has not been up: 0 when it just ceased to be, the whole time when it is up again
    missed_calls  how many questions and deliveries failed, or were refused here at once, since the last that did not
    is_first      it was never up before
    """

    status: LinkStatus
    since_mono_s: float
    reason: str
    away_s: float = 0.0
    missed_calls: int = 0
    is_first: bool = False

    @property
    def is_up(self) -> bool:
        """True unless it is down: asking makes sense, though `Link.may_ask` may say not now."""
        return self.status is not LinkStatus.DOWN


Listener = Callable[[LinkState], None]


class Link(Protocol):
    """The tier above, or several of them. Threads may share it."""

    @property
    def state(self) -> LinkState: ...

    @property
    def may_ask(self) -> bool:
        """Whether a question asked now would be sent, and not refused here at once."""
        ...

    @property
    def is_busy(self) -> bool:
        """Somebody is there, and nothing is to be asked yet, for he is full and has asked for a pause."""
        ...

    @property
    def round_trip_ms(self) -> float | None:
        """What an answer takes beside the server's own time, lately; None before the first answer."""
        ...

    @property
    def takes_mosaics(self) -> bool:
        """Whether questions may show parts of a frame; False while nobody has said so."""
        ...

    def encode(self, pixels: ImageArray) -> bytes | ImageArray:
        """`pixels` u8[H, W, 3] BGR as they go into a question for this link."""
        ...

    def ask(self, question: DetectQuestion, timeout_s: float) -> DetectAnswer:
        """One answer within `timeout_s`. Raises FoveaErrors; Unavailable at once while nobody can be asked."""
        ...

    def deliver(self, case: HardCase, timeout_s: float) -> DeliveryReceipt:
        """Hands over a case; twice is fine. Raises as `ask` does."""
        ...

    def listen(self, listener: Listener) -> None:
        """`listener` is called once for each change of the status from now on, in order, on the link's own thread:
        it should be quick."""
        ...

    def close(self) -> None:
        """Ends within a second; calls under way and later ones raise Cancelled. Twice is fine."""
        ...


class StateKeeper:
    """Remembers since when a link stands as it does, and what was missed meanwhile. Its owner has a lock."""

    def __init__(self, now_mono_s: float, reason: str) -> None:
        self._state = LinkState(LinkStatus.DOWN, now_mono_s, reason, is_first=True)
        self._not_up_since_mono_s = now_mono_s
        self._missed_calls = 0
        self._was_up = False

    @property
    def state(self) -> LinkState:
        return self._state

    def answered(self) -> None:
        if self._state.status is LinkStatus.UP:
            self._missed_calls = 0

    def missed(self) -> None:
        self._missed_calls += 1

    def now_is(self, status: LinkStatus, reason: str, now_mono_s: float) -> LinkState | None:
        """The new state when `status` is another one than before, else None: nobody is told about another reason for
        the same status, but it shows in `state`."""
        before = self._state.status
        if status is before:
            if reason != self._state.reason:
                self._state = replace(self._state, reason=reason)
            return None
        if before is LinkStatus.UP:
            self._not_up_since_mono_s = now_mono_s
        self._state = LinkState(
            status,
            now_mono_s,
            reason,
            now_mono_s - self._not_up_since_mono_s,
            self._missed_calls,
            is_first=not self._was_up,
        )
        if status is LinkStatus.UP:
            self._was_up, self._missed_calls = True, 0
        return self._state
