"""The live part: what really arrives over MQTT, and what the agent says about itself, put together while it runs."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fovea.cli.demo_findings import CameraFindings, Latency, LiveMoment
from fovea.core.errors import Unavailable
from fovea.core.routing import Tier

_FPS_WINDOW_S = 5.0
_CONNECT_WITHIN_S = 15.0


class Listener(Protocol):
    """Takes in what a broker sends of the topics that it wants."""

    @property
    def topics(self) -> str:
        """A filter of topics."""
        ...

    def take_message(self, topic: str, payload: bytes, arrived_at: datetime) -> None: ...


@dataclass(slots=True)
class _Seen:
    """What arrived about one camera."""

    messages: int = 0
    frames: int = 0
    asked: int = 0
    answers: Counter[Tier] = field(default_factory=Counter)
    latencies_ms: list[float] = field(default_factory=list)
    arrived_s: deque[float] = field(default_factory=deque)


class LiveWatch:
    """Takes in the messages of one agent and answers questions about them. Safe for several threads.

    Latency is from the capture of a frame, by the agent's clock, to the arrival of the message here, by ours: right
    on one machine, where both are the same clock.
    """

    def __init__(
        self, device: str, cameras: Sequence[str], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._prefix = f"fovea/{device}/"
        self._now_s = now_s
        self._lock = threading.Lock()
        self._begun_s = now_s()
        self._cameras = {name: _Seen() for name in cameras}
        self._latencies_ms: dict[Tier, list[float]] = {tier: [] for tier in Tier}
        self._per_second: dict[int, Counter[Tier]] = {}
        self._bytes_at: list[tuple[float, float]] = []
        self._stats: Mapping[str, Mapping[str, Any]] = {}

    @property
    def topics(self) -> str:
        """The filter that all messages of the agent match."""
        return self._prefix + "#"

    @property
    def seconds(self) -> float:
        return self._now_s() - self._begun_s

    def restart(self) -> None:
        """Forgets all that was seen: what came while everything was starting says little."""
        with self._lock:
            self._begun_s = self._now_s()
            self._cameras = {name: _Seen() for name in self._cameras}
            self._latencies_ms = {tier: [] for tier in Tier}
            self._per_second, self._bytes_at = {}, []

    def take_message(self, topic: str, payload: bytes, arrived_at: datetime) -> None:
        """Any message of the agent; what is not an answer to a frame is counted and otherwise left alone."""
        parts = topic.removeprefix(self._prefix).split("/")
        if len(parts) < 3 or parts[0] != "cameras":
            return
        with self._lock:
            seen = self._cameras.get(parts[1])
            if seen is None:
                return
            seen.messages += 1
            if parts[2] == "detections":
                self._take_answer(seen, payload, arrived_at)

    def take_stats(self, figures: Mapping[str, Any]) -> None:
        """The agent's own figures, as its stats_file has them."""
        cameras = {str(each.get("name")): each for each in figures.get("cameras", [])}
        with self._lock:
            self._stats = cameras
            sent = sum(float(each.get("sent_bytes", 0)) for each in cameras.values())
            self._bytes_at.append((self._now_s() - self._begun_s, sent))

    def cameras(self, sources: Mapping[str, str]) -> list[CameraFindings]:
        """What is known about each camera; `sources` says where its frames come from."""
        with self._lock:
            return [self._camera(name, seen, sources.get(name, "")) for name, seen in self._cameras.items()]

    def moments(self) -> list[LiveMoment]:
        """Each whole second that has passed."""
        with self._lock:
            whole = int(self._now_s() - self._begun_s)
            return [
                LiveMoment(
                    float(second), dict(self._per_second.get(second, Counter())), self._bytes_within(second)
                )
                for second in range(whole)
            ]

    def latencies_ms(self) -> dict[Tier, list[float]]:
        """From capture to arrival, by who answered."""
        with self._lock:
            return {tier: list(values) for tier, values in self._latencies_ms.items()}

    def _take_answer(self, seen: _Seen, payload: bytes, arrived_at: datetime) -> None:
        try:
            message = json.loads(payload)
            tier = Tier[str(message["tier"]).upper()]
            captured_at = datetime.fromisoformat(message["captured_at"])
            latency_ms = (arrived_at - captured_at).total_seconds() * 1000
            route = message["decision"]["route"]
        except (ValueError, KeyError, TypeError):  # not this agent's words: counted as a message, no more
            return
        now_s = self._now_s() - self._begun_s
        seen.answers[tier] += 1
        self._latencies_ms[tier].append(latency_ms)
        self._per_second.setdefault(int(now_s), Counter())[tier] += 1
        if tier is Tier.AGENT:
            seen.frames += 1
            seen.asked += route in ("edge", "cloud")
            seen.latencies_ms.append(latency_ms)
            seen.arrived_s.append(now_s)

    def _camera(self, name: str, seen: _Seen, source: str) -> CameraFindings:
        now_s = self._now_s() - self._begun_s
        while seen.arrived_s and seen.arrived_s[0] < now_s - _FPS_WINDOW_S:
            seen.arrived_s.popleft()
        own = self._stats.get(name, {})
        latency = None
        if seen.latencies_ms:
            p50, p95 = np.percentile(seen.latencies_ms, (50, 95)).tolist()
            latency = Latency(float(np.mean(seen.latencies_ms)), p50, p95)
        return CameraFindings(
            name=name,
            source=source,
            frames=seen.frames,
            fps=len(seen.arrived_s) / max(min(now_s, _FPS_WINDOW_S), 0.2),
            answers=dict(seen.answers),
            asked_share=seen.asked / max(seen.frames, 1),
            latency=latency,
            bytes_sent=float(own.get("sent_bytes", 0)),
            drops={str(cause): int(count) for cause, count in dict(own.get("drops", {})).items()},
            messages=seen.messages,
        )

    def _bytes_within(self, second: int) -> float:
        """Bytes sent up within one second, between the nearest figures of the agent."""
        before = [sent for at_s, sent in self._bytes_at if at_s <= second]
        after = [sent for at_s, sent in self._bytes_at if at_s <= second + 1]
        return max(after[-1] - before[-1], 0.0) if before and after else 0.0


@contextmanager
def subscribed(watch: Listener, host: str, port: int) -> Iterator[None]:
    """Feeds `watch` with what a broker sends, until the block ends. Raises Unavailable without a broker."""
    from paho.mqtt.client import Client, ConnectFlags, MQTTMessage
    from paho.mqtt.enums import CallbackAPIVersion
    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode

    is_connected = threading.Event()

    def on_connect(
        client: Client, data: object, flags: ConnectFlags, code: ReasonCode, properties: Properties | None
    ) -> None:
        if not code.is_failure:
            client.subscribe(watch.topics)
            is_connected.set()

    def on_message(client: Client, data: object, message: MQTTMessage) -> None:
        watch.take_message(message.topic, bytes(message.payload), datetime.now(UTC))

    client = Client(CallbackAPIVersion.VERSION2, client_id="fovea-demo-view")
    client.on_connect, client.on_message = on_connect, on_message
    try:
        client.connect(host, port, keepalive=30)
    except OSError as error:
        raise Unavailable(f"no broker answers at {host}:{port} ({error})") from error
    client.loop_start()
    try:
        if not is_connected.wait(_CONNECT_WITHIN_S):
            raise Unavailable(f"the broker at {host}:{port} does not let the view in")
        yield
    finally:
        client.disconnect()
        client.loop_stop()


def read_stats(path: Path) -> Mapping[str, Any] | None:
    """The agent's figures, or None while there are none."""
    try:
        figures = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return figures if isinstance(figures, dict) else None
