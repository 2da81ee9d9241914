"""What a round of learning is: its plan, its steps in order, and what is known of one that has begun."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from cloud.learn.distil import Mode
from cloud.learn.promotion import Verdict
from fovea.core.errors import Malformed


class Step(StrEnum):
    """The steps of a round, in their order."""

    SELECT = "select"
    LABEL = "label"
    SNAPSHOT = "snapshot"
    DISTIL = "distil"
    QUANTIZE = "quantize"
    SCORES = "scores"
    GATE = "gate"
    JUDGE = "judge"
    REGISTER = "register"


class RoundState(StrEnum):
    """running: at work, or killed and to be gone on with. failed: it could not be brought to a verdict."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """All that is decided before a round begins.

    site, condition  whose cameras, and what is to be taught; no condition: all that is new since the round before
    why              a trigger's reason, or that a person wanted it
    minutes, epochs  when the training is over: wall clock, or turns through its images, whichever is given
    new, replay      cases at most that show what is new, and others that keep the past in mind
    fit_share        share of the labelled cases that is kept from training, to fit scores and gate on
    recipes          how many INT8 recipes are tried at most
    """

    site: str = "default"
    condition: str | None = None
    why: str = "by hand"
    mode: Mode = Mode.PSEUDO_KD
    minutes: float | None = 4.0
    epochs: float | None = None
    seed: int = 0
    new: int = 300
    replay: int = 300
    fit_share: float = 0.2
    recipes: int = 4

    def __post_init__(self) -> None:
        ends = [end for end in (self.minutes, self.epochs) if end is not None]
        if not ends or not min(ends) > 0:
            raise Malformed(f"round: expected minutes or epochs above 0, got {self.minutes}, {self.epochs}")
        if self.new < 1 or self.replay < 0 or self.recipes < 1:
            raise Malformed(
                "round: expected at least 1 new case, 1 recipe and 0 cases of the past, got "
                f"{self.new}, {self.recipes}, {self.replay}"
            )
        if not 0 < self.fit_share < 1:
            raise Malformed(f"round fit_share: expected more than 0 and less than 1, got {self.fit_share}")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RoundPlan:
        """The plan that `to_json` wrote. Raises Malformed for another one."""
        known = {field.name for field in fields(cls)}
        if set(data) != known:
            raise Malformed(f"round plan: expected {', '.join(sorted(known))}, got {sorted(data)}")
        return cls(**{**data, "mode": Mode(data["mode"])})


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step found: a sentence for people, and figures and file names (relative to the round's folder)."""

    said: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A step that has begun; `result` is None until it is done."""

    step: Step
    began_at: datetime
    ended_at: datetime | None
    spent_s: float | None
    result: StepResult | None


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """A round as it is kept; digests of manifests name its champion and its candidate."""

    id: str
    plan: RoundPlan
    state: RoundState
    began_at: datetime
    ended_at: datetime | None
    champion: str | None
    candidate: str | None
    verdict: Verdict | None
    reasons: tuple[str, ...]
    steps: tuple[StepRecord, ...]

    @property
    def results(self) -> dict[Step, StepResult]:
        """Of the steps that are done."""
        return {each.step: each.result for each in self.steps if each.result is not None}

    @property
    def spent_s(self) -> float:
        """Seconds of work in steps that are done; pauses between two processes do not count."""
        return sum(each.spent_s or 0.0 for each in self.steps)
