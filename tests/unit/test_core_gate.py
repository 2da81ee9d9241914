"""The first gate: four rules that add up, each of which can be turned off."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fovea.core.errors import Malformed
from fovea.core.features import FEATURE_NAMES, FrameFeatures
from fovea.core.gate import Opinion, RuleGate, RuleGateSettings
from fovea.core.routing import Reason

CALM = FrameFeatures(2, 0.9, 0.9, 1.0, 0.0, 0, 0.1, 0.0, 0, 0.0, 0.2, 0.0)
RULES = {
    "uncertain_count": Reason.UNCERTAIN_BOXES,
    "weak_mass": Reason.WEAK_BOXES,
    "vanished_count": Reason.VANISHED_TRACK,
    "unexplained_motion": Reason.MOTION_WITHOUT_BOXES,
}
features_values = st.builds(FrameFeatures, **{name: st.floats(0, 50) for name in FEATURE_NAMES})


def test_a_calm_frame_is_sure() -> None:
    assert RuleGate().judge(CALM) == Opinion(0.0, None, (Reason.SURE,))


@pytest.mark.parametrize("name", RULES)
def test_each_rule_speaks_for_itself(name: str) -> None:
    opinion = RuleGate().judge(replace(CALM, **{name: 1.0}))
    assert opinion.reasons == (RULES[name],)
    assert opinion.p_ask > 0


def test_an_empty_frame_can_be_worth_a_question() -> None:
    empty = replace(CALM, box_count=0, top_score=0, mean_score=0, weak_mass=4, vanished_count=2)
    opinion = RuleGate().judge(empty)
    assert opinion.p_ask >= 0.7
    assert opinion.reasons == (Reason.WEAK_BOXES, Reason.VANISHED_TRACK)


def test_a_doubt_of_1_is_exactly_the_usual_threshold() -> None:
    gate = RuleGate(RuleGateSettings(weak_mass=0.5))
    assert gate.judge(replace(CALM, box_count=0, weak_mass=4)).p_ask == pytest.approx(0.7)


def test_the_strongest_reason_comes_first_and_small_ones_are_not_named() -> None:
    noisy = replace(CALM, uncertain_count=9, weak_mass=2, vanished_count=0.01)
    assert RuleGate().judge(noisy).reasons == (Reason.WEAK_BOXES, Reason.UNCERTAIN_BOXES)


@given(features_values, st.sampled_from(list(RULES)), st.floats(0, 50))
def test_more_of_a_bad_thing_never_lowers_p_ask(features: FrameFeatures, name: str, more: float) -> None:
    worse = replace(features, **{name: getattr(features, name) + more})
    assert RuleGate().judge(worse).p_ask >= RuleGate().judge(features).p_ask - 1e-12


@given(features_values)
def test_an_opinion_always_has_a_reason_and_the_same_frame_the_same_opinion(features: FrameFeatures) -> None:
    opinion = RuleGate().judge(features)
    assert opinion.reasons
    assert (opinion.reasons == (Reason.SURE,)) == (opinion.p_ask == 0)
    assert opinion == RuleGate().judge(features)


@given(features_values)
def test_a_gate_with_all_rules_off_is_always_sure(features: FrameFeatures) -> None:
    assert RuleGate(RuleGateSettings(0, 0, 0, 0)).judge(features).reasons == (Reason.SURE,)


@pytest.mark.parametrize("weight", [-1.0, math.inf, math.nan])
def test_a_weight_that_makes_no_sense_is_refused(weight: float) -> None:
    with pytest.raises(Malformed, match="rule gate weak_mass"):
        RuleGateSettings(weak_mass=weight)


@pytest.mark.parametrize(
    ("p_ask", "gain", "reasons"),
    [
        (1.1, None, (Reason.SURE,)),
        (math.nan, None, (Reason.SURE,)),
        (0.5, math.nan, (Reason.SURE,)),
        (0.5, None, ()),
    ],
)
def test_an_opinion_that_makes_no_sense_is_refused(
    p_ask: float, gain: float | None, reasons: tuple[Reason, ...]
) -> None:
    with pytest.raises(Malformed, match="opinion"):
        Opinion(p_ask, gain, reasons)
