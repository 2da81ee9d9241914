"""One device of a fleet as a process: shipped updater, real trial child, HTTP and MQTT; only its frames are drawn.

`python -m fovea.sim.fleet_process FILE`, FILE a ProcessPlan in JSON. When its model takes it down it ends with
`CRASHED`, to be started again; SIGTERM ends it.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import Any, Final

import numpy as np

from fovea.core.errors import Cancelled
from fovea.core.json_form import from_json_form, to_json_form
from fovea.core.release import ReportedState
from fovea.mqtt.settings import MqttSettings
from fovea.runtime.atomic_file import write_atomically
from fovea.runtime.bundle import Bundle
from fovea.sim.fleet_clock import VirtualClock
from fovea.sim.fleet_device import SimulatedDevice, Site
from fovea.sim.fleet_host import World
from fovea.sim.fleet_truth import FleetTruth, ModelTruth
from fovea.sim.fleet_web import WholeAnswers
from fovea.sim.fleet_wire import FleetWire
from fovea.update.trial import ChildTrial
from fovea.update.web import UrllibWeb

CRASHED: Final = 70
STATUS: Final = "status.json"
_LOOK_EVERY_S: Final = 0.05
_TRIAL_TIMEOUT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """folder: of the device alone; clock, root, built_in: files. models: by version, as ModelTruth."""

    name: str
    folder: str
    clock: str
    began_at: datetime
    base_url: str
    root: str
    built_in: str
    group: str
    family: str
    broker_port: int
    models: Mapping[str, Any]
    seed: int
    interval_s: float = 300.0
    broker_host: str = "127.0.0.1"

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(to_json_form(self)))

    @classmethod
    def read(cls, path: Path) -> ProcessPlan:
        """Raises Malformed."""
        return from_json_form(cls, json.loads(path.read_text()), "process plan")


@dataclass(frozen=True, slots=True)
class Status:
    """What a device has done over all its starts; for whoever watches the fleet."""

    running: str
    answered: Mapping[str, Any]
    dropped: int
    restarts: int
    serial: int = 0
    starts: int = 1

    @classmethod
    def read(cls, folder: Path) -> Status | None:
        """None before the first report."""
        try:
            return from_json_form(cls, json.loads((folder / STATUS).read_text()), "status")
        except FileNotFoundError:
            return None

    def write(self, folder: Path) -> None:
        write_atomically(folder / STATUS, json.dumps(to_json_form(self)).encode())


class DeviceProcess:
    """Steps its device by the shared clock, at once when a hint comes."""

    def __init__(self, plan: ProcessPlan) -> None:
        self._folder = Path(plan.folder)
        self._clock = VirtualClock(Path(plan.clock), plan.began_at)
        self._wake, self._is_told_to_stop = Event(), Event()
        self._serial = 0
        self._before = Status.read(self._folder) or Status("", {}, 0, 0, starts=0)
        truths = {version: from_json_form(ModelTruth, each, "model") for version, each in plan.models.items()}
        world = World(truths, FleetTruth(), self._clock)
        rng = np.random.default_rng((plan.seed, self._before.starts))
        camera = world.fleet.camera(np.random.default_rng(plan.seed))
        self._wire = FleetWire(
            MqttSettings(plan.broker_host, plan.broker_port), plan.name, plan.name, lambda _: self._look()
        )
        site = Site(
            plan.base_url,
            Path(plan.root).read_bytes(),
            plan.group,
            plan.family,
            Bundle.open(Path(plan.built_in)),
            plan.interval_s,
        )
        self._device = SimulatedDevice(
            plan.name,
            self._folder,
            site,
            world,
            camera,
            WholeAnswers(UrllibWeb()),
            self._report,
            rng,
            ChildTrial(timeout_s=_TRIAL_TIMEOUT_S),
            self._pause,
            self._before.restarts,
        )

    def stop(self) -> None:
        """From a signal handler."""
        self._is_told_to_stop.set()
        self._wake.set()

    def run(self) -> int:
        """The exit code: 0, or CRASHED."""
        self._wire.start()
        try:
            while not self._is_told_to_stop.is_set():
                due_s = self._clock.monotonic_s() + self._device.step()
                self._write()
                if self._device.is_down:
                    return CRASHED
                while self._clock.monotonic_s() < due_s and not self._wake.wait(_LOOK_EVERY_S):
                    pass
                self._wake.clear()
        except Cancelled:
            pass
        finally:
            self._write()
            self._wire.stop(1.0)
        return 0

    def _look(self) -> None:
        self._device.look()
        self._wake.set()

    def _pause(self, seconds: float) -> None:
        until_s = self._clock.monotonic_s() + seconds
        while self._clock.monotonic_s() < until_s:
            if self._is_told_to_stop.wait(_LOOK_EVERY_S):
                raise Cancelled("the process ends")

    def _report(self, state: ReportedState) -> None:
        self._serial = state.serial
        self._wire.report(state)
        self._write()

    def _write(self) -> None:
        answered = Counter(self._before.answered) + self._device.all_answered
        Status(
            self._device.running,
            dict(answered),
            self._before.dropped + self._device.all_dropped,
            self._device.restarts,
            self._serial,
            self._before.starts + 1,
        ).write(self._folder)


def main(arguments: list[str]) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    plan = ProcessPlan.read(Path(arguments[0]))
    Path(plan.folder).mkdir(parents=True, exist_ok=True)
    process = DeviceProcess(plan)
    signal.signal(signal.SIGTERM, lambda *_: process.stop())
    return process.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
