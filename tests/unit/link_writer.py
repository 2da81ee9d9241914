"""Puts cases into a spool until it is killed, as a process of its own; says each id once the spool has it."""

from __future__ import annotations

import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

from fovea.core.frame import FrameId
from fovea.core.hard_case import HardCase
from fovea.link.case_spool import CaseSpool
from fovea.link.spool_files import PART, DiskFiles
from fovea.link.spool_index import SpoolLimits

LIMITS = SpoolLimits(max_bytes=3_000_000, max_cases=40, min_free_bytes=0)
STEPS = ("before", "half written", "written", "renamed", "moved", "removed")


def case_of(number: int, size_bytes: int = 50_000) -> HardCase:
    picture = number.to_bytes(4, "big") * (size_bytes // 4)
    reasons = ("audit",) if number % 5 == 0 else ("weak_boxes",)
    return HardCase(picture, FrameId("yard", "b", number), datetime(2030, 1, 1, tzinfo=UTC), (), reasons)


class DyingFiles(DiskFiles):
    """The disk, and a process that ends at one step of its third write, move or removal, as if the power went."""

    def __init__(self, step: str) -> None:
        self._step = step
        self._left = dict.fromkeys(STEPS, 2)

    def write(self, path: Path, data: bytes) -> None:
        self._reached("before")
        if self._step == "half written" and not self._left["half written"]:
            path.with_name(path.name + PART).write_bytes(data[: len(data) // 2])
        self._reached("half written")
        if self._step == "written" and not self._left["written"]:
            path.with_name(path.name + PART).write_bytes(data)
        self._reached("written")
        super().write(path, data)
        self._reached("renamed")

    def move(self, source: Path, target: Path) -> None:
        super().move(source, target)
        self._reached("moved")

    def remove(self, path: Path) -> None:
        super().remove(path)
        self._reached("removed")

    def _reached(self, step: str) -> None:
        if step != self._step:
            return
        if not self._left[step]:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left[step] -= 1


if __name__ == "__main__":
    spool = CaseSpool.open(Path(sys.argv[1]), LIMITS, DyingFiles(sys.argv[2]))
    for number in range(int(sys.argv[3]), 1_000_000):
        case = case_of(number)
        assert spool.put(case)
        print(f"put {case.id}", flush=True)
        if number % 3 == 0:
            done = spool.oldest(1)[0].id
            spool.mark_delivered(done)
            print(f"delivered {done}", flush=True)
