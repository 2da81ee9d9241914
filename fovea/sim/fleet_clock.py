"""A clock that a simulator moves, in a file that several processes map: hours pass in seconds for all of them."""

from __future__ import annotations

import mmap
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

_BYTES: Final = 8


class VirtualClock:
    """A `Clock`; seconds since `began_at`. One process moves it (`advance_to`), the others look."""

    def __init__(self, path: Path, began_at: datetime) -> None:
        """The file is made if it is not there; then no time has passed."""
        self._began_at = began_at
        with path.open("ab") as file:
            if file.tell() < _BYTES:
                file.write(bytes(_BYTES - file.tell()))
        with path.open("r+b") as file:
            self._shared = memoryview(mmap.mmap(file.fileno(), _BYTES)).cast("d")

    def now(self) -> datetime:
        return self._began_at + timedelta(seconds=self._shared[0])

    def monotonic_s(self) -> float:
        seconds: float = self._shared[0]
        return seconds

    def advance_to(self, seconds: float) -> None:
        """Never backwards. Eight aligned bytes: a reader sees the old time or the new one."""
        self._shared[0] = max(seconds, self._shared[0])

    def wait_for(self, seconds: float, look_every_s: float = 0.05) -> None:
        """Until so much virtual time has passed; `look_every_s` is real."""
        until_s = self.monotonic_s() + seconds
        while self.monotonic_s() < until_s:
            time.sleep(look_every_s)
