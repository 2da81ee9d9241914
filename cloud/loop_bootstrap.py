"""From a configuration to what closes the loop beside the serving: releases, rollouts, rounds of learning."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry

from cloud.cases.store import CaseStore
from cloud.config import CloudConfig
from cloud.fleet.channel import SignedChannel
from cloud.fleet.fleet_link import FleetLink
from cloud.fleet.metrics import FleetMetrics, RolloutMetrics
from cloud.fleet.registry import RegistryAliases
from cloud.fleet.rollout_loop import RolloutLoop
from cloud.fleet.starting import RolloutStarter
from cloud.regular import RegularWork
from cloud.release.keys import KeyFolder, Keys, no_passphrase, passphrase_from
from cloud.release.registry import Registry, RegistryAddress
from cloud.release.repository import Repository
from cloud.release.static import ServerTls, serving
from cloud.rollout.controller import RolloutController
from cloud.rollout.store import RolloutStore
from cloud.rollout_config import ReleasesConfig, RolloutsConfig
from fovea.core.errors import Malformed

_log = logging.getLogger(__name__)

_STOP_S = 3.0
_AGAIN_S = 30.0


@dataclass(slots=True, eq=False)
class LoopParts:
    """What runs beside the serving; empty where nothing of it is configured. `beside` lists what is entered in turn;
    `facts` are asked by /healthz, `troubles` say why something does not go."""

    beside: list[AbstractContextManager[object]] = field(default_factory=list)
    facts: dict[str, Callable[[], object]] = field(default_factory=dict)
    troubles: list[Callable[[], str | None]] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[None]:
        with ExitStack() as stack:
            for part in self.beside:
                stack.enter_context(part)
            yield

    def told(self) -> Mapping[str, object]:
        return {name: fact() for name, fact in self.facts.items()}

    def trouble(self) -> str | None:
        return next((said for trouble in self.troubles if (said := trouble()) is not None), None)


def build_loop(
    config: CloudConfig, source: Path | None, cases: CaseStore, metrics: CollectorRegistry
) -> LoopParts:
    """Opens what is configured; starts nothing. `source` is the file of the configuration, for rounds. Raises what
    the stores raise, NotFound without a release repository, and NotFound and Malformed for files of secrets."""
    parts = LoopParts()
    repository = None
    if config.releases is not None:
        repository = open_repository(config.releases)
        _add_releases(parts, config.releases, repository)
    promoting = None
    if config.rollouts is not None and repository is not None:
        promoting = _add_rollouts(parts, config, config.rollouts, repository, metrics)
    triggers = config.learning.triggers
    if triggers is not None:
        if source is None:
            raise Malformed("learning.triggers: expected a configuration in a file, which rounds are given")
        # Rounds know the training side, which a cloud that only serves never loads.
        from cloud.learning_bootstrap import add_learning

        add_learning(parts, config, triggers, source, cases, metrics, promoting)
    return parts


def open_repository(config: ReleasesConfig) -> Repository:
    """With its online keys at hand. Raises NotFound where there is none."""
    secret = passphrase_from(Path(config.passphrase_file)) if config.passphrase_file else no_passphrase
    repository = Repository(Path(config.folder), Keys(KeyFolder(config.keys_folder, secret)))
    repository.live()
    return repository


def open_registry(config: CloudConfig) -> Registry:
    """In the database and beside the folder of the case store. Raises what `Registry.open` raises."""
    models = RegistryAddress.in_folder(Path(config.store.folder)).models
    return Registry.open(RegistryAddress(config.store.address().database, models))


def _add_releases(parts: LoopParts, config: ReleasesConfig, repository: Repository) -> None:
    refreshing = RegularWork("refresh of releases", repository.refresh, config.refresh_every_s, _AGAIN_S)
    parts.beside.append(working(refreshing))
    parts.troubles.append(lambda: refreshing.trouble)
    if config.listen is None:
        return
    tls = None if config.tls is None else config.tls.settings()
    where: list[str] = []
    parts.beside.append(_serving_releases(repository.public, config.listen, tls, where))
    parts.facts["releases"] = lambda: where[0] if where else None


def _add_rollouts(
    parts: LoopParts,
    config: CloudConfig,
    rollouts: RolloutsConfig,
    repository: Repository,
    metrics: CollectorRegistry,
) -> tuple[RolloutStore, RolloutStarter]:
    assert config.mqtt is not None, "a configuration with rollouts has a broker (checked there)"
    settings = config.mqtt.settings()
    store = RolloutStore.open(config.store.address().database)
    registry = open_registry(config)
    channel = SignedChannel(repository)
    link = FleetLink(settings, store.keep_reports, channel.serial)
    controller = RolloutController(store, channel, link, RegistryAliases(registry))
    loop = RolloutLoop(controller, store, channel, link)
    ticking = RegularWork("look at rollouts", loop.look, rollouts.tick_s)
    parts.beside += [closing(store.close, registry.close), _linked(link), working(ticking)]
    parts.facts["fleet"] = lambda: {"connected": link.is_connected, **link.counts}
    parts.facts["rollouts"] = lambda: loop.facts
    parts.troubles += [lambda: ticking.trouble, lambda: link.trouble]
    metrics.register(FleetMetrics(link))
    metrics.register(RolloutMetrics(loop))
    probation = rollouts.probation.probation()
    return store, RolloutStarter(controller, repository, registry, rollouts.plan_of, probation)


@contextmanager
def working(work: RegularWork) -> Iterator[None]:
    """Does it until the block ends."""
    work.start()
    try:
        yield
    finally:
        work.stop()


@contextmanager
def _linked(link: FleetLink) -> Iterator[None]:
    link.start()
    try:
        yield
    finally:
        link.stop(_STOP_S)


@contextmanager
def closing(*closes: Callable[[], object]) -> Iterator[None]:
    """Calls all of them when the block ends."""
    try:
        yield
    finally:
        for close in closes:
            close()


@contextmanager
def _serving_releases(public: Path, address: str, tls: ServerTls | None, where: list[str]) -> Iterator[None]:
    with serving(public, address, tls) as url:
        where.append(url)
        _log.info("releases are served at %s", url)
        yield
