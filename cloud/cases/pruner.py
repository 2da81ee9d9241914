"""One thread that deletes what is too old or too much, now and then."""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from cloud.cases.retention import PruneReport, Retention
from fovea.core.errors import FoveaError

_log = logging.getLogger(__name__)


class Prunable(Protocol):
    """What can be pruned: `cloud.cases.store.CaseStore`."""

    def prune(self, retention: Retention) -> PruneReport:
        """See there."""
        ...


class CasePruner:
    """Prunes at the start and then every `every_s` seconds. A store that is away or busy is tried again next time."""

    def __init__(self, store: Prunable, retention: Retention, every_s: float) -> None:
        """Starts nothing."""
        self._store = store
        self._retention = retention
        self._every_s = every_s
        self._is_over = threading.Event()
        self._trouble: str | None = None
        self._is_over_limit = False
        self._thread = threading.Thread(target=self._run, name="case-pruner", daemon=True)

    @property
    def trouble(self) -> str | None:
        """Why nothing is deleted at the moment; None when all is well."""
        return self._trouble

    def start(self) -> None:
        """Does nothing where nothing is limited."""
        if self._retention.is_limited:
            self._thread.start()

    def stop(self, longest_s: float = 10.0) -> None:
        """Waits until what was begun is ended, but not longer than `longest_s`; what is left half-done then is
        finished next time. Twice is fine."""
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join(longest_s)

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._prune()
            self._is_over.wait(self._every_s)

    def _prune(self) -> None:
        try:
            report = self._store.prune(self._retention)
        except FoveaError as error:
            self._say_trouble(str(error))
        except Exception:  # the top of this thread: a store that is never pruned again fills the disk
            _log.exception("old cases could not be deleted, and nobody foresaw why")
            self._say_trouble("see the log")
        else:
            self._say_trouble(None)
            self._say(report)

    def _say(self, report: PruneReport) -> None:
        if report.cases:
            _log.info("%d old cases (%.1f MB) were deleted", report.cases, report.image_bytes / 1e6)
        if report.over_bytes and not self._is_over_limit:
            _log.warning(
                "%.1f MB more are kept than was allowed: all that is left is protected, or an audit",
                report.over_bytes / 1e6,
            )
        self._is_over_limit = report.over_bytes > 0

    def _say_trouble(self, trouble: str | None) -> None:
        """Says it when it begins and when it ends."""
        if trouble is not None and self._trouble is None:
            _log.error("old cases cannot be deleted for now: %s", trouble)
        if trouble is None and self._trouble is not None:
            _log.warning("old cases are deleted again")
        self._trouble = trouble
