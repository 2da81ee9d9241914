"""What a round has promoted goes to its groups by itself, once; and what is known of whether one is due."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cloud.cases.store import CaseStore, StoreAddress
from cloud.fleet.channel import SignedChannel
from cloud.fleet.promoted import PromotedRollouts
from cloud.fleet.registry import RegistryAliases
from cloud.fleet.starting import RolloutStarter
from cloud.golden.sites import Sites
from cloud.learn.drift_watch import DriftWatch
from cloud.learn.due_facts import SiteFacts
from cloud.learn.promotion import Verdict
from cloud.learn.round_plan import RoundPlan
from cloud.learn.rounds import RoundStore
from cloud.learn.supervisor import Known
from cloud.release.registered import Alias
from cloud.release.registry import Registry, RegistryAddress
from cloud.rollout.controller import RolloutController
from cloud.rollout.plan import RolloutPlan
from cloud.rollout.rollout import Status
from cloud.rollout.store import RolloutStore
from fovea.core.release import Probation
from tests.unit.hard_cases import hard_case
from tests.unit.release_site import FAMILY, GROUP, bundle, made_site


@dataclass(frozen=True, slots=True)
class World:
    folder: Path
    rounds: RoundStore
    rollouts: RolloutStore
    registry: Registry
    controller: RolloutController
    promoted: PromotedRollouts

    def learn(self, version: str, verdict: Verdict | None, site: str = "default") -> None:
        """A round that has made this version."""
        self.registry.register(FAMILY, bundle(version))
        record = self.rounds.begin(RoundPlan(site=site))
        self.rounds.end(record.id, verdict, ("because",), bundle(version).ref.sha256)

    def begun(self, group: str = GROUP) -> list[str]:
        """Versions of the candidates, the newest first."""
        return [each.candidate.version for each in self.rollouts.newest(group)]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    site = made_site(tmp_path / "site")
    repository = site.repository(with_offline=False)
    address = RegistryAddress.in_folder(tmp_path / "cases")
    registry = Registry.open(address)
    registry.register(FAMILY, bundle("1"))
    registry.name(FAMILY, Alias.CHAMPION, bundle("1").ref, "the first")
    rounds, rollouts = RoundStore.open(address.database), RolloutStore.open(address.database)
    controller = RolloutController(rollouts, SignedChannel(repository), None, RegistryAliases(registry))
    starter = RolloutStarter(controller, repository, registry, lambda group: RolloutPlan(), Probation(1, 1.0))
    promoted = PromotedRollouts(rounds, rollouts, starter, "default", FAMILY, [GROUP, "barn"])
    yield World(tmp_path, rounds, rollouts, registry, controller, promoted)
    for store in (rounds, rollouts, registry):
        store.close()


def test_what_was_promoted_goes_to_every_group_once(world: World) -> None:
    world.promoted.look()
    assert world.begun() == []
    world.learn("2", Verdict.PROMOTE)
    for _ in range(3):
        world.promoted.look()
    assert world.begun() == world.begun("barn") == ["2"]
    assert world.rollouts.moves(1)[0]["by"].startswith("round ")


@pytest.mark.parametrize("verdict", [None, *(each for each in Verdict if each is not Verdict.PROMOTE)])
def test_what_was_not_promoted_goes_nowhere(world: World, verdict: Verdict | None) -> None:
    world.learn("2", verdict)
    world.promoted.look()
    assert world.begun() == []


def test_a_round_of_another_site_is_none_of_its_business(world: World) -> None:
    world.learn("2", Verdict.PROMOTE, site="yard")
    world.promoted.look()
    assert world.begun() == []


def test_it_waits_for_the_end_of_the_rollout_before_and_never_tries_one_again(world: World) -> None:
    world.learn("2", Verdict.PROMOTE)
    world.promoted.look()
    world.learn("3", Verdict.PROMOTE)
    world.promoted.look()
    assert world.begun() == ["2"]
    world.controller.roll_back(world.rollouts.newest(GROUP)[0].id, "ada", "no")
    world.promoted.look()
    assert world.begun() == ["3", "2"]
    world.controller.roll_back(world.rollouts.newest(GROUP)[0].id, "ada", "no")
    world.promoted.look()
    assert world.begun() == ["3", "2"] and world.rollouts.newest(GROUP)[0].status is Status.BACK


def known(world: World, site: str = "default") -> Known:
    store = CaseStore.open(StoreAddress.in_folder(world.folder / "cases"))
    watch = DriftWatch(world.folder / "rounds" / "drift.json", datetime.now(UTC))
    sites = Sites.of({"yard": ["yard-*"]})
    try:
        return SiteFacts(store, world.rounds, sites, site, watch, list, True).known()
    finally:
        store.close()


def test_cases_of_the_site_count_since_the_last_round_that_succeeded(world: World) -> None:
    now = datetime.now(UTC)
    with_cases = CaseStore.open(StoreAddress.in_folder(world.folder / "cases"))
    for number, camera in enumerate(("gate", "gate", "yard-1")):
        with_cases.add(hard_case(number, camera=camera, captured_at=now - timedelta(hours=1)))
    with_cases.close()
    assert (known(world).facts.cases, known(world, "yard").facts.cases) == (2, 1)
    world.learn("2", Verdict.REFUSE)
    facts = known(world).facts
    assert (facts.cases, facts.failures) == (0, 0) and facts.last_round_at is not None


def test_failures_count_in_a_row_and_an_unfinished_round_is_named(world: World) -> None:
    world.learn("2", Verdict.PROMOTE)
    world.learn("3", None)
    world.learn("4", None)
    assert known(world).facts.failures == 2
    assert known(world).unfinished is None
    begun = world.rounds.begin(RoundPlan(site="default"))
    assert known(world).unfinished == begun.id
