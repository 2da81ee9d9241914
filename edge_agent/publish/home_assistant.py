"""What Home Assistant is told, on request, so that it finds cameras, counts and switches by itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edge_agent.publish.messages import FASTEST_FPS, to_json
from edge_agent.publish.publishing import Feature
from edge_agent.publish.topics import Topics

DISCOVERY_PREFIX = "homeassistant"


@dataclass(frozen=True, slots=True)
class AnnouncedCamera:
    """A camera, the labels whose counts are shown, and its zones with theirs."""

    name: str
    labels: Sequence[str]
    zones: Sequence[tuple[str, Sequence[str]]] = ()


def announcements(
    device: str, cameras: Iterable[AnnouncedCamera], version: str, prefix: str = DISCOVERY_PREFIX
) -> dict[str, bytes]:
    """Retained discovery messages by topic: for each camera whether it is online, one count per label (and zone), the
    switches `detect` and `gate` and the number `fps`.

    Ids are made of digests, because Home Assistant takes letters, digits, - and _ alone; the names shown are the real
    ones.
    """
    found: dict[str, bytes] = {}
    for camera in cameras:
        for entity in _entities(Topics(device), camera):
            unique_id = f"fovea_{_digest(device)}_{_digest(camera.name)}_{entity.key}"
            config = {
                "name": entity.name,
                "unique_id": unique_id,
                "device": {
                    "identifiers": [f"fovea_{_digest(device)}_{_digest(camera.name)}"],
                    "name": f"{device} {camera.name}",
                    "manufacturer": "Fovea",
                    "model": "camera",
                    "sw_version": version,
                },
                "availability_topic": Topics(device).available,
                # It knows two words here; `stopped` is as good as `offline`.
                "availability_template": "{{ 'online' if value == 'online' else 'offline' }}",
                **entity.config,
            }
            found[f"{prefix}/{entity.component}/{unique_id}/config"] = to_json(config)
    return found


@dataclass(frozen=True, slots=True)
class _Entity:
    component: str
    key: str
    name: str
    config: dict[str, object]


def _entities(topics: Topics, camera: AnnouncedCamera) -> list[_Entity]:
    name = camera.name
    counts: list[tuple[str | None, str]] = [(None, label) for label in camera.labels]
    counts += [(zone, label) for zone, labels in camera.zones for label in labels]
    return [
        _Entity(
            "binary_sensor",
            "status",
            "Online",
            {
                "state_topic": topics.status(name),
                "value_template": "{{ 'ON' if value_json.status == 'online' else 'OFF' }}",
                "device_class": "connectivity",
                "entity_category": "diagnostic",
            },
        ),
        *(_switch(topics, name, feature) for feature in (Feature.DETECT, Feature.GATE)),
        _Entity(
            "number",
            Feature.FPS.value,
            "Frames per second",
            {
                "command_topic": topics.command(name, Feature.FPS),
                "state_topic": topics.state(name, Feature.FPS),
                "min": 0.1,
                "max": FASTEST_FPS,
                "step": 0.1,
                "mode": "box",
                "entity_category": "config",
            },
        ),
        *(_count(topics, name, zone, label) for zone, label in counts),
    ]


def _switch(topics: Topics, camera: str, feature: Feature) -> _Entity:
    shown = {Feature.DETECT: "Detection", Feature.GATE: "Sharper looks"}[feature]
    config: dict[str, object] = {
        "command_topic": topics.command(camera, feature),
        "state_topic": topics.state(camera, feature),
        "entity_category": "config",
    }
    return _Entity("switch", feature.value, shown, config)


def _count(topics: Topics, camera: str, zone: str | None, label: str) -> _Entity:
    topic = topics.count(camera, label) if zone is None else topics.zone_count(camera, zone, label)
    shown = label if zone is None else f"{label} in {zone}"
    config: dict[str, object] = {"state_topic": topic, "state_class": "measurement"}
    return _Entity("sensor", f"count_{_digest(repr((zone, label)))}", shown.capitalize(), config)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
