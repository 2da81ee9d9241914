"""One answer to one frame, as it is published: what was seen, by whom, why, and how long it took."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from fovea.core.detections import Detections
from fovea.core.errors import Malformed
from fovea.core.frame import FrameId
from fovea.core.routing import RouteDecision, Tier


@dataclass(frozen=True, slots=True, eq=False)
class FrameResult:
    """`revision` n of what is known about a frame; a later one replaces an earlier one.

    stage_ms      where the time went, by stage, in milliseconds on the monotonic clock of the camera
    degraded      why the answer is less than was meant ("edge_lost", ...), None when it is all that was meant
    """

    frame_id: FrameId
    revision: int
    detections: Detections
    answered_by: Tier
    decision: RouteDecision
    captured_at: datetime
    captured_mono_s: float
    stage_ms: Mapping[str, float] = field(default_factory=dict)
    degraded: str | None = None

    def __post_init__(self) -> None:
        if self.revision < 0:
            raise Malformed(f"frame result revision: expected 0 or more, got {self.revision}")
        if self.captured_at.tzinfo is None:
            raise Malformed("frame result captured_at: expected a time with a zone (UTC), got one without")
        if any(not math.isfinite(ms) or ms < 0 for ms in self.stage_ms.values()):
            raise Malformed(
                f"frame result stage_ms: expected finite milliseconds of 0 or more, got {self.stage_ms}"
            )
        object.__setattr__(self, "stage_ms", MappingProxyType(dict(self.stage_ms)))
