"""What the agent tells the world, and the port through which it does: plain values in, nothing waited for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

from edge_agent.track.tracking import Tracking
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from fovea.core.result import FrameResult
from fovea.core.routing import Tier


class Feature(StrEnum):
    """What can be switched on a camera from outside, and its state told."""

    DETECT = "detect"
    """ON or OFF: whether its frames are looked at"""
    GATE = "gate"
    """ON or OFF: whether somebody stronger may be asked"""
    FPS = "fps"
    """frames per second that are looked at"""


Setting = bool | float
"""The value of a feature: a bool for detect and gate, a number above 0 for fps."""

OnCommand = Callable[[Feature, str, Setting], None]
"""Called with feature, camera and the wanted value, on a thread of the publisher: take note and return at once."""


class CameraCondition(StrEnum):
    """How a camera fares."""

    CONNECTING = "connecting"
    ONLINE = "online"
    LOST = "lost"
    FINISHED = "finished"
    """a source with an end has been read to it"""
    STOPPED = "stopped"
    """the agent was told to stop"""


@dataclass(frozen=True, slots=True)
class CameraStatus:
    """The condition of one camera, since when (UTC), and why where somebody could ask. No credentials in `reason`."""

    condition: CameraCondition
    since: datetime
    reason: str | None = None

    def __post_init__(self) -> None:
        if self.since.tzinfo is None:
            raise Malformed("camera status since: expected a time with a zone (UTC), got one without")


@dataclass(frozen=True, slots=True)
class Sighting:
    """What is known about one tracked object at one moment.

    id          unique over cameras and restarts
    score       of its last look, `top_score` the best so far; both 0..1
    box_xyxy    px of a frame of `image_size`
    zones       where it is now; `entered_zones` where it has ever been, in order
    at          UTC, the frame this is about; `started_at` when it was first seen; `ended_at` None while it lasts
    """

    id: str
    camera: str
    label: str
    score: float
    top_score: float
    box_xyxy: tuple[float, float, float, float]
    image_size: ImageSize
    at: datetime
    started_at: datetime
    tier: Tier = Tier.AGENT
    zones: tuple[str, ...] = ()
    entered_zones: tuple[str, ...] = ()
    ended_at: datetime | None = None

    def __post_init__(self) -> None:
        if not self.id or not self.camera or not self.label:
            raise Malformed(
                f"sighting: expected an id, a camera and a label, got {(self.id, self.camera, self.label)}"
            )
        # One for every object and frame: no loops here.
        if not math.isfinite(sum(self.box_xyxy)):
            raise Malformed(f"sighting box_xyxy: expected finite px, got {self.box_xyxy}")
        if not (0 <= self.score <= 1 and 0 <= self.top_score <= 1):
            raise Malformed(
                f"sighting score and top_score: expected 0 to 1, got {self.score}, {self.top_score}"
            )

    def outside_zones(self) -> Sighting:
        """The same object before it was in any zone."""
        return replace(self, zones=(), entered_zones=())


class EventKind(StrEnum):
    """Each object gives one `new`, any number of `update`, one `end`."""

    NEW = "new"
    UPDATE = "update"
    END = "end"


@dataclass(frozen=True, slots=True)
class ObjectEvent:
    """Something happened to an object; `before` is what the event before it said (of `new`: outside every zone)."""

    kind: EventKind
    before: Sighting
    after: Sighting


@dataclass(frozen=True, slots=True)
class ObjectCounts:
    """How many objects are in view now: by label, and by zone and label. A label that left is told as 0 once."""

    by_label: Mapping[str, int] = field(default_factory=dict)
    by_zone: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(zone, label) -> number"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_label", MappingProxyType(dict(self.by_label)))
        object.__setattr__(self, "by_zone", MappingProxyType(dict(self.by_zone)))


class Publisher(Protocol):
    """Where the agent says what it saw. Every method but `stop` returns at once and never raises for the network's
    sake; all may be called from any thread. What cannot be told in time is dropped, oldest first, and counted."""

    def start(self) -> None:
        """Begins to connect, and keeps trying for ever."""
        ...

    def publish_result(self, camera: str, result: FrameResult, tracking: Tracking) -> None:
        """One answer to one frame, with what the tracker makes of it."""
        ...

    def publish_events(self, camera: str, events: Sequence[ObjectEvent]) -> None:
        """What happened to objects, in order."""
        ...

    def publish_counts(self, camera: str, counts: ObjectCounts) -> None:
        """How many are in view; only what changed goes out. A status other than online sets them to 0 by itself."""
        ...

    def publish_status(self, camera: str, status: CameraStatus) -> None:
        """How a camera fares."""
        ...

    def publish_state(self, camera: str, feature: Feature, value: Setting) -> None:
        """What a feature is set to now: told at start and whenever it changes."""
        ...

    def publish_health(self, facts: Mapping[str, object]) -> None:
        """Figures about the agent itself: anything that JSON can say; numbers that are not finite become null."""
        ...

    def publish_model_state(self, state: Mapping[str, object]) -> None:
        """Which model runs and what an update has come to: a `fovea.core.release.ReportedState` as JSON."""
        ...

    def on_command(self, callback: OnCommand) -> None:
        """Who is told about commands; the last one given. To be called before `start`."""
        ...

    def on_look(self, callback: Callable[[], None]) -> None:
        """Who is told that there may be another model to run; the last one given. To be called before `start`."""
        ...

    @property
    def counts(self) -> Mapping[str, int]:
        """What was sent, dropped, refused since the start, by flat names such as `mqtt_dropped_events`."""
        ...

    @property
    def is_connected(self) -> bool:
        """Whether what is published now can go out."""
        ...

    def stop(self, timeout_s: float) -> None:
        """Sends what is waiting while `timeout_s` lasts, says goodbye, ends its threads. Twice is fine."""
        ...


class NullPublisher:
    """Tells nobody; also the ground for publishers that tell a part."""

    def start(self) -> None:
        return

    def publish_result(self, camera: str, result: FrameResult, tracking: Tracking) -> None:
        return

    def publish_events(self, camera: str, events: Sequence[ObjectEvent]) -> None:
        return

    def publish_counts(self, camera: str, counts: ObjectCounts) -> None:
        return

    def publish_status(self, camera: str, status: CameraStatus) -> None:
        return

    def publish_state(self, camera: str, feature: Feature, value: Setting) -> None:
        return

    def publish_health(self, facts: Mapping[str, object]) -> None:
        return

    def publish_model_state(self, state: Mapping[str, object]) -> None:
        return

    def on_command(self, callback: OnCommand) -> None:
        return

    def on_look(self, callback: Callable[[], None]) -> None:
        return

    @property
    def counts(self) -> Mapping[str, int]:
        return {}

    @property
    def is_connected(self) -> bool:
        return True

    def stop(self, timeout_s: float) -> None:
        return


class FanOut:
    """Several publishers as one. Commands may come from any; connected means that all of them are."""

    def __init__(self, publishers: Iterable[Publisher]) -> None:
        self._publishers = tuple(publishers)

    def start(self) -> None:
        for publisher in self._publishers:
            publisher.start()

    def publish_result(self, camera: str, result: FrameResult, tracking: Tracking) -> None:
        for publisher in self._publishers:
            publisher.publish_result(camera, result, tracking)

    def publish_events(self, camera: str, events: Sequence[ObjectEvent]) -> None:
        for publisher in self._publishers:
            publisher.publish_events(camera, events)

    def publish_counts(self, camera: str, counts: ObjectCounts) -> None:
        for publisher in self._publishers:
            publisher.publish_counts(camera, counts)

    def publish_status(self, camera: str, status: CameraStatus) -> None:
        for publisher in self._publishers:
            publisher.publish_status(camera, status)

    def publish_state(self, camera: str, feature: Feature, value: Setting) -> None:
        for publisher in self._publishers:
            publisher.publish_state(camera, feature, value)

    def publish_health(self, facts: Mapping[str, object]) -> None:
        for publisher in self._publishers:
            publisher.publish_health(facts)

    def publish_model_state(self, state: Mapping[str, object]) -> None:
        for publisher in self._publishers:
            publisher.publish_model_state(state)

    def on_command(self, callback: OnCommand) -> None:
        for publisher in self._publishers:
            publisher.on_command(callback)

    def on_look(self, callback: Callable[[], None]) -> None:
        for publisher in self._publishers:
            publisher.on_look(callback)

    @property
    def counts(self) -> Mapping[str, int]:
        return {name: number for publisher in self._publishers for name, number in publisher.counts.items()}

    @property
    def is_connected(self) -> bool:
        return all(publisher.is_connected for publisher in self._publishers)

    def stop(self, timeout_s: float) -> None:
        """All share the time: each gets what the ones before it left, at least a tenth of a second."""
        end_mono_s = time.monotonic() + timeout_s
        for publisher in self._publishers:
            publisher.stop(max(0.1, end_mono_s - time.monotonic()))
