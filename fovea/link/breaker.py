"""A circuit breaker as a value of its past: who says whether to call now. Pure; the time is passed in."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from fovea.core.errors import Malformed


class BreakerState(StrEnum):
    """closed: calls go through. open: none does. half_open: one does, and decides."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """When it opens, and how long it stays open.

    failures_in_a_row          opens it
    window_calls, failed_share opens it, too: this share of the last so many calls
    first_pause_s, growth, longest_pause_s
                               the pause before the next trial, and how it grows with each that fails
    proven_after               so many successes after it closed and the next pause is the first one again
    """

    failures_in_a_row: int = 3
    window_calls: int = 20
    failed_share: float = 0.6
    first_pause_s: float = 0.5
    growth: float = 2.0
    longest_pause_s: float = 5.0
    proven_after: int = 3

    def __post_init__(self) -> None:
        if self.failures_in_a_row < 1 or self.window_calls < 1 or self.proven_after < 1:
            raise Malformed(f"breaker settings: expected counts of 1 or more, got {self}")
        if not 0 < self.failed_share <= 1:
            raise Malformed(
                f"breaker settings failed_share: expected more than 0 up to 1, got {self.failed_share}"
            )
        if not (0 < self.first_pause_s <= self.longest_pause_s < float("inf") and self.growth >= 1):
            raise Malformed(
                "breaker settings: expected 0 < first_pause_s <= longest_pause_s and a growth of 1 or more, "
                f"got {self}"
            )


class Breaker:
    """Not for several threads at once: its owner has a lock.

    A call is let through by `admit`, which gives a ticket, and told about with it once: `succeeded`, `failed` or
    `withdrawn` (it says nothing about the other side). A ticket from before the last change is of no account, so a
    slow call of an hour ago neither opens nor closes anything.
    """

    def __init__(
        self, settings: BreakerSettings = BreakerSettings(), open_since_mono_s: float | None = None
    ) -> None:
        """Closed; or, with `open_since_mono_s`, open and waiting for its first trial at once."""
        self._settings = settings
        self._state = BreakerState.CLOSED if open_since_mono_s is None else BreakerState.OPEN
        self._trial_from_mono_s = open_since_mono_s or 0.0
        self._pause_s = settings.first_pause_s
        self._ticket = 0
        self._begin_afresh()

    @property
    def state(self) -> BreakerState:
        return self._state

    @property
    def is_closed(self) -> bool:
        return self._state is BreakerState.CLOSED

    @property
    def has_failures(self) -> bool:
        """True when the last call failed."""
        return self._failures_in_a_row > 0

    @property
    def trial_from_mono_s(self) -> float:
        """While open: when the next trial is due."""
        return self._trial_from_mono_s

    @property
    def ticket(self) -> int:
        """For who calls without asking, and tells about it nevertheless."""
        return self._ticket

    def admits(self, now_mono_s: float) -> bool:
        """Whether `admit` would let a call through; changes nothing."""
        match self._state:
            case BreakerState.CLOSED:
                return True
            case BreakerState.OPEN:
                return now_mono_s >= self._trial_from_mono_s
            case BreakerState.HALF_OPEN:
                return not self._is_trial_under_way

    def admit(self, now_mono_s: float) -> int | None:
        """A ticket for one call; None: not now."""
        if not self.admits(now_mono_s):
            return None
        if self._state is BreakerState.OPEN:
            self._go_to(BreakerState.HALF_OPEN)
        self._is_trial_under_way = self._state is BreakerState.HALF_OPEN
        return self._ticket

    def succeeded(self, ticket: int) -> None:
        if ticket != self._ticket:
            return
        if self._state is not BreakerState.CLOSED:
            self._go_to(BreakerState.CLOSED)
        self._failures_in_a_row = 0
        self._window.append(True)
        self._successes += 1

    def failed(self, ticket: int, now_mono_s: float) -> None:
        if ticket != self._ticket:
            return
        if self._state is not BreakerState.CLOSED:
            self._open(now_mono_s)
            return
        self._failures_in_a_row += 1
        self._window.append(False)
        window, settings = self._window, self._settings
        is_bad = (
            len(window) == settings.window_calls
            and window.count(False) >= settings.failed_share * settings.window_calls
        )
        if self._failures_in_a_row >= settings.failures_in_a_row or is_bad:
            self._open(now_mono_s)

    def withdrawn(self, ticket: int) -> None:
        """The call ended and says nothing; if it was the trial, another may be one."""
        if ticket == self._ticket:
            self._is_trial_under_way = False

    def trip(self, now_mono_s: float) -> None:
        """Opens it on other evidence than its own; it stays as it is when it is open."""
        if self._state is BreakerState.CLOSED:
            self._open(now_mono_s)

    def reset(self) -> None:
        """Closed, and nothing is held against anybody; only the pauses are remembered until it has proved itself."""
        self._go_to(BreakerState.CLOSED)

    def _open(self, now_mono_s: float) -> None:
        settings = self._settings
        if self._state is BreakerState.CLOSED and self._successes >= settings.proven_after:
            self._pause_s = settings.first_pause_s
        self._trial_from_mono_s = now_mono_s + self._pause_s
        self._pause_s = min(self._pause_s * settings.growth, settings.longest_pause_s)
        self._go_to(BreakerState.OPEN)

    def _go_to(self, state: BreakerState) -> None:
        self._state = state
        self._ticket += 1
        self._begin_afresh()

    def _begin_afresh(self) -> None:
        self._failures_in_a_row = 0
        self._successes = 0
        self._window: deque[bool] = deque(maxlen=self._settings.window_calls)
        self._is_trial_under_way = False
