"""The thread that an updater runs on, woken by a hint and ended within a moment."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from fovea.core.errors import Cancelled
from fovea.core.ports import Clock
from fovea.update.ports import Surroundings

_log = logging.getLogger(__name__)

_AFTER_A_FAULT_S = 60.0


class Stepping(Protocol):
    """What the thread needs of an updater."""

    def step(self) -> float: ...

    def look(self) -> None: ...


class UpdateThread:
    """Made first, as it gives the surroundings that the updater waits in; `start` brings both together."""

    def __init__(self) -> None:
        self._wake = threading.Event()
        self._is_ending = False
        self._updater: Stepping | None = None
        self._thread = threading.Thread(target=self._run, name="updates", daemon=True)

    def surroundings(self, clock: Clock, draw: Callable[[], float]) -> Surroundings:
        """The real ones; a pause ends early, with Cancelled, when the thread has to end."""
        return Surroundings(clock, draw, self._pause, _free_bytes)

    def start(self, updater: Stepping) -> None:
        self._updater = updater
        self._thread.start()

    def look(self) -> None:
        """A hint: there may be news. From any thread."""
        if self._updater is not None:
            self._updater.look()
            self._wake.set()

    def stop(self, timeout_s: float) -> bool:
        """False when it did not end in time; an update that is cut short is gone on with after the next start."""
        self._is_ending = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        assert self._updater is not None
        while not self._is_ending:
            try:
                wait_s = self._updater.step()
            except Cancelled:
                continue
            except Exception:  # the top of this thread: frames are looked at all the same
                _log.exception("updates broke; they are tried again in %g s", _AFTER_A_FAULT_S)
                wait_s = _AFTER_A_FAULT_S
            self._wake.wait(wait_s)
            if not self._is_ending:
                self._wake.clear()

    def _pause(self, seconds: float) -> None:
        """A hint in between cuts it short, which does no harm."""
        if self._is_ending or (self._wake.wait(seconds) and self._is_ending):
            raise Cancelled("updates end")


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free
