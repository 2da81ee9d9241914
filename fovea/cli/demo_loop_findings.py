"""What the second act found out, as plain values, and what that says in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from calibration.evaluate import Interval
from fovea.cli.demo_findings import PictureRow

PROMOTE: Final = "promote"
DONE: Final = "done"
_SAME: Final = 0.02
"""Rates of asking that differ by less are the same to people."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The fleet at one moment. `asked_share` 0..1 of the newest frames, NaN where there are none; `on_new`: share of
    the devices that run the new student; `cases`: kept in the cloud by then."""

    at_s: float
    asked_share: float
    on_new: float
    cases: int


@dataclass(frozen=True, slots=True)
class Mark:
    """Something happened; `said` in more words."""

    at_s: float
    name: str
    said: str = ""


@dataclass(frozen=True, slots=True)
class StepFindings:
    """A step of the round."""

    name: str
    spent_s: float
    said: str


@dataclass(frozen=True, slots=True)
class RoundFindings:
    """The round of learning. `verdict` is its word, or that it failed."""

    verdict: str
    reasons: Sequence[str]
    steps: Sequence[StepFindings]
    golden_frames: int = 0

    @property
    def is_promoted(self) -> bool:
        return self.verdict == PROMOTE


@dataclass(frozen=True, slots=True)
class RolloutFindings:
    """The rollout: how it ended (or stood), and each move of it."""

    status: str
    stage: str
    moves: Sequence[Mark]


@dataclass(frozen=True, slots=True)
class Quality:
    """AP50-95 (0..1) of the old and the new student on the same held-out clips of a condition, and new minus old,
    paired by clip; and the share of these frames about which the gate of each would ask (NaN: not measured). What is
    of the new student is None where there is none."""

    condition: str
    frames: int
    old: Interval
    new: Interval | None = None
    gain: Interval | None = None
    asked_old: float = math.nan
    asked_new: float | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """Share of frames that cameras asked about, audits apart, over the last part of each act; NaN where an act was
    not played."""

    day: float = math.nan
    night: float = math.nan
    after: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFindings:
    """All of it. `bytes_down`: of the bundle that each device fetched, 0 where none was."""

    made_at: datetime
    seconds: float
    devices: int
    cameras: int
    moments: Sequence[Moment]
    marks: Sequence[Mark]
    qualities: Sequence[Quality]
    asked: Asked
    round: RoundFindings | None = None
    rollout: RolloutFindings | None = None
    cases: Mapping[str, int] = field(default_factory=dict)
    golden: Mapping[str, int] = field(default_factory=dict)
    bytes_up: float = 0.0
    bytes_down: float = 0.0
    teacher: str = ""
    students: Sequence[str] = ()
    pictures: Sequence[PictureRow] = ()
    machine: Mapping[str, str] = field(default_factory=dict)
    steps: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)

    def quality(self, condition: str) -> Quality | None:
        return next((each for each in self.qualities if each.condition == condition), None)

    @property
    def is_out(self) -> bool:
        """All devices run the new student for good."""
        return self.rollout is not None and self.rollout.status == DONE

    def ap_at(self, condition: str, moment: Moment) -> float:
        """AP of what the fleet ran then: the mean over its devices. NaN where it is not known."""
        found = self.quality(condition)
        if found is None:
            return math.nan
        if not moment.on_new or found.new is None:
            return found.old.value
        return moment.on_new * found.new.value + (1 - moment.on_new) * found.old.value


def sentences(findings: LoopFindings) -> list[str]:
    """What the figures say, whichever way it went."""
    return [
        *_of_asking(findings),
        *_of_the_round(findings),
        *_of_quality(findings),
        *_of_the_rollout(findings),
    ]


def _of_asking(findings: LoopFindings) -> Iterator[str]:
    asked = findings.asked
    if not (math.isnan(asked.day) or math.isnan(asked.night)):
        has_risen, has_fallen = asked.night > asked.day + _SAME, asked.night < asked.day - _SAME
        verb = "rose" if has_risen else "fell" if has_fallen else "hardly changed:"
        yield f"When night fell the asked rate {verb} from {asked.day:.0%} to {asked.night:.0%} of all frames."
        if not has_risen:
            yield (
                "A student that sees next to nothing at night has little to doubt: its gate did not notice. That is "
                "why a share of the frames is sent whatever the gate thinks."
            )
    if not math.isnan(asked.after) and findings.is_out:
        verb = "fell" if asked.after < asked.night - _SAME else "did not fall: it went"
        yield f"With the new student the asked rate at night {verb} to {asked.after:.0%}."


def _of_the_gates(findings: LoopFindings) -> Iterator[str]:
    """The same frames for both: what live cameras see differs from minute to minute."""
    for found in findings.qualities:
        if found.asked_new is not None and not math.isnan(found.asked_old):
            yield (
                f"On the held-out {found.condition} frames the old student's gate would ask about "
                f"{found.asked_old:.0%}, the new one's about {found.asked_new:.0%}."
            )


def _of_the_round(findings: LoopFindings) -> Iterator[str]:
    yield from _of_the_gates(findings)
    found = findings.round
    if found is None:
        yield "No round of learning came to an end."
        return
    minutes = sum(step.spent_s for step in found.steps) / 60
    if found.is_promoted:
        yield (
            f"A round of {minutes:.1f} minutes made a new student, and it passed every check on "
            f"{found.golden_frames} frames that people (here: the street's truth) had labelled."
        )
        return
    verdict = found.verdict.replace("_", " ")
    yield f"After {minutes:.1f} minutes the round ended with {verdict!r}; nothing was rolled out."
    yield from (f"Against it: {reason}." for reason in found.reasons)


def _of_quality(findings: LoopFindings) -> Iterator[str]:
    for found in findings.qualities:
        if found.new is None or found.gain is None:
            continue
        gain = found.gain
        is_sure = gain.low > 0 or gain.high < 0
        yield (
            f"On {found.frames} held-out {found.condition} frames AP went from {100 * found.old.value:.1f} to "
            f"{100 * found.new.value:.1f}: {100 * gain.value:+.1f} points "
            f"({100 * gain.low:+.1f} to {100 * gain.high:+.1f}, paired by clip"
            f"{')' if is_sure else '; that may be chance)'}."
        )


def _of_the_rollout(findings: LoopFindings) -> Iterator[str]:
    found = findings.rollout
    if found is None:
        return
    if findings.is_out:
        yield (
            f"The new student went from shadow to all {findings.devices} devices, moved by what they reported; "
            f"each fetched {findings.bytes_down / 1e6:.1f} MB. In the whole run {findings.bytes_up / 1e6:.1f} MB of "
            "pictures went up with questions."
        )
        return
    why = f": {found.moves[-1].said}" if found.moves else ""
    yield f"The rollout is {found.status} in stage {found.stage}{why}."
