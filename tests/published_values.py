"""Results, trackings and events as the agent publishes them, for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from edge_agent.publish.publishing import EventKind, ObjectEvent, Sighting
from edge_agent.track.tracking import Track, Tracking
from fovea.core.detections import Detections, ModelRef
from fovea.core.frame import FrameId, ImageSize
from fovea.core.labels import label_named
from fovea.core.result import FrameResult
from fovea.core.routing import Reason, Route, RouteDecision, Tier

SIZE = ImageSize(640, 480)
MODEL = ModelRef("street-student", "1", "a" * 64)
NOON = datetime(2025, 6, 1, 12, 0, tzinfo=UTC)


def moment(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def some_track(track_id: int = 1, label: str = "person", **changes: Any) -> Track:
    usual = {
        "id": track_id,
        "class_id": label_named(label).id,
        "box_xyxy": (64.0, 48.0, 128.0, 240.0),
        "score": 0.8,
        "started_mono_s": 100.0,
        "seen_mono_s": 100.0,
        "hits": 3,
        "is_confirmed": True,
        "tier": Tier.AGENT,
    }
    return Track(**(usual | changes))


def some_tracking(*tracks: Track, ended: tuple[Track, ...] = (), size: ImageSize = SIZE) -> Tracking:
    return Tracking(100.0, size, tracks, (), ended)


def some_result(camera: str = "gate", sequence: int = 7, **changes: Any) -> FrameResult:
    usual = {
        "frame_id": FrameId(camera, "b00t", sequence),
        "revision": 0,
        "detections": Detections(
            np.array([[64, 48, 128, 240]], np.float32),
            np.array([0.8125], np.float32),
            np.array([2], np.int32),
            SIZE,
            MODEL,
        ),
        "answered_by": Tier.AGENT,
        "decision": RouteDecision(Route.LOCAL, (Reason.SURE,), send_probability=0.02),
        "captured_at": NOON,
        "captured_mono_s": 1234.5678,
        "stage_ms": {"detect": 31.257},
    }
    return FrameResult(**(usual | changes))


def some_sighting(**changes: Any) -> Sighting:
    usual = {
        "id": "b00t-1",
        "camera": "gate",
        "label": "person",
        "score": 0.8,
        "top_score": 0.9,
        "box_xyxy": (64.0, 48.0, 128.0, 240.0),
        "image_size": SIZE,
        "at": NOON,
        "started_at": NOON,
        "zones": ("porch",),
        "entered_zones": ("porch",),
    }
    return Sighting(**(usual | changes))


def some_event(kind: EventKind = EventKind.NEW, **changes: Any) -> ObjectEvent:
    after = some_sighting(**changes)
    return ObjectEvent(kind, after.outside_zones(), after)
