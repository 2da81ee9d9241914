"""What is said, as JSON bytes: pure functions from the agent's values; docs/mqtt.md shows one example of each."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from json.encoder import encode_basestring
from typing import Any

from edge_agent.publish.label_names import LabelNames
from edge_agent.publish.publishing import CameraStatus, Feature, ObjectEvent, Setting, Sighting
from edge_agent.track.tracking import Track, Tracking
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from fovea.core.result import FrameResult
from fovea.core.routing import RouteDecision, Tier

SCHEMA = 1
"""Rises when a field changes its meaning or goes; new fields may come at any time."""

FASTEST_FPS = 240.0
_LONGEST_COMMAND_BYTES = 64
_TIERS = {tier: tier.name.lower() for tier in Tier}
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_BOX = '"label":%s,"class_id":%d,"score":%.4f,"box_px":[%.2f,%.2f,%.2f,%.2f],"box":[%.6f,%.6f,%.6f,%.6f]'


def to_json(value: object) -> bytes:
    """Compact UTF-8 JSON. What is not a finite number becomes null, what JSON does not know its text: never raises
    for the sake of a value, and never writes NaN."""
    try:
        return _ENCODER.encode(value).encode()
    except (TypeError, ValueError):  # UnicodeEncodeError (a lone surrogate in a name) is a ValueError
        return json.dumps(_plain(value), allow_nan=False, separators=(",", ":")).encode()


def result_message(
    device: str,
    camera: str,
    result: FrameResult,
    tracking: Tracking,
    names: LabelNames,
    clock_synced: bool | None,
) -> bytes:
    """One answer to one frame, with the tracks as they stand after it."""
    seen = result.detections
    size = seen.image_size
    boxes = zip(seen.class_ids.tolist(), seen.scores.tolist(), seen.boxes_xyxy.tolist(), strict=True)
    head = to_json(
        {
            "schema": SCHEMA,
            "device": device,
            "camera": camera,
            "boot_id": result.frame_id.boot_id,
            "sequence": result.frame_id.sequence,
            "revision": result.revision,
            "tier": _TIERS[result.answered_by],
            "captured_at": shown_time(result.captured_at),
            "captured_mono_s": round(result.captured_mono_s, 4),
            "clock_synced": clock_synced,
            "frame": {"width": size.width, "height": size.height},
            "model": {
                "name": seen.model.name,
                "version": seen.model.version,
                "sha256": seen.model.sha256,
            },
            "decision": _decision(result.decision),
            "degraded": result.degraded,
            "stage_ms": {stage: round(ms, 2) for stage, ms in result.stage_ms.items()},
        }
    )
    # Text from here on: of the many numbers of many boxes, objects for an encoder would cost five times as much.
    detections = ",".join([f"{{{_box(names, *row, size)}}}" for row in boxes])
    tracks = ",".join([_track(names, track, tracking.image_size) for track in tracking.tracks])
    tail = f',"detections":[{detections}],"tracks":[{tracks}]}}'
    return head[:-1] + tail.encode("utf-8", "replace")


def event_message(device: str, event: ObjectEvent) -> bytes:
    """One event, in the shape that tools for Frigate read: `type`, `before`, `after`."""
    return to_json(
        {
            "schema": SCHEMA,
            "device": device,
            "type": event.kind.value,
            "before": _sighting(event.before),
            "after": _sighting(event.after),
        }
    )


def status_message(camera: str, status: CameraStatus) -> bytes:
    return to_json(
        {
            "schema": SCHEMA,
            "camera": camera,
            "status": status.condition.value,
            "since": shown_time(status.since),
            "reason": status.reason,
        }
    )


def health_message(device: str, facts: Mapping[str, object], clock_synced: bool | None) -> bytes:
    return to_json({"schema": SCHEMA, "device": device, "clock_synced": clock_synced, **facts})


def state_message(feature: Feature, value: Setting) -> bytes:
    """ON or OFF for what is switched, the number for fps. Raises Malformed for the wrong kind of value."""
    if feature is Feature.FPS:
        if isinstance(value, bool) or not 0 < value <= FASTEST_FPS:
            raise Malformed(f"state of fps: expected a number above 0 up to {FASTEST_FPS:g}, got {value!r}")
        return f"{value:g}".encode()
    if not isinstance(value, bool):
        raise Malformed(f"state of {feature}: expected True or False, got {value!r}")
    return b"ON" if value else b"OFF"


def read_command(feature: Feature, payload: bytes) -> Setting:
    """The value that a command asks for. Raises Malformed for anything that is not one, any bytes at all."""
    try:
        text = bytes(payload[:_LONGEST_COMMAND_BYTES]).decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise Malformed(f"command {feature}: expected UTF-8 text, got other bytes") from error
    if feature is not Feature.FPS:
        if text.upper() in ("ON", "OFF"):
            return text.upper() == "ON"
        raise Malformed(f"command {feature}: expected ON or OFF, got {text!r}")
    try:
        fps = float(text)
    except ValueError:
        fps = math.nan
    if not 0 < fps <= FASTEST_FPS:
        raise Malformed(f"command fps: expected a number above 0 up to {FASTEST_FPS:g}, got {text!r}")
    return fps


def shown_time(at: datetime) -> str:
    """ISO 8601 in UTC with milliseconds: 2025-06-01T12:00:00.250Z."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _decision(decision: RouteDecision) -> dict[str, object]:
    return {
        "route": decision.route.value,
        "reasons": [reason.value for reason in decision.reasons],
        "expected_gain": decision.expected_gain,
        "qoe": decision.qoe,
        "send_probability": round(decision.send_probability, 6),
    }


def _track(names: LabelNames, track: Track, size: ImageSize) -> str:
    said = _box(names, track.class_id, track.score, track.box_xyxy, size)
    confirmed = "true" if track.is_confirmed else "false"
    return f'{{"id":{track.id},{said},"confirmed":{confirmed},"tier":"{_TIERS[track.tier]}"}}'


def _box(names: LabelNames, class_id: int, score: float, box_xyxy: Sequence[float], size: ImageSize) -> str:
    """The fields of one box as JSON, without the braces."""
    x1, y1, x2, y2 = box_xyxy
    label = encode_basestring(names.name_of(class_id))
    shares = _share(box_xyxy, size)
    if math.isfinite(x1 + y1 + x2 + y2 + score):
        return _BOX % (label, class_id, score, x1, y1, x2, y2, *shares)
    plain = {"class_id": class_id, "score": score, "box_px": [x1, y1, x2, y2], "box": shares}
    return f'"label":{label},{to_json(plain)[1:-1].decode()}'


def _share(box: Sequence[float], size: ImageSize) -> list[float]:
    """The box in 0..1 of width and height; what a tracker moved over the border is cut there."""
    x1, y1, x2, y2 = box
    wide, high = size.width, size.height
    shares = [x1 / wide, y1 / high, x2 / wide, y2 / high]
    if 0 <= x1 <= wide and 0 <= x2 <= wide and 0 <= y1 <= high and 0 <= y2 <= high:
        return shares
    return [share if 0 <= share <= 1 else float(share > 1) for share in shares]


def _sighting(seen: Sighting) -> dict[str, object]:
    x1, y1, x2, y2 = seen.box_xyxy
    return {
        "id": seen.id,
        "camera": seen.camera,
        "label": seen.label,
        "score": round(seen.score, 4),
        "top_score": round(seen.top_score, 4),
        "frame_time": _epoch(seen.at),
        "start_time": _epoch(seen.started_at),
        "end_time": None if seen.ended_at is None else _epoch(seen.ended_at),
        "box": [round(side) for side in seen.box_xyxy],
        "box_share": [round(share, 6) for share in _share(seen.box_xyxy, seen.image_size)],
        "area": round(max(0.0, x2 - x1) * max(0.0, y2 - y1)),
        "frame": {"width": seen.image_size.width, "height": seen.image_size.height},
        "current_zones": list(seen.zones),
        "entered_zones": list(seen.entered_zones),
        "active": seen.ended_at is None,
        "false_positive": False,
        "tier": _TIERS[seen.tier],
    }


def _epoch(at: datetime) -> float:
    return round(at.timestamp(), 3)


def _plain(value: Any) -> object:
    """The nearest thing that JSON can say."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, datetime):
        return shown_time(value) if value.tzinfo else value.isoformat()
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in value]
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return _plain(value.tolist())
    return str(value)
