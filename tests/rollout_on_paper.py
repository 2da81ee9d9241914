"""A rollout without disk, network or signatures: cameras that differ, days that change, reports, gather, decide."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np

from cloud.rollout.controller import LIVES_S
from cloud.rollout.deciding import Move, decide
from cloud.rollout.evidence import Report, gather
from cloud.rollout.plan import RolloutPlan
from cloud.rollout.rollout import Rollout, Status
from fovea.core.release import DesiredState, ModelPin, Phase, Probation, ReportedState, Stage
from fovea.sim.fleet_host import SimulatedHost, World
from fovea.sim.fleet_truth import FleetTruth, ModelTruth
from tests.fakes import FakeClock

OLD = ModelPin("models/street/street-1.fovea", "street", "1", "a" * 64)
NEW = ModelPin("models/street/street-2.fovea", "street", "2", "b" * 64)
_REPORT_EVERY_S = 300.0
_LOOK_EVERY_S = 150.0


@dataclass
class Camera:
    """One device: reports, and does what it heard when it reported last."""

    name: str
    host: SimulatedHost
    due_s: float
    heard: DesiredState | None = None

    def obey(self, desired: DesiredState) -> None:
        if self.heard is not None and self.heard.serial == desired.serial:
            return
        self.heard = desired
        assigned = desired.for_device(self.name)
        self.host.answer_with(assigned.run.ref)
        self.host.look_with(assigned.shadow.ref if assigned.shadow else None, assigned.shadow_share)

    def report(self, clock: FakeClock) -> ReportedState:
        health, evidence = self.host.health(), self.host.evidence()
        run = NEW if self.host.running == NEW.ref else OLD
        serial = 0 if self.heard is None else self.heard.serial
        return ReportedState(
            self.name, "yard", "1", "boot", clock.now(), True, serial, 1, run, run, Phase.COMMITTED, None,
            health, evidence.asked, evidence.agreement, evidence.shadow,
        )  # fmt: skip


def roll_out(
    new: ModelTruth,
    seed: int,
    devices: int = 60,
    plan: RolloutPlan = RolloutPlan(),
    old: ModelTruth = ModelTruth(),
    fleet: FleetTruth = FleetTruth(),
    lead_s: float = 3600.0,
    longest_s: float = 86_400.0,
    begin: Stage = Stage.SHADOW,
) -> Rollout:
    """The rollout when it is over, or as it stands after `longest_s`; one that went back keeps the stage that it went
    back from. lead_s: so long the fleet has run before. begin: in this stage, as if the earlier ones were passed."""
    rng = np.random.default_rng(seed)
    clock = FakeClock()
    clock.advance(float(rng.random()) * 86_400.0)
    world = World({"1": old, "2": new}, fleet, clock)
    began_s = clock.monotonic_s()
    cameras = [
        Camera(
            f"camera-{seed}-{number}",
            SimulatedHost(OLD.ref, fleet.camera(rng), world, np.random.default_rng((seed, number)), 0),
            began_s + float(rng.random()) * _REPORT_EVERY_S,
        )
        for number in range(devices)
    ]
    clock.advance(lead_s)
    reports = {each.name: Report(each.report(clock), clock.now()) for each in cameras}
    rollout = Rollout(
        "yard", "street", OLD, NEW, begin, Status.RUNNING, clock.now(), 2, str(seed), plan,
        Probation(0, 0.0), None, (),
    )  # fmt: skip
    reports = {name: replace(each, before=each.state) for name, each in reports.items()}
    end = clock.now() + timedelta(seconds=longest_s)
    while rollout.status is Status.RUNNING and clock.now() < end:
        clock.advance(_LOOK_EVERY_S)
        desired = rollout.desired(clock.now(), LIVES_S)
        for each in cameras:
            if each.due_s <= clock.monotonic_s():
                each.due_s = clock.monotonic_s() + _REPORT_EVERY_S
                each.obey(desired)
                reports[each.name] = replace(
                    reports[each.name], state=each.report(clock), received_at=clock.now()
                )
        after = _decided(rollout, list(reports.values()), clock)
        if after.serial != rollout.serial:
            reports = {name: replace(each, before=each.state) for name, each in reports.items()}
        rollout = after
    return rollout


def _decided(rollout: Rollout, reports: list[Report], clock: FakeClock) -> Rollout:
    now = clock.now()
    evidence = gather(rollout.desired(now, LIVES_S), reports, now, rollout.plan.silent_after_s)
    decision = decide(rollout.plan, rollout.stage, evidence, (now - rollout.since).total_seconds())
    if decision.move is Move.ADVANCE:
        return rollout.advanced(now, decision.reasons)
    if decision.move is Move.BACK:
        return replace(rollout.rolled_back(now, decision.reasons), stage=rollout.stage)
    if decision.move is Move.PAUSE:
        return rollout.paused(decision.reasons)
    return rollout


def has_reached_all(rollout: Rollout) -> bool:
    """Every device was told to run the new model."""
    return rollout.stage is Stage.ALL or rollout.status is Status.DONE
