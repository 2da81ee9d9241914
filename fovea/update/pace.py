"""Takes a body in piece by piece and gives up on one that is too slow or comes too late."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from fovea.core.errors import DeadlineExceeded, Unavailable
from fovea.core.ports import Clock

_PATIENCE_S: Final = 5.0
"""A connection may warm up for so long before its throughput counts."""


@dataclass(frozen=True, slots=True)
class Pace:
    """No body may take longer than `deadline_s`, nor come in slower than `min_bytes_per_s` on average over
    `window_s`: a server that gives one byte at a time holds nobody up."""

    deadline_s: float
    min_bytes_per_s: float
    window_s: float = _PATIENCE_S


def paced(chunks: Iterator[bytes], pace: Pace, clock: Clock, what: str) -> Iterator[bytes]:
    """The same pieces. Raises DeadlineExceeded, Unavailable (too slow), and what `chunks` raises."""
    begun_s = window_begun_s = clock.monotonic_s()
    window_bytes = 0
    for chunk in chunks:
        yield chunk
        now_s = clock.monotonic_s()
        if now_s - begun_s > pace.deadline_s:
            raise DeadlineExceeded(f"{what}: not complete after {pace.deadline_s:g} s")
        window_bytes += len(chunk)
        if now_s - window_begun_s >= pace.window_s:
            rate = window_bytes / (now_s - window_begun_s)
            if rate < pace.min_bytes_per_s:
                raise Unavailable(
                    f"{what}: too slow, {rate:.0f} bytes/s and at least {pace.min_bytes_per_s:.0f}"
                )
            window_begun_s, window_bytes = now_s, 0
