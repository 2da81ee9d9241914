"""Rollouts step by step: kept before published, gone on with after a restart, back by themselves."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cloud.rollout.controller import LIVES_S, RolloutController
from cloud.rollout.plan import ORDER, RolloutPlan, StagePlan
from cloud.rollout.rollout import Rollout, Status
from cloud.rollout.store import RolloutStore
from fovea.core.errors import Incompatible, Malformed, NotFound, StoreCorrupt, Unavailable
from fovea.core.release import (
    Agreement,
    Asked,
    DesiredState,
    Health,
    ModelPin,
    Phase,
    ReportedState,
    ShadowReport,
    Stage,
)

OLD = ModelPin("models/street/street-1.fovea", "street", "1", "a" * 64)
NEW = ModelPin("models/street/street-2.fovea", "street", "2", "b" * 64)
QUICK = RolloutPlan(
    stages={
        stage: StagePlan(share, min_frames=10, min_s=60, deadline_s=3600)
        for stage, share in zip(ORDER, (0.2, 0.15, 0.4, 1.0), strict=True)
    }
)


def shadow_report(frames: int, d: float) -> ShadowReport:
    n = 50.0
    return ShadowReport(NEW.sha256, frames, 0, 31.0, 0.9, 50, n, n * d, n * (d**2 + 0.01), n)


class World:
    """A clock, a channel that can be away, and devices that do as they are told."""

    def __init__(self, folder: Path) -> None:
        self.now = datetime(2026, 5, 1, tzinfo=UTC)
        self.database = f"sqlite:///{folder / 'cloud.sqlite'}"
        self.published: list[DesiredState] = []
        self.is_away = False
        self.looks: list[tuple[str, int]] = []
        self.champions: list[ModelPin] = []
        self.returned: list[ModelPin] = []
        self.store = RolloutStore(RolloutStore.open(self.database)._engine, lambda: self.now)
        self.controller = RolloutController(self.store, self, self, self, lambda: "salt")

    def restart(self) -> None:
        """Another process on the same files."""
        self.store.close()
        self.store = RolloutStore(RolloutStore.open(self.database)._engine, lambda: self.now)
        self.controller = RolloutController(self.store, self, self, self, lambda: "salt")

    def current(self, group: str) -> DesiredState | None:
        return next((each for each in reversed(self.published) if each.group == group), None)

    def publish(self, desired: DesiredState) -> None:
        if self.is_away:
            raise Unavailable("the folder of releases is away")
        before = self.current(desired.group)
        assert before is None or desired.serial > before.serial
        self.published.append(desired)

    def look(self, group: str, devices: list[str]) -> None:
        self.looks.append((group, len(devices)))

    def champion_is(self, pin: ModelPin) -> None:
        self.champions.append(pin)

    def candidate_went_back(self, pin: ModelPin) -> None:
        self.returned.append(pin)

    def obey(self, mean_of_new: float = 0.9, frames: int = 1000, shadow: float = 0.05) -> None:
        """Every device reports what it was told to run, and how that goes."""
        desired = self.current("default")
        for index in range(40):
            device = f"camera-{index}"
            run = OLD if desired is None else desired.for_device(device).run
            watched = None if desired is None else desired.for_device(device).shadow
            mean = 0.8 if run == OLD else mean_of_new
            n = frames // 5
            self.controller.take(
                ReportedState(
                    device, "default", "0.1.0", "boot", self.now, True, desired.serial if desired else 0, 1, run, OLD,
                    Phase.COMMITTED, None, Health(frames, 0, 30.0, 200.0, 9.0), Asked(frames, frames // 5),
                    Agreement(run.sha256, n, float(n), n * mean, n * (mean**2 + 0.01), float(n)),
                    None if watched is None else shadow_report(frames, shadow),
                )
            )  # fmt: skip

    def pass_by(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def begin(self) -> Rollout:
        self.obey(frames=0)
        return self.controller.start("default", OLD, NEW, QUICK)

    def step(self, **how: float) -> Rollout:
        """Time passes, devices report, the controller looks once."""
        self.pass_by(120)
        self.obey(**how)  # type: ignore[arg-type]
        self.controller.tick()
        return self.store.newest("default", 1)[0]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.store.close()


def test_a_good_model_goes_from_shadow_to_all_and_is_champion(world: World) -> None:
    world.begin()
    seen = [(world.step(frames=1000 * n).stage, world.current("default")) for n in range(1, 5)]
    assert [stage for stage, _ in seen] == [Stage.CANARY, Stage.QUARTER, Stage.ALL, Stage.IDLE]
    assert world.store.newest()[0].status is Status.DONE
    last = world.published[-1]
    assert (last.champion, last.candidate, last.stage) == (NEW, None, Stage.IDLE)
    assert [each.serial for each in world.published] == [1, 2, 3, 4, 5]
    assert world.champions == [NEW] and world.returned == []
    assert world.looks[-1] == ("default", 40)


def test_a_bad_model_never_gets_beyond_the_shadow(world: World) -> None:
    world.begin()
    rollout = world.step(shadow=-0.3)
    assert (rollout.stage, rollout.status) == (Stage.BACK, Status.BACK)
    assert "agreement" in rollout.reasons[0]
    assert world.current("default").champion == OLD  # type: ignore[union-attr]
    assert world.returned == [NEW]


def test_a_model_that_turns_bad_on_a_quarter_is_taken_back_from_all_of_them(world: World) -> None:
    world.begin()
    world.step(frames=1000)
    assert world.step(frames=2000).stage is Stage.QUARTER
    assert world.step(frames=3000, mean_of_new=0.2).status is Status.BACK
    assert {world.current("default").for_device(f"camera-{i}").run for i in range(40)} == {OLD}  # type: ignore[union-attr]


def test_a_cut_between_keeping_and_publishing_is_made_good_after_a_restart(world: World) -> None:
    world.begin()
    world.is_away = True
    assert world.step(frames=1000).stage is Stage.CANARY
    assert len(world.published) == 1
    world.restart()
    world.is_away = False
    world.controller.tick()
    assert (world.published[-1].stage, world.published[-1].serial) == (Stage.CANARY, 2)
    world.controller.tick()
    assert len(world.published) == 2


def test_a_restart_in_the_middle_of_a_stage_forgets_nothing(world: World) -> None:
    world.begin()
    world.step(frames=1000)
    world.restart()
    assert world.step(frames=2000).stage is Stage.QUARTER


def test_a_serial_that_is_out_already_is_never_used_for_something_else(world: World) -> None:
    """The database was put back from a backup: the channel is further than it knows."""
    rollout = world.begin()
    world.publish(replace(world.published[-1], serial=9))
    world.restart()
    with sqlite3.connect(world.database.removeprefix("sqlite:///")) as database:
        database.execute("UPDATE rollouts SET is_published = 0")
    world.controller.tick()
    assert world.published[-1].serial == 10
    assert world.store.get(rollout.id).serial == 10


def test_two_rollouts_of_one_group_are_refused(world: World) -> None:
    first = world.begin()
    with pytest.raises(Incompatible, match=f"rollout {first.id} is still running"):
        world.controller.start("default", OLD, NEW, QUICK)


def test_a_person_can_pause_and_resume(world: World) -> None:
    rollout = world.begin()
    world.controller.pause(rollout.id, "ann", "the weather is odd")
    assert world.step(frames=1000).status is Status.PAUSED
    assert len(world.published) == 1
    resumed = world.controller.resume(rollout.id, "ann")
    assert resumed.since == world.now
    assert world.step(frames=2000).stage is Stage.CANARY
    assert [move["by"] for move in world.store.moves(rollout.id)] == ["a person", "ann", "ann", "evidence"]


def test_silence_pauses_at_the_deadline(world: World) -> None:
    world.begin()
    world.pass_by(3601)
    world.controller.tick()
    rollout = world.store.newest()[0]
    assert (rollout.stage, rollout.status) == (Stage.SHADOW, Status.PAUSED)
    assert "no verdict within 3600 s" in rollout.reasons


def test_a_person_can_roll_back_even_after_it_was_done(world: World) -> None:
    rollout = world.begin()
    for n in range(1, 5):
        world.step(frames=1000 * n)
    back = world.controller.roll_back(rollout.id, "ann", "cars are seen as buses")
    assert back.serial == 6
    assert world.current("default").champion == OLD  # type: ignore[union-attr]
    with pytest.raises(Incompatible, match="gone back already"):
        world.controller.roll_back(rollout.id, "ann", "again")


def test_only_the_newest_rollout_of_a_group_can_go_back(world: World) -> None:
    first = world.begin()
    world.controller.roll_back(first.id, "ann", "no")
    second = world.controller.start("default", OLD, NEW, QUICK)
    with pytest.raises(Incompatible, match=f"newer one exists in its group \\({second.id}\\)"):
        world.controller.roll_back(first.id, "ann", "no")


def test_what_devices_are_told_is_signed_again_before_it_expires(world: World) -> None:
    world.begin()
    world.controller.pause(1, "ann", "holiday")
    world.pass_by(LIVES_S * 0.6)
    world.controller.tick()
    renewed = world.published[-1]
    assert (renewed.serial, renewed.stage) == (2, Stage.SHADOW)
    assert renewed.expires_at > world.now
    world.controller.tick()
    assert len(world.published) == 2


def test_evidence_of_the_stage_before_does_not_count_in_the_next(world: World) -> None:
    world.begin()
    world.step(frames=1000)
    world.pass_by(120)
    world.obey(frames=1000)  # not one frame more than when the stage began
    [decision] = world.controller.tick()
    assert "0 of 10 frames looked at" in decision.reasons


def test_a_step_by_somebody_else_meanwhile_is_seen(world: World) -> None:
    rollout = world.begin()
    world.store.save(rollout.advanced(world.now, ("x",)), rollout, "ann")
    with pytest.raises(Incompatible, match="somebody else moved it"):
        world.store.save(rollout.rolled_back(world.now, ("y",)), rollout, "bob")


def test_a_pause_by_a_person_is_not_overwritten_by_a_step_that_was_decided_before(world: World) -> None:
    rollout = world.begin()
    world.controller.pause(rollout.id, "ann", "wait")
    with pytest.raises(Incompatible, match="now paused"):
        world.store.save(rollout.advanced(world.now, ("x",)), rollout, "evidence")
    assert world.store.get(rollout.id).status is Status.PAUSED


def test_a_cut_before_the_registry_was_told_is_made_good_after_a_restart(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.begin()
    for n in range(1, 4):
        world.step(frames=1000 * n)

    def cut(pin: ModelPin) -> None:
        raise Unavailable("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(world, "champion_is", cut)
        assert world.step(frames=4000).status is Status.DONE
    assert world.champions == []
    world.restart()
    world.controller.tick()
    assert world.champions == [NEW]
    assert [each.serial for each in world.published] == [1, 2, 3, 4, 5]


def test_a_rollout_that_does_not_exist_is_named(world: World) -> None:
    with pytest.raises(NotFound, match="rollout 7 does not exist; known are none"):
        world.store.get(7)


def test_a_candidate_that_is_the_champion_is_refused(world: World) -> None:
    with pytest.raises(Malformed, match="other than the champion"):
        world.controller.start("default", OLD, OLD)


def test_rows_that_make_no_sense_are_corrupt_and_named(world: World) -> None:
    world.begin()
    with sqlite3.connect(world.database.removeprefix("sqlite:///")) as database:
        database.execute("UPDATE rollouts SET stage = 'flying'")
    with pytest.raises(StoreCorrupt, match="rollout 1"):
        world.store.get(1)


def test_a_plan_survives_json_and_names_what_is_wrong() -> None:
    assert RolloutPlan.from_json(QUICK.to_json()) == QUICK
    assert RolloutPlan.from_json({"alpha": 0.1}).alpha == 0.1
    with pytest.raises(Malformed, match="unknown stage 'flying'"):
        RolloutPlan.from_json({"stages": {"flying": {"share": 0.1}}})
    with pytest.raises(Malformed, match="alphas"):
        RolloutPlan.from_json({"alphas": 0.1})
