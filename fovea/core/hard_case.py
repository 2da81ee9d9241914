"""A frame worth learning from: the picture, what each tier saw in it, and why it was sent."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime

from fovea.core.arrays import FloatArray, frozen_boxes
from fovea.core.detections import Detections
from fovea.core.errors import Malformed
from fovea.core.frame import FrameId
from fovea.core.labels import LabelSet
from fovea.core.routing import Tier


@dataclass(frozen=True, slots=True, eq=False)
class TierAnswer:
    """What one tier alone saw (not merged with others), and the names behind its class ids. `looked_xyxy` f32[R, 4]
    px of the frame: the parts that it was shown, where that was not all of it (None)."""

    tier: Tier
    detections: Detections
    labels: LabelSet
    looked_xyxy: FloatArray | None = None

    def __post_init__(self) -> None:
        if self.looked_xyxy is None:
            return
        looked = frozen_boxes("tier answer looked_xyxy", self.looked_xyxy)
        if not len(looked):
            raise Malformed(
                "tier answer looked_xyxy: expected at least one part of the frame, or None for all"
            )
        object.__setattr__(self, "looked_xyxy", looked)

    @property
    def is_whole(self) -> bool:
        """All of the frame was looked at."""
        return self.looked_xyxy is None


@dataclass(frozen=True, slots=True, eq=False)
class HardCase:
    """Safe to send twice: `id` is the digest of the picture, so a second delivery changes nothing.

    jpeg              an image file (JPEG as a rule), as it was sent to the tiers
    answers           at most one of each tier
    reasons           words of `fovea.core.routing.Reason`; free words from elsewhere are kept
    send_probability  the probability with which a frame like this was sent, more than 0 up to 1
    """

    jpeg: bytes
    frame_id: FrameId
    captured_at: datetime
    answers: tuple[TierAnswer, ...]
    reasons: tuple[str, ...]
    send_probability: float = 1.0
    id: str = field(init=False)

    def __post_init__(self) -> None:
        if not self.jpeg:
            raise Malformed("hard case: expected an image file, got no bytes")
        if self.captured_at.tzinfo is None:
            raise Malformed("hard case captured_at: expected a time with a zone (UTC), got one without")
        if not 0 < self.send_probability <= 1:
            raise Malformed(
                f"hard case send_probability: expected more than 0 up to 1, got {self.send_probability}"
            )
        tiers = [answer.tier for answer in self.answers]
        if len(set(tiers)) != len(tiers):
            raise Malformed(f"hard case answers: expected one of each tier at most, got {tiers}")
        if not self.reasons:
            raise Malformed("hard case: expected at least one reason, got none")
        object.__setattr__(self, "id", hashlib.sha256(self.jpeg).hexdigest())
