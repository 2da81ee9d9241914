"""From a person's own configuration files to the processes of one machine, in the order in which they start."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from fovea.cli.tier_probes import grpc_unready, http_unready, mqtt_unready, tcp_unready
from fovea.cli.tiers import TierCommand, fovea_command
from fovea.core.errors import Malformed, NotFound
from fovea.serving.serving_config import ServingConfig

ORDER = ("cloud", "edge", "agent")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ANY = ("0.0.0.0", "[::]", "::", "")
_READY_WITHIN_S = 180.0

Probe = Callable[[], str | None]


def commands_of(paths: Sequence[Path]) -> tuple[TierCommand, ...]:
    """The processes that configuration files mean; `paths` are files named after their tier (edge.yaml,
    edge-lab.yaml), or folders of them. A broker is started, too, when an agent wants one on this machine and nobody
    listens there.

    Raises NotFound, and Malformed for a file that is wrong or whose name says no tier.
    """
    files = [file for path in paths for file in _files_in(path)]
    by_tier: dict[str, list[Path]] = {tier: [] for tier in ORDER}
    for file in files:
        by_tier[_tier_of(file)].append(file)
    commands: list[TierCommand] = []
    for tier in ORDER:
        for file in by_tier[tier]:
            name = tier if len(by_tier[tier]) == 1 else file.stem
            argv = fovea_command(tier, "--config", str(file.absolute()))
            commands.append(TierCommand(name, argv, _probe(tier, file), _READY_WITHIN_S))
    brokers = dict.fromkeys(broker for file in by_tier["agent"] if (broker := _broker_wanted(file)))
    return (*(_broker(host, port) for host, port in brokers), *commands)


def _files_in(path: Path) -> list[Path]:
    if path.is_dir():
        files = [file for file in sorted(path.glob("*.yaml")) if _is_named_after_tier(file)]
        if not files:
            raise NotFound(
                f"{path}: expected configurations named {', '.join(f'{tier}.yaml' for tier in ORDER)}"
            )
        return files
    if not path.is_file():
        raise NotFound(f"no configuration {path}")
    return [path]


def _is_named_after_tier(file: Path) -> bool:
    return file.stem.partition("-")[0] in ORDER


def _tier_of(file: Path) -> str:
    if not _is_named_after_tier(file):
        raise Malformed(
            f"{file}: expected a name that says the tier, such as edge.yaml or edge-lab.yaml "
            f"({', '.join(ORDER)})"
        )
    return file.stem.partition("-")[0]


def _probe(tier: str, file: Path) -> Probe:
    """How to tell that it is ready; reading the file here finds its mistakes before anything starts."""
    if tier == "agent":
        from edge_agent.config import load_config as load_agent

        metrics = load_agent(file).metrics
        return (
            _ready_at_once
            if metrics is None
            else partial(http_unready, f"http://{_dialled(metrics)}/healthz")
        )
    if tier == "edge":
        from edge_server.config import load_config as load_edge

        return _serving_probe(load_edge(file))
    from cloud.config import load_config as load_cloud

    return _serving_probe(load_cloud(file))


def _serving_probe(config: ServingConfig) -> Probe:
    if config.tls is None:
        return partial(grpc_unready, _dialled(config.listen))
    # Its port answers only to those with a certificate: that it listens is all that is seen from here.
    host, _, port = _dialled(config.listen).rpartition(":")
    return partial(tcp_unready, host.strip("[]"), int(port))


def _ready_at_once() -> str | None:
    return None


def _dialled(listen: str) -> str:
    """An address to reach a listener at: who listens everywhere listens on this machine, too."""
    host, _, port = listen.rpartition(":")
    if port == "0":
        raise Malformed(f"listen {listen}: expected a port that others can know, got 0")
    return f"127.0.0.1:{port}" if host in _ANY else listen


def _broker_wanted(agent: Path) -> tuple[str, int] | None:
    from edge_agent.config import load_config

    mqtt = load_config(agent).mqtt
    if mqtt is None or mqtt.tls is not None or mqtt.host not in _LOOPBACK:
        return None
    return (mqtt.host, mqtt.port) if tcp_unready(mqtt.host, mqtt.port) is not None else None


def _broker(host: str, port: int) -> TierCommand:
    argv = (sys.executable, "-u", "-m", "fovea.process.embedded_broker", f"{host}:{port}")
    return TierCommand("broker", argv, partial(mqtt_unready, host, port))
