"""SIGTERM as an error, for commands that start others."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from fovea.core.errors import Cancelled


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C would, so that nothing that it started stays behind."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Cancelled("told to stop")

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
