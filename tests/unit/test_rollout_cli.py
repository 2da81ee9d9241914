"""`fovea rollout`: from the command line of another process than the cloud, in plain words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cloud.fleet.channel import SignedChannel
from cloud.fleet.registry import RegistryAliases
from cloud.fleet.rollout_loop import RolloutLoop
from cloud.release.registered import Alias
from cloud.release.registry import Registry, RegistryAddress
from cloud.release.repository import Repository
from cloud.rollout.controller import RolloutController
from cloud.rollout.report_rows import Heard
from cloud.rollout.rollout import Rollout, Status
from cloud.rollout.sequential import NOTHING_KNOWN, Band
from cloud.rollout.store import RolloutStore
from fovea.cli.rollout import app
from fovea.cli.rollout_shown import difference_text, span
from fovea.core.errors import Incompatible, Malformed, NotFound
from fovea.core.release import Asked, Health, ModelPin, Phase, ReportedState, Stage
from tests.unit.release_site import FAMILY, GROUP, Site, bundle, made_site


@dataclass(frozen=True, slots=True)
class World:
    """A site whose group runs version 1, and a cloud's folder with a registry of three versions."""

    site: Site
    store_folder: Path
    store: RolloutStore
    registry: Registry

    def run(self, *words: str, releases: bool = True) -> Result:
        where = ["--store", str(self.store_folder)]
        if releases:
            where += ["--releases", str(self.site.folder / "repository")]
        return CliRunner().invoke(app, [*words, *where])

    def good(self, *words: str, releases: bool = True) -> str:
        result = self.run(*words, releases=releases)
        assert result.exception is None, result.output
        return result.stdout

    def refused(self, kind: type[Exception], *words: str, releases: bool = True) -> str:
        result = self.run(*words, releases=releases)
        assert isinstance(result.exception, kind), (result.exception, result.output)
        return str(result.exception)

    def repository(self) -> Repository:
        return self.site.repository(with_offline=False)

    def newest(self) -> Rollout:
        return self.store.newest(GROUP, 1)[0]

    def controller(self) -> RolloutController:
        channel = SignedChannel(self.repository())
        return RolloutController(self.store, channel, None, RegistryAliases(self.registry))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    site = made_site(tmp_path / "site")
    keys = site.folder / "repository" / "keys"
    site.online.rename(keys)
    site.online = keys
    folder = tmp_path / "cases"
    registry = Registry.open(RegistryAddress.in_folder(folder))
    for version in ("1", "2", "3"):
        registry.register(FAMILY, bundle(version))
    registry.name(FAMILY, Alias.CHAMPION, bundle("1").ref, "the first")
    registry.name(FAMILY, Alias.CANDIDATE, bundle("2").ref, "a round")
    store = RolloutStore.open(RegistryAddress.in_folder(folder).database)
    yield World(site, folder, store, registry)
    store.close()
    registry.close()


def report(device: str, running: ModelPin | None, **changes: object) -> ReportedState:
    fields: dict[str, object] = {
        "device": device, "group": GROUP, "agent_version": "0.1.0", "boot_id": "b", "at": datetime.now(UTC),
        "clock_synced": True, "serial": 2, "counter_floor": 1, "running": running, "last_good": running,
        "phase": Phase.COMMITTED, "reason": None, "health": Health(100, 0, 30.0, 200.0, 9.0),
        "asked": Asked(100, 10),
    }  # fmt: skip
    return ReportedState(**(fields | changes))  # type: ignore[arg-type]


def test_the_candidate_goes_into_shadow_beside_what_the_group_runs(world: World) -> None:
    said = world.good("start", GROUP)
    assert "released: models/street/street-student-2.fovea" in said
    assert "street-student@2" in said and "in shadow beside street-student@1" in said
    desired = world.repository().desired(GROUP)
    assert desired is not None and desired.candidate is not None
    assert (desired.stage, desired.serial, desired.candidate.version) == (Stage.SHADOW, 2, "2")
    assert desired.policy == {"gate": {"ask_from": 0.7}}


@pytest.mark.parametrize("name", ["street-student-3", "street-student@3", bundle("3").ref.sha256[:10]])
def test_a_candidate_may_be_named_in_several_ways(world: World, name: str) -> None:
    assert "street-student@3" in world.good("start", GROUP, name)


def test_a_group_that_was_told_nothing_begins_from_the_champion(world: World) -> None:
    assert "in shadow beside street-student@1" in world.good("start", "barn")
    assert world.repository().desired("barn") is not None


@pytest.mark.parametrize(
    ("words", "kind", "told"),
    [
        (("start", GROUP, "street-student-9"), NotFound, "no model 'street-student-9' is registered or released"),
        (("start", GROUP, "street-student-1"), Malformed, "runs street-student@1"),
        (("start", GROUP, "previous"), NotFound, "no model is called previous"),
        (("start", "No Group"), Malformed, "group"),
        (("pause", GROUP), NotFound, "there was no rollout yet"),
        (("status", "barn"), NotFound, "there was no rollout yet"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(
    world: World, words: tuple[str, ...], kind: type[Exception], told: str
) -> None:
    releases = words[0] == "start"
    assert told in world.refused(kind, *words, releases=releases)


def test_without_a_repository_nothing_begins(world: World) -> None:
    assert "--releases" in world.refused(NotFound, "start", GROUP, releases=False)
    assert world.store.newest(GROUP) == []


def test_two_rollouts_of_a_group_are_refused(world: World) -> None:
    world.good("start", GROUP)
    assert "rollout 1 is still running" in world.refused(Incompatible, "start", GROUP, "street-student-3")


def test_it_is_paused_resumed_and_rolled_back_with_names_and_reasons(world: World) -> None:
    world.good("start", GROUP, "--by", "ada")
    assert "is paused in stage shadow" in world.good("pause", GROUP, "--why", "a storm", releases=False)
    assert world.newest().status is Status.PAUSED
    assert "goes on" in world.good("resume", GROUP, releases=False)
    said = world.good("rollback", GROUP, "--why", "no")
    assert "goes back to street-student@1" in said and "serial 3" in said
    desired = world.repository().desired(GROUP)
    assert desired is not None and (desired.serial, desired.champion.version) == (3, "1")
    history = world.good("status", GROUP, releases=False)
    assert all(word in history for word in ("ada", "a storm", "back", "street-student@2"))
    assert Alias.CANDIDATE not in world.registry.aliases(FAMILY)


def test_the_status_says_in_plain_words_what_is_missing(world: World) -> None:
    world.good("start", GROUP)
    running = world.newest().champion
    world.store.keep_reports([Heard(report(name, running)) for name in ("a", "b")])
    said = world.good("status", releases=False)
    for words in ("running", "shadow", "0 of 2", "still missing:", "0 devices report the new model"):
        assert words in said
    facts = json.loads(world.good("status", "--json", releases=False))
    assert (facts["stage"], facts["would"], facts["evidence"]["active"]) == ("shadow", "stay", 2)
    assert facts["missing"] and facts["moves"][0]["stage"] == "shadow"


def test_without_rollouts_it_says_so(world: World) -> None:
    assert "no rollouts" in world.good("status", releases=False)


def test_the_cloud_that_runs_hints_at_what_the_command_line_began(world: World) -> None:
    heard: list[tuple[str, tuple[str, ...]]] = []

    class Fleet:
        def look(self, group: str, devices: list[str]) -> None:
            heard.append((group, tuple(devices)))

    world.store.keep_reports([Heard(report("a", None))])
    channel = SignedChannel(world.repository())
    loop = RolloutLoop(world.controller(), world.store, channel, Fleet())
    loop.look()
    loop.look()
    assert heard == [(GROUP, ("a",))]
    world.good("start", GROUP)
    loop.look()
    assert heard == [(GROUP, ("a",))] * 2
    assert loop.facts[GROUP]["stage"] == "shadow"  # type: ignore[index]


def test_aliases_follow_a_rollout_that_is_done_and_one_that_is_taken_back(world: World) -> None:
    aliases = RegistryAliases(world.registry)
    pin = world.repository().add_bundle(FAMILY, bundle("2")).pin
    for _ in range(2):
        aliases.champion_is(pin)
        named = {alias: model.ref.version for alias, model in world.registry.aliases(FAMILY).items()}
        assert named == {Alias.CHAMPION: "2", Alias.PREVIOUS: "1"}
    aliases.candidate_went_back(pin)
    assert world.registry.aliases(FAMILY)[Alias.CHAMPION].ref.version == "1"


def test_a_model_that_is_not_registered_gets_no_alias_and_breaks_nothing(world: World) -> None:
    aliases = RegistryAliases(world.registry)
    aliases.champion_is(world.repository().add_bundle(FAMILY, bundle("7")).pin)
    assert world.registry.aliases(FAMILY)[Alias.CHAMPION].ref.version == "1"


def test_what_a_broker_repeats_is_no_sign_of_life(world: World) -> None:
    old = report("a", None, at=datetime.now(UTC) - timedelta(days=20))
    assert world.store.keep_reports([Heard(old, is_repeated=True)]) == 1
    assert world.store.reports(GROUP)[0].received_at == old.at
    assert world.store.keep_reports([Heard(old, is_repeated=True)]) == 0
    assert world.store.keep_reports([Heard(old)]) == 1
    assert datetime.now(UTC) - world.store.reports(GROUP)[0].received_at < timedelta(minutes=5)


def test_a_device_is_in_the_group_that_it_named_last(world: World) -> None:
    world.store.keep_reports([Heard(report("a", None)), Heard(report("b", None))])
    world.store.keep_reports([Heard(report("a", None, group="barn"))])
    assert [each.state.device for each in world.store.reports(GROUP)] == ["b"]
    assert world.store.groups() == ["barn", GROUP]


def test_of_many_reports_of_a_device_the_last_counts(world: World) -> None:
    heard = [Heard(report("a", None, serial=number)) for number in range(5)]
    assert world.store.keep_reports(heard) == 1
    assert world.store.reports(GROUP)[0].state.serial == 4


def test_spans_and_differences_are_told_in_words() -> None:
    assert [span(each) for each in (5, 600, 7200, 200_000)] == ["5 s", "10 minutes", "2 hours", "2 days"]
    assert "too few frames" in difference_text(NOTHING_KNOWN)
    assert "+0.020 (between -0.010 and +0.050)" in difference_text(Band(0.02, -0.01, 0.05))
