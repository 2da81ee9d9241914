"""Work that is done now and then on a thread of its own, and tried again when it fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from fovea.core.errors import FoveaError

_log = logging.getLogger(__name__)


class RegularWork:
    """Does `work` at the start and then every `every_s` seconds, or `again_s` after it failed."""

    def __init__(
        self, name: str, work: Callable[[], object], every_s: float, again_s: float | None = None
    ) -> None:
        """`name` says in a few words what is done, for the log. Starts nothing."""
        self._name = name
        self._work = work
        self._every_s = every_s
        self._again_s = every_s if again_s is None else min(again_s, every_s)
        self._is_over = threading.Event()
        self._trouble: str | None = None
        self._thread = threading.Thread(target=self._run, name=name.replace(" ", "-"), daemon=True)

    @property
    def trouble(self) -> str | None:
        """Why it cannot be done at the moment; None when all is well."""
        return self._trouble

    def start(self) -> None:
        self._thread.start()

    def stop(self, longest_s: float = 5.0) -> None:
        """Waits until what was begun is ended, but not longer than `longest_s`. Twice is fine."""
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join(longest_s)

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._do()
            self._is_over.wait(self._every_s if self._trouble is None else self._again_s)

    def _do(self) -> None:
        try:
            self._work()
        except FoveaError as error:
            self._say(f"{self._name}: {error}")
        except Exception:  # the top of this thread: the next time may go well
            _log.exception("%s: nobody foresaw why it fails", self._name)
            self._say(f"{self._name}: see the log")
        else:
            self._say(None)

    def _say(self, trouble: str | None) -> None:
        """When it begins, when it becomes another one, and when it ends."""
        if trouble is not None and trouble != self._trouble:
            _log.error("%s", trouble)
        if trouble is None and self._trouble is not None:
            _log.warning("%s: goes well again", self._name)
        self._trouble = trouble
