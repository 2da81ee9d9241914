"""What every benchmark gives back: one JSON object per published set of figures."""

from __future__ import annotations

import json
import math
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from fovea.core.errors import BrokenError, Malformed

Setting = str | int | float | bool

_FIGURE_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_MEMORY_FILE = Path("/proc/meminfo")
_CPU_FILE = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that a figure was measured on: an absolute time is a fact about it, not about the product."""

    cpu: str
    cores: int
    memory_bytes: int
    system: str
    python: str
    numpy: str
    onnxruntime: str

    @classmethod
    def here(cls) -> Machine:
        """This machine. Unknown fields are empty or 0."""
        from fovea.runtime.ort import load_ort

        return cls(
            cpu=_field(_CPU_FILE, "model name") or platform.processor() or platform.machine(),
            cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
            memory_bytes=1024 * int(_field(_MEMORY_FILE, "MemTotal").removesuffix(" kB") or 0),
            system=f"{platform.system()} {platform.release()} {platform.machine()}",
            python=platform.python_version(),
            numpy=np.__version__,
            onnxruntime=load_ort().__version__,
        )


@dataclass(frozen=True, slots=True)
class BenchResult:
    """One run of one benchmark. `figures` is flat: dotted names, finite numbers; `settings` says how it was run."""

    name: str
    when: datetime
    machine: Machine
    settings: Mapping[str, Setting]
    figures: Mapping[str, float]

    def __post_init__(self) -> None:
        wrong = [name for name in self.figures if not _FIGURE_NAME.fullmatch(name)]
        if wrong:
            raise Malformed(f"figures: expected dotted names, got {wrong[0]!r}")
        endless = [name for name, value in self.figures.items() if not math.isfinite(value)]
        if endless:
            raise Malformed(
                f"figures: expected finite numbers, got {self.figures[endless[0]]} for {endless[0]}"
            )
        if self.when.tzinfo is None:
            raise Malformed("bench result when: expected a time with a zone (UTC), got one without")

    @classmethod
    def now(cls, name: str, settings: Mapping[str, Setting], figures: Mapping[str, float]) -> BenchResult:
        """A result that was measured here and just now."""
        return cls(name, datetime.now(UTC), Machine.here(), dict(settings), dict(figures))

    def to_json(self) -> str:
        """The object as it is published: `name`, `when` (ISO 8601, UTC), `machine`, `settings`, `figures`."""
        machine = {field: getattr(self.machine, field) for field in Machine.__dataclass_fields__}
        return json.dumps(
            {
                "name": self.name,
                "when": self.when.astimezone(UTC).isoformat(timespec="seconds"),
                "machine": machine,
                "settings": dict(self.settings),
                "figures": dict(self.figures),
            },
            indent=2,
            allow_nan=False,
        )

    def write(self, path: Path) -> None:
        """Writes the JSON object, making the folder if needed. Raises BrokenError when that fails."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.to_json() + "\n", encoding="utf-8")
        except OSError as error:
            raise BrokenError(f"cannot write {path}: {error.strerror}") from error


def _field(path: Path, name: str) -> str:
    """The first value called `name` in a file of `name : value` lines; empty where there is none."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    values = (line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == name)
    return next(values, "")
