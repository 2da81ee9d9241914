"""How often this process ended without being told to since the machine booted, counted on disk."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fovea.core.errors import BrokenError, Malformed
from fovea.core.json_form import from_json_form, to_json_form
from fovea.runtime.atomic_file import write_atomically
from fovea.runtime.manifest import canonical_json

_log = logging.getLogger(__name__)

_MACHINE_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class _Run:
    """restarts: after an end that nobody asked for, since the boot `machine_boot`. shadowed: the candidate that looks
    beside the champion now; deaths: ends of this kind while it did."""

    machine_boot: str
    restarts: int = 0
    is_over: bool = False
    shadowed: str | None = None
    deaths: int = 0


class Starts:
    """One file, written at each start, at each end, and when a candidate begins or ends to look. Not to be able to
    write it stops nothing."""

    def __init__(self, path: Path, machine_boot: str | None = None) -> None:
        """Counts this start."""
        self._path = path
        boot = _machine_boot() if machine_boot is None else machine_boot
        before = self._read()
        if before is None or before.machine_boot != boot:
            self._run = _Run(boot)
        elif before.is_over:
            self._run = replace(before, is_over=False, shadowed=None)
        else:
            deaths = before.deaths + (before.shadowed is not None)
            self._run = replace(before, restarts=before.restarts + 1, deaths=deaths)
        self._write()

    @property
    def restarts(self) -> int:
        return self._run.restarts

    def deaths_beside(self, sha256: str) -> int:
        """How often the process ended while this candidate looked."""
        return self._run.deaths if self._run.shadowed == sha256 else 0

    def shadowing(self, sha256: str | None) -> None:
        """From now on this candidate looks beside the champion; None: none does."""
        if sha256 != self._run.shadowed:
            self._run = replace(self._run, shadowed=sha256, deaths=0)
            self._write()

    def end(self) -> None:
        """The process was told to end."""
        self._run = replace(self._run, is_over=True)
        self._write()

    def _read(self) -> _Run | None:
        try:
            return from_json_form(_Run, json.loads(self._path.read_bytes()), "starts")
        except (OSError, ValueError, Malformed):
            return None

    def _write(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, canonical_json(to_json_form(self._run)))
        except (BrokenError, OSError) as error:
            _log.warning("starts cannot be counted: %s", error)


def _machine_boot() -> str:
    try:
        return _MACHINE_BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""
