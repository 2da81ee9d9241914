"""`fovea rollout ...`: begins rollouts, says how they stand, and steps in; the running cloud moves them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fovea.cli.label_room import AsJson
from fovea.core.errors import Malformed, NotFound

if TYPE_CHECKING:
    from cloud.config import CloudConfig
    from cloud.fleet.starting import RolloutStarter
    from cloud.release.registry import Registry
    from cloud.release.repository import Repository
    from cloud.rollout.controller import RolloutController
    from cloud.rollout.rollout import Rollout
    from cloud.rollout.store import RolloutStore
    from cloud.rollout_config import RolloutsConfig
    from fovea.cli.rollout_shown import Standing
    from fovea.core.release import DesiredState

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="New models on their way to the devices: in shadow, on a few, a quarter, all, or back.",
)

Config = Annotated[Path | None, typer.Option("--config", "-c", help="The cloud's configuration.")]
Store = Annotated[Path | None, typer.Option("--store", "-s", help="The cloud's folder, in its place.")]
Releases = Annotated[
    Path | None, typer.Option("--releases", help="The release repository, where --store is given.")
]
Group = Annotated[str, typer.Argument(help="The group of devices.")]
By = Annotated[str, typer.Option(help="Who does it, for the history.")]


@app.command()
def start(
    group: Group,
    candidate: Annotated[
        str, typer.Argument(help="`candidate` (the alias), NAME-VERSION, or first digits of a digest.")
    ] = "candidate",
    champion: Annotated[
        str | None, typer.Option(help="What it takes the place of; what the group runs now if left out.")
    ] = None,
    family: Annotated[
        str | None, typer.Option(help="The family, for a group that is told for the first time.")
    ] = None,
    by: By = "a person",
    config: Config = None,
    store: Store = None,
    releases: Releases = None,
) -> None:
    """Begin: the candidate looks in shadow first. `fovea cloud` moves it on, or back, by what devices report."""
    with _opened(config, store, releases) as room:
        started = room.starter().start(group, candidate, champion, family, by)
    for pin in started.released:
        typer.echo(f"released: {pin.target}")
    rollout = started.rollout
    typer.echo(
        f"group {group}: rollout {rollout.id}, {rollout.candidate.ref} in shadow beside {rollout.champion.ref} "
        f"(serial {rollout.serial})"
    )


@app.command()
def status(
    group: Annotated[str | None, typer.Argument(help="Only of this group.")] = None,
    config: Config = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Say how every rollout stands: what devices have shown, what is missing, and each step so far."""
    from fovea.cli.rollout_shown import facts_of, print_overview, print_standing

    with _opened(config, store, None) as room:
        newest = [each for each in room.store.latest() if group in (None, each.group)]
        standings = [_standing(room, each) for each in newest]
    if group is not None and not standings:
        raise NotFound(f"group {group!r:.80}: there was no rollout yet")
    if as_json:
        for each in standings:
            typer.echo(json.dumps(facts_of(each), ensure_ascii=False))
        return
    console = Console()
    print_overview(console, standings)
    for each in standings:
        print_standing(console, each)


@app.command()
def pause(
    group: Group,
    why: Annotated[str, typer.Option(help="Why, for the history.")] = "by hand",
    by: By = "a person",
    config: Config = None,
    store: Store = None,
) -> None:
    """Hold it in its stage, whatever devices report. They go on with what they were told."""
    with _opened(config, store, None) as room:
        rollout = room.controller().pause(_newest(room, group).id, by, why)
    typer.echo(f"group {group}: rollout {rollout.id} is paused in stage {rollout.stage.value}")


@app.command()
def resume(group: Group, by: By = "a person", config: Config = None, store: Store = None) -> None:
    """Go on; the stage has its whole time again."""
    with _opened(config, store, None) as room:
        rollout = room.controller().resume(_newest(room, group).id, by)
    typer.echo(f"group {group}: rollout {rollout.id} goes on in stage {rollout.stage.value}")


@app.command()
def rollback(
    group: Group,
    why: Annotated[str, typer.Option(help="Why, for the history.")] = "by hand",
    by: By = "a person",
    config: Config = None,
    store: Store = None,
    releases: Releases = None,
) -> None:
    """Tell all devices to run the old model again, also after it was done: a new order, with a higher serial."""
    with _opened(config, store, releases) as room:
        rollout = room.controller().roll_back(_newest(room, group).id, by, why)
    typer.echo(f"group {group}: goes back to {rollout.champion.ref} (serial {rollout.serial})")


@dataclass(frozen=True, slots=True, eq=False)
class _Room:
    store: RolloutStore
    registry: Registry
    repository: Repository | None
    told: RolloutsConfig

    def controller(self) -> RolloutController:
        from cloud.fleet.channel import SignedChannel
        from cloud.fleet.registry import RegistryAliases
        from cloud.rollout.controller import RolloutController

        channel = _NoChannel() if self.repository is None else SignedChannel(self.repository)
        return RolloutController(self.store, channel, None, RegistryAliases(self.registry))

    def starter(self) -> RolloutStarter:
        from cloud.fleet.starting import RolloutStarter

        if self.repository is None:
            raise NotFound(_NO_REPOSITORY)
        probation = self.told.probation.probation()
        return RolloutStarter(self.controller(), self.repository, self.registry, self.told.plan_of, probation)


_NO_REPOSITORY = "no release repository: expected --releases FOLDER, or a --config with releases"


class _NoChannel:
    """Of somebody who only looks."""

    def current(self, group: str) -> DesiredState | None:
        raise NotFound(_NO_REPOSITORY)

    def publish(self, desired: DesiredState) -> None:
        raise NotFound(_NO_REPOSITORY)


def _newest(room: _Room, group: str) -> Rollout:
    found = room.store.newest(group, 1)
    if not found:
        raise NotFound(f"group {group!r:.80}: there was no rollout yet")
    return found[0]


def _standing(room: _Room, rollout: Rollout) -> Standing:
    from fovea.cli.rollout_shown import Standing

    controller = room.controller()
    return Standing(
        rollout,
        controller.evidence(rollout),
        controller.opinion(rollout),
        room.store.moves(rollout.id),
        room.store.now(),
    )


@contextmanager
def _opened(config: Path | None, store: Path | None, releases: Path | None) -> Iterator[_Room]:
    from cloud.database import checked_database
    from cloud.loop_bootstrap import open_registry, open_repository
    from cloud.rollout.store import RolloutStore
    from cloud.rollout_config import RolloutsConfig

    told = _told(config, store, releases)
    url = checked_database(told.store.address().database)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
        raise NotFound(f"no cloud's database at {url.database}")
    with ExitStack() as stack:
        rollouts = RolloutStore.open(told.store.address().database)
        stack.callback(rollouts.close)
        registry = open_registry(told)
        stack.callback(registry.close)
        repository = None if told.releases is None else open_repository(told.releases)
        yield _Room(rollouts, registry, repository, told.rollouts or RolloutsConfig())


def _told(config: Path | None, store: Path | None, releases: Path | None) -> CloudConfig:
    from cloud.config import CloudConfig, StoreConfig, load_config
    from cloud.rollout_config import ReleasesConfig

    if (config is None) == (store is None):
        raise Malformed("expected --config FILE or --store FOLDER, to say which cloud is meant")
    if config is not None:
        if releases is not None:
            raise Malformed("--releases: expected with --store only; a --config says where they are")
        return load_config(config)
    kept = StoreConfig(folder=str((store or Path()).absolute()))
    there = None if releases is None else ReleasesConfig(folder=str(releases.absolute()))
    return CloudConfig(store=kept, releases=there)
