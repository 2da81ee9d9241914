"""One candidate on its way to a group of devices, as a value; every step gives a new one with a higher serial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from cloud.rollout.plan import ORDER, RolloutPlan
from fovea.core.errors import Incompatible, Malformed
from fovea.core.release import DesiredState, ModelPin, Probation, Stage, check_name


class Status(StrEnum):
    """RUNNING moves by evidence, PAUSED waits for a person; DONE and BACK are over."""

    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    BACK = "back"


OPEN = (Status.RUNNING, Status.PAUSED)


@dataclass(frozen=True, slots=True)
class Rollout:
    """`since`: when this stage began; `serial`: of the desired state that carries it; `is_published`: whether it is
    known to be out; `reasons`: why it stands as it does. `id` is 0 until it is kept."""

    group: str
    family: str
    champion: ModelPin
    candidate: ModelPin
    stage: Stage
    status: Status
    since: datetime
    serial: int
    salt: str
    plan: RolloutPlan
    probation: Probation
    policy: Mapping[str, Any] | None
    reasons: tuple[str, ...]
    is_published: bool = False
    id: int = 0

    def __post_init__(self) -> None:
        check_name("rollout group", self.group)
        if self.champion.sha256 == self.candidate.sha256:
            raise Malformed("rollout: expected a candidate other than the champion, got the same model")
        for pin in (self.champion, self.candidate):
            if pin.family != self.family:
                raise Malformed(f"rollout: expected models of {self.family}, got {pin.target}")

    @property
    def is_open(self) -> bool:
        return self.status in OPEN

    def advanced(self, now: datetime, reasons: tuple[str, ...]) -> Rollout:
        """In its next stage, or done: then the candidate is the champion, and a step back needs no serial."""
        self._check_open("go on")
        following = self.plan.after(self.stage)
        if following is None:
            return self._moved(Stage.IDLE, Status.DONE, now, reasons)
        return self._moved(following, Status.RUNNING, now, reasons)

    def rolled_back(self, now: datetime, reasons: tuple[str, ...]) -> Rollout:
        """Everybody has to run the old model again, by a new and higher serial. Also possible after it was done."""
        if self.status is Status.BACK:
            raise Incompatible(f"rollout {self.id} has gone back already")
        return self._moved(Stage.BACK, Status.BACK, now, reasons)

    def paused(self, reasons: tuple[str, ...]) -> Rollout:
        """The stage stays as it is: no new serial."""
        self._check_open("be paused")
        return replace(self, status=Status.PAUSED, reasons=reasons)

    def resumed(self, now: datetime, reasons: tuple[str, ...]) -> Rollout:
        """The stage has its whole time again."""
        if self.status is not Status.PAUSED:
            raise Incompatible(f"rollout {self.id}: expected one that is paused, it is {self.status.value}")
        return replace(self, status=Status.RUNNING, since=now, reasons=reasons)

    def desired(self, now: datetime, lives_s: float) -> DesiredState:
        """What the devices are told in this stage; it expires after `lives_s`, and is then to be told again."""
        is_done, is_back = self.status is Status.DONE, self.status is Status.BACK
        is_over = is_done or is_back
        wanted = self.plan.stages.get(self.stage)
        share = 0.0 if wanted is None else wanted.share
        return DesiredState(
            group=self.group,
            family=self.family,
            serial=self.serial,
            issued_at=now,
            expires_at=now + timedelta(seconds=lives_s),
            champion=self.candidate if is_done else self.champion,
            candidate=None if is_over else self.candidate,
            stage=self.stage,
            shadow_share=share if self.stage is Stage.SHADOW else 0.0,
            run_share=share if self.stage in ORDER[1:] else 0.0,
            salt=self.salt,
            probation=self.probation,
            policy=self.policy,
        )

    def _moved(self, stage: Stage, status: Status, now: datetime, reasons: tuple[str, ...]) -> Rollout:
        return replace(
            self,
            stage=stage,
            status=status,
            since=now,
            serial=self.serial + 1,
            reasons=reasons,
            is_published=False,
        )

    def _check_open(self, what: str) -> None:
        if not self.is_open:
            raise Incompatible(f"rollout {self.id} is over ({self.status.value}) and cannot {what}")
