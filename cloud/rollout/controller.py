"""Moves rollouts: keeps what devices report, decides from it, keeps the step, and only then tells the devices.

A step is kept before it is published, and published again until it is known to be out: a restart at any moment
repeats what may not have happened, under the same serial.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

from cloud.rollout.deciding import Decision, Move, decide
from cloud.rollout.evidence import Evidence, gather
from cloud.rollout.plan import ORDER, RolloutPlan
from cloud.rollout.rollout import Rollout, Status
from cloud.rollout.store import BY_EVIDENCE, RolloutStore
from fovea.core.errors import FoveaError, Incompatible
from fovea.core.release import DesiredState, ModelPin, Probation, ReportedState

_log = logging.getLogger(__name__)

LIVES_S = 7 * 86_400.0
"""How long a device may act on a desired state without hearing of a newer one."""


class Channel(Protocol):
    """Where desired states are signed and published. Raises FoveaErrors."""

    def current(self, group: str) -> DesiredState | None: ...

    def publish(self, desired: DesiredState) -> None: ...


class Fleet(Protocol):
    """A word to devices that there is something to look at; it may get lost."""

    def look(self, group: str, devices: list[str]) -> None: ...


class Registry(Protocol):
    """Told when a candidate became the champion of its family, or went back."""

    def champion_is(self, pin: ModelPin) -> None: ...

    def candidate_went_back(self, pin: ModelPin) -> None: ...


class RolloutController:
    """One per cloud. `tick` is called every few seconds; a person's commands may come from other processes."""

    def __init__(
        self,
        store: RolloutStore,
        channel: Channel,
        fleet: Fleet | None = None,
        registry: Registry | None = None,
        new_salt: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self._store = store
        self._channel = channel
        self._fleet = fleet
        self._registry = registry
        self._new_salt = new_salt

    def take(self, report: ReportedState) -> None:
        """Keeps what a device said."""
        self._store.keep_report(report)

    def start(
        self,
        group: str,
        champion: ModelPin,
        candidate: ModelPin,
        plan: RolloutPlan = RolloutPlan(),
        probation: Probation = Probation(200, 60.0),
        policy: Mapping[str, Any] | None = None,
        by: str = "a person",
    ) -> Rollout:
        """Begins in shadow. Raises Incompatible while another rollout of the group is open."""
        current = self._channel.current(group)
        first = Rollout(
            group=group,
            family=candidate.family,
            champion=champion,
            candidate=candidate,
            stage=ORDER[0],
            status=Status.RUNNING,
            since=self._store.now(),
            serial=1 if current is None else current.serial + 1,
            salt=self._new_salt(),
            plan=plan,
            probation=probation,
            policy=policy,
            reasons=(f"begun by {by}",),
        )
        rollout = self._store.add(first, by)
        self._publish(rollout)
        return rollout

    def tick(self) -> list[Decision]:
        """Looks at every group once. What fails for one group is logged and tried again the next time."""
        decisions = []
        for rollout in self._store.latest():
            try:
                decision = self._look_at(rollout)
            except FoveaError as error:
                _log.error("rollout %d of group %s: %s", rollout.id, rollout.group, error)
                continue
            if decision is not None:
                decisions.append(decision)
        return decisions

    def evidence(self, rollout: Rollout) -> Evidence:
        """What its devices have shown in this stage."""
        now = self._store.now()
        return gather(
            rollout.desired(now, LIVES_S),
            self._store.reports(rollout.group),
            now,
            rollout.plan.silent_after_s,
        )

    def opinion(self, rollout: Rollout) -> Decision | None:
        """What would be decided now; None for one that is over."""
        if not rollout.is_open:
            return None
        in_stage_s = (self._store.now() - rollout.since).total_seconds()
        return decide(rollout.plan, rollout.stage, self.evidence(rollout), in_stage_s)

    def pause(self, rollout_id: int, by: str, why: str) -> Rollout:
        rollout = self._store.get(rollout_id)
        return self._store.save(rollout.paused((why,)), rollout, by)

    def resume(self, rollout_id: int, by: str) -> Rollout:
        rollout = self._store.get(rollout_id)
        resumed = rollout.resumed(self._store.now(), (f"resumed by {by}",))
        return self._store.save(resumed, rollout, by)

    def roll_back(self, rollout_id: int, by: str, why: str) -> Rollout:
        """Raises Incompatible when a newer rollout of the group exists: that one is to be rolled back."""
        rollout = self._store.get(rollout_id)
        newest = self._store.newest(rollout.group, 1)[0]
        if newest.id != rollout.id:
            raise Incompatible(f"rollout {rollout.id}: a newer one exists in its group ({newest.id})")
        return self._go(rollout, rollout.rolled_back(self._store.now(), (why,)), by)

    def _look_at(self, rollout: Rollout) -> Decision | None:
        if not rollout.is_published or self._needs_renewal(rollout):
            rollout = self._publish(rollout)
        if rollout.status is not Status.RUNNING:
            return None
        decision = self.opinion(rollout)
        if decision is None or decision.move is Move.STAY:
            return decision
        now = self._store.now()
        if decision.move is Move.PAUSE:
            self._store.save(rollout.paused(decision.reasons), rollout, BY_EVIDENCE)
        elif decision.move is Move.BACK:
            self._go(rollout, rollout.rolled_back(now, decision.reasons), BY_EVIDENCE)
        else:
            self._go(rollout, rollout.advanced(now, decision.reasons), BY_EVIDENCE)
        return decision

    def _go(self, before: Rollout, after: Rollout, by: str) -> Rollout:
        kept = self._store.save(after, before, by)
        _log.warning(
            "rollout %d of %s: %s to %s: %s",
            kept.id, kept.group, before.stage.value, kept.stage.value, "; ".join(kept.reasons),
        )  # fmt: skip
        return self._publish(kept)

    def _publish(self, rollout: Rollout) -> Rollout:
        """Under its serial, or a higher one of the same content where that serial is out and about to expire. What is
        broken off here is done again by the next tick: nothing is marked before all is done."""
        now = self._store.now()
        current = self._channel.current(rollout.group)
        is_out = current is not None and current.serial == rollout.serial and not _is_old(current, now)
        if not is_out:
            if current is not None and current.serial >= rollout.serial:
                rollout = self._store.renumber(rollout, current.serial + 1)
            self._channel.publish(rollout.desired(now, LIVES_S))
        self._tell_registry(rollout)
        self._store.mark_published(rollout)
        if self._fleet is not None and not is_out:
            devices = [each.state.device for each in self._store.reports(rollout.group)]
            self._fleet.look(rollout.group, devices)
        return replace(rollout, is_published=True)

    def _tell_registry(self, rollout: Rollout) -> None:
        if self._registry is None or rollout.is_published:
            return
        if rollout.status is Status.DONE:
            self._registry.champion_is(rollout.candidate)
        elif rollout.status is Status.BACK:
            self._registry.candidate_went_back(rollout.candidate)

    def _needs_renewal(self, rollout: Rollout) -> bool:
        current = self._channel.current(rollout.group)
        return current is None or (current.serial <= rollout.serial and _is_old(current, self._store.now()))


def _is_old(desired: DesiredState, now: datetime) -> bool:
    """Past the middle of its life."""
    return (now - desired.issued_at).total_seconds() > LIVES_S / 2
