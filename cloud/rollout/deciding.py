"""What follows from the evidence of a stage: stay, go on, pause, or go back. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from cloud.rollout.evidence import Cohort, Evidence
from cloud.rollout.plan import RolloutPlan, StagePlan
from cloud.rollout.sequential import Band, band
from fovea.core.release import Stage


class Move(StrEnum):
    """ADVANCE after the last stage means: it is the champion now."""

    STAY = "stay"
    ADVANCE = "advance"
    PAUSE = "pause"
    BACK = "back"


@dataclass(frozen=True, slots=True)
class Decision:
    """Never without a reason. `difference`: agreement of the new model with the upper tier minus that of the old."""

    move: Move
    reasons: tuple[str, ...]
    difference: Band


def decide(plan: RolloutPlan, stage: Stage, evidence: Evidence, in_stage_s: float) -> Decision:
    """`stage` is one of SHADOW, CANARY, QUARTER, ALL. Harm is acted upon at once, a gain only when all is shown."""
    wanted = plan.stages[stage]
    difference = difference_of(plan, stage, evidence)
    harm = _harm(plan, evidence, difference)
    if harm:
        return Decision(Move.BACK, harm, difference)
    if stage in (Stage.CANARY, Stage.QUARTER) and evidence.active > 0 and evidence.due == 0:
        return Decision(
            Move.ADVANCE, (f"none of the {evidence.active} devices falls into this stage",), difference
        )
    missing = _missing(plan, stage, wanted, evidence, difference, in_stage_s)
    if not missing:
        said = f"{stage.value}: {evidence.candidate.devices} devices, {_told(difference)}"
        return Decision(Move.ADVANCE, (said,), difference)
    if in_stage_s >= wanted.deadline_s:
        return Decision(Move.PAUSE, (f"no verdict within {wanted.deadline_s:g} s", *missing), difference)
    return Decision(Move.STAY, missing, difference)


def difference_of(plan: RolloutPlan, stage: Stage, evidence: Evidence) -> Band:
    """In shadow on the same frames; later between devices at the same time, half of alpha for each side."""
    if stage is Stage.SHADOW:
        return band(evidence.paired, plan.alpha)
    half = plan.alpha / 2
    return band(evidence.candidate.agreement, half) - band(evidence.champion.agreement, half)


def _harm(plan: RolloutPlan, evidence: Evidence, difference: Band) -> tuple[str, ...]:
    reasons = []
    new, old = evidence.candidate, evidence.champion
    failed = len(new.failed)
    if failed > plan.max_failed and failed > plan.max_failed_share * max(evidence.told, 1):
        named = ", ".join(sorted(new.failed)[:3])
        reasons.append(f"{failed} of {evidence.told} devices failed ({named}{', ...' if failed > 3 else ''})")
    if evidence.crashes > plan.max_failed:
        reasons.append(f"the new model crashed {evidence.crashes} times in shadow")
    if difference.high < -plan.worse_by:
        reasons.append(f"agreement with the tier above fell: {_told(difference)}")
    if _is_over(new.p95_ms, old.p95_ms * plan.latency_ratio) and new.devices >= 1:
        reasons.append(f"p95 latency {new.p95_ms:.1f} ms against {old.p95_ms:.1f} ms beside it")
    asked_limit = max(old.asked_rate * plan.asked_ratio, old.asked_rate + plan.asked_slack)
    if _has_asked_enough(new) and _has_asked_enough(old) and _is_over(new.asked_rate, asked_limit):
        reasons.append(f"asked rate {new.asked_rate:.0%} against {old.asked_rate:.0%} beside it")
    return tuple(reasons)


def _missing(
    plan: RolloutPlan,
    stage: Stage,
    wanted: StagePlan,
    evidence: Evidence,
    difference: Band,
    in_stage_s: float,
) -> tuple[str, ...]:
    """What has still to be shown; nothing: go on."""
    reasons = []
    new = evidence.candidate
    if new.devices < min(wanted.min_devices, max(evidence.due, 1)):
        reasons.append(f"{new.devices} devices report the new model, {wanted.min_devices} are needed")
    if stage is not Stage.SHADOW and new.devices + len(new.failed) < evidence.due:
        reasons.append(f"{new.devices} of {evidence.due} devices that are there have it")
    if new.frames < wanted.min_frames:
        reasons.append(f"{new.frames} of {wanted.min_frames} frames looked at")
    if in_stage_s < wanted.min_s:
        reasons.append(f"{in_stage_s:.0f} of {wanted.min_s:.0f} s")
    has_baseline = stage is Stage.SHADOW or evidence.champion.devices > 0
    if has_baseline and not difference.low > -plan.worse_by:
        reasons.append(
            f"agreement with the tier above: {_told(difference)}, must be above {-plan.worse_by:+.3f}"
        )
    return tuple(reasons)


def _is_over(value: float, limit: float) -> bool:
    return math.isfinite(value) and math.isfinite(limit) and value > limit


_ENOUGH_FRAMES = 500


def _has_asked_enough(cohort: Cohort) -> bool:
    return cohort.frames >= _ENOUGH_FRAMES


def _told(difference: Band) -> str:
    if math.isnan(difference.value):
        return "agreement not known yet"
    return f"{difference.value:+.3f} ({difference.low:+.3f} to {difference.high:+.3f})"
