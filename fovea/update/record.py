"""What an update has come to, on disk: what a device has to know after a restart in the middle of one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from fovea.core.detections import ModelRef
from fovea.core.errors import Malformed
from fovea.core.json_form import from_json_form, to_json_form
from fovea.core.release import ModelPin, Probation
from fovea.runtime.atomic_file import write_atomically
from fovea.runtime.manifest import canonical_json


@dataclass(frozen=True, slots=True)
class Order:
    """A switch that has begun and is neither committed nor taken back."""

    pin: ModelPin
    serial: int
    issued_at: datetime
    counter: int
    probation: Probation
    replaces: ModelRef | None
    """stays in the store after the commit, so that an order to go back needs no download"""


@dataclass(frozen=True, slots=True)
class Failed:
    """A model that did not do on this device; it is not tried again until another serial asks for it."""

    sha256: str
    serial: int
    reason: str
    has_run: bool
    """it was switched to and taken back, and not refused before"""


@dataclass(frozen=True, slots=True)
class Record:
    order: Order | None = None
    failed: Failed | None = None
    policy: Mapping[str, Any] | None = None


class RecordFile:
    """Written before what it announces, so that a restart finds at least that much."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Record:
        """An empty record where there is none or it cannot be read: the store alone knows the way back then."""
        try:
            return from_json_form(Record, json.loads(self._path.read_bytes()), "update record")
        except (OSError, ValueError, Malformed):
            return Record()

    def write(self, record: Record) -> None:
        """Raises BrokenError."""
        write_atomically(self._path, canonical_json(to_json_form(record)))
