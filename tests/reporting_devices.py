"""Devices that speak to a real broker, for tests of rollouts: they obey a repository and say how that goes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from fovea.core.release import (
    Agreement,
    Asked,
    DesiredState,
    Health,
    ModelPin,
    Phase,
    ReportedState,
    ShadowReport,
)
from fovea.mqtt.names import model_desired, model_reported


class ReportingDevice:
    """Reports every 0.1 s what `desired` has it run; `fares` says how well a model agrees with the tier above (0..1),
    and a model below zero does well in shadow and makes the device step back when it runs."""

    def __init__(
        self,
        name: str,
        group: str,
        first: ModelPin,
        port: int,
        desired: Callable[[], DesiredState | None],
        fares: Callable[[ModelPin], float],
    ) -> None:
        self.name = name
        self.hints: list[int] = []
        self._group, self._desired, self._fares = group, desired, fares
        self._run = first
        self._last_good = first
        self._frames = 0
        self._agreement = Agreement(first.sha256)
        self._shadow: ShadowReport | None = None
        self._port = port
        self._client = Client(CallbackAPIVersion.VERSION2, f"device{name}")
        self._client.on_connect = lambda client, *_: client.subscribe(model_desired(name), 1)
        self._client.on_message = self._take_hint
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def __enter__(self) -> Self:
        self._client.connect("127.0.0.1", self._port)
        self._client.loop_start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join(10)
        self._client.disconnect()
        self._client.loop_stop()

    @property
    def running(self) -> ModelPin:
        return self._run

    def _take_hint(self, _client: Client, _: object, message: MQTTMessage) -> None:
        # The embedded broker tells a newcomer what others have subscribed to as well.
        if message.topic == model_desired(self.name):
            self.hints.append(json.loads(message.payload)["look"])

    def _go_on(self) -> None:
        while not self._is_over.wait(0.1):
            state = self._obey(self._desired())
            self._client.publish(model_reported(self.name), json.dumps(state.to_json()), qos=1, retain=True)

    def _obey(self, desired: DesiredState | None) -> ReportedState:
        phase, reason = Phase.COMMITTED, None
        wanted = None if desired is None else desired.for_device(self.name)
        if wanted is not None and wanted.run != self._run:
            if self._fares(wanted.run) < 0:
                phase, reason = Phase.STEPPED_BACK, "frames failed in probation"
            else:
                self._last_good, self._run = self._run, wanted.run
                self._agreement = Agreement(self._run.sha256)
        self._look(None if wanted is None else wanted.shadow)
        return ReportedState(
            self.name, self._group, "0.1.0", "boot", datetime.now(UTC), True,
            0 if desired is None else desired.serial, 1, self._run, self._last_good, phase, reason,
            Health(self._frames, 0, 30.0, 200.0, 9.0), Asked(self._frames, self._frames // 10),
            self._agreement, self._shadow,
        )  # fmt: skip

    def _look(self, shadow: ModelPin | None) -> None:
        """200 frames more, 40 of them sent up, alternately a bit better and a bit worse than the mean."""
        self._frames += 200
        for number in range(40):
            self._agreement = self._agreement.plus(self._fares(self._run) + 0.05 * (-1) ** number, 1.0)
        if shadow is None:
            self._shadow = None
            return
        before = self._shadow
        if before is None or before.candidate_sha256 != shadow.sha256:
            before = ShadowReport(shadow.sha256, 0, 0, None, None)
        d = max(self._fares(shadow), 0.9) - self._fares(self._run)
        self._shadow = ShadowReport(
            shadow.sha256, before.frames + 200, 0, 31.0, 0.9, before.paired_n + 40, before.sum_w + 40,
            before.sum_wd + 40 * d, before.sum_wdd + 40 * (d * d + 0.0025), before.sum_ww + 40,
        )  # fmt: skip


@contextmanager
def reporting(devices: list[ReportingDevice]) -> Iterator[list[ReportingDevice]]:
    """All of them, until the block ends."""
    entered: list[ReportingDevice] = []
    try:
        for device in devices:
            entered.append(device.__enter__())
        yield devices
    finally:
        for device in entered:
            device.__exit__(None, None, None)
