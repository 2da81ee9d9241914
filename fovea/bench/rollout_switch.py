"""Frames that a real agent loses when it switches: a camera of ten frames a second, and orders that alternate."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from fovea.bench.children import Child, all_cores, child, free_ports, is_listening
from fovea.bench.measured_tiers import HOST, READY_WITHIN_S, write_config
from fovea.bench.rollout_cloud import repository_in
from fovea.core.errors import BrokenError
from fovea.core.release import DesiredState, ModelPin, Probation, Stage
from fovea.process.clock import SystemClock
from fovea.runtime.images import encode_png
from fovea.sim.fleet_models import tiny_model

_GROUP: Final = "yard"
_FAMILY: Final = "fleet"
_FPS: Final = 10.0
_VERSIONS: Final = ("1.0", "2.0")
_SWITCHED_WITHIN_S: Final = 120.0
_LOOK_EVERY_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Looked:
    """One frame that the agent answered, and with which model."""

    sequence: int
    version: str


def frames_dropped(folder: Path, switches: int, say: Callable[[str], None]) -> int:
    """Of all frames around `switches` switches, those captured and not answered. The agent runs as a process, its
    releases come over HTTP and are tried in a child process. Raises BrokenError and DeadlineExceeded."""
    folder.mkdir()
    repository = repository_in(folder, SystemClock())
    repository.init()
    repository.add_family(_FAMILY)
    bundles = [tiny_model(version) for version in _VERSIONS]
    pins = [repository.add_bundle(_FAMILY, bundle).pin for bundle in bundles]
    (folder / "factory.fovea").write_bytes(bundles[0].to_bytes())
    repository.publish(_order(pins[0], 1))
    [port] = free_ports(1)
    config = write_config(folder / "agent.yaml", _agent(folder, repository.public, port))
    serve = ("-m", "fovea.cli.main", "release", "serve", "--folder", str(repository.folder))
    agent_argv = ("-m", "fovea.cli.main", "agent", "--config", str(config))
    with child(
        "server", (*serve, "--listen", f"{HOST}:{port}"), folder / "server.log", all_cores()
    ) as server:
        server.wait_for(lambda: is_listening(HOST, port), "release server", READY_WITHIN_S)
        with child("agent", agent_argv, folder / "agent.log", all_cores()) as agent:
            results = folder / "results.jsonl"
            _await(agent, results, _VERSIONS[0])
            for number in range(1, switches + 1):
                repository.publish(_order(pins[number % 2], number + 1))
                _await(agent, results, _VERSIONS[number % 2])
                say(f"{number} of {switches} switches of a real agent")
    return dropped_in(_read(results), switches)


def dropped_in(looked: Sequence[Looked], switches: int) -> int:
    """Frames that are missing where one model followed another. Raises BrokenError unless that was so often."""
    gaps = [
        after.sequence - before.sequence - 1
        for before, after in pairwise(looked)
        if before.version != after.version
    ]
    if len(gaps) != switches:
        raise BrokenError(f"expected {switches} switches in the results of the agent, got {len(gaps)}")
    return sum(gaps)


def _await(agent: Child, results: Path, version: str) -> None:
    """Until the newest frames are answered by this version, and its probation is over."""

    def is_so() -> bool:
        looked = _read(results)
        return len(looked) > 0 and all(each.version == version for each in looked[-int(2 * _FPS) :])

    agent.wait_for(is_so, f"model {version}", _SWITCHED_WITHIN_S)
    time.sleep(_LOOK_EVERY_S)


def _read(results: Path) -> list[Looked]:
    """Whole lines of own answers, each frame once."""
    try:
        lines = results.read_bytes().rpartition(b"\n")[0].splitlines()
    except FileNotFoundError:
        return []
    told: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [
        Looked(int(each["sequence"]), str(each["model"]["version"]))
        for each in told
        if each["revision"] == 0 and each["model"] is not None
    ]


def _order(pin: ModelPin, serial: int) -> DesiredState:
    now = SystemClock().now()
    return DesiredState(
        group=_GROUP,
        family=_FAMILY,
        serial=serial,
        issued_at=now,
        expires_at=now + timedelta(days=1),
        champion=pin,
        candidate=None,
        stage=Stage.IDLE,
        shadow_share=0.0,
        run_share=0.0,
        salt="",
        probation=Probation(5, 0.5),
    )


def _agent(folder: Path, public: Path, port: int) -> dict[str, Any]:
    pictures = folder / "pictures"
    pictures.mkdir()
    rng = np.random.default_rng(0)
    for number in range(6):
        pixels = rng.integers(0, 256, (96, 96, 3), np.uint8)
        (pictures / f"{number:02}.png").write_bytes(encode_png(pixels))
    camera = {"name": "front", "url": str(pictures), "loop": True, "fps": _FPS, "motion": {"enabled": False}}
    return {
        "device": "real",
        "bundle": str(folder / "factory.fovea"),
        "threads": 1,
        "cameras": [camera],
        "results_file": str(folder / "results.jsonl"),
        "updates": {
            "url": f"http://{HOST}:{port}",
            "root": str(public / "metadata" / "1.root.json"),
            "folder": str(folder / "updates"),
            "group": _GROUP,
            "family": _FAMILY,
            "poll_every_s": 1.0,
            "hint_spread_s": 0.0,
        },
    }
