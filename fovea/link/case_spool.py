"""Hard cases on disk until they are delivered: bounded, safe against a power cut, never in the way of the rest."""

from __future__ import annotations

import errno
import logging
import threading
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from fovea.core.errors import BrokenError, FoveaError, RejectedError
from fovea.core.hard_case import HardCase
from fovea.core.routing import Reason
from fovea.link.spool_files import PART, DiskFiles, FolderLock, SpoolFiles
from fovea.link.spool_index import Shelf, SpoolEntry, SpoolIndex, SpoolLimits, entry_named
from fovea.runtime.atomic_file import sync_folder
from protos.calls import Delivery
from protos.codec import delivery_from_bytes, delivery_to_bytes

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SpoolCounts:
    """What is there now (waiting, delivered, aside, in cases; waiting_bytes, total_bytes), and what has happened
    since the spool was opened. `refused` is by cause: too_large, no_room, disk_failed, unwritable."""

    waiting: int = 0
    delivered: int = 0
    aside: int = 0
    waiting_bytes: int = 0
    total_bytes: int = 0
    put: int = 0
    duplicates: int = 0
    marked_delivered: int = 0
    evicted_delivered: int = 0
    evicted_aside: int = 0
    evicted_waiting: int = 0
    damaged: int = 0
    rejected: int = 0
    refused: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


class CaseSpool:
    """A folder of cases, of one process at a time; threads may share it.

    After a crash or a power cut at any moment it holds every case for which `put` said True, whole, and no part of
    another. A case may come back that was delivered already, which its id makes harmless. Sizes and order are known
    without looking at the disk again.
    """

    def __init__(self, folder: Path, limits: SpoolLimits, files: SpoolFiles, lock: FolderLock) -> None:
        """For `open`."""
        self._folder = folder
        self._limits = limits
        self._files = files
        self._folder_lock = lock
        self._lock = threading.Lock()
        self._index = SpoolIndex()
        self._counts = SpoolCounts()
        self._listeners: tuple[Callable[[], None], ...] = ()

    @classmethod
    def open(
        cls, folder: Path, limits: SpoolLimits = SpoolLimits(), files: SpoolFiles | None = None
    ) -> CaseSpool:
        """The spool in `folder`, made if it is not there, with what was in it; leftovers of a crash are removed, and
        what is over the limits goes. Files that are none of its own stay where they are.

        Raises Unavailable when another process has it, BrokenError when the folder cannot be made or read.
        """
        disk = files or DiskFiles()
        try:
            for shelf in Shelf:
                (folder / shelf).mkdir(parents=True, exist_ok=True)
            sync_folder(folder)
            spool = cls(folder, limits, disk, FolderLock(folder))
            try:
                spool._recover()
            except BaseException:
                spool.close()
                raise
        except OSError as error:
            raise BrokenError(f"spool {folder}: {error.strerror or error}") from error
        return spool

    @property
    def counts(self) -> SpoolCounts:
        """A snapshot; it never waits for the disk."""
        return self._counts

    def listen(self, listener: Callable[[], None]) -> None:
        """`listener` is called after every new case, on the thread that put it."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def put(self, case: HardCase) -> bool:
        """Keeps `case`, making room as `SpoolIndex.evictable` says. When True comes back it is on the disk for good,
        or was there before (by its id). It waits for the disk, and never raises for want of room or a disk's failure:
        False, and the cause is counted."""
        try:
            data = delivery_to_bytes(Delivery(case))
        except RejectedError as error:
            _log.warning("spool: a case that cannot be written: %s", error)
            with self._lock:
                self._refuse("unwritable")
            return False
        with self._lock:
            known = self._index.find(case.id)
            if known is not None and known.shelf is not Shelf.ASIDE:
                self._count(duplicates=1)
                return True
            is_kept = (known is None or self._evict(known)) and self._keep(case, data)
            listeners = self._listeners
        if is_kept:
            for listener in listeners:
                listener()
        return is_kept

    def oldest(self, most: int = 1, skip: Collection[str] = ()) -> list[HardCase]:
        """Up to `most` cases that wait, the oldest first, without those whose ids are in `skip`. Damaged ones are set
        aside, and counted."""
        cases: list[HardCase] = []
        with self._lock:
            for entry in list(self._index.shelves[Shelf.WAITING].values()):
                if len(cases) >= most:
                    break
                if entry.id in skip:
                    continue
                case = self._load(entry)
                if case is not None:
                    cases.append(case)
        return cases

    def mark_delivered(self, case_id: str) -> bool:
        """The tier above has it, so here it may go when there is no room. False when no such case waits."""
        with self._lock:
            entry = self._index.shelves[Shelf.WAITING].get(case_id)
            if entry is None:
                return False
            self._move(entry, Shelf.DELIVERED)
            self._count(marked_delivered=1)
            return True

    def set_aside(self, case_id: str) -> bool:
        """The tier above will never take it. False when no such case waits."""
        with self._lock:
            entry = self._index.shelves[Shelf.WAITING].get(case_id)
            if entry is None:
                return False
            self._move(entry, Shelf.ASIDE)
            self._count(rejected=1)
            return True

    def close(self) -> None:
        """Another process may open it. Twice is fine."""
        with self._lock:
            self._folder_lock.release()

    # What follows is called with the lock held.

    def _recover(self) -> None:
        entries: list[SpoolEntry] = []
        for shelf in Shelf:
            for path in (self._folder / shelf).iterdir():
                if path.name.endswith(PART):
                    path.unlink(missing_ok=True)
                    continue
                entry = entry_named(path.name, path.stat().st_size, shelf)
                if entry is not None:
                    entries.append(entry)
        for entry in sorted(entries, key=lambda entry: entry.sequence):
            older = self._index.find(entry.id)
            if older is not None:
                self._evict(older)
            self._index.add(entry)
        for entry in self._index.to_evict(self._limits, self._limits.min_free_bytes, 0, cases=0) or ():
            self._evict(entry)
        self._count()

    def _keep(self, case: HardCase, data: bytes) -> bool:
        if len(data) > self._limits.max_bytes:
            return self._refuse("too_large")
        try:
            free_bytes = self._files.free_bytes(self._folder)
        except OSError as error:
            _log.warning("spool %s: %s", self._folder, error)
            return self._refuse("disk_failed")
        leaving = self._index.to_evict(self._limits, free_bytes, len(data))
        if leaving is None:
            for entry in list(self._index.shelves[Shelf.DELIVERED].values()):
                self._evict(entry)  # nobody misses it, and others lack the room
            return self._refuse("no_room")
        if not all(self._evict(entry) for entry in leaving):
            return self._refuse("disk_failed")
        entry = SpoolEntry(
            self._index.next_sequence,
            Reason.AUDIT in case.reasons,
            case.id,
            zlib.crc32(data),
            len(data),
            Shelf.WAITING,
        )
        if not self._write(entry, data, is_last_try=False):
            return self._refuse("disk_failed")
        self._index.add(entry)
        self._count(put=1)
        return True

    def _write(self, entry: SpoolEntry, data: bytes, is_last_try: bool) -> bool:
        try:
            self._files.write(self._path(entry), data)
        except OSError as error:
            _log.warning("spool %s: cannot write a case: %s", self._folder, error)
            # Quotas and reserves: what is said to be free is not always to be had.
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or is_last_try:
                return False
            freed_bytes = 0
            for old in self._index.evictable():
                if freed_bytes >= len(data):
                    break
                freed_bytes += old.size_bytes if self._evict(old) else 0
            return freed_bytes > 0 and self._write(entry, data, is_last_try=True)
        return True

    def _load(self, entry: SpoolEntry) -> HardCase | None:
        try:
            data = self._files.read(self._path(entry))
        except FileNotFoundError:
            _log.warning("spool %s: %s is gone", self._folder, entry.file_name)
            self._index.drop(entry.id)
            self._count(damaged=1)
            return None
        except OSError as error:  # it may be the day, not the file: too many open ones, a loose cable
            _log.warning("spool %s: cannot read %s: %s", self._folder, entry.file_name, error)
            return None
        try:
            if zlib.crc32(data) != entry.crc:
                raise BrokenError(f"expected bytes with the checksum {entry.crc:08x}, got others")
            case = delivery_from_bytes(data).case
            if case.id != entry.id:
                raise BrokenError(f"expected the case {entry.id}, got {case.id}")
        except FoveaError as error:
            _log.warning("spool %s: %s is set aside: %s", self._folder, entry.file_name, error)
            self._move(entry, Shelf.ASIDE)
            self._count(damaged=1)
            return None
        return case

    def _move(self, entry: SpoolEntry, shelf: Shelf) -> None:
        moved = replace(entry, shelf=shelf)
        try:
            self._files.move(self._path(entry), self._path(moved))
        except OSError as error:
            # It counts as moved: the worst is that it waits again after the next start.
            _log.warning("spool %s: cannot move %s: %s", self._folder, entry.file_name, error)
        self._index.add(moved)

    def _evict(self, entry: SpoolEntry) -> bool:
        """False when it is still there."""
        try:
            self._files.remove(self._path(entry))
        except OSError as error:
            _log.warning("spool %s: cannot remove %s: %s", self._folder, entry.file_name, error)
            return False
        self._index.drop(entry.id)
        self._count(**{f"evicted_{entry.shelf}": 1})
        return True

    def _path(self, entry: SpoolEntry) -> Path:
        return self._folder / entry.shelf / entry.file_name

    def _refuse(self, cause: str) -> bool:
        refused = dict(self._counts.refused)
        refused[cause] = refused.get(cause, 0) + 1
        self._counts = replace(self._counts, refused=MappingProxyType(refused))
        self._count()
        return False

    def _count(self, **more: int) -> None:
        shelves, before = self._index.shelves, self._counts
        happened = {name: getattr(before, name) + number for name, number in more.items()}
        self._counts = replace(
            before,
            waiting=len(shelves[Shelf.WAITING]),
            delivered=len(shelves[Shelf.DELIVERED]),
            aside=len(shelves[Shelf.ASIDE]),
            waiting_bytes=self._index.shelf_bytes[Shelf.WAITING],
            total_bytes=self._index.total_bytes,
            **happened,
        )
