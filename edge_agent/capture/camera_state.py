"""What is known about a camera from outside: its phase and why, its settings, what it dropped and for which cause."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from edge_agent.capture.mask import Polygon
from edge_agent.capture.source import SourceFacts
from fovea.core.errors import Malformed


class CameraPhase(StrEnum):
    """How a camera fares."""

    CONNECTING = "connecting"
    """for the first time"""
    ONLINE = "online"
    LOST = "lost"
    """it gives no frames now; it is tried again for ever"""
    FINISHED = "finished"
    """a source with an end was read to it, or (then with a reason) can never be read"""
    STOPPED = "stopped"
    """`stop` was called"""


@dataclass(frozen=True, slots=True)
class CameraState:
    """The phase of a camera, since when, why (no credentials in it), and what its source is while it is online."""

    camera: str
    phase: CameraPhase
    since_at: datetime
    since_mono_s: float
    reason: str | None = None
    facts: SourceFacts | None = None


class DropCause(StrEnum):
    """Why a frame that came in was never taken."""

    NOT_DUE = "not_due"
    """the camera gives more frames than its `fps` wants"""
    REPLACED_BY_NEWER = "replaced_by_newer"
    """nobody took it before the next one came"""
    UNDECODABLE = "undecodable"
    FROZEN = "frozen"
    """the same picture for too long: the camera hangs"""
    STOPPED = "stopped"
    """it lay ready when the camera was stopped"""


class Delivery(StrEnum):
    """What happens when nobody takes a frame in time."""

    AUTO = "auto"
    """newest for live sources, every one for those with an end"""
    NEWEST = "newest"
    EVERY = "every"


@dataclass(frozen=True, slots=True)
class CameraSettings:
    """How frames of one camera are taken.

    fps             frames per second handed out at most; None: all
    masks           polygons that are blackened before anybody sees a frame
    is_realtime     files and simulated cameras are played at their own rate, not as fast as they are taken
    frozen_after_s  a live camera that gives the very same picture for so long is taken for hanging; None: never
    first_retry_s, longest_retry_s  pauses between attempts to connect, growing from the one to the other
    """

    fps: float | None = None
    masks: tuple[Polygon, ...] = ()
    is_realtime: bool = True
    delivery: Delivery = Delivery.AUTO
    frozen_after_s: float | None = 30.0
    first_retry_s: float = 1.0
    longest_retry_s: float = 30.0

    def __post_init__(self) -> None:
        checked_fps(self.fps)
        if self.frozen_after_s is not None and not self.frozen_after_s > 0:
            raise Malformed(f"camera frozen_after_s: expected above 0 s, got {self.frozen_after_s}")
        if not 0 < self.first_retry_s <= self.longest_retry_s:
            raise Malformed(
                "camera: expected 0 < first_retry_s <= longest_retry_s, "
                f"got {self.first_retry_s} and {self.longest_retry_s}"
            )


@dataclass(frozen=True, slots=True)
class CameraCounts:
    """What happened since the start: `frames` came in, `taken` of them were taken, the others are in `drops` or lie
    ready; `attempts` to connect, `connections` that gave a frame."""

    frames: int
    taken: int
    attempts: int
    connections: int
    drops: Mapping[DropCause, int]


def checked_fps(fps: float | None) -> float | None:
    """`fps`, or Malformed unless it is None or 0.01 to 240."""
    if fps is not None and not (math.isfinite(fps) and 0.01 <= fps <= 240):
        raise Malformed(f"camera fps: expected 0.01 to 240, got {fps}")
    return fps
