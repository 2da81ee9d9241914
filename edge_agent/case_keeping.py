"""Hard cases on their way to the disk: one thread encodes and keeps them, so that nothing else waits for it."""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from fovea.core.errors import FoveaError
from fovea.core.frame import Frame
from fovea.core.hard_case import HardCase, TierAnswer
from fovea.runtime.images import encode_jpeg

_log = logging.getLogger(__name__)

SAMPLE = "sample"
"""The reason of a case that was kept at random, whatever anybody thought of it."""

_MOST_WAITING = 16
"""Cases that wait for the disk at most: each holds its picture in memory."""


class CaseShelf(Protocol):
    """Where cases lie; `fovea.link.case_spool.CaseSpool` is one."""

    def put(self, case: HardCase) -> bool:
        """False when there was no room. Never raises for the disk's sake."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class CaseDraft:
    """A case whose picture may not be encoded yet: `jpeg` is None then."""

    frame: Frame
    answers: tuple[TierAnswer, ...]
    reasons: tuple[str, ...]
    send_probability: float
    jpeg: bytes | None = None

    def case(self, jpeg_quality: int) -> HardCase:
        return HardCase(
            jpeg=self.jpeg or encode_jpeg(self.frame.pixels, jpeg_quality),
            frame_id=self.frame.id,
            captured_at=self.frame.captured_at,
            answers=self.answers,
            reasons=self.reasons,
            send_probability=self.send_probability,
        )


class CaseKeeping:
    """Takes drafts from any thread and never makes it wait; what is too much is dropped and counted."""

    def __init__(self, shelf: CaseShelf | None, jpeg_quality: int) -> None:
        self._shelf = shelf
        self._jpeg_quality = jpeg_quality
        self._drafts: queue.SimpleQueue[CaseDraft | None] = queue.SimpleQueue()
        self._waiting = threading.BoundedSemaphore(_MOST_WAITING)
        self._counts: Counter[str] = Counter(kept=0, no_room=0, dropped=0, failed=0)
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="case-keeping", daemon=True)

    @property
    def counts(self) -> Mapping[str, int]:
        """kept, no_room (the shelf refused), dropped (too many waited), failed."""
        with self._lock:
            return dict(self._counts)

    def start(self) -> None:
        if self._shelf is not None:
            self._thread.start()

    def keep(self, draft: CaseDraft) -> bool:
        """False when nothing is kept here, or too many wait."""
        if self._shelf is None:
            return False
        if not self._waiting.acquire(blocking=False):
            self._count("dropped")
            return False
        self._drafts.put(draft)
        return True

    def stop(self, timeout_s: float) -> bool:
        """Keeps what was taken before; False when that took longer than `timeout_s`."""
        if not self._thread.is_alive():
            return True
        self._drafts.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (draft := self._drafts.get()) is not None:
            try:
                is_kept = self._shelf is not None and self._shelf.put(draft.case(self._jpeg_quality))
                self._count("kept" if is_kept else "no_room")
            except FoveaError as error:
                self._count("failed")
                _log.warning("a case of %s could not be kept: %s", draft.frame.id, error)
            except Exception:  # the top of this thread: the next case goes on
                self._count("failed")
                _log.exception("keeping a case of %s broke", draft.frame.id)
            finally:
                self._waiting.release()

    def _count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1
