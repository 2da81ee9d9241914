"""All tiers on one machine from nothing but models and cameras: configurations, free ports, processes in order."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from fovea.cli.tier_probes import free_ports, grpc_unready, http_unready, mqtt_unready
from fovea.cli.tiers import TierCommand, fovea_command
from fovea.core.errors import Malformed, NotFound
from fovea.core.routing import Tier

if TYPE_CHECKING:
    from edge_agent.capture.source import SourceSpec

HOST = "127.0.0.1"
BUNDLED = {
    Tier.AGENT: "zoo:street-student-int8",
    Tier.EDGE: "zoo:street-edge",
    Tier.CLOUD: "zoo:street-cloud",
}
"""The model of each tier that is there without a download."""

_TIER_WORDS = {
    Tier.AGENT: ("agent", "camera", "student", "nano"),
    Tier.EDGE: ("edge",),
    Tier.CLOUD: ("cloud", "teacher"),
}


@dataclass(frozen=True, slots=True)
class CameraPlan:
    """One camera: a name, a source, and how often it is looked at. Files begin again at their end."""

    name: str
    source: SourceSpec
    fps: float = 5.0


@dataclass(frozen=True, slots=True)
class TierPlan:
    """What is to run: `bundles` is zoo:NAME or a .fovea file for each tier, `folder` takes configurations, cases and
    figures.

    asked_at_most     share of frames that the agent may ask about on the average, audits apart
    ask_from          how sure its gate has to be that asking pays; low, so that the budget picks the best
    cloud_asks_per_s  what the edge may ask of the cloud
    """

    folder: Path
    cameras: Sequence[CameraPlan]
    bundles: Mapping[Tier, str] = field(default_factory=lambda: dict(BUNDLED))
    device: str = "demo"
    ask_timeout_ms: float = 2500.0
    asked_at_most: float = 0.3
    ask_from: float = 0.3
    cloud_asks_per_s: float = 20.0


@dataclass(frozen=True, slots=True)
class PlannedTiers:
    """The configurations as they lie on disk, and how each process is started. `edge_alone` is an edge with nobody
    above it, for comparison."""

    commands: tuple[TierCommand, ...]
    edge_alone: TierCommand
    configs: Mapping[str, Path]
    mqtt_port: int
    edge_address: str
    edge_alone_address: str
    cloud_address: str
    agent_health_url: str
    stats_file: Path
    results_file: Path


def street_cameras() -> tuple[CameraPlan, ...]:
    """The two simulated cameras that are there without any hardware: the street by day and by night."""
    from edge_agent.capture.source import SourceSpec

    return tuple(
        CameraPlan(name, SourceSpec(f"sim://street-v1/{name}?seed={seed}"))
        for seed, name in enumerate(("day", "night"), start=7)
    )


def write_plan(plan: TierPlan) -> PlannedTiers:
    """Writes cloud.yaml, edge.yaml and agent.yaml into the plan's folder, with free ports of this machine."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    mqtt, cloud, edge, alone, health = free_ports(5)
    stats, results = plan.folder / "stats.json", plan.folder / "results.jsonl"
    for old in (stats, results):
        old.unlink(missing_ok=True)
    cloud_address, edge_address, alone_address = f"{HOST}:{cloud}", f"{HOST}:{edge}", f"{HOST}:{alone}"
    configs: dict[str, dict[str, Any]] = {
        "cloud": {
            "listen": cloud_address,
            "bundle": plan.bundles[Tier.CLOUD],
            "device": "auto",
            # A few questions a second never meet: measuring what batches would save takes longer than it is worth.
            "max_batch": 1,
            "store": {"folder": "cases"},
        },
        "edge": {
            "listen": edge_address,
            "bundle": plan.bundles[Tier.EDGE],
            "device": "auto",
            "cloud": {
                "address": cloud_address,
                "budget": {"asks_per_s": plan.cloud_asks_per_s, "bytes_per_s": 5e7},
                "spool": {"folder": "relay"},
            },
        },
        "edge-alone": {"listen": alone_address, "bundle": plan.bundles[Tier.EDGE], "device": "auto"},
        "agent": {
            "device": plan.device,
            "bundle": plan.bundles[Tier.AGENT],
            "cameras": [_camera(plan.folder, camera) for camera in plan.cameras],
            # As if the edge box was another machine: pictures travel small, and their bytes mean something.
            "edge": {"address": edge_address, "encoding": "jpeg", "timeout_ms": plan.ask_timeout_ms},
            "gate": {"ask_from": plan.ask_from},
            "budget": {"asks_per_s": plan.asked_at_most * sum(camera.fps for camera in plan.cameras)},
            "mqtt": {"host": HOST, "port": mqtt},
            "spool": {"folder": "spool"},
            "metrics": f"{HOST}:{health}",
            "stats_file": stats.name,
            "results_file": results.name,
        },
    }  # fmt: skip
    paths = {name: write_config(plan.folder / f"{name}.yaml", config) for name, config in configs.items()}
    health_url = f"http://{HOST}:{health}/healthz"
    return PlannedTiers(
        commands=(
            broker_command(mqtt),
            TierCommand("cloud", _command("cloud", paths), partial(grpc_unready, cloud_address), 120.0),
            TierCommand("edge", _command("edge", paths), partial(grpc_unready, edge_address), 120.0),
            TierCommand("agent", _command("agent", paths), partial(http_unready, health_url), 120.0),
        ),
        edge_alone=TierCommand(
            "edge-alone",
            fovea_command("edge", "--config", str(paths["edge-alone"])),
            partial(grpc_unready, alone_address),
            120.0,
        ),
        configs=paths,
        mqtt_port=mqtt,
        edge_address=edge_address,
        edge_alone_address=alone_address,
        cloud_address=cloud_address,
        agent_health_url=health_url,
        stats_file=stats,
        results_file=results,
    )


def find_bundles(folder: Path) -> dict[Tier, str]:
    """The bundle of each tier in a folder: agent.fovea, edge.fovea and cloud.fovea, or files whose names say which
    tier they are for. Raises NotFound and Malformed with what was found."""
    files = sorted(folder.glob("*.fovea"))
    if not files:
        raise NotFound(f"no .fovea file in {folder}; expected agent.fovea, edge.fovea and cloud.fovea")
    found: dict[Tier, str] = {}
    for tier, words in _TIER_WORDS.items():
        exact = folder / f"{tier.name.lower()}.fovea"
        fitting = (
            [exact] if exact in files else [f for f in files if any(word in f.name.lower() for word in words)]
        )
        names = ", ".join(file.name for file in files)
        if not fitting:
            raise NotFound(f"no model for the {tier.name.lower()} in {folder}: there are {names}")
        if len(fitting) > 1:
            several = ", ".join(file.name for file in fitting)
            raise Malformed(
                f"bundles: expected one model for the {tier.name.lower()}, got {several}; name one "
                f"{tier.name.lower()}.fovea"
            )
        found[tier] = str(fitting[0].absolute())
    return found


def broker_command(port: int) -> TierCommand:
    """The embedded broker, at a port of this machine."""
    argv = (sys.executable, "-u", "-m", "fovea.process.embedded_broker", f"{HOST}:{port}")
    return TierCommand("broker", argv, partial(mqtt_unready, HOST, port))


def _command(tier: str, paths: Mapping[str, Path]) -> tuple[str, ...]:
    return fovea_command(tier, "--config", str(paths[tier]))


def _camera(folder: Path, camera: CameraPlan) -> dict[str, Any]:
    from edge_agent.capture.sources.url import SourceKind, kind_of

    spec = camera.source
    entry: dict[str, Any] = {"name": camera.name, "url": spec.chosen_url, "fps": camera.fps}
    if kind_of(spec.chosen_url) is SourceKind.FILE:
        entry["loop"] = True
    path = Path(spec.chosen_url)
    if "://" not in spec.chosen_url and path.exists():
        entry["url"] = str(path.absolute())
    if spec.username is not None:
        entry["username"] = spec.username
    if spec.password is not None:
        secret = folder / f"{camera.name}.password"
        secret.unlink(missing_ok=True)
        with os.fdopen(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(spec.password + "\n")
        entry["password_file"] = secret.name
    return entry


def write_config(path: Path, config: Mapping[str, Any]) -> Path:
    """Writes a configuration; gives its absolute path."""
    path.write_text(yaml.safe_dump(dict(config), sort_keys=False), encoding="utf-8")
    return path.absolute()


def named_cameras(addresses: Sequence[str], fps: float = 5.0) -> tuple[CameraPlan, ...]:
    """A camera for each address or path, named after it. Raises NotFound for a path that is not there."""
    from edge_agent.capture.source import SourceSpec

    cameras: list[CameraPlan] = []
    for number, address in enumerate(addresses, start=1):
        spec = SourceSpec(address)
        if "://" not in spec.chosen_url and not spec.chosen_url.isdecimal():
            path = Path(spec.chosen_url)
            if not path.exists():
                raise NotFound(f"source {address!r}: there is no such file or folder")
            spec = SourceSpec(str(path.absolute()))
        # Names go into topics and files: plain letters only, and no two the same.
        stem = re.sub(r"[^A-Za-z0-9_-]+", "-", Path(spec.chosen_url.partition("?")[0]).stem).strip("-")[:40]
        name = stem or f"camera-{number}"
        if name in {camera.name for camera in cameras}:
            name = f"{name}-{number}"
        cameras.append(CameraPlan(name, spec, fps))
    return tuple(cameras)
