"""Releases of the second act: the repository with its keys, the first order, the rollout of the new student."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from cloud.config import load_config
from cloud.fleet.channel import SignedChannel
from cloud.fleet.registry import RegistryAliases
from cloud.fleet.starting import RolloutStarter
from cloud.loop_bootstrap import open_registry, open_repository
from cloud.release.keys import KeyFolder, Keys
from cloud.release.repository import Repository
from cloud.rollout.controller import RolloutController
from cloud.rollout.rollout import Rollout
from cloud.rollout.store import RolloutStore
from fovea.cli.demo_loop_findings import Mark, RolloutFindings
from fovea.cli.demo_loop_plan import FAMILY, GROUP, PlannedLoop
from fovea.core.errors import Incompatible
from fovea.core.release import DesiredState, Probation, Stage, cohort_place
from fovea.runtime.bundle import Bundle

_LIVES = timedelta(days=7)


def begin_releases(planned: PlannedLoop, first: Bundle) -> None:
    """What `fovea release init`, `family`, `add` and `publish` do: the fleet is told to run what it came with."""
    folder = planned.releases
    keys = Keys(KeyFolder(folder / "keys"), [KeyFolder(planned.plan.folder / "offline-keys")])
    repository = Repository(folder, keys)
    repository.init()
    repository.add_family(FAMILY)
    pin = repository.add_bundle(FAMILY, first).pin
    now = datetime.now(UTC)
    repository.publish(
        DesiredState(
            group=GROUP, family=FAMILY, serial=1, issued_at=now, expires_at=now + _LIVES, champion=pin,
            candidate=None, stage=Stage.IDLE, shadow_share=0.0, run_share=0.0, salt="first",
            probation=Probation(10, 5.0), policy=None,
        )
    )  # fmt: skip


class DemoRollout:
    """Starts the rollout of the family's candidate, and says how it stands; the running cloud moves it. A context."""

    def __init__(self, config: Path, devices: Sequence[str], now_s: Callable[[], float]) -> None:
        """`now_s`: of the demo, for its marks."""
        self._config, self._devices, self._now_s = config, tuple(devices), now_s
        self._stack = ExitStack()
        self._began_at, self._began_s = datetime.now(UTC), now_s()

    def __enter__(self) -> Self:
        told = load_config(self._config)
        assert told.releases is not None
        assert told.rollouts is not None
        self._store = RolloutStore.open(told.store.address().database)
        self._stack.callback(self._store.close)
        registry = open_registry(told)
        self._stack.callback(registry.close)
        repository = open_repository(told.releases)
        shares = told.rollouts.plan_of(GROUP).stages
        self._salt = one_by_one(self._devices, [shares[each].share for each in (Stage.CANARY, Stage.QUARTER)])
        self._controller = RolloutController(
            self._store, SignedChannel(repository), None, RegistryAliases(registry), lambda: self._salt
        )
        self._starter = RolloutStarter(
            self._controller, repository, registry, told.rollouts.plan_of, told.rollouts.probation.probation()
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self) -> Rollout:
        """What `fovea rollout start` does."""
        started = self._starter.start(GROUP, "candidate", None, None, "the demo").rollout
        self._began_at, self._began_s = datetime.now(UTC), self._now_s()
        return started

    def now(self) -> Rollout:
        return self._store.newest(GROUP, 1)[0]

    def missing(self) -> str:
        """What it waits for, or nothing."""
        opinion = self._controller.opinion(self.now())
        return "" if opinion is None else "; ".join(opinion.reasons)

    def resume(self) -> None:
        """What a person does who looks at a pause and finds nothing wrong."""
        self._controller.resume(self.now().id, "the demo")

    def findings(self) -> RolloutFindings:
        rollout = self.now()
        moves = [
            Mark(self._seconds(move["at"]), str(move["stage"]), "; ".join(move["reasons"]))
            for move in self._store.moves(rollout.id)
        ]
        return RolloutFindings(rollout.status.value, rollout.stage.value, moves)

    def _seconds(self, at: datetime) -> float:
        return self._began_s + (at - self._began_at).total_seconds()


def one_by_one(devices: Sequence[str], shares: Sequence[float], tries: int = 10_000) -> str:
    """A salt by which each of the rising `shares` takes in one device more than the one before: with three devices
    chance would often take none, or all at once. Raises Incompatible where none is found."""
    for _ in range(tries):
        salt = secrets.token_hex(8)
        places = sorted(cohort_place(salt, device) for device in devices)
        if all(sum(place < share for place in places) == n for n, share in enumerate(shares, start=1)):
            return salt
    raise Incompatible(f"no salt takes {len(devices)} devices in one by one at {list(shares)}")
