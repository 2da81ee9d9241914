"""What is in a spool, and what has to go for something new. Pure: it moves no file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from fovea.core.errors import Malformed


class Shelf(StrEnum):
    """Where a case is; also the name of its folder.

    waiting    not delivered yet
    delivered  kept for as long as there is room
    aside      damaged, or refused by the tier above: kept for a person to look at, for as long as there is room
    """

    WAITING = "waiting"
    DELIVERED = "delivered"
    ASIDE = "aside"


@dataclass(frozen=True, slots=True)
class SpoolLimits:
    """max_bytes, max_cases: of everything in the spool. min_free_bytes: what it leaves to others on the disk."""

    max_bytes: int = 1_000_000_000
    max_cases: int = 10_000
    min_free_bytes: int = 200_000_000

    def __post_init__(self) -> None:
        if self.max_bytes < 1 or self.max_cases < 1 or self.min_free_bytes < 0:
            raise Malformed(f"spool limits: expected numbers above 0, got {self}")


@dataclass(frozen=True, slots=True)
class SpoolEntry:
    """One file of a spool. Its name holds all of this but its shelf and size, so that a start reads no file.

    sequence  counts up with every case of this spool: its age, whatever the clock says
    crc       of the bytes of the file
    """

    sequence: int
    is_audit: bool
    id: str
    crc: int
    size_bytes: int
    shelf: Shelf

    @property
    def file_name(self) -> str:
        kind = "audit" if self.is_audit else "hard"
        return f"{self.sequence:012d}.{kind}.{self.id}.{self.crc:08x}.case"


_NAME = re.compile(r"(\d{12,18})\.(audit|hard)\.([0-9a-f]{64})\.([0-9a-f]{8})\.case")


def entry_named(file_name: str, size_bytes: int, shelf: Shelf) -> SpoolEntry | None:
    """The entry of a file; None when it is no file of a spool."""
    match = _NAME.fullmatch(file_name)
    if match is None:
        return None
    sequence, kind, case_id, crc = match.groups()
    return SpoolEntry(int(sequence), kind == "audit", case_id, int(crc, 16), size_bytes, shelf)


@dataclass(slots=True)
class SpoolIndex:
    """The entries of a spool, oldest first on each shelf, and their sizes, kept up to date without looking."""

    next_sequence: int = 1
    shelves: dict[Shelf, dict[str, SpoolEntry]] = field(
        default_factory=lambda: {shelf: {} for shelf in Shelf}
    )
    shelf_bytes: dict[Shelf, int] = field(default_factory=lambda: dict.fromkeys(Shelf, 0))

    @property
    def total_bytes(self) -> int:
        return sum(self.shelf_bytes.values())

    def add(self, entry: SpoolEntry) -> None:
        """Entries come in the order of their sequences; one that is known on another shelf moves."""
        self.drop(entry.id)
        self.shelves[entry.shelf][entry.id] = entry
        self.shelf_bytes[entry.shelf] += entry.size_bytes
        self.next_sequence = max(self.next_sequence, entry.sequence + 1)

    def drop(self, case_id: str) -> None:
        for shelf, entries in self.shelves.items():
            entry = entries.pop(case_id, None)
            if entry is not None:
                self.shelf_bytes[shelf] -= entry.size_bytes

    def find(self, case_id: str) -> SpoolEntry | None:
        return next((shelf[case_id] for shelf in self.shelves.values() if case_id in shelf), None)

    def __len__(self) -> int:
        return sum(len(shelf) for shelf in self.shelves.values())

    def evictable(self) -> Iterator[SpoolEntry]:
        """What may go, in order: what was delivered, what was set aside, then the oldest that is no audit, at last
        the oldest audit (they are few, and an estimate without them is biased)."""
        waiting = self.shelves[Shelf.WAITING].values()
        yield from list(self.shelves[Shelf.DELIVERED].values())
        yield from list(self.shelves[Shelf.ASIDE].values())
        yield from [entry for entry in waiting if not entry.is_audit]
        yield from [entry for entry in waiting if entry.is_audit]

    def to_evict(
        self, limits: SpoolLimits, free_bytes: int, size_bytes: int, cases: int = 1
    ) -> list[SpoolEntry] | None:
        """What has to go for `cases` more of `size_bytes` in all; None when there is no room for it even then.

        What was not delivered goes only for something that finds room by it: when others fill the disk, giving up
        what is here would help nobody.
        """
        most_bytes, most_cases = limits.max_bytes - size_bytes, limits.max_cases - cases
        lacking_bytes = limits.min_free_bytes + size_bytes - free_bytes
        kept_bytes, kept_cases, chosen = self.total_bytes, len(self), list[SpoolEntry]()
        candidates = self.evictable()
        while kept_bytes > most_bytes or kept_cases > most_cases or lacking_bytes > 0:
            entry = next(candidates, None)
            if entry is None:
                return None
            chosen.append(entry)
            kept_bytes -= entry.size_bytes
            lacking_bytes -= entry.size_bytes
            kept_cases -= 1
        return chosen
