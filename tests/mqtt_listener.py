"""A client that hears everything a broker passes on, for tests."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

LIVENESS_S = 30.0


class Heard(NamedTuple):
    topic: str
    payload: bytes
    is_retained: bool

    @property
    def json(self) -> Any:
        return json.loads(self.payload)


class Listener:
    """Notes every message, and comes back after the broker was away."""

    def __init__(
        self, host: str, port: int, username: str | None = None, password: str | None = None
    ) -> None:
        self.heard: list[Heard] = []
        self._is_subscribed = threading.Event()
        self.client = Client(CallbackAPIVersion.VERSION2)
        self.client.reconnect_delay_set(1, 1)
        if username is not None:
            self.client.username_pw_set(username, password)
        self.client.on_connect = lambda client, *_: client.subscribe("#", 1)
        self.client.on_subscribe = lambda *_: self._is_subscribed.set()
        self.client.on_disconnect = lambda *_: self._is_subscribed.clear()
        self.client.on_message = lambda _, __, message: self.heard.append(
            Heard(message.topic, bytes(message.payload), message.retain)
        )
        self.client.connect(host, port)
        self.client.loop_start()
        self.wait_subscribed()

    def wait_subscribed(self) -> None:
        assert self._is_subscribed.wait(LIVENESS_S), "the listener does not get through"

    def say(self, topic: str, payload: bytes | str, retain: bool = False) -> None:
        self.client.publish(topic, payload, 1, retain).wait_for_publish(LIVENESS_S)

    def all_on(self, topic: str) -> list[bytes]:
        return [heard.payload for heard in list(self.heard) if heard.topic == topic]

    def wait_for(self, topic: str, payload: bytes | None = None) -> Heard:
        """The first message on a topic (with that payload), which may have come already."""
        found: list[Heard] = []

        def look() -> bool:
            found[:] = [
                heard
                for heard in list(self.heard)
                if heard.topic == topic and payload in (None, heard.payload)
            ]
            return bool(found)

        wait_until(look, lambda: f"nothing like {topic} {payload!r} among {self.heard}")
        return found[0]


@contextmanager
def listening(
    host: str, port: int, username: str | None = None, password: str | None = None
) -> Iterator[Listener]:
    listener = Listener(host, port, username, password)
    try:
        yield listener
    finally:
        listener.client.disconnect()
        listener.client.loop_stop()


def wait_until(
    is_so: Callable[[], bool],
    what: Callable[[], str] = lambda: "it never happened",
    limit_s: float = LIVENESS_S,
) -> None:
    end_s = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < end_s, what()
        time.sleep(0.02)
