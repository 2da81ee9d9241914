"""Publishes by MQTT what docs/mqtt.md describes, and takes commands."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from edge_agent.publish.clock_sync import is_clock_synced
from edge_agent.publish.label_names import LabelNames
from edge_agent.publish.messages import (
    event_message,
    health_message,
    read_command,
    result_message,
    state_message,
    status_message,
    to_json,
)
from edge_agent.publish.publishing import (
    CameraCondition,
    CameraStatus,
    Feature,
    ObjectCounts,
    ObjectEvent,
    OnCommand,
    Setting,
)
from edge_agent.publish.topics import Topics
from edge_agent.track.tracking import Tracking
from fovea.core.errors import Malformed
from fovea.core.result import FrameResult
from fovea.mqtt.link import MqttLink
from fovea.mqtt.names import client_id_of, model_desired, model_reported, topic_part
from fovea.mqtt.outbox import Lane, Message
from fovea.mqtt.settings import MqttSettings

log = logging.getLogger(__name__)


class MqttPublisher:
    """A Publisher for one broker. Messages are made on its own thread: publishing costs microseconds."""

    def __init__(
        self,
        settings: MqttSettings,
        device: str,
        cameras: Iterable[str],
        names: LabelNames,
        announcements: Mapping[str, bytes] | None = None,
        clock_synced: Callable[[], bool | None] = is_clock_synced,
    ) -> None:
        """`cameras` are those that take commands; `announcements` further retained messages by topic (discovery by
        Home Assistant). Raises Malformed for an empty name, NotFound and Malformed for TLS files."""
        self._device = device
        self._topics = Topics(device)
        self._model_desired = model_desired(device)
        self._cameras = {topic_part(camera): camera for camera in cameras}
        self._names = names
        self._clock_synced = clock_synced
        self._link = MqttLink(
            settings,
            client_id_of(device),
            self._topics.available,
            filters=[self._topics.commands, self._model_desired],
            first_filters=self._topics.retained_of_cameras,
            on_message=self._take_message,
        )
        self._lock = threading.Lock()
        self._told_counts: dict[str, int] = {}
        self._not_online: set[str] = set()
        self._commands: Counter[str] = Counter()
        self._on_command: OnCommand | None = None
        self._on_look: Callable[[], None] = _no_look
        for topic, payload in (announcements or {}).items():
            self._put_latest(topic, payload)

    def start(self) -> None:
        self._link.start()

    def publish_result(self, camera: str, result: FrameResult, tracking: Tracking) -> None:
        encode = partial(self._result_bytes, camera, result, tracking)
        self._link.put(Message(self._topics.detections(camera), encode, Lane.RESULTS))

    def publish_events(self, camera: str, events: Sequence[ObjectEvent]) -> None:
        topic = self._topics.events(camera)
        for event in events:
            self._link.put(Message(topic, partial(event_message, self._device, event), Lane.EVENTS))

    def publish_counts(self, camera: str, counts: ObjectCounts) -> None:
        """Frames that were still on their way when their camera ended give no count any more: all are 0 then."""
        by_topic = {self._topics.count(camera, label): number for label, number in counts.by_label.items()}
        for (zone, label), number in counts.by_zone.items():
            by_topic[self._topics.zone_count(camera, zone, label)] = number
        with self._lock:
            self._put_counts(dict.fromkeys(by_topic, 0) if camera in self._not_online else by_topic)

    def publish_status(self, camera: str, status: CameraStatus) -> None:
        message = Message(self._topics.status(camera), partial(status_message, camera, status), Lane.LATEST)
        with self._lock:
            self._link.put(message)
            if status.condition is CameraCondition.ONLINE:
                self._not_online.discard(camera)
            else:
                self._not_online.add(camera)
                self._zero_counts_below(self._topics.camera(camera))

    def publish_state(self, camera: str, feature: Feature, value: Setting) -> None:
        self._put_latest(self._topics.state(camera, feature), state_message(feature, value))

    def publish_health(self, facts: Mapping[str, object]) -> None:
        encode = partial(self._health_bytes, dict(facts))
        self._link.put(Message(self._topics.health, encode, Lane.LATEST))

    def publish_model_state(self, state: Mapping[str, object]) -> None:
        self._put_latest(model_reported(self._device), to_json(state))

    def on_command(self, callback: OnCommand) -> None:
        self._on_command = callback

    def on_look(self, callback: Callable[[], None]) -> None:
        self._on_look = callback

    @property
    def counts(self) -> Mapping[str, int]:
        """Those of MqttLink and `commands`, `ignored_commands`, each with `mqtt_` before it."""
        with self._lock:
            commands = {name: self._commands[name] for name in ("commands", "ignored_commands")}
        return {f"mqtt_{name}": number for name, number in {**self._link.counts, **commands}.items()}

    @property
    def is_connected(self) -> bool:
        return self._link.is_connected

    def stop(self, timeout_s: float) -> None:
        with self._lock:
            self._zero_counts_below(self._topics.prefix)
        self._link.stop(timeout_s)

    # What goes out.

    def _put_latest(self, topic: str, payload: bytes) -> None:
        self._link.put(Message(topic, partial(bytes, payload), Lane.LATEST))

    def _put_counts(self, by_topic: Mapping[str, int]) -> None:
        for topic, number in by_topic.items():
            if self._told_counts.get(topic) != number:
                self._told_counts[topic] = number
                self._put_latest(topic, str(number).encode())

    def _zero_counts_below(self, prefix: str) -> None:
        """A count without somebody who counts is a ghost."""
        self._put_counts({topic: 0 for topic in self._told_counts if topic.startswith(f"{prefix}/")})

    def _result_bytes(self, camera: str, result: FrameResult, tracking: Tracking) -> bytes:
        return result_message(self._device, camera, result, tracking, self._names, self._clock_synced())

    def _health_bytes(self, facts: Mapping[str, object]) -> bytes:
        return health_message(self._device, facts, self._clock_synced())

    # What comes in.

    def _take_message(self, topic: str, payload: bytes, is_retained: bool) -> None:
        if topic == self._model_desired:
            self._on_look()  # whatever it says: what to run is in the signed release alone
        elif topic.endswith("/set"):
            self._take_command(topic, payload, is_retained)
        elif is_retained and payload:
            self._take_leftover(topic)

    def _take_command(self, topic: str, payload: bytes, is_retained: bool) -> None:
        try:
            if is_retained:
                raise Malformed("it is retained, and would be obeyed again at every start")
            command = self._topics.find_command(topic)
            camera = command and self._cameras.get(command.camera_part)
            if command is None or camera is None:
                raise Malformed("there is no such camera or feature")
            value = read_command(command.feature, payload)
        except Malformed as error:
            with self._lock:
                self._commands["ignored_commands"] += 1
            log.warning("mqtt: command on %.200s ignored: %s", topic, error)
            return
        with self._lock:
            self._commands["commands"] += 1
        if self._on_command is not None:
            self._on_command(command.feature, camera, value)

    def _take_leftover(self, topic: str) -> None:
        """Retained by an earlier run, and nothing this one said: a count becomes 0, what is about a camera that is
        gone is removed."""
        camera_part = self._topics.find_camera_part(topic)
        with self._lock:
            if camera_part is None or self._link.has_latest(topic):
                return
            if camera_part not in self._cameras:
                self._put_latest(topic, b"")
            elif "/counts/" in topic:
                self._put_counts({topic: 0})


def _no_look() -> None:
    """Nobody wants to know."""
