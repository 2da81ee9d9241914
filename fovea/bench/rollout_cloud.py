"""The cloud of a rollout benchmark in a process of its own: reports in over MQTT, decisions, signed orders out.

`python -m fovea.bench.rollout_cloud FILE`, FILE a CloudPlan in JSON; killed at any moment it may be started again.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Final

from cloud.database import opened
from cloud.fleet.channel import SignedChannel
from cloud.fleet.fleet_link import FleetLink
from cloud.release.keys import KeyFolder, Keys
from cloud.release.repository import Repository
from cloud.rollout.controller import RolloutController
from cloud.rollout.store import RolloutStore
from fovea.core.json_form import from_json_form, to_json_form
from fovea.core.ports import Clock
from fovea.mqtt.settings import MqttSettings
from fovea.sim.fleet_clock import VirtualClock

_LOOK_EVERY_S: Final = 0.02
_SIGN_EVERY_S: Final = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class CloudPlan:
    """folder: of repository, keys, database and clock. tick_s: virtual seconds between two looks at the rollouts."""

    folder: str
    broker_port: int
    began_at: datetime
    tick_s: float = 60.0
    broker_host: str = "127.0.0.1"

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(to_json_form(self)))

    @classmethod
    def read(cls, path: Path) -> CloudPlan:
        """Raises Malformed."""
        return from_json_form(cls, json.loads(path.read_text()), "cloud plan")


def repository_in(folder: Path, clock: Clock) -> Repository:
    """With all its keys at hand."""
    keys = Keys(KeyFolder(folder / "online"), [KeyFolder(folder / "offline")])
    return Repository(folder / "repository", keys, now=clock.now)


def store_in(folder: Path, clock: Clock) -> RolloutStore:
    """The rollouts and reports kept there."""
    return RolloutStore(opened(f"sqlite:///{folder / 'cloud.sqlite'}"), clock.now)


def clock_in(folder: Path, began_at: datetime) -> VirtualClock:
    """The clock that all processes of the benchmark go by."""
    return VirtualClock(folder / "clock", began_at)


def run(plan: CloudPlan, told_to_stop: Event) -> None:
    """Until it is told to stop."""
    folder = Path(plan.folder)
    clock = clock_in(folder, plan.began_at)
    repository, store = repository_in(folder, clock), store_in(folder, clock)
    channel = SignedChannel(repository)
    fleet = FleetLink(MqttSettings(plan.broker_host, plan.broker_port), store.keep_reports, channel.serial)
    controller = RolloutController(store, channel, fleet)
    fleet.start()
    ticked_s, signed_s = clock.monotonic_s(), 0.0
    while not told_to_stop.wait(_LOOK_EVERY_S):
        now_s = clock.monotonic_s()
        if now_s - signed_s >= _SIGN_EVERY_S or not signed_s:
            repository.refresh(timedelta(days=1))
            signed_s = now_s
        if now_s - ticked_s >= plan.tick_s:
            controller.tick()
            ticked_s = now_s
    fleet.stop(2.0)
    store.close()


def main(arguments: list[str]) -> int:
    told_to_stop = Event()
    signal.signal(signal.SIGTERM, lambda *_: told_to_stop.set())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    run(CloudPlan.read(Path(arguments[0])), told_to_stop)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
