"""Where the executors' tests keep the files by which a task and its test talk."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

LIVENESS_S = 240.0


def until(is_so: Callable[[], bool], what: str) -> None:
    """Waits for something that has to happen; the limit is far beyond what a busy machine needs."""
    end_s = time.monotonic() + LIVENESS_S
    while not is_so():
        assert time.monotonic() < end_s, f"never happened: {what}"
        time.sleep(0.05)


def tiny_distillation(folder: Path) -> dict[str, object]:
    """Arguments of a distillation of a few seconds, by the files that it needs, which are written here."""
    from fovea.zoo.catalogue import path_of
    from tests.learning_images import snapshot

    return {
        "student": path_of("street-student-day-fp32"), "snapshot": snapshot(folder / "data").folder,
        "out_dir": folder / "out",
    }  # fmt: skip
