"""A rollout with real processes: the cloud, a broker, the command line, and devices that report over MQTT."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloud.cases.store import StoreAddress
from cloud.release.registered import Alias
from cloud.release.registry import Registry, RegistryAddress
from cloud.release.repository import Repository
from cloud.rollout.rollout import Rollout, Status
from cloud.rollout.store import RolloutStore
from fovea.core.release import ModelPin, Stage
from fovea.runtime.bundle import Bundle
from tests.broker_process import usual_broker
from tests.builders import tiny_bundle
from tests.reporting_devices import ReportingDevice, reporting
from tests.system.service_process import (
    FOVEA,
    ServiceProcess,
    free_port,
    health_at,
    metrics_at,
    running,
    until,
)
from tests.unit.release_site import Site

GROUP, FAMILY = "yard", "street"
STAGES = {"shadow": 0.5, "canary": 0.5, "quarter": 0.7, "all": 1.0}
NAMES = ("gate", "Front door", "hof/süd")


def model(version: str) -> Bundle:
    return tiny_bundle().with_parts({}, name="street-student", version=version)


@dataclass(frozen=True, slots=True)
class World:
    """One cloud's files, and the broker's port."""

    config: Path
    folder: Path
    repository: Repository
    store: RolloutStore
    port: int

    def registry(self) -> Registry:
        return Registry.open(RegistryAddress.in_folder(self.folder / "cases"))

    def fovea(self, *words: str) -> str:
        done = subprocess.run(
            [FOVEA, "rollout", *words, "--config", self.config], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def has_become(self, status: Status) -> bool:
        """A step is kept first, and then published."""
        newest = self.newest()
        return newest.status is status and newest.is_published

    def newest(self) -> Rollout:
        """How it stands, seen from another process than the cloud."""
        return self.store.newest(GROUP, 1)[0]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    site = Site(tmp_path)
    site.repository().init()
    assert site.repository().add_family(FAMILY).is_published
    cloud_model = tiny_bundle().write(tmp_path)
    with usual_broker(tmp_path) as process:
        config = tmp_path / "cloud.yaml"
        stages = {
            name: {"share": share, "min_frames": 400, "min_s": 0.3, "deadline_s": 120.0}
            for name, share in STAGES.items()
        }
        config.write_text(
            yaml.safe_dump(
                {
                    "listen": f"127.0.0.1:{free_port()}",
                    "metrics": f"127.0.0.1:{free_port()}",
                    "bundle": str(cloud_model),
                    "store": {"folder": "cases"},
                    "mqtt": {"host": "127.0.0.1", "port": process.port},
                    "releases": {
                        "folder": str(site.folder / "repository"),
                        "keys": str(site.online),
                        "listen": "127.0.0.1:0",
                    },
                    "rollouts": {"tick_s": 0.3, "plan": {"max_failed": 0, "stages": stages}},
                    "log": {"format": "json"},
                }
            )
        )
        (tmp_path / "cases").mkdir()
        store = RolloutStore.open(StoreAddress.in_folder(tmp_path / "cases").database)
        try:
            yield World(config, tmp_path, site.repository(with_offline=False), store, process.port)
        finally:
            store.close()


def cloud(world: World, stack: ExitStack) -> tuple[ServiceProcess, str]:
    process = stack.enter_context(running((FOVEA, "cloud", "--config", world.config)))
    return process, process.event("serving")["metrics"]


def test_a_rollout_goes_up_over_a_kill_and_the_next_one_comes_back(world: World) -> None:
    old, good, bad = (model(version) for version in ("1", "2", "3"))
    fares = {old.ref.sha256: 0.8, good.ref.sha256: 0.85, bad.ref.sha256: -1.0}
    registry = world.registry()
    for bundle in (old, good, bad):
        registry.register(FAMILY, bundle)
    registry.name(FAMILY, Alias.CHAMPION, old.ref, "the first")
    registry.name(FAMILY, Alias.CANDIDATE, good.ref, "a round")
    first = ModelPin(
        f"models/{FAMILY}/{old.manifest.file_name}", old.ref.name, old.ref.version, old.ref.sha256
    )

    def device(name: str) -> ReportingDevice:
        return ReportingDevice(
            name, GROUP, first, world.port, lambda: world.repository.desired(GROUP),
            lambda pin: fares[pin.sha256],
        )  # fmt: skip

    with ExitStack() as stack:
        process, metrics = cloud(world, stack)
        devices = stack.enter_context(reporting([device(name) for name in NAMES]))
        until(lambda: health_at(metrics)["fleet"]["taken"] >= len(NAMES), "all devices are heard")

        started = world.fovea("start", GROUP, "candidate")
        assert "in shadow beside street-student@1" in started and started.count("released:") == 2
        until(lambda: world.newest().stage is not Stage.SHADOW, "it leaves the shadow")
        process.kill()
        process, metrics = cloud(world, stack)
        until(lambda: world.has_become(Status.DONE), "it is done")
        up = world.newest()
        until(lambda: all(each.running.sha256 == good.ref.sha256 for each in devices), "all run it")
        moves = world.store.moves(up.id)
        assert [move["stage"] for move in moves] == ["shadow", "canary", "quarter", "all", "idle"]
        assert {move["by"] for move in moves[1:]} == {"evidence"} and up.serial == 5
        until(lambda: all(5 in each.hints for each in devices), "all were told to look")
        until(lambda: registry.aliases(FAMILY)[Alias.CHAMPION].ref == good.ref, "it is champion")
        assert registry.aliases(FAMILY)[Alias.PREVIOUS].ref == old.ref

        world.fovea("start", GROUP, "street-student-3")
        until(lambda: world.has_become(Status.BACK), "the bad one goes back")
        back = world.newest()
        assert "failed" in back.reasons[0]
        moves = world.store.moves(back.id)
        assert moves[0]["by"] == "a person" and moves[-1]["by"] == "evidence" and len(moves) > 2
        desired = world.repository.desired(GROUP)
        assert desired is not None and desired.champion.sha256 == good.ref.sha256
        assert desired.serial == back.serial > 5
        assert all(each.running.sha256 == good.ref.sha256 for each in devices)

        facts = health_at(metrics)
        assert facts["healthy"] and facts["rollouts"][GROUP]["status"] == "back"
        with urllib.request.urlopen(f"{facts['releases']}metadata/timestamp.json", timeout=30) as answer:
            assert json.load(answer)["signed"]["_type"] == "timestamp"
        told = metrics_at(metrics)
        assert told["fovea_broker_connected"] == 1
        assert told[f'fovea_rollout{{group="{GROUP}",stage="back",status="back"}}'] == 1
        said: dict[str, Any] = json.loads(world.fovea("status", GROUP, "--json"))
        assert (said["stage"], said["status"], said["serial"]) == ("back", "back", back.serial)
        assert "street-student@3" in world.fovea("status", GROUP)
        assert process.stop() < 10
    registry.close()
