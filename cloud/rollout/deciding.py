"""What follows from the evidence of a stage: stay, go on, pause, or go back. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from cloud.rollout.evidence import Cohort, Evidence, Own
from cloud.rollout.plan import RolloutPlan, StagePlan
from cloud.rollout.sequential import Band, band
from cloud.rollout.shift import difference, difference_since
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
    measured = difference_of(plan, stage, evidence)
    harm = _harm(plan, stage, evidence, measured)
    if harm:
        return Decision(Move.BACK, harm, measured)
    if stage in (Stage.CANARY, Stage.QUARTER) and evidence.active > 0 and evidence.due == 0:
        return Decision(
            Move.ADVANCE, (f"none of the {evidence.active} devices falls into this stage",), measured
        )
    missing = _missing(plan, stage, wanted, evidence, measured, in_stage_s)
    if not missing:
        said = f"{stage.value}: {evidence.candidate.devices} devices, {_told(measured)}"
        return Decision(Move.ADVANCE, (said,), measured)
    if in_stage_s >= wanted.deadline_s:
        return Decision(Move.PAUSE, (f"no verdict within {wanted.deadline_s:g} s", *missing), measured)
    return Decision(Move.STAY, missing, measured)


def difference_of(plan: RolloutPlan, stage: Stage, evidence: Evidence) -> Band:
    """In shadow on the same frames; later between devices at the same time, each against itself before."""
    if stage is Stage.SHADOW:
        return band(evidence.paired, plan.alpha)
    return difference(evidence.candidate.shift, evidence.champion.shift, plan.alpha)


def _harm(plan: RolloutPlan, stage: Stage, evidence: Evidence, measured: Band) -> tuple[str, ...]:
    reasons = []
    new, old = evidence.candidate, evidence.champion
    failed = len(new.failed)
    are_many = failed > plan.max_failed and failed > plan.max_failed_share * max(evidence.told, 1)
    if are_many or (failed and 2 * failed >= evidence.told):
        named = ", ".join(sorted(new.failed)[:3])
        reasons.append(f"{failed} of {evidence.told} devices failed ({named}{', ...' if failed > 3 else ''})")
    if evidence.crashes > plan.max_failed:
        reasons.append(f"the new model crashed {evidence.crashes} times in shadow")
    if measured.high < -plan.worse_by:
        reasons.append(f"agreement with the tier above fell: {_told(measured)}")
    now_ms, usual_ms = _compared(stage, new.own_p95_ms, old.own_p95_ms, (new.p95_ms, old.p95_ms))
    if _is_over(now_ms, usual_ms * plan.latency_ratio) and new.devices >= 1:
        reasons.append(f"p95 latency {now_ms:.1f} ms against {usual_ms:.1f} ms without it")
    rate, usual = _compared(stage, new.own_asked, old.own_asked, (new.asked_rate, old.asked_rate))
    asked_limit = max(usual * plan.asked_ratio, usual + plan.asked_slack)
    if _has_asked_enough(new) and _has_asked_enough(old) and _is_over(rate, asked_limit):
        reasons.append(f"asked rate {rate:.0%} against {usual:.0%} without it")
    return tuple(reasons)


def _compared(stage: Stage, new: Own, old: Own, on_same_devices: tuple[float, float]) -> tuple[float, float]:
    """What the new model shows, and what its devices would show without it: as they did before, changed as it has
    changed beside them. In shadow both models run on the same devices. NaN where it is not known."""
    if stage is Stage.SHADOW:
        return on_same_devices
    return new.now, new.before * old.now / old.before if old.before else math.nan


def _missing(
    plan: RolloutPlan,
    stage: Stage,
    wanted: StagePlan,
    evidence: Evidence,
    measured: Band,
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
    seen = measured
    if stage is not Stage.SHADOW:
        seen = difference_since(new.shift, evidence.champion.shift, plan.alpha)
    has_baseline = stage is Stage.SHADOW or (evidence.champion.devices > 0 and evidence.comparable > 0)
    if has_baseline and not seen.low > -plan.worse_by:
        reasons.append(f"agreement with the tier above: {_told(seen)}, must be above {-plan.worse_by:+.3f}")
    return tuple(reasons)


def _is_over(value: float, limit: float) -> bool:
    return math.isfinite(value) and math.isfinite(limit) and value > limit


_ENOUGH_FRAMES = 500


def _has_asked_enough(cohort: Cohort) -> bool:
    return cohort.frames >= _ENOUGH_FRAMES


def _told(measured: Band) -> str:
    if math.isnan(measured.value):
        return "agreement not known yet"
    return f"{measured.value:+.3f} ({measured.low:+.3f} to {measured.high:+.3f})"
