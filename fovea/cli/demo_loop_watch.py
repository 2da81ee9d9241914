"""What the fleet says over MQTT, put together while it runs: who asks how much, and who runs which model."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from fovea.core.errors import Malformed

ASKED_OVER_S: Final = 30.0
"""The asked rate is that of so many seconds."""


@dataclass(frozen=True, slots=True)
class DeviceNow:
    """One device at this moment. asked_share: of the newest frames, audits apart; NaN while there are none. phase: of
    its updater; `shadows`: whether it looks with a candidate beside its model."""

    device: str
    frames: int
    asked_share: float
    model: str
    version: str
    phase: str
    shadows: bool


@dataclass(slots=True)
class _Device:
    frames: int = 0
    looks: deque[tuple[float, bool]] = field(default_factory=deque)
    model: str = ""
    version: str = ""
    phase: str = ""
    shadows: bool = False


class FleetWatch:
    """A Listener for the messages of several agents. Safe for several threads."""

    topics: str = "fovea/#"

    def __init__(self, devices: tuple[str, ...], now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._devices = {name: _Device() for name in devices}
        self._begun_s = now_s()

    @property
    def seconds(self) -> float:
        """Since it was made."""
        return self._now_s() - self._begun_s

    def take_message(self, topic: str, payload: bytes, arrived_at: datetime) -> None:
        """Any message; what is neither an answer of a camera itself nor the state of a model is left alone."""
        parts = topic.split("/")
        if len(parts) < 4 or parts[1] not in self._devices:
            return
        try:
            if parts[2] == "cameras" and parts[-1] == "detections":
                self._take_answer(parts[1], json.loads(payload))
            elif parts[2:] == ["model", "reported"]:
                self._take_state(parts[1], json.loads(payload))
        except (ValueError, KeyError, TypeError, AttributeError):  # not an agent's words
            return

    def now(self) -> list[DeviceNow]:
        """Each device."""
        with self._lock:
            return [self._device(name, seen) for name, seen in self._devices.items()]

    def asked_share(self) -> float:
        """Of the newest frames of all devices; NaN while there are none."""
        with self._lock:
            looks = [is_asked for seen in self._devices.values() for is_asked in self._newest(seen)]
        return sum(looks) / len(looks) if looks else float("nan")

    def running(self) -> dict[str, int]:
        """How many devices answer with each model, by digest."""
        counts: dict[str, int] = {}
        with self._lock:
            for seen in self._devices.values():
                if seen.model:
                    counts[seen.model] = counts.get(seen.model, 0) + 1
        return counts

    @property
    def frames(self) -> int:
        """That all devices together have answered."""
        with self._lock:
            return sum(seen.frames for seen in self._devices.values())

    def _take_answer(self, device: str, message: Mapping[str, Any]) -> None:
        if message["revision"] != 0 or message["tier"] != "agent":
            return
        decision, model = message["decision"], message["model"]
        is_audit = "audit" in decision["reasons"]
        with self._lock:
            seen = self._devices[device]
            seen.frames += 1
            seen.model, seen.version = str(model["sha256"]), str(model["version"])
            if decision["route"] != "skip":
                seen.looks.append((self._now_s(), decision["route"] in ("edge", "cloud") and not is_audit))

    def _take_state(self, device: str, state: Mapping[str, Any]) -> None:
        with self._lock:
            seen = self._devices[device]
            seen.phase, seen.shadows = str(state["phase"]), state["shadow"] is not None

    def _newest(self, seen: _Device) -> list[bool]:
        since_s = self._now_s() - ASKED_OVER_S
        while seen.looks and seen.looks[0][0] < since_s:
            seen.looks.popleft()
        return [is_asked for _, is_asked in seen.looks]

    def _device(self, name: str, seen: _Device) -> DeviceNow:
        looks = self._newest(seen)
        share = sum(looks) / len(looks) if looks else float("nan")
        return DeviceNow(name, seen.frames, share, seen.model, seen.version, seen.phase, seen.shadows)


class BytesUp:
    """Bytes of pictures that agents sent up, by their own figures, over restarts: a count that falls began anew."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._before: dict[str, float] = {}

    def take(self, device: str, figures: Mapping[str, Any] | None) -> None:
        """The stats of a device; None while there are none. Raises Malformed for figures of another shape."""
        if figures is None:
            return
        try:
            sent = sum(float(camera["sent_bytes"]) for camera in figures["cameras"])
        except (KeyError, TypeError, ValueError) as error:
            raise Malformed(f"stats of {device}: expected cameras with sent_bytes ({error})") from error
        last = self._last.get(device, 0.0)
        if sent < last:
            self._before[device] = self._before.get(device, 0.0) + last
        self._last[device] = sent

    @property
    def total(self) -> float:
        return sum(self._last.values()) + sum(self._before.values())
