"""Tells a broker which model this edge runs, and hears from it that there may be another one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial

from fovea.mqtt.link import MqttLink
from fovea.mqtt.names import client_id_of, device_prefix, model_desired, model_reported
from fovea.mqtt.outbox import Lane, Message
from fovea.mqtt.settings import MqttSettings


class ModelTeller:
    """An `edge_server.updates.Teller`."""

    def __init__(self, settings: MqttSettings, device: str) -> None:
        """Raises Malformed for an empty name, NotFound and Malformed for TLS files."""
        self._reported = model_reported(device)
        self._look: Callable[[], None] | None = None
        self._link = MqttLink(
            settings,
            client_id_of(device),
            f"{device_prefix(device)}/available",
            filters=[model_desired(device)],
            first_filters=(),
            on_message=self._heard,
        )

    def start(self, look: Callable[[], None]) -> None:
        """From now on `look` is called, on a thread of the link, whenever somebody hints at news."""
        self._look = look
        self._link.start()

    def tell(self, state: Mapping[str, object]) -> None:
        """Retained, and told again on every connection."""
        self._link.put(Message(self._reported, partial(_as_json, state), Lane.LATEST))

    def stop(self, timeout_s: float) -> None:
        self._link.stop(timeout_s)

    def _heard(self, topic: str, payload: bytes, is_retained: bool) -> None:
        """Whatever it says: what to run is in the signed release alone."""
        if self._look is not None:
            self._look()


def _as_json(state: Mapping[str, object]) -> bytes:
    return json.dumps(state, allow_nan=False, separators=(",", ":")).encode()
