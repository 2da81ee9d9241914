"""What the cloud is told about when rounds of learning begin by themselves."""

from __future__ import annotations

from datetime import datetime, time
from typing import Annotated, Self

from pydantic import Field, model_validator

from cloud.learn.triggers import TriggerSettings
from fovea.core.errors import Malformed
from fovea.core.release import check_name
from fovea.process.config_parts import Part

_DAY_S = 86_400.0
_HOUR_S = 3600.0


class QuietHours(Part):
    """The time of the day in which rounds may begin; over midnight where `end` is earlier."""

    begin: Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]
    """HH:MM, in the time zone of `store.time_zone`"""
    end: Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]
    """HH:MM"""

    def hold(self, local: datetime) -> bool:
        """Whether `local`, a time where the cameras are, is one of them; the same twice: always."""
        begin, end, now = time.fromisoformat(self.begin), time.fromisoformat(self.end), local.time()
        if begin == end:
            return True
        return begin <= now < end if begin < end else now >= begin or now < end


class TriggersConfig(Part):
    """When `fovea cloud` begins rounds of learning by itself."""

    site: str = "default"
    """whose cameras: one of `sites`, or default"""
    new_cases: Annotated[int, Field(ge=1)] | None = TriggerSettings().new_cases
    """so many since the last round call for one; null: they never do"""
    drift: bool = True
    """a change of the asked rate, or of the agreement on random audits, calls for one"""
    every_days: Annotated[float, Field(gt=0)] | None = 7.0
    """so long after the last one comes the next; null: there is no schedule"""
    least_cases: Annotated[int, Field(ge=0)] = TriggerSettings().least_cases
    """fewer new ones are nothing to learn from"""
    least_pause_hours: Annotated[float, Field(ge=0)] = 6.0
    """from one round to the next"""
    failed_pause_hours: Annotated[float, Field(ge=0)] = 1.0
    """after one that failed, doubled for each further failure"""
    quiet_hours: QuietHours | None = None
    """rounds begin in these hours only; at any time when it is left out"""
    look_every_s: Annotated[float, Field(ge=0.1, le=86_400)] = 60.0
    """how often it is looked whether a round is due"""
    rollout_to: list[str] = Field(default_factory=list)
    """groups of devices to which a model that the round has promoted is rolled out at once; nobody when it is empty:
    a person does it (`fovea rollout start`)"""

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            for group in self.rollout_to:
                check_name("rollout_to", group)
        except Malformed as error:
            raise ValueError(str(error)) from error
        return self

    def settings(self) -> TriggerSettings:
        """When a round is due."""
        return TriggerSettings(
            new_cases=self.new_cases,
            every_s=None if self.every_days is None else self.every_days * _DAY_S,
            least_cases=self.least_cases,
            least_pause_s=self.least_pause_hours * _HOUR_S,
            failed_pause_s=self.failed_pause_hours * _HOUR_S,
        )
