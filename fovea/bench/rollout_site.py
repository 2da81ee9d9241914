"""All that a rollout needs, on this machine: repository, server, broker, cloud, and a fleet of both kinds."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Self

from cloud.fleet.channel import SignedChannel
from cloud.rollout.controller import LIVES_S, RolloutController
from cloud.rollout.plan import RolloutPlan
from cloud.rollout.rollout import Rollout
from fovea.bench.children import Child, all_cores, child, free_ports, is_listening
from fovea.bench.rollout_cloud import CloudPlan, clock_in, repository_in, store_in
from fovea.bench.rollout_processes import DeviceProcesses
from fovea.core.json_form import to_json_form
from fovea.core.release import DesiredState, ModelPin, Probation, Stage
from fovea.mqtt.settings import MqttSettings
from fovea.sim.fleet import Fleet, FleetSettings
from fovea.sim.fleet_device import Site
from fovea.sim.fleet_host import World
from fovea.sim.fleet_models import tiny_model
from fovea.sim.fleet_process import ProcessPlan
from fovea.sim.fleet_truth import FleetTruth, ModelTruth
from fovea.sim.fleet_web import FolderFiles
from fovea.sim.fleet_wire import FleetWire
from fovea.sim.release_web import MemoryWeb

GROUP: Final = "yard"
FAMILY: Final = "fleet"
BEGAN_AT: Final = datetime(2026, 6, 1, 8, tzinfo=UTC)
HOST: Final = "127.0.0.1"
PROBATION: Final = Probation(200, 60.0, 200.0)
_STARTED_WITHIN_S: Final = 90.0


@dataclass(frozen=True, slots=True)
class SiteSettings:
    """devices: all together; processes: how many of them are real ones. away: simulated ones without a network.
    speed: virtual seconds in a real one, at most. broker: mosquitto, amqtt, or empty for whichever is here."""

    devices: int = 1000
    processes: int = 20
    away: int = 0
    speed: float = 60.0
    tick_s: float = 30.0
    interval_s: float = 300.0
    seed: int = 0
    broker: str = ""

    @property
    def broker_used(self) -> str:
        return self.broker or ("mosquitto" if _mosquitto() else "amqtt")


class RolloutSite:
    """A context; everything that it starts ends with it. `truths` says how good the models are, by version; the
    first one is what all devices come with."""

    def __init__(self, folder: Path, truths: Mapping[str, ModelTruth], settings: SiteSettings) -> None:
        self.folder, self.settings, self.truths = folder, settings, dict(truths)
        self.clock = clock_in(folder, BEGAN_AT)
        self.repository = repository_in(folder, self.clock)
        self.store = store_in(folder, self.clock)
        self._controller = RolloutController(self.store, SignedChannel(self.repository))
        self._broker_port, self._web_port = free_ports(2)
        self._stack = ExitStack()
        self._broker_stack, self._cloud_stack = ExitStack(), ExitStack()
        self.pins: dict[str, ModelPin] = {}

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _begin(self) -> None:
        self._stack.callback(self._broker_stack.close)
        self._stack.callback(self._cloud_stack.close)
        bundles = {version: tiny_model(version) for version in self.truths}
        self.repository.init()
        self.repository.add_family(FAMILY)
        for version, bundle in bundles.items():
            self.pins[version] = self.repository.add_bundle(FAMILY, bundle).pin
        self._publish_first()
        self.start_broker()
        argv = ("-m", "fovea.cli.main", "release", "serve", "--folder", str(self.repository.folder))
        server = self._stack.enter_context(
            child(
                "server",
                (*argv, "--listen", f"{HOST}:{self._web_port}"),
                self.folder / "server.log",
                all_cores(),
            )
        )
        server.wait_for(lambda: is_listening(HOST, self._web_port), "release server", _STARTED_WITHIN_S)
        self.start_cloud()
        first = bundles[self.first]
        self._begin_fleet(
            Site(
                f"http://{HOST}:{self._web_port}",
                self._root(),
                GROUP,
                FAMILY,
                first,
                self.settings.interval_s,
            )
        )

    @property
    def first(self) -> str:
        return next(iter(self.truths))

    def _root(self) -> bytes:
        return (self.repository.public / "metadata" / "1.root.json").read_bytes()

    def _publish_first(self) -> None:
        now = self.clock.now()
        expires_at = now + timedelta(seconds=LIVES_S)
        pin = self.pins[self.first]
        self.repository.publish(
            DesiredState(
                GROUP, FAMILY, 1, now, expires_at, pin, None, Stage.IDLE, 0.0, 0.0, "first", PROBATION
            )
        )

    def _begin_fleet(self, site: Site) -> None:
        folder, settings = self.folder, self.settings
        web = MemoryWeb(FolderFiles(self.repository.public), site.base_url)
        self.wire = FleetWire(
            MqttSettings(HOST, self._broker_port), "gateway", None, lambda device: self.fleet.look(device)
        )
        self.fleet = Fleet(
            folder / "devices",
            FleetSettings(settings.devices - settings.processes, settings.seed, settings.away),
            site,
            World(self.truths, FleetTruth(), self.clock),
            self.clock,
            web,
            self.wire.report,
        )
        self.wire.start()
        self._stack.callback(self.wire.stop)
        (folder / "root.json").write_bytes(site.pinned_root)
        (folder / "first.fovea").write_bytes(site.built_in.to_bytes())
        plans = [self._process_plan(number, site) for number in range(settings.processes)]
        self.processes = self._stack.enter_context(DeviceProcesses(plans, folder / "processes"))

    def _process_plan(self, number: int, site: Site) -> ProcessPlan:
        name = f"process-{number:02d}"
        return ProcessPlan(
            name=name,
            folder=str(self.folder / "processes" / name),
            clock=str(self.folder / "clock"),
            began_at=BEGAN_AT,
            base_url=site.base_url,
            root=str(self.folder / "root.json"),
            built_in=str(self.folder / "first.fovea"),
            group=GROUP,
            family=FAMILY,
            broker_port=self._broker_port,
            models={version: to_json_form(truth) for version, truth in self.truths.items()},
            seed=1000 * self.settings.seed + number,
            interval_s=site.interval_s,
        )

    def start_broker(self) -> None:
        """Mosquitto, or the embedded one."""
        port, log = self._broker_port, self.folder / "broker.log"
        if self.settings.broker_used == "mosquitto":
            config = self.folder / "mosquitto.conf"
            config.write_text(f"listener {port} {HOST}\nallow_anonymous true\nmax_queued_messages 0\n")
            words = ("-c", "import os, sys; os.execv(sys.argv[1], sys.argv[1:])", _mosquitto() or "mosquitto")
            argv: tuple[str, ...] = (*words, "-c", str(config))
        else:
            argv = ("-m", "fovea.process.embedded_broker", f"{HOST}:{port}")
        broker = self._broker_stack.enter_context(child("broker", argv, log, all_cores()))
        broker.wait_for(lambda: is_listening(HOST, port), "broker", _STARTED_WITHIN_S)

    def stop_broker(self) -> None:
        self._broker_stack.close()

    def start_cloud(self) -> None:
        """The process that takes reports and moves rollouts."""
        plan = self.folder / "cloud.json"
        CloudPlan(str(self.folder), self._broker_port, BEGAN_AT, self.settings.tick_s).write(plan)
        argv = ("-m", "fovea.bench.rollout_cloud", str(plan))
        self.cloud: Child = self._cloud_stack.enter_context(
            child("cloud", argv, self.folder / "cloud.log", all_cores())
        )

    def kill_cloud(self) -> None:
        """Without a word, as a power cut would."""
        os.kill(self.cloud.pid, signal.SIGKILL)
        self._cloud_stack.close()

    def roll_out(self, champion: str, candidate: str, plan: RolloutPlan) -> Rollout:
        """What `fovea rollout start` does."""
        return self._controller.start(GROUP, self.pins[champion], self.pins[candidate], plan, PROBATION)

    def newest(self) -> Rollout:
        return self.store.newest(GROUP, 1)[0]

    def running(self) -> Counter[str]:
        """Devices by the version that they run; those that are away are left out."""
        return self.fleet.running() + self.processes.running()

    def answered(self) -> Counter[str]:
        """Frames by the version that answered them."""
        return self.fleet.answered() + self.processes.answered()

    def run(self, until: Callable[[], bool], longest_s: float) -> bool:
        """Lets virtual time pass; False when it is not so after `longest_s`. Raises BrokenError when a part ended."""

        def check() -> bool:
            self.cloud.check()
            self.processes.tend()
            return until()

        return self.fleet.run(check, longest_s, self.settings.speed)

    def _end(self) -> None:
        self._stack.close()
        self.store.close()


def _mosquitto() -> str | None:
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
