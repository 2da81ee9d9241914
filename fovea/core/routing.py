"""Where one frame is looked at again, and why: the decision that every answer carries."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from fovea.core.errors import Malformed


class Tier(IntEnum):
    """Who answers. The number is the revision of the answer: 0 at once, 1 and 2 when they come."""

    AGENT = 0
    EDGE = 1
    CLOUD = 2


class Route(StrEnum):
    """skip: not even looked at (nothing moved). local: the camera's own answer is enough. edge, cloud: ask there."""

    SKIP = "skip"
    LOCAL = "local"
    EDGE = "edge"
    CLOUD = "cloud"


class Reason(StrEnum):
    """Why a frame went where it went; counted as they are, in metrics and in the case store."""

    STILL = "still"
    """nothing moved since the last look"""
    SURE = "sure"
    """nothing speaks for asking"""
    UNCERTAIN_BOXES = "uncertain_boxes"
    """boxes whose score is neither high nor low"""
    WEAK_BOXES = "weak_boxes"
    """much that stays just below the answer threshold"""
    VANISHED_TRACK = "vanished_track"
    """something that was in view is gone, and did not leave by the border"""
    MOTION_WITHOUT_BOXES = "motion_without_boxes"
    """something moves where nothing was seen"""
    EXPECTED_GAIN = "expected_gain"
    """a fitted gate expects a gain, from the whole of what it looks at"""
    TIERS_DISAGREE = "tiers_disagree"
    """a tier below was sure of what this one did not see"""
    AUDIT = "audit"
    """drawn at random, outside the budget"""
    OVER_BUDGET = "over_budget"
    """worth asking, but rate or bytes are spent"""
    COSTS_MORE = "costs_more"
    """worth asking, but for what it costs in latency and memory the camera's own answer serves better"""
    LINK_DOWN = "link_down"
    """worth asking, but nobody can be asked now"""
    UPPER_BUSY = "upper_busy"
    """worth asking, but the tier above is full and has asked for a pause"""
    TOO_MANY_IN_FLIGHT = "too_many_in_flight"
    """worth asking, but as many questions as may be are under way"""
    NO_TIME = "no_time"
    """worth asking, but no answer could come before the deadline"""
    SWITCHED_OFF = "switched_off"
    """asking was switched off by somebody"""


@dataclass(frozen=True, slots=True)
class RouteDecision:
    """Never without a reason. `expected_gain` is what the stronger look should add (AP of the frame, 0..1), `qoe` the
    quality of experience of the chosen route, both None where nobody estimated them. `send_probability` is the
    probability with which a frame like this one is sent up: what an unbiased estimate divides by."""

    route: Route
    reasons: tuple[Reason, ...]
    expected_gain: float | None = None
    qoe: float | None = None
    send_probability: float = 1.0

    def __post_init__(self) -> None:
        if not self.reasons:
            raise Malformed("route decision: expected at least one reason, got none")
        for name, value in (("expected_gain", self.expected_gain), ("qoe", self.qoe)):
            if value is not None and not math.isfinite(value):
                raise Malformed(f"route decision {name}: expected a finite number, got {value}")
        if not 0 < self.send_probability <= 1:
            raise Malformed(
                f"route decision send_probability: expected more than 0 up to 1, got {self.send_probability}"
            )

    @property
    def is_asked(self) -> bool:
        """True when somebody else looks at the frame, too."""
        return self.route in (Route.EDGE, Route.CLOUD)

    @property
    def is_audit(self) -> bool:
        return Reason.AUDIT in self.reasons
