"""Begins rounds of learning when they are due, one process at a time, and says how each ended."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from cloud.learn.triggers import TriggerFacts, TriggerSettings, due, rests_until

_log = logging.getLogger(__name__)

_BUSY_CODE = 75
"""EX_TEMPFAIL of `fovea`: somebody else is at a round, or a store is away. Nothing has failed for good."""
_BUSY_PAUSE = timedelta(minutes=10)


class RoundProcess(Protocol):
    """A round that was begun."""

    def find_code(self) -> int | None:
        """Its exit code; None while it works."""
        ...

    def last_words(self) -> str:
        """The last line that it has said."""
        ...

    def stop(self) -> None:
        """Ends it, within seconds; the next one goes on where it was."""
        ...


class Ended(StrEnum):
    """How a process that was begun here ended."""

    WELL = "well"
    FAILED = "failed"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True)
class Known:
    """What the stores say at this moment. `unfinished`: a round that was begun and is not over, by its id."""

    facts: TriggerFacts
    unfinished: str | None = None


class RoundSupervisor:
    """`look` is called every so often, from one thread."""

    def __init__(
        self,
        settings: TriggerSettings,
        known: Callable[[], Known],
        begin: Callable[[str], RoundProcess],
        is_time: Callable[[datetime], bool],
        now: Callable[[], datetime],
    ) -> None:
        """`begin` a round, or go on with the unfinished one, for this reason. `is_time`: whether rounds may begin
        now."""
        self._settings = settings
        self._known = known
        self._begin = begin
        self._is_time = is_time
        self._now = now
        self._lock = threading.Lock()
        self._process: RoundProcess | None = None
        self._failures = 0
        self._ended_at: datetime | None = None
        self._busy_until: datetime | None = None
        self._is_over = False
        self._counts: Counter[str] = Counter()
        self._reason: str | None = None

    def look(self) -> None:
        """Sees whether the process has ended, and whether another is due. Raises what the stores raise."""
        with self._lock:
            if self._process is not None:
                code = self._process.find_code()
                if code is None:
                    return
                self._end(self._process, code)
            now = self._now()
            if not self._is_over and self._is_time(now):
                self._begin_what_is_due(now)

    def stop(self) -> None:
        """Ends the process that works, if one does; no other begins."""
        with self._lock:
            self._is_over = True
            process, self._process = self._process, None
        if process is not None:
            _log.info("the round of learning is put down; it is gone on with after the next start")
            process.stop()

    @property
    def running(self) -> str | None:
        """Why a round is at work; None when none is."""
        return self._reason if self._process is not None else None

    @property
    def counts(self) -> Mapping[str, int]:
        """begun, well, failed, elsewhere: processes by how they ended."""
        return {name: self._counts[name] for name in ("begun", *(each.value for each in Ended))}

    def _begin_what_is_due(self, now: datetime) -> None:
        if self._busy_until is not None and now < self._busy_until:
            return
        known = self._known()
        facts = self._with_own(known.facts)
        if known.unfinished is None:
            trigger = due(now, facts, self._settings)
            if trigger is not None:
                self._start(trigger.reason)
        elif not self._failures or now >= rests_until(facts, self._settings):
            self._start(f"goes on with round {known.unfinished}")

    def _with_own(self, facts: TriggerFacts) -> TriggerFacts:
        """A process that broke before it wrote anything down counts as a failed round, too."""
        if not self._failures or self._ended_at is None:
            return facts
        latest = max(self._ended_at, facts.last_round_at or self._ended_at)
        return replace(facts, failures=max(facts.failures, self._failures), last_round_at=latest)

    def _start(self, reason: str) -> None:
        self._process = self._begin(reason)
        self._reason = reason
        self._counts["begun"] += 1
        _log.info("a round of learning begins: %s", reason)

    def _end(self, process: RoundProcess, code: int) -> None:
        self._process, self._ended_at, self._busy_until = None, self._now(), None
        if code == 0:
            self._failures = 0
            self._counts[Ended.WELL] += 1
            _log.info("the round of learning has ended: %s", process.last_words())
        elif code == _BUSY_CODE:
            self._counts[Ended.ELSEWHERE] += 1
            self._busy_until = self._ended_at + _BUSY_PAUSE
            _log.warning("the round of learning waits: %s", process.last_words())
        else:
            self._failures += 1
            self._counts[Ended.FAILED] += 1
            _log.error("the round of learning failed (exit code %d): %s", code, process.last_words())
