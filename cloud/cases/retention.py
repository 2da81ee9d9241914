"""How much is kept and how long: judges what goes. Nothing that is protected is ever asked about here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fovea.core.errors import Malformed


@dataclass(frozen=True, slots=True)
class Retention:
    """What is None does not limit.

    max_bytes         of pictures; beyond, the oldest go
    max_age_days      since the store took a case, on its own clock (that of a camera may be wrong)
    keep_audits_days  random audits stay at least so long, whatever the other two say: they are a sample, and a
                      sample with holes estimates nothing
    """

    max_bytes: int | None = None
    max_age_days: float | None = None
    keep_audits_days: float = 90.0

    def __post_init__(self) -> None:
        if self.max_bytes is not None and self.max_bytes < 0:
            raise Malformed(f"retention max_bytes: expected 0 or more, got {self.max_bytes}")
        if self.max_age_days is not None and not self.max_age_days >= 0:
            raise Malformed(f"retention max_age_days: expected 0 or more, got {self.max_age_days}")
        if not self.keep_audits_days >= 0:
            raise Malformed(f"retention keep_audits_days: expected 0 or more, got {self.keep_audits_days}")

    @property
    def is_limited(self) -> bool:
        """Whether anything ever goes."""
        return self.max_bytes is not None or self.max_age_days is not None

    def audits_stay_from(self, now: datetime) -> datetime:
        """Audits taken since then stay."""
        return _before(now, self.keep_audits_days)

    def all_go_before(self, now: datetime) -> datetime | None:
        """What was taken before then is too old."""
        return None if self.max_age_days is None else _before(now, self.max_age_days)


@dataclass(frozen=True, slots=True)
class Held:
    """What has to be known of a case to judge it."""

    id: str
    received_at: datetime
    image_bytes: int


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What went, or would go, and what is left. `over_bytes`: how much more is kept than was allowed, because all
    that is left is protected or an audit."""

    cases: int
    image_bytes: int
    left_bytes: int
    over_bytes: int


def going(oldest_first: Sequence[Held], held_bytes: int, now: datetime, retention: Retention) -> int:
    """How many of these, from the start, go: all that are too old, and then the oldest until no more than `max_bytes`
    of the `held_bytes` (of all cases, these and others) are left."""
    too_old_before = retention.all_go_before(now)
    for place, held in enumerate(oldest_first):
        is_too_old = too_old_before is not None and held.received_at < too_old_before
        is_too_much = retention.max_bytes is not None and held_bytes > retention.max_bytes
        if not (is_too_old or is_too_much):
            return place
        held_bytes -= held.image_bytes
    return len(oldest_first)


def _before(now: datetime, days: float) -> datetime:
    try:
        return now - timedelta(days=days)
    except OverflowError:  # longer ago than there are dates
        return datetime.min.replace(tzinfo=now.tzinfo)
