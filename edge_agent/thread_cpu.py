"""CPU time of this process by what its threads are for."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

OTHERS = "others"
"""Threads that Python did not start: those of libraries, gRPC's among them."""

_NS_PER_S = 1e9


def thread_cpu_s(tasks: Path = Path("/proc/self/task")) -> Mapping[str, float]:
    """Seconds since each living thread began, of all threads whose names begin alike together: `agent`, `camera` (of
    `camera-front`), `escalation`, ... Empty where the system does not tell."""
    names = {str(thread.native_id): thread.name.partition("-")[0] for thread in threading.enumerate()}
    spent_s: defaultdict[str, float] = defaultdict(float)
    try:
        for task in tasks.iterdir():
            spent_s[names.get(task.name, OTHERS)] += _spent_s(task)
    except OSError:
        return {}
    return {name: round(seconds, 4) for name, seconds in sorted(spent_s.items())}


def _spent_s(task: Path) -> float:
    try:
        return int((task / "schedstat").read_text(encoding="ascii").split()[0]) / _NS_PER_S
    except (OSError, ValueError, IndexError):  # it has ended meanwhile, or the kernel keeps no such count
        return 0.0
