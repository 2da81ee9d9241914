"""What comes out of the case store: plain values, whatever database is behind it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fovea.core.errors import Malformed
from fovea.core.frame import FrameId, ImageSize
from fovea.core.hard_case import TierAnswer
from fovea.core.routing import Tier


@dataclass(frozen=True, slots=True)
class Receipt:
    """`id` is the digest of the picture that was handed in. `is_new`: it has become a case. `case_id` is where it is
    kept: the same, or the case of an earlier picture of the same frame. `is_near`: the frame shows what that case
    shows, and was counted there."""

    id: str
    is_new: bool
    case_id: str
    is_near: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class StoredCase:
    """One case but for the bytes of its picture.

    image_size        px of the picture, upright
    answers           lowest tier first; their boxes are in px of their own `image_size`
    received_at       when the store took it, on its own clock
    send_probability  as the first delivery said
    condition         see `cloud.cases.condition`; this, the hash and the gain are None where nobody measured them
    picture_hash      64 bits, see `cloud.cases.picture_facts`
    measured_gain     what the highest tier added to the lowest, 0 to 1; None where fewer than two have looked
    near_frames       how many frames more were sent that show the same, and were counted here
    """

    id: str
    image_path: str
    image_bytes: int
    image_size: ImageSize
    frame_id: FrameId
    captured_at: datetime
    received_at: datetime
    answers: tuple[TierAnswer, ...]
    reasons: tuple[str, ...]
    send_probability: float
    is_audit: bool
    condition: str | None = None
    picture_hash: int | None = None
    measured_gain: float | None = None
    near_frames: int = 0
    tags: tuple[str, ...] = ()

    def find_answer(self, tier: Tier | None) -> TierAnswer | None:
        """What `tier` saw, or the highest that looked (None); None when it did not look."""
        if tier is None:
            return self.answers[-1] if self.answers else None
        return next((answer for answer in self.answers if answer.tier is tier), None)


class Order(StrEnum):
    """Which cases come first."""

    NEWEST = "newest"
    OLDEST = "oldest"


@dataclass(frozen=True, slots=True)
class CaseFilter:
    """Which cases are meant; what is None leaves all in. `since` counts by the time of capture, `tier` is one that
    has answered, `unprotected_as` leaves out what is protected for that reason or a kind of it (`golden` means
    `golden:yard`, too)."""

    camera: str | None = None
    reason: str | None = None
    since: datetime | None = None
    tier: Tier | None = None
    is_audit: bool | None = None
    condition: str | None = None
    tag: str | None = None
    unprotected_as: str | None = None

    def __post_init__(self) -> None:
        if self.since is not None and self.since.tzinfo is None:
            raise Malformed("case filter since: expected a time with a zone, got one without")


@dataclass(frozen=True, slots=True)
class CameraCount:
    """How much of a camera is kept."""

    camera: str
    cases: int
    audits: int
    image_bytes: int
    newest_at: datetime


@dataclass(frozen=True, slots=True)
class ConditionCount:
    """How much is kept of one camera under one condition; None: nobody measured it. `near_frames` were sent, too,
    and counted instead of kept."""

    camera: str
    condition: str | None
    cases: int
    audits: int
    near_frames: int
    image_bytes: int
