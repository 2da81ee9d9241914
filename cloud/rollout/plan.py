"""How a rollout goes up: its stages, what each has to show, and how long it may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Self

from fovea.core.errors import Malformed
from fovea.core.json_form import from_json_form, to_json_form
from fovea.core.release import Stage

ORDER = (Stage.SHADOW, Stage.CANARY, Stage.QUARTER, Stage.ALL)


@dataclass(frozen=True, slots=True)
class StagePlan:
    """What one stage has to show before the next begins.

    share: of the devices (of the frames, in shadow). min_devices: of the cohort that reported what they run.
    min_frames: looked at by the new model since the stage began, all devices together. min_s: however good the news.
    deadline_s: then it pauses, and a person decides.
    """

    share: float
    min_devices: int = 1
    min_frames: int = 500
    min_s: float = 600.0
    deadline_s: float = 7 * 86_400.0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise Malformed(f"rollout stage share: expected more than 0 and at most 1, got {self.share}")
        if self.min_devices < 1 or self.min_frames < 0 or self.min_s < 0 or self.deadline_s <= self.min_s:
            raise Malformed(
                "rollout stage: expected min_devices >= 1, min_frames >= 0 and 0 <= min_s < deadline_s, got "
                f"{self.min_devices}, {self.min_frames}, {self.min_s:g} and {self.deadline_s:g}"
            )


def _usual_stages() -> Mapping[Stage, StagePlan]:
    return MappingProxyType(
        {
            Stage.SHADOW: StagePlan(0.2),
            Stage.CANARY: StagePlan(0.05),
            Stage.QUARTER: StagePlan(0.25),
            Stage.ALL: StagePlan(1.0),
        }
    )


@dataclass(frozen=True, slots=True)
class HarmRules:
    """What counts as harm; see RolloutPlan."""

    alpha: float = 0.05
    worse_by: float = 0.03
    max_failed: int = 1
    max_failed_share: float = 0.02
    latency_ratio: float = 1.3
    asked_ratio: float = 1.5
    asked_slack: float = 0.1
    silent_after_s: float = 900.0


@dataclass(frozen=True, slots=True)
class RolloutPlan(HarmRules):
    """All stages, and what counts as harm.

    alpha: chance, over the whole of one stage, to see a harm or a gain that is not there. worse_by: agreement with
    the tier above (0..1) that may be lost and still counts as no worse. max_failed, max_failed_share: devices of the
    cohort that stepped back, refused or restarted again and again; harm when both are exceeded, or half the cohort
    failed. latency_ratio: of the median p95 latency, against what it would be without the new model; asked_ratio,
    asked_slack: of the asked rate, whichever allows more. silent_after_s: a device that has not reported for so long
    is away and not waited for.
    """

    stages: Mapping[Stage, StagePlan] = field(default_factory=_usual_stages)

    def __post_init__(self) -> None:
        if set(self.stages) != set(ORDER):
            raise Malformed(f"rollout: expected the stages {', '.join(ORDER)}, got {', '.join(self.stages)}")
        shares = [self.stages[stage].share for stage in ORDER[1:]]
        if shares != sorted(shares) or shares[-1] != 1:
            raise Malformed(f"rollout: expected shares that rise to 1, got {shares}")
        if not 0 < self.alpha < 1 or not 0 <= self.worse_by < 1:
            raise Malformed(
                f"rollout: expected 0 < alpha < 1 and 0 <= worse_by < 1, got {self.alpha}, {self.worse_by}"
            )

    def to_json(self) -> dict[str, Any]:
        form: dict[str, Any] = to_json_form(self)
        return form

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Raises Malformed and names the field. Stages that are not named are as usual."""
        if not isinstance(value, Mapping) or not isinstance(value.get("stages", {}), Mapping):
            raise Malformed("rollout plan: expected an object, with stages by name")
        unknown = sorted(set(value.get("stages", {})) - {stage.value for stage in ORDER})
        if unknown:
            raise Malformed(f"rollout plan: unknown stage {unknown[0]!r:.40}; known are {', '.join(ORDER)}")
        named = {
            Stage(name): from_json_form(StagePlan, plan, f"rollout plan.{name}")
            for name, plan in value.get("stages", {}).items()
        }
        rest = from_json_form(HarmRules, {k: v for k, v in value.items() if k != "stages"}, "rollout plan")
        return cls(
            stages=MappingProxyType({**_usual_stages(), **named}),
            **{each.name: getattr(rest, each.name) for each in fields(rest)},
        )

    def after(self, stage: Stage) -> Stage | None:
        """The next stage; None after the last."""
        place = ORDER.index(stage) + 1
        return ORDER[place] if place < len(ORDER) else None
