"""What this device must never go back below, on disk: it survives a wiped metadata folder and a power cut."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from fovea.core.errors import Malformed, StoreCorrupt
from fovea.core.json_form import from_json_form, to_json_form
from fovea.core.release import DesiredState
from fovea.runtime.atomic_file import write_atomically
from fovea.runtime.manifest import canonical_json

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ChannelFloor:
    """The newest desired state of a group that was accepted, and its `order_digest`: one serial has one content.
    signed_sha256 is of all of it, times included."""

    serial: int
    sha256: str
    signed_sha256: str = ""


@dataclass(frozen=True, slots=True)
class FamilyFloor:
    """The release that was committed last, and when the desired state that ordered it was issued."""

    counter: int
    ordered_at: datetime


@dataclass(frozen=True, slots=True)
class Floors:
    """`seen_at`: the latest time that is certain, from signatures, or from the clock while signatures held."""

    groups: Mapping[str, ChannelFloor] = field(default_factory=dict)
    families: Mapping[str, FamilyFloor] = field(default_factory=dict)
    seen_at: datetime = _LONG_AGO

    def group(self, name: str) -> ChannelFloor:
        return self.groups.get(name, ChannelFloor(0, ""))

    def family(self, name: str) -> FamilyFloor:
        return self.families.get(name, FamilyFloor(0, _LONG_AGO))

    def with_accepted(self, desired: DesiredState, now: datetime, latest_credible: datetime) -> Floors:
        """The signed time counts up to `latest_credible`, and once: the same order again moves nothing further."""
        accepted = ChannelFloor(desired.serial, order_digest(desired), _signed_digest(desired))
        is_new = accepted != self.group(desired.group)
        signed_at = min(desired.issued_at, latest_credible) if is_new else now
        groups = {**self.groups, desired.group: accepted}
        return replace(self, groups=groups, seen_at=max(self.seen_at, signed_at, now))

    def with_committed(self, family: str, counter: int, ordered_at: datetime) -> Floors:
        """Also downwards: what a newer order took back is the new floor."""
        return replace(self, families={**self.families, family: FamilyFloor(counter, ordered_at)})

    def to_json(self) -> Any:
        return to_json_form(self)

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Raises Malformed."""
        plain = from_json_form(cls, value, "floors")
        return replace(
            plain,
            groups={
                str(name): from_json_form(ChannelFloor, each, f"floors.groups.{name}")
                for name, each in plain.groups.items()
            },
            families={
                str(name): from_json_form(FamilyFloor, each, f"floors.families.{name}")
                for name, each in plain.families.items()
            },
        )


def order_digest(desired: DesiredState) -> str:
    """Of all but the times: a desired state may be signed again for another week without being a new order."""
    form = to_json_form(desired)
    order = {name: form[name] for name in form if name not in ("issued_at", "expires_at")}
    return hashlib.sha256(canonical_json(order)).hexdigest()


def _signed_digest(desired: DesiredState) -> str:
    return hashlib.sha256(canonical_json(to_json_form(desired))).hexdigest()


class FloorFile:
    """The floors in one file, kept twice: a damaged one is read from the other, and is never taken for 'no floor'."""

    def __init__(self, folder: Path) -> None:
        self._paths = (folder / "floors.json", folder / "floors.copy.json")
        self._floors: Floors | None = None

    def read(self) -> Floors:
        """Raises StoreCorrupt when there were floors and neither file can be read."""
        if self._floors is None:
            self._floors = self._read_from_disk()
        return self._floors

    def write(self, floors: Floors) -> None:
        """Synced before it returns; nothing is written when nothing has changed. Raises BrokenError."""
        if floors == self.read():
            return
        data = canonical_json(floors.to_json())
        for path in self._paths:
            write_atomically(path, data)
        self._floors = floors

    def _read_from_disk(self) -> Floors:
        damage = None
        found = []
        for path in self._paths:
            try:
                found.append(Floors.from_json(json.loads(path.read_bytes())))
            except FileNotFoundError:
                continue
            except (ValueError, OSError, Malformed) as error:
                damage = f"{path} cannot be read: {error}"
        if found:
            # The first is written first, so it is never older; a power cut between the two leaves them apart.
            return found[0]
        if damage is not None:
            raise StoreCorrupt(f"the floors of releases are damaged, no update is accepted: {damage}")
        return Floors()
