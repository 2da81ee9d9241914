"""When a round of learning is due, and why: decides on facts, and does nothing itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from fovea.core.errors import Malformed


class TriggerKind(StrEnum):
    """What calls for a round; where several do, the first of these is told."""

    PERSON = "person"
    DRIFT = "drift"
    NEW_CASES = "new_cases"
    SCHEDULE = "schedule"


@dataclass(frozen=True, slots=True)
class Trigger:
    """A round is due. `reason`: one sentence for people and logs."""

    kind: TriggerKind
    reason: str


@dataclass(frozen=True, slots=True)
class TriggerSettings:
    """new_cases: so many since the last round call for one; None: they never do. every_s: so long after the last one;
    None: there is no schedule. least_cases: fewer are nothing to learn from, whatever calls but a person.
    least_pause_s: from one round to the next, unless a person asks. failed_pause_s: after one that failed, doubled
    for each further failure, up to a week."""

    new_cases: int | None = 500
    every_s: float | None = 7 * 86_400.0
    least_cases: int = 50
    least_pause_s: float = 6 * 3600.0
    failed_pause_s: float = 3600.0

    def __post_init__(self) -> None:
        counts_are_sound = self.least_cases >= 0 and (self.new_cases is None or self.new_cases >= 1)
        times_are_sound = (
            self.least_pause_s >= 0
            and self.failed_pause_s >= 0
            and (self.every_s is None or self.every_s > 0)
        )
        if not (counts_are_sound and times_are_sound):
            raise Malformed(f"trigger settings: expected counts and times above 0, got {self}")


@dataclass(frozen=True, slots=True)
class TriggerFacts:
    """What is known. begun_at: when this family began to be watched. last_round_at: when the last round ended,
    however it did; failures: how many rounds have failed in a row. cases: new ones since the last round that
    succeeded. drifted: what has drifted, in words. asked_by: the person who wants a round."""

    begun_at: datetime
    cases: int
    last_round_at: datetime | None = None
    failures: int = 0
    is_running: bool = False
    drifted: tuple[str, ...] = ()
    asked_by: str | None = None

    def __post_init__(self) -> None:
        instants = (self.begun_at, self.last_round_at)
        if any(instant is not None and instant.tzinfo is None for instant in instants):
            raise Malformed("trigger facts: expected times with a zone, got one without")
        if self.cases < 0 or self.failures < 0:
            raise Malformed(
                f"trigger facts: expected 0 or more, got {self.cases} cases, {self.failures} failures"
            )


_LONGEST_PAUSE_S = 7 * 86_400.0


def due(now: datetime, facts: TriggerFacts, settings: TriggerSettings = TriggerSettings()) -> Trigger | None:
    """The trigger of the round that should begin now; None: not yet. Rounds never overlap, not even for a person."""
    if facts.is_running:
        return None
    if facts.asked_by is not None:
        return Trigger(TriggerKind.PERSON, f"asked for by {facts.asked_by}")
    if facts.cases < settings.least_cases or now < rests_until(facts, settings):
        return None
    if facts.drifted:
        return Trigger(TriggerKind.DRIFT, f"drift: {'; '.join(facts.drifted)}")
    if settings.new_cases is not None and facts.cases >= settings.new_cases:
        return Trigger(TriggerKind.NEW_CASES, f"{facts.cases} new cases, {settings.new_cases} are enough")
    if settings.every_s is not None:
        waited_s = (now - (facts.last_round_at or facts.begun_at)).total_seconds()
        if waited_s >= settings.every_s:
            return Trigger(TriggerKind.SCHEDULE, f"{waited_s / 86_400:.1f} days since the last round")
    return None


def rests_until(facts: TriggerFacts, settings: TriggerSettings) -> datetime:
    """Until then nothing but a person calls for a round."""
    if facts.last_round_at is None:
        return facts.begun_at
    pause_s = settings.least_pause_s
    if facts.failures:
        doubled = settings.failed_pause_s * 2.0 ** min(facts.failures - 1, 20)
        pause_s = max(pause_s, min(doubled, _LONGEST_PAUSE_S))
    return facts.last_round_at + timedelta(seconds=pause_s)
