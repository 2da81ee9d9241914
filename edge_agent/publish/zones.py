"""From tracks to what people ask for: which objects are where, what happened to them, how many there are."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from edge_agent.publish.label_names import LabelNames
from edge_agent.publish.publishing import EventKind, ObjectCounts, ObjectEvent, Sighting
from edge_agent.track.tracking import Track, Tracking
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize

Corners = tuple[tuple[float, float], ...]
"""Corners (x, y) of a polygon in 0..1 of the frame's width and height."""

_MOVED_SHARE = 0.05
"""A side of the box that moved by this share of the frame is worth an update."""
_BETTER_SCORE = 0.05


@dataclass(frozen=True, slots=True)
class Zone:
    """A part of the picture with a name; an object is in it when the middle of its lower edge is.

    labels  only these can be in it; None for all
    """

    name: str
    corners: Corners
    labels: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise Malformed("zone name: expected at least one character, got none")
        if len(self.corners) < 3:
            raise Malformed(f"zone {self.name!r} corners: expected at least 3, got {len(self.corners)}")
        if not all(0 <= x <= 1 and 0 <= y <= 1 for x, y in self.corners):
            raise Malformed(
                f"zone {self.name!r} corners: expected 0 to 1 of the frame, got {self.corners!r:.200}"
            )

    def holds(self, label: str, x: float, y: float) -> bool:
        """Whether an object of this label that stands at (x, y), 0..1 of the frame, is in the zone."""
        return (self.labels is None or label in self.labels) and _is_inside(self.corners, x, y)


@dataclass(frozen=True, slots=True)
class ObjectFilter:
    """Which tracks count as objects. Areas are shares of the frame's area, 0..1."""

    labels: frozenset[str] | None = None
    min_score: float = 0.5
    min_area: float = 0.0
    max_area: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.min_score <= 1:
            raise Malformed(f"object filter min_score: expected 0 to 1, got {self.min_score}")
        if not 0 <= self.min_area <= self.max_area <= 1:
            raise Malformed(
                f"object filter areas: expected 0 <= min_area <= max_area <= 1, "
                f"got {self.min_area}, {self.max_area}"
            )

    def passes(self, label: str, score: float, area: float) -> bool:
        """`area` is the share of the frame that the box covers."""
        return (
            (self.labels is None or label in self.labels)
            and score >= self.min_score
            and self.min_area <= area <= self.max_area
        )


@dataclass(frozen=True, slots=True)
class ObjectSettings:
    """What is watched for on one camera; one object gives an update every `update_every_s` seconds at most, besides
    the one when it enters a zone for the first time."""

    filter: ObjectFilter = ObjectFilter()
    zones: tuple[Zone, ...] = ()
    update_every_s: float = 1.0

    def __post_init__(self) -> None:
        names = [zone.name for zone in self.zones]
        if len(set(names)) < len(names):
            raise Malformed(f"zones: expected each name once, got {names!r:.200}")
        if self.update_every_s < 0:
            raise Malformed(f"update_every_s: expected 0 or more, got {self.update_every_s}")


@dataclass(frozen=True, slots=True)
class ObjectNews:
    """What came of one look: events in order, and the counts as they are now."""

    events: tuple[ObjectEvent, ...]
    counts: ObjectCounts


@dataclass(slots=True)
class _Watched:
    """An object that counts: as it is now, and what was last told about it and when. A Sighting is made of it only
    when one is told, which most frames do not."""

    track: Track
    label: str
    image_size: ImageSize
    at: datetime
    started_at: datetime
    top_score: float = 0.0
    zones: tuple[str, ...] = ()
    entered_zones: tuple[str, ...] = ()
    told: Sighting | None = None
    told_mono_s: float = 0.0


class ObjectWatch:
    """Turns the trackings of one camera into events and counts. For one thread at a time; no clock of its own.

    An object comes when a confirmed track first passes the filter, and lasts until the track ends, even if a later
    look is less sure of it: nothing flickers. A later answer may give it another label.
    """

    def __init__(
        self, camera: str, boot_id: str, names: LabelNames, settings: ObjectSettings = ObjectSettings()
    ) -> None:
        self._camera = camera
        # Track ids begin anew for each camera and each start of the agent.
        self._id_prefix = f"{boot_id}-{hashlib.sha256(camera.encode('utf-8', 'replace')).hexdigest()[:8]}"
        self._names = names
        self._settings = settings
        self._objects: dict[int, _Watched] = {}
        self._counted: list[str] = []
        self._counted_in: list[tuple[str, str]] = sorted(
            {(zone.name, label) for zone in settings.zones for label in zone.labels or ()}
        )

    def look(self, tracking: Tracking, at: datetime, at_mono_s: float) -> ObjectNews:
        """Takes in what is followed after a frame (or a late answer); `at` (UTC) and `at_mono_s` are its time."""
        confirmed = tracking.confirmed
        events = [
            event
            for track in confirmed
            if (event := self._seen(track, tracking.image_size, at, at_mono_s)) is not None
        ]
        events.extend(self._ended(track.id, at) for track in tracking.ended if track.id in self._objects)
        return ObjectNews(tuple(events), self._counts([track.id for track in confirmed]))

    def end_all(self, at: datetime) -> ObjectNews:
        """The camera stopped: everything ends, every count is 0."""
        events = tuple(self._ended(track_id, at) for track_id in list(self._objects))
        return ObjectNews(events, self._counts(()))

    def _seen(self, track: Track, size: ImageSize, at: datetime, at_mono_s: float) -> ObjectEvent | None:
        watched = self._objects.get(track.id)
        label = self._names.name_of(track.class_id)
        if watched is None:
            if not self._settings.filter.passes(label, track.score, _area(track, size)):
                return None
            watched = self._objects[track.id] = _Watched(track, label, size, at, at)
        watched.track, watched.label, watched.image_size, watched.at = track, label, size, at
        watched.top_score = max(watched.top_score, track.score)
        if self._settings.zones:
            watched.zones = self._zones_of(track, label, size)
            watched.entered_zones = _joined(watched.entered_zones, watched.zones)
        told = watched.told
        if told is not None and not self._is_worth_telling(watched, told, at_mono_s):
            return None
        now = self._sighting(watched)
        watched.told, watched.told_mono_s = now, at_mono_s
        if told is None:
            return ObjectEvent(EventKind.NEW, now.outside_zones(), now)
        return ObjectEvent(EventKind.UPDATE, told, now)

    def _is_worth_telling(self, now: _Watched, told: Sighting, at_mono_s: float) -> bool:
        if len(now.entered_zones) > len(told.entered_zones):
            return True
        if at_mono_s - now.told_mono_s < self._settings.update_every_s:
            return False
        return (
            now.zones != told.zones
            or now.label != told.label
            or now.track.tier != told.tier
            or now.top_score >= told.top_score + _BETTER_SCORE
            or _has_moved(now, told)
        )

    def _ended(self, track_id: int, at: datetime) -> ObjectEvent:
        watched = self._objects.pop(track_id)
        last = self._sighting(watched, ended_at=at)
        return ObjectEvent(EventKind.END, watched.told or last, last)

    def _zones_of(self, track: Track, label: str, size: ImageSize) -> tuple[str, ...]:
        """Where it stands: the middle of its lower edge."""
        box = track.box_xyxy
        x, y = (box[0] + box[2]) / 2 / size.width, box[3] / size.height
        # A box that reaches the lower border stands on it, not below it.
        return tuple([zone.name for zone in self._settings.zones if zone.holds(label, x, min(y, 1.0 - 1e-9))])

    def _sighting(self, watched: _Watched, ended_at: datetime | None = None) -> Sighting:
        track = watched.track
        return Sighting(
            id=f"{self._id_prefix}-{track.id}",
            camera=self._camera,
            label=watched.label,
            score=track.score,
            top_score=watched.top_score,
            box_xyxy=track.box_xyxy,
            image_size=watched.image_size,
            at=watched.at,
            started_at=watched.started_at,
            tier=track.tier,
            zones=watched.zones,
            entered_zones=watched.entered_zones,
            ended_at=ended_at,
        )

    def _counts(self, in_view: Sequence[int]) -> ObjectCounts:
        now = [self._objects[track_id] for track_id in in_view if track_id in self._objects]
        by_label = dict.fromkeys(self._counted, 0)
        by_zone = dict.fromkeys(self._counted_in, 0)
        for seen in now:
            by_label[seen.label] = by_label.get(seen.label, 0) + 1
            for zone in seen.zones:
                key = (zone, seen.label)
                by_zone[key] = by_zone.get(key, 0) + 1
        if len(by_label) > len(self._counted):
            self._counted = sorted(by_label)
        if len(by_zone) > len(self._counted_in):
            self._counted_in = sorted(by_zone)
        return ObjectCounts(by_label, by_zone)


def _joined(entered: tuple[str, ...], zones: tuple[str, ...]) -> tuple[str, ...]:
    return (*entered, *(zone for zone in zones if zone not in entered))


def _area(track: Track, size: ImageSize) -> float:
    x1, y1, x2, y2 = track.box_xyxy
    return max(0.0, x2 - x1) * max(0.0, y2 - y1) / (size.width * size.height)


def _has_moved(now: _Watched, told: Sighting) -> bool:
    """By shares of each frame, so that a camera that changes its resolution moves nothing."""
    wide, high, wide_then, high_then = (
        now.image_size.width, now.image_size.height, told.image_size.width, told.image_size.height
    )  # fmt: skip
    x1, y1, x2, y2 = now.track.box_xyxy
    x1_then, y1_then, x2_then, y2_then = told.box_xyxy
    return (
        abs(x1 / wide - x1_then / wide_then) >= _MOVED_SHARE
        or abs(x2 / wide - x2_then / wide_then) >= _MOVED_SHARE
        or abs(y1 / high - y1_then / high_then) >= _MOVED_SHARE
        or abs(y2 / high - y2_then / high_then) >= _MOVED_SHARE
    )


def _is_inside(corners: Corners, x: float, y: float) -> bool:
    """Even-odd rule: an edge is crossed when exactly one of its ends is above the point."""
    inside = False
    for (x1, y1), (x2, y2) in zip(corners, (*corners[1:], corners[0]), strict=True):
        if (y1 > y) != (y2 > y) and x < (x2 - x1) * (y - y1) / (y2 - y1) + x1:
            inside = not inside
    return inside
