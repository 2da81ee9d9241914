"""Picks frames that differ: a few of each camera, time of day, condition and fullness, far apart in time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cloud.cases.stored_case import StoredCase
from fovea.core.detections import TOLD_FROM

_DAY_PARTS = ("night", "morning", "afternoon", "evening")


@dataclass(frozen=True, slots=True)
class Pick:
    """A case to be labelled, and what it stands for."""

    case_id: str
    stratum: str


Picker = Callable[[Sequence[StoredCase], int], list[Pick]]
"""Picks at most so many of the cases; the same cases give the same picks."""


def pick_diverse(cases: Sequence[StoredCase], count: int) -> list[Pick]:
    """Takes strata in turn, the fewest first, so that what is rare is in; within one, always the case farthest in
    time from those taken. Audits come before what was sent for its doubts, as they show what is usual."""
    strata: dict[str, list[StoredCase]] = defaultdict(list)
    for case in cases:
        strata[stratum_of(case)].append(case)
    waiting = {
        name: _spread(strata[name]) for name in sorted(strata, key=lambda name: (len(strata[name]), name))
    }
    picks: list[Pick] = []
    while waiting and len(picks) < count:
        for name in list(waiting):
            if len(picks) == count:
                break
            picks.append(Pick(waiting[name].pop(0).id, name))
            if not waiting[name]:
                del waiting[name]
    return picks


def stratum_of(case: StoredCase) -> str:
    """Camera, condition (where nobody measured it the quarter of the day, UTC), how many things the highest tier
    that looked saw, audit or not."""
    answer = case.find_answer(None)
    things = 0 if answer is None else int((answer.detections.scores >= TOLD_FROM).sum())
    fullness = "empty" if not things else "few" if things <= 2 else "some" if things <= 5 else "many"
    sent = "audit" if case.is_audit else "asked"
    part = case.condition or _DAY_PARTS[case.captured_at.hour // 6]
    return f"{case.frame_id.camera} {part} {fullness} {sent}"


def _spread(cases: Sequence[StoredCase]) -> list[StoredCase]:
    """The middle first, then the middles of the halves, and so on: each far in time from those before it."""
    ordered = sorted(cases, key=lambda case: (case.captured_at, case.id))
    result: list[StoredCase] = []
    parts = [(0, len(ordered))]
    while parts:
        halves = []
        for start, end in parts:
            if start < end:
                middle = (start + end) // 2
                result.append(ordered[middle])
                halves += [(start, middle), (middle + 1, end)]
        parts = halves
    return result
