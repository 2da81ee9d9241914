"""What follows from a stage: on only with evidence, back at once on harm, a pause on silence, and why."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cloud.rollout.deciding import Decision, Move, decide
from cloud.rollout.evidence import Report, gather
from cloud.rollout.plan import ORDER, RolloutPlan, StagePlan
from fovea.core.errors import Malformed
from fovea.core.release import (
    Agreement,
    Asked,
    DesiredState,
    Health,
    ModelPin,
    Phase,
    Probation,
    ReportedState,
    ShadowReport,
    Stage,
)

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
OLD = ModelPin("models/street/street-1.fovea", "street", "1", "a" * 64)
NEW = ModelPin("models/street/street-2.fovea", "street", "2", "b" * 64)
PLAN = RolloutPlan()
DEVICES = [f"camera-{index}" for index in range(200)]


def desired(stage: Stage, serial: int = 7) -> DesiredState:
    share = 0.0 if stage is Stage.SHADOW else PLAN.stages[stage].share
    return DesiredState(
        "default", "street", serial, NOW, NOW + timedelta(days=7), OLD, NEW, stage,
        PLAN.stages[Stage.SHADOW].share, share, "salt", Probation(200, 60.0),
    )  # fmt: skip


def agreement_of(sha256: str, mean: float, n: int) -> Agreement:
    """`n` frames of weight 10, spread by 0.2 around the mean."""
    return Agreement(sha256, n, 10.0 * n, 10.0 * n * mean, 10.0 * n * (mean**2 + 0.04), 100.0 * n)


def report(
    device: str,
    running: ModelPin = OLD,
    mean: float = 0.8,
    n: int = 40,
    serial: int = 7,
    phase: Phase = Phase.COMMITTED,
    p95_ms: float = 30.0,
    restarts: int = 0,
    asked: tuple[int, int] = (1000, 200),
    shadow: ShadowReport | None = None,
    age_s: float = 10.0,
    mean_before: float = 0.8,
    p95_before_ms: float = 30.0,
    asked_before: float = 0.2,
) -> Report:
    state = ReportedState(
        device=device,
        group="default",
        agent_version="0.1.0",
        boot_id="boot",
        at=NOW,
        clock_synced=True,
        serial=serial,
        counter_floor=1,
        running=running,
        last_good=OLD,
        phase=phase,
        reason=None,
        health=Health(asked[0], restarts, p95_ms, 200.0, 5000.0),
        asked=Asked(*asked),
        agreement=agreement_of(running.sha256, mean, n),
        shadow=shadow,
    )
    before = replace(
        state,
        boot_id="before",
        running=OLD,
        health=Health(4000, 0, p95_before_ms, 200.0, 5000.0),
        asked=Asked(4000, round(4000 * asked_before)),
        agreement=agreement_of(OLD.sha256, mean_before, 800),
        serial=serial - 1,
    )
    return Report(state, NOW - timedelta(seconds=age_s), before)


def shadow_report(mean: float, n: int = 200, crashes: int = 0, p95_ms: float = 32.0) -> ShadowReport:
    return ShadowReport(
        NEW.sha256, 5 * n, crashes, p95_ms, 0.9, n, float(n), n * mean, n * (mean**2 + 0.01), float(n)
    )


def decided(stage: Stage, reports: list[Report], in_stage_s: float = 3600.0) -> Decision:
    return decide(PLAN, stage, gather(desired(stage), reports, NOW, PLAN.silent_after_s), in_stage_s)


def fleet(stage: Stage, **of_new: object) -> list[Report]:
    """Everybody runs what the stage says; those of the new model are as told, all others as usual."""
    wanted = desired(stage)
    return [
        report(device, NEW, **of_new)  # type: ignore[arg-type]
        if wanted.for_device(device).run == NEW
        else report(device)
        for device in DEVICES
    ]


def test_a_shadow_that_is_no_worse_goes_on_to_a_few() -> None:
    decision = decided(Stage.SHADOW, [report(d, shadow=shadow_report(0.05)) for d in DEVICES[:5]])
    assert decision.move is Move.ADVANCE
    assert decision.difference.low > 0


def test_a_shadow_that_agrees_less_with_the_tier_above_goes_back() -> None:
    decision = decided(Stage.SHADOW, [report(d, shadow=shadow_report(-0.2)) for d in DEVICES[:5]])
    assert decision.move is Move.BACK
    assert "agreement with the tier above fell: -0.200" in decision.reasons[0]


def test_a_shadow_that_crashes_goes_back_before_anything_else_is_known() -> None:
    crashing = shadow_report(0.0, n=0, crashes=2)
    decision = decided(Stage.SHADOW, [report(DEVICES[0], shadow=crashing)], in_stage_s=1.0)
    assert decision.move is Move.BACK
    assert decision.reasons == ("the new model crashed 2 times in shadow",)


def test_a_shadow_that_is_much_slower_goes_back() -> None:
    decision = decided(Stage.SHADOW, [report(DEVICES[0], shadow=shadow_report(0.05, p95_ms=60.0))])
    assert decision.move is Move.BACK
    assert "p95 latency 60.0 ms against 30.0 ms" in decision.reasons[0]


@pytest.mark.parametrize("stage", [Stage.CANARY, Stage.QUARTER])
def test_a_cohort_that_does_well_beside_the_others_goes_on(stage: Stage) -> None:
    decision = decided(stage, fleet(stage, mean=0.9, n=400))
    assert decision.move is Move.ADVANCE, decision.reasons


def test_a_cohort_that_does_worse_beside_the_others_goes_back() -> None:
    decision = decided(Stage.CANARY, fleet(Stage.CANARY, mean=0.5, n=200))
    assert decision.move is Move.BACK
    assert "agreement" in decision.reasons[0]


def test_when_it_gets_dark_for_all_nobody_is_blamed() -> None:
    """Both cohorts agree less than before: the difference between them is what counts."""
    everybody = [
        report(d, NEW if desired(Stage.QUARTER).for_device(d).run == NEW else OLD, mean=0.3, n=400)
        for d in DEVICES
    ]
    decision = decided(Stage.QUARTER, everybody)
    assert decision.move is Move.ADVANCE, decision.reasons


def test_devices_that_stepped_back_are_harm_though_the_rest_is_fine() -> None:
    reports = fleet(Stage.CANARY, mean=0.9, n=400)
    cohort = [each for each in reports if each.state.running == NEW]
    bad = {each.state.device for each in cohort[:3]}
    reports = [
        report(e.state.device, OLD, phase=Phase.STEPPED_BACK) if e.state.device in bad else e for e in reports
    ]
    decision = decided(Stage.CANARY, reports)
    assert decision.move is Move.BACK
    assert f"3 of {len(cohort)} devices failed" in decision.reasons[0]


def test_one_broken_device_does_not_stop_a_fleet() -> None:
    reports = fleet(Stage.QUARTER, mean=0.9, n=400)
    victim = next(each.state.device for each in reports if each.state.running == NEW)
    reports = [report(victim, OLD, phase=Phase.REFUSED) if e.state.device == victim else e for e in reports]
    assert decided(Stage.QUARTER, reports).move is Move.ADVANCE


def test_the_only_device_of_a_small_canary_is_enough_to_go_back() -> None:
    inside = next(d for d in DEVICES if desired(Stage.CANARY).for_device(d).run == NEW)
    outside = next(d for d in DEVICES if desired(Stage.QUARTER).for_device(d).run == OLD)
    decision = decided(Stage.CANARY, [report(inside, OLD, phase=Phase.STEPPED_BACK), report(outside)])
    assert decision.move is Move.BACK
    assert decision.reasons == (f"1 of 1 devices failed ({inside})",)


def test_a_model_that_asks_for_everything_goes_back() -> None:
    decision = decided(Stage.CANARY, fleet(Stage.CANARY, mean=0.9, n=400, asked=(1000, 700)))
    assert decision.move is Move.BACK
    assert decision.reasons == ("asked rate 70% against 20% without it",)


def test_nothing_moves_before_the_cohort_has_reported() -> None:
    """The desired state went out, and nobody has acted on it yet."""
    decision = decided(Stage.CANARY, [report(d, serial=6) for d in DEVICES])
    assert decision.move is Move.STAY
    assert any("0 devices report the new model" in reason for reason in decision.reasons)


def test_silence_pauses_after_the_deadline_and_never_advances() -> None:
    silent = [report(d, age_s=86_400.0) for d in DEVICES]
    assert decided(Stage.CANARY, silent).move is Move.STAY
    late = decided(Stage.CANARY, silent, in_stage_s=PLAN.stages[Stage.CANARY].deadline_s)
    assert late.move is Move.PAUSE
    assert "no verdict within 604800 s" in late.reasons


def test_a_device_that_is_away_for_weeks_holds_nobody_up() -> None:
    wanted = desired(Stage.QUARTER)
    reports = fleet(Stage.QUARTER, mean=0.9, n=400)
    away = next(each for each in reports if wanted.for_device(each.state.device).run == NEW)
    gone = report(away.state.device, OLD, serial=2, age_s=20 * 86_400.0)
    decision = decided(Stage.QUARTER, [gone if e is away else e for e in reports])
    assert decision.move is Move.ADVANCE, decision.reasons


def test_good_news_has_to_last() -> None:
    decision = decided(Stage.CANARY, fleet(Stage.CANARY, mean=0.9, n=400), in_stage_s=5.0)
    assert decision.move is Move.STAY
    assert decision.reasons == ("5 of 600 s",)


def test_a_small_fleet_skips_the_stages_into_which_nobody_falls() -> None:
    outside = next(d for d in DEVICES if desired(Stage.QUARTER).for_device(d).run == OLD)
    decision = decided(Stage.CANARY, [report(outside)])
    assert decision.move is Move.ADVANCE
    assert decision.reasons == ("none of the 1 devices falls into this stage",)


def test_the_last_stage_needs_everybody_who_is_there() -> None:
    all_but_one = [report(d, NEW, mean=0.9) for d in DEVICES[1:]] + [report(DEVICES[0], OLD, serial=6)]
    decision = decided(Stage.ALL, all_but_one)
    assert decision.move is Move.STAY
    assert "199 of 200 devices that are there have it" in decision.reasons[0]
    assert decided(Stage.ALL, [report(d, NEW, mean=0.9) for d in DEVICES]).move is Move.ADVANCE


def test_counters_of_an_earlier_boot_are_not_subtracted() -> None:
    now = report(DEVICES[0], NEW, asked=(600, 60))
    before = replace(now.state, boot_id="earlier", asked=Asked(9000, 900), agreement=None)
    evidence = gather(desired(Stage.ALL), [replace(now, before=before)], NOW, PLAN.silent_after_s)
    assert (evidence.candidate.frames, evidence.candidate.asked) == (600, 60)


def test_a_decision_without_any_report_has_a_reason_and_stays() -> None:
    decision = decided(Stage.CANARY, [], in_stage_s=1.0)
    assert decision.move is Move.STAY and decision.reasons
    assert math.isnan(decision.difference.value)


def test_a_plan_names_every_stage_with_rising_shares() -> None:
    assert [PLAN.after(stage) for stage in ORDER] == [*ORDER[1:], None]
    with pytest.raises(Malformed, match="shares that rise"):
        RolloutPlan(stages={**PLAN.stages, Stage.CANARY: StagePlan(0.5)})
    with pytest.raises(Malformed, match="expected the stages"):
        RolloutPlan(stages={Stage.ALL: StagePlan(1.0)})
    with pytest.raises(Malformed, match="share"):
        StagePlan(0.0)
