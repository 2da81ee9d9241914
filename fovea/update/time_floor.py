"""What time it is at least, on a board whose clock may stand in 1970."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from fovea.core.ports import Clock

_DRIFT: Final = timedelta(minutes=1)
LONGEST_LEAP: Final = timedelta(days=30)


class TimeFloor:
    """The wall clock, but never before what is certain: the build of the software, the last accepted signature, the
    time at which the last one was accepted. From there on the monotonic clock counts."""

    def __init__(self, clock: Clock, at_least: datetime) -> None:
        self._clock = clock
        self._floor, self._since_s = at_least, clock.monotonic_s()

    def raise_to(self, at: datetime) -> None:
        if at > self._floor_now():
            self._floor, self._since_s = at, self._clock.monotonic_s()

    def now(self) -> datetime:
        return max(self._clock.now(), self._floor_now())

    @property
    def clock_synced(self) -> bool:
        """False where the wall clock is before what is certain (a minute of drift aside)."""
        return self._clock.now() >= self._floor_now() - _DRIFT

    def latest_credible(self) -> datetime:
        """How far one signed time may move the floor. Who holds a key could sign the year 2099, and all honest
        signatures would read as expired for good: the wall clock says no where it can be believed (the same drift:
        a floor moved by it must not make the clock look wrong), and elsewhere it is `LONGEST_LEAP` for one order."""
        return self._clock.now() + _DRIFT if self.clock_synced else self._floor_now() + LONGEST_LEAP

    def _floor_now(self) -> datetime:
        return self._floor + timedelta(seconds=self._clock.monotonic_s() - self._since_s)
