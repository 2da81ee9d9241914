"""Judges a link by how calls over it end: gone, or only slow. Pure; the time is passed in, nothing is called."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from fovea.core.errors import (
    BrokenError,
    Cancelled,
    DeadlineExceeded,
    Incompatible,
    Malformed,
    NotAllowed,
    Unavailable,
)
from fovea.link.breaker import Breaker, BreakerSettings
from fovea.link.calling import Failure
from fovea.link.link import LinkState, LinkStatus, StateKeeper


class Verdict(StrEnum):
    """What the end of one call says about the link.

    answered     all is well
    beside_it    it was refused for what it is, or for lack of room: somebody is there, and no more is known
    unfit        somebody is there and says that he cannot answer
    unreachable  nobody is there
    late         nothing came in time: who is there is slow, or nobody is
    """

    ANSWERED = "answered"
    BESIDE_IT = "beside_it"
    UNFIT = "unfit"
    UNREACHABLE = "unreachable"
    LATE = "late"


def verdict_of(failure: Failure) -> Verdict:
    """What a failed call says about the link."""
    match failure.error:
        case DeadlineExceeded() if not failure.is_from_server:
            return Verdict.LATE
        case Unavailable() | BrokenError() | Cancelled() if not failure.is_from_server:
            return Verdict.UNREACHABLE
        case DeadlineExceeded() | Unavailable() | BrokenError() | Incompatible() | NotAllowed():
            return Verdict.UNFIT
        case _:
            return Verdict.BESIDE_IT


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """reach: when nobody is there. pace: when who is there is too slow, or unfit.

    check_every_s  somebody who has not been heard of for so long is asked whether he is there
    recheck_s      the pause between two such checks while it is in doubt
    """

    reach: BreakerSettings = field(default_factory=BreakerSettings)
    pace: BreakerSettings = field(default_factory=lambda: BreakerSettings(failures_in_a_row=4))
    check_every_s: float = 10.0
    recheck_s: float = 0.25

    def __post_init__(self) -> None:
        if not (0 < self.recheck_s <= self.check_every_s < float("inf")):
            raise Malformed(
                f"link settings: expected 0 < recheck_s <= check_every_s, "
                f"got {self.recheck_s} and {self.check_every_s}"
            )


@dataclass(frozen=True, slots=True)
class Permit:
    """Lets one call pass. `pace` is None where its duration says nothing, as with uploads."""

    reach: int
    pace: int | None


class LinkJudge:
    """Two breakers. `reach` is about whether anybody is there: calls that could not be made open it, and so do checks
    (small questions that any server answers at once) that were not answered. `pace` is about answers that come too
    late: it lets one question in a while through.

    A late answer alone does not say which it is, so it asks for a check. If questions are late and the check fails,
    too, nobody is there (a stopped process keeps its connections open); if it succeeds, the server is slow.

    Not for several threads at once: its owner has a lock, and takes what has changed with `take_changes`.
    """

    def __init__(self, settings: JudgeSettings, now_mono_s: float) -> None:
        self._settings = settings
        self._reach = Breaker(settings.reach, open_since_mono_s=now_mono_s)
        self._pace = Breaker(settings.pace)
        self._keeper = StateKeeper(now_mono_s, "not asked yet")
        self._changes: list[LinkState] = []
        self._heard_mono_s = self._checked_mono_s = now_mono_s
        self._held_until_mono_s = now_mono_s
        self._is_in_doubt = False
        self._reason = "not asked yet"

    @property
    def state(self) -> LinkState:
        return self._keeper.state

    @property
    def last_reason(self) -> str:
        """Why the last call that failed did."""
        return self._reason

    @property
    def is_reachable(self) -> bool:
        return self._reach.is_closed

    @property
    def held_until_mono_s(self) -> float:
        """The server wants no question before."""
        return self._held_until_mono_s

    def may_ask(self, now_mono_s: float) -> bool:
        return (
            self._reach.is_closed and self._pace.admits(now_mono_s) and now_mono_s >= self._held_until_mono_s
        )

    def admit_question(self, now_mono_s: float) -> Permit | None:
        """A permit to be told about with `ended`; None: not now, and that is counted as missed."""
        pace = self._pace.admit(now_mono_s) if self._reach.is_closed else None
        if pace is None:
            self._keeper.missed()
            return None
        return Permit(self._reach.ticket, pace)

    def admit_delivery(self) -> Permit | None:
        """As `admit_question`, for what takes as long as it takes."""
        if not self._reach.is_closed:
            self._keeper.missed()
            return None
        return Permit(self._reach.ticket, None)

    def hold(self, until_mono_s: float) -> None:
        """No question before that time: the server asked for it."""
        self._held_until_mono_s = max(self._held_until_mono_s, until_mono_s)

    def ended(self, permit: Permit, verdict: Verdict, now_mono_s: float, reason: str = "") -> None:
        """How a call ended that had a permit."""
        if (
            permit.reach != self._reach.ticket
        ):  # from before the last change: on a connection that is given up
            if verdict in (Verdict.UNREACHABLE, Verdict.LATE, Verdict.UNFIT):
                self._keeper.missed()
            return
        match verdict:
            case Verdict.UNREACHABLE:
                self._reason = reason
                self._keeper.missed()
                self._withdraw(permit)
                self._reach.failed(permit.reach, now_mono_s)
            case Verdict.LATE:
                self._reason = reason
                self._keeper.missed()
                self._is_in_doubt = True
                if permit.pace is not None:
                    self._pace.failed(permit.pace, now_mono_s)
            case _:
                self._heard(permit, verdict, now_mono_s, reason)
        self._look_for_changes(now_mono_s)

    def withdrawn(self, permit: Permit) -> None:
        """The call was not made."""
        self._withdraw(permit)

    def check_due_mono_s(self) -> float:
        """When somebody should be asked whether he is there."""
        if not self._reach.is_closed:
            return self._reach.trial_from_mono_s
        if self._is_in_doubt or self._reach.has_failures:
            return self._checked_mono_s + self._settings.recheck_s
        return self._heard_mono_s + self._settings.check_every_s

    def admit_check(self, now_mono_s: float) -> int:
        """A ticket for a check, which is to be told about with `check_succeeded` or `check_failed`."""
        ticket = self._reach.admit(now_mono_s)
        return self._reach.ticket if ticket is None else ticket

    def check_succeeded(self, ticket: int, now_mono_s: float) -> None:
        was_reachable = self._reach.is_closed
        self._reach.succeeded(ticket)
        if not was_reachable:
            self._pace.reset()
        self._heard_mono_s = self._checked_mono_s = now_mono_s
        self._is_in_doubt = False
        self._look_for_changes(now_mono_s)

    def check_failed(self, ticket: int, now_mono_s: float, reason: str) -> None:
        self._checked_mono_s = now_mono_s
        self._reason = reason
        self._reach.failed(ticket, now_mono_s)
        if self._is_in_doubt and not self._pace.is_closed:
            self._reach.trip(now_mono_s)
        self._look_for_changes(now_mono_s)

    def take_changes(self) -> list[LinkState]:
        """What has changed since the last call, in order: each change comes once."""
        changes, self._changes = self._changes, []
        return changes

    def has_changes(self) -> bool:
        return bool(self._changes)

    def _heard(self, permit: Permit, verdict: Verdict, now_mono_s: float, reason: str) -> None:
        self._heard_mono_s = now_mono_s
        self._is_in_doubt = False
        self._reach.succeeded(permit.reach)
        if verdict is Verdict.UNFIT:
            self._reason = reason
            self._keeper.missed()
            if permit.pace is not None:
                self._pace.failed(permit.pace, now_mono_s)
        elif verdict is Verdict.ANSWERED:
            self._keeper.answered()
            if permit.pace is not None:
                self._pace.succeeded(permit.pace)
        else:
            self._withdraw(permit)

    def _withdraw(self, permit: Permit) -> None:
        if permit.pace is not None:
            self._pace.withdrawn(permit.pace)

    def _look_for_changes(self, now_mono_s: float) -> None:
        if not self._reach.is_closed:
            self._is_in_doubt = False
            status, reason = LinkStatus.DOWN, self._reason
        elif self._pace.is_closed:
            status, reason = LinkStatus.UP, "answers"
        elif self._is_in_doubt:
            return  # a check is under way that will tell poor from down
        else:
            status, reason = LinkStatus.POOR, self._reason
        change = self._keeper.now_is(status, reason, now_mono_s)
        if change is not None:
            self._changes.append(change)
