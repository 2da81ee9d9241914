"""The MQTT topics of one agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from edge_agent.publish.publishing import Feature
from fovea.mqtt.names import device_prefix, topic_part


class CommandTopic(NamedTuple):
    """Which camera (as a part of a topic) and feature a `/set` topic means."""

    camera_part: str
    feature: Feature


@dataclass(frozen=True, slots=True)
class Topics:
    """Every topic of the agent that is named `device`."""

    device: str
    prefix: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefix", device_prefix(self.device))

    @property
    def available(self) -> str:
        return f"{self.prefix}/available"

    @property
    def health(self) -> str:
        return f"{self.prefix}/health"

    @property
    def commands(self) -> str:
        """The filter that every command to this agent matches."""
        return f"{self.prefix}/cameras/+/+/set"

    @property
    def retained_of_cameras(self) -> tuple[str, ...]:
        """Filters for all that an agent leaves retained about its cameras."""
        cameras = f"{self.prefix}/cameras"
        return (
            f"{cameras}/+/status",
            f"{cameras}/+/+/state",
            f"{cameras}/+/counts/+",
            f"{cameras}/+/zones/+/counts/+",
        )

    def camera(self, camera: str) -> str:
        return f"{self.prefix}/cameras/{topic_part(camera)}"

    def status(self, camera: str) -> str:
        return f"{self.camera(camera)}/status"

    def detections(self, camera: str) -> str:
        return f"{self.camera(camera)}/detections"

    def events(self, camera: str) -> str:
        return f"{self.camera(camera)}/events"

    def count(self, camera: str, label: str) -> str:
        return f"{self.camera(camera)}/counts/{topic_part(label)}"

    def zone_count(self, camera: str, zone: str, label: str) -> str:
        return f"{self.camera(camera)}/zones/{topic_part(zone)}/counts/{topic_part(label)}"

    def state(self, camera: str, feature: Feature) -> str:
        return f"{self.camera(camera)}/{feature.value}/state"

    def command(self, camera: str, feature: Feature) -> str:
        return f"{self.camera(camera)}/{feature.value}/set"

    def find_command(self, topic: str) -> CommandTopic | None:
        """What a topic commands, or None where it is no command to a feature that exists."""
        parts = topic.removeprefix(f"{self.prefix}/cameras/").split("/")
        if len(parts) != 3 or parts[2] != "set" or parts[1] not in {feature.value for feature in Feature}:
            return None
        return CommandTopic(parts[0], Feature(parts[1]))

    def find_camera_part(self, topic: str) -> str | None:
        """The part of a topic that stands for a camera, or None where it is about no camera of this agent."""
        below = f"{self.prefix}/cameras/"
        return topic.removeprefix(below).split("/")[0] if topic.startswith(below) else None
