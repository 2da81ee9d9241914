"""The fleet of the second act: agents, edge, cloud and broker, their configurations and how they are started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from fovea.cli.tier_plan import HOST, broker_command, write_config
from fovea.cli.tier_probes import free_ports, grpc_unready, http_unready
from fovea.cli.tiers import TierCommand, fovea_command

GROUP: Final = "fleet"
FAMILY: Final = "street-student"
DEVICES: Final = ("north", "east", "south")
DAY: Final = "day"
NIGHT: Final = "night"
FIRST_BUNDLE: Final = "first.fovea"
_READY_WITHIN_S: Final = 180.0


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """How the second act is played. Times are seconds, of the clock on the wall.

    fps             of each of the six cameras
    ask_from        how sure a camera's gate has to be that asking pays
    audit_share     of the other frames that are sent at random: far more than usual: there are minutes, no days
    golden_clips    of each condition that a person labels two frames of; test_clips: the same, held out
    worse_by        of agreement with the tier above that may be lost
    latency_ratio   slower by more counts as harm; large, as all processes get in each other's way on the same cores
    stage_s         that a rollout stays in a stage at least; stage_most_s: then it pauses for a person
    """

    folder: Path
    fps: float = 1.0
    day_s: float = 75.0
    night_s: float = 120.0
    after_s: float = 90.0
    train_minutes: float = 4.0
    ask_from: float = 0.9
    audit_share: float = 0.25
    golden_clips: int = 40
    test_clips: int = 24
    new_cases: int = 200
    replay_cases: int = 400
    stage_s: float = 25.0
    stage_most_s: float = 150.0
    worse_by: float = 0.2
    latency_ratio: float = 10.0
    seed: int = 0
    workers: int = 2

    @property
    def cores(self) -> int:
        return os.cpu_count() or 1

    @property
    def cameras(self) -> dict[str, str]:
        """Each camera's device, by its name."""
        return {f"{device}-{number}": device for device in DEVICES for number in (1, 2)}


@dataclass(frozen=True, slots=True)
class PlannedLoop:
    """The configurations as they lie on disk, and how each process is started."""

    plan: LoopPlan
    commands: tuple[TierCommand, ...]
    cloud_config: Path
    mqtt_port: int
    edge_address: str
    releases_url: str
    stats_files: Mapping[str, Path]
    health_urls: Mapping[str, str]

    @property
    def store(self) -> Path:
        return self.plan.folder / "cases"

    @property
    def releases(self) -> Path:
        return self.plan.folder / "releases"

    def turn_to(self, condition: str) -> None:
        """The agents' cameras look at a street under this condition after their next start."""
        for device in DEVICES:
            write_config(self.plan.folder / f"{device}.yaml", _agent(self, device, condition))


def small_plan(plan: LoopPlan) -> LoopPlan:
    """The same act, shorter and with fewer clips: a quick look that proves nothing."""
    return replace(
        plan, day_s=12.0, night_s=25.0, after_s=12.0, golden_clips=32, test_clips=3, new_cases=60, replay_cases=40,
        stage_s=8.0, stage_most_s=40.0,
    )  # fmt: skip


def plan_loop(plan: LoopPlan) -> PlannedLoop:
    """Writes the configurations into the plan's folder, with free ports of this machine. By day, to begin with."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    folder = plan.folder.absolute()
    mqtt, cloud, edge, releases, *health = free_ports(4 + len(DEVICES))
    cloud_address, edge_address = f"{HOST}:{cloud}", f"{HOST}:{edge}"
    cloud_config = write_config(
        folder / "cloud.yaml", _cloud(plan, cloud_address, mqtt, f"{HOST}:{releases}")
    )
    edge_config = write_config(folder / "edge.yaml", _edge(edge_address, cloud_address))
    health_urls = {
        device: f"http://{HOST}:{port}/healthz" for device, port in zip(DEVICES, health, strict=True)
    }
    servers = (
        broker_command(mqtt),
        TierCommand(
            "cloud",
            fovea_command("cloud", "--config", str(cloud_config)),
            partial(grpc_unready, cloud_address),
            _READY_WITHIN_S,
        ),
        TierCommand(
            "edge",
            fovea_command("edge", "--config", str(edge_config)),
            partial(grpc_unready, edge_address),
            _READY_WITHIN_S,
        ),
    )
    agents = tuple(
        TierCommand(
            device,
            fovea_command("agent", "--config", str(folder / f"{device}.yaml")),
            partial(http_unready, health_urls[device]),
            _READY_WITHIN_S,
        )
        for device in DEVICES
    )
    planned = PlannedLoop(
        plan=plan,
        commands=servers + agents,
        cloud_config=cloud_config,
        mqtt_port=mqtt,
        edge_address=edge_address,
        releases_url=f"http://{HOST}:{releases}",
        stats_files={device: folder / f"{device}.stats.json" for device in DEVICES},
        health_urls=health_urls,
    )
    planned.turn_to(DAY)
    return planned


def _cloud(plan: LoopPlan, address: str, mqtt_port: int, releases: str) -> dict[str, Any]:
    stage = {"min_s": plan.stage_s, "deadline_s": plan.stage_most_s, "min_frames": round(10 * plan.fps)}
    return {
        "listen": address,
        "bundle": "zoo:street-cloud",
        "device": "cpu",
        "max_batch": 1,
        "store": {"folder": "cases"},
        "golden": {"frames": 4 * plan.golden_clips, "enough": 2 * plan.golden_clips},
        "mqtt": {"host": HOST, "port": mqtt_port},
        "releases": {"folder": "releases", "listen": releases},
        "rollouts": {
            "tick_s": 2.0,
            "plan": {
                "worse_by": plan.worse_by,
                "latency_ratio": plan.latency_ratio,
                "silent_after_s": 60.0,
                "stages": {
                    # A third of three devices each time; in shadow every frame is looked at by both.
                    "shadow": {**stage, "share": 1.0, "min_devices": len(DEVICES)},
                    "canary": {**stage, "share": 0.34},
                    "quarter": {**stage, "share": 0.67},
                    "all": {**stage, "share": 1.0},
                },
            },
            "probation": {"frames": round(10 * plan.fps), "seconds": 10.0},
        },
        "learning": {
            "family": FAMILY,
            "student": "zoo:street-student-day-fp32",
            "champion": FIRST_BUNDLE,
            "folder": "rounds",
            # The teacher's labels alone: its doubts cost a look at every image, and minutes are few.
            "mode": "pseudo",
            "minutes": plan.train_minutes,
            "new_cases": plan.new_cases,
            "replay_cases": plan.replay_cases,
            "recipes": 2,
            "threads": plan.cores,
            "tracking": False,
            "min_golden_frames": max(plan.golden_clips, 20),
            "min_new_frames": max(plan.golden_clips // 2, 10),
        },
    }


def _edge(address: str, cloud_address: str) -> dict[str, Any]:
    return {
        "listen": address,
        "bundle": "zoo:street-edge",
        "device": "cpu",
        "cloud": {
            "address": cloud_address,
            "budget": {"asks_per_s": 0.5, "bytes_per_s": 5e7},
            "spool": {"folder": "relay"},
        },
    }


def _agent(planned: PlannedLoop, device: str, condition: str) -> dict[str, Any]:
    plan, number = planned.plan, DEVICES.index(device)
    return {
        "device": device,
        "bundle": FIRST_BUNDLE,
        "cameras": [
            {
                "name": name,
                "url": f"sim://street-v1/{condition}?seed={1000 * plan.seed + 10 * number + index}&fps={plan.fps:g}",
                "fps": plan.fps,
            }
            for index, (name, owner) in enumerate(plan.cameras.items())
            if owner == device
        ],
        # As if the edge box was another machine: pictures travel small, and their bytes mean something.
        "edge": {
            "address": planned.edge_address,
            "encoding": "jpeg",
            "timeout_ms": 20_000,
            "max_in_flight": 32,
        },
        # The gate's word alone counts, and its questions are always paid: the asked rate is what it thinks.
        "gate": {"ask_from": plan.ask_from},
        "qoe": {"enabled": False},
        "budget": {"asks_per_s": 4 * plan.fps, "burst_s": 10},
        "audit_share": plan.audit_share,
        "mqtt": {"host": HOST, "port": planned.mqtt_port},
        # What was asked about is handed up once more when there is room, with the answers: these are the cases.
        "spool": {"folder": f"spool-{device}", "upload_bytes_per_s": 1_000_000},
        "metrics": planned.health_urls[device].removeprefix("http://").removesuffix("/healthz"),
        "stats_file": planned.stats_files[device].name,
        "updates": {
            "url": planned.releases_url,
            "root": "releases/public/metadata/1.root.json",
            "folder": f"device-{device}",
            "group": GROUP,
            "family": FAMILY,
            "poll_every_s": 3.0,
            "poll_jitter": 0.0,
            "hint_spread_s": 0.0,
        },
    }
