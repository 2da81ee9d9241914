"""The clock of the machine, as `fovea.core.ports.Clock`."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """Wall clock in UTC, and the monotonic clock in seconds."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        return time.monotonic()
