"""The MQTT side of simulated devices: what they report goes out, hints come in. One connection for many of them."""

from __future__ import annotations

import json
from collections.abc import Callable

from fovea.core.release import ReportedState
from fovea.mqtt.link import MqttLink
from fovea.mqtt.names import ROOT, client_id_of, device_prefix, model_desired, model_reported
from fovea.mqtt.outbox import Lane, Message
from fovea.mqtt.settings import MqttSettings


class FleetWire:
    """`device`: the one that this is the connection of; None: of all that report through it. `look` is called with
    the part of the topic that names the device, on a thread of the link."""

    def __init__(
        self, settings: MqttSettings, name: str, device: str | None, look: Callable[[str], None]
    ) -> None:
        """Nothing happens before `start`."""
        self._look = look
        hints = f"{ROOT}/+/model/desired" if device is None else model_desired(device)
        available = f"{device_prefix(name)}/available"
        self._link = MqttLink(settings, client_id_of(name), available, [hints], [], self._take)

    def start(self) -> None:
        self._link.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        self._link.stop(timeout_s)

    @property
    def is_connected(self) -> bool:
        return self._link.is_connected

    def report(self, state: ReportedState) -> None:
        """Retained; the last one of a device counts."""
        self._link.put(Message(model_reported(state.device), lambda: _bytes(state), Lane.LATEST))

    def _take(self, topic: str, payload: bytes, is_retained: bool) -> None:
        parts = topic.split("/")
        if parts[-2:] == ["model", "desired"] and payload:
            self._look(parts[1])


def _bytes(state: ReportedState) -> bytes:
    return json.dumps(state.to_json()).encode()
