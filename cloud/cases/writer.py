"""One thread that keeps the frames that were asked about, so that nobody who asks waits for a disk."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from cloud.cases.stored_case import Receipt
from fovea.core.arrays import ImageArray
from fovea.core.errors import FoveaError, Malformed, RetryableError
from fovea.core.frame import FrameId, ImageSize
from fovea.core.hard_case import HardCase, TierAnswer
from fovea.runtime.images import encode_jpeg

_log = logging.getLogger(__name__)

_JPEG_QUALITY = 95
"""For frames that came as bare pixels, from the same machine."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0


class Way(StrEnum):
    """How a case comes: asked about live, or delivered from a spool."""

    LIVE = "live"
    DELIVERED = "delivered"


class Fate(StrEnum):
    """What became of it. new, known: it is kept. near: a case shows the same, and it was counted there. unnamed:
    nobody said which frame it is, so it is not kept. refused: there was no room to wait. failed: it could not be
    kept."""

    NEW = "new"
    KNOWN = "known"
    NEAR = "near"
    UNNAMED = "unnamed"
    REFUSED = "refused"
    FAILED = "failed"


def fate_of(receipt: Receipt) -> Fate:
    """What became of a case that was taken."""
    if receipt.is_near:
        return Fate.NEAR
    return Fate.NEW if receipt.is_new else Fate.KNOWN


class CaseCounter(Protocol):
    """Is told what becomes of each case, once, from any thread."""

    def count(self, way: Way, fate: Fate) -> None: ...


class CaseKeeper(Protocol):
    """What keeps cases: `cloud.cases.store.CaseStore`."""

    def add(self, case: HardCase, size: ImageSize | None = None) -> Receipt:
        """See there."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class AskedFrame:
    """A frame that was asked about: its picture as it came, an image file or pixels u8[H, W, 3] BGR, and all that is
    known of it."""

    picture: bytes | ImageArray
    size: ImageSize
    frame_id: FrameId
    captured_at: datetime
    answers: tuple[TierAnswer, ...]
    reasons: tuple[str, ...]
    send_probability: float

    @property
    def size_bytes(self) -> int:
        return len(self.picture) if isinstance(self.picture, bytes) else self.picture.nbytes

    def as_case(self) -> HardCase:
        """The case of it; pixels become a JPEG, which takes some ms. Raises Malformed."""
        picture = self.picture
        jpeg = picture if isinstance(picture, bytes) else encode_jpeg(picture, _JPEG_QUALITY)
        return HardCase(
            jpeg, self.frame_id, self.captured_at, self.answers, self.reasons, self.send_probability
        )


@dataclass(frozen=True, slots=True)
class WriterLimits:
    """How many frames wait to be kept at most, and of how many bytes."""

    max_frames: int = 256
    max_bytes: int = 256_000_000

    def __post_init__(self) -> None:
        if self.max_frames < 1 or self.max_bytes < 1:
            raise Malformed(f"writer limits: expected room for 1 or more, got {self}")


class CaseWriter:
    """`offer` from any thread. A store that has no room or is away is tried again, paced, for as long as it takes;
    meanwhile frames wait, and those that find no place are refused and counted."""

    def __init__(
        self, keeper: CaseKeeper, counter: CaseCounter, limits: WriterLimits = WriterLimits()
    ) -> None:
        """Starts nothing."""
        self._keeper = keeper
        self._counter = counter
        self._limits = limits
        self._turn = threading.Condition()  # guards all below
        self._waiting: deque[AskedFrame] = deque()
        self._waiting_bytes = 0
        self._stops_by_mono_s: float | None = None
        self._takes_frames = False
        self._trouble: str | None = None
        self._thread = threading.Thread(target=self._run, name="case-writer", daemon=True)

    @property
    def waiting(self) -> int:
        """Frames that are not kept yet."""
        with self._turn:
            return len(self._waiting)

    @property
    def trouble(self) -> str | None:
        """Why nothing is kept at the moment; None when all is well."""
        return self._trouble

    def start(self) -> None:
        self._takes_frames = True
        self._thread.start()

    def offer(self, frame: AskedFrame) -> bool:
        """Returns at once. False: there is no room, or it has stopped; this is counted."""
        with self._turn:
            is_full = len(self._waiting) >= self._limits.max_frames or (
                bool(self._waiting) and self._waiting_bytes + frame.size_bytes > self._limits.max_bytes
            )
            is_taken = self._takes_frames and not is_full
            if is_taken:
                self._waiting.append(frame)
                self._waiting_bytes += frame.size_bytes
                self._turn.notify()
        if not is_taken:
            self._counter.count(Way.LIVE, Fate.REFUSED)
        return is_taken

    def stop(self, longest_s: float) -> int:
        """Takes nothing more and keeps what waits. Gives how many frames are lost, because that took longer."""
        with self._turn:
            self._takes_frames = False
            self._stops_by_mono_s = time.monotonic() + longest_s
            self._turn.notify()
        if self._thread.ident is not None:
            self._thread.join(longest_s + 1)
        with self._turn:
            lost = len(self._waiting)
            self._waiting.clear()
        for _ in range(lost):
            self._counter.count(Way.LIVE, Fate.FAILED)
        return lost

    def _run(self) -> None:
        try:
            while (frame := self._first()) is not None:
                self._keep(frame)
        except BaseException:
            _log.exception("the writer of cases broke; frames are answered but not kept from here")
            self._trouble = "the writer broke, see the log"
            with self._turn:
                self._takes_frames = False

    def _first(self) -> AskedFrame | None:
        """Waits for the first in line, which keeps its place; None when it is over."""
        with self._turn:
            while not self._waiting and self._stops_by_mono_s is None:
                self._turn.wait()
            is_over = self._stops_by_mono_s is not None and time.monotonic() >= self._stops_by_mono_s
            return None if is_over or not self._waiting else self._waiting[0]

    def _keep(self, frame: AskedFrame) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                receipt = self._keeper.add(frame.as_case(), frame.size)
            except RetryableError as error:
                self._say_trouble(str(error))
                if not self._paused(pause_s):
                    return
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            except FoveaError as error:
                _log.warning("frame %s was not kept: %s", frame.frame_id, error)
                self._leave(frame, Fate.FAILED)
                return
            except (
                Exception
            ):  # the top of this thread: one frame must not be the end of all that come after it
                _log.exception("frame %s was not kept, and nobody foresaw why", frame.frame_id)
                self._leave(frame, Fate.FAILED)
                return
            else:
                self._say_trouble(None)
                self._leave(frame, fate_of(receipt))
                return

    def _leave(self, frame: AskedFrame, fate: Fate) -> None:
        with self._turn:
            # `stop` may have given up on it a moment ago; then it is counted as lost already.
            if not self._waiting or self._waiting[0] is not frame:
                return
            self._waiting.popleft()
            self._waiting_bytes -= frame.size_bytes
        self._counter.count(Way.LIVE, fate)

    def _paused(self, pause_s: float) -> bool:
        """False: it is over."""
        until_mono_s = time.monotonic() + pause_s
        with self._turn:
            while (left_s := until_mono_s - time.monotonic()) > 0:
                if self._stops_by_mono_s is not None:
                    left_s = min(left_s, self._stops_by_mono_s - time.monotonic())
                    if left_s <= 0:
                        return False
                self._turn.wait(left_s)
        return True

    def _say_trouble(self, trouble: str | None) -> None:
        """Says it when it begins and when it ends."""
        if trouble is not None and self._trouble is None:
            _log.error("cases cannot be kept for now: %s", trouble)
        if trouble is None and self._trouble is not None:
            _log.warning("cases are kept again")
        self._trouble = trouble
