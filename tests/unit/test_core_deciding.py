"""One rule decides: asked when it is worth it and possible, audited at random, local with the reason why not."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fovea.core.deciding import STILL, DecideSettings, Situation, decide
from fovea.core.errors import Malformed
from fovea.core.gate import Opinion
from fovea.core.qoe import RouteChoice
from fovea.core.routing import Reason, Route

WORTH_IT = Opinion(0.9, 0.2, (Reason.WEAK_BOXES, Reason.VANISHED_TRACK))
NOT_WORTH_IT = Opinion(0.3, 0.01, (Reason.WEAK_BOXES,))
SETTINGS = DecideSettings(ask_from=0.7, audit_share=0.02)
FREE = Situation(True, 0, 4, 1.0, 0.05, budget_allows=True)
NEVER_DRAWN, DRAWN = 0.5, 0.01

OBSTACLES = {
    Reason.UPPER_BUSY: replace(FREE, has_link=False, is_busy=True),
    Reason.COSTS_MORE: replace(FREE, choice=RouteChoice(Route.LOCAL, 0.6, (Reason.SURE,))),
    Reason.LINK_DOWN: replace(FREE, has_link=False),
    Reason.TOO_MANY_IN_FLIGHT: replace(FREE, in_flight=4),
    Reason.NO_TIME: replace(FREE, time_left_s=0.04),
    Reason.OVER_BUDGET: replace(FREE, budget_allows=False),
}

situations = st.builds(
    Situation,
    has_link=st.booleans(),
    in_flight=st.integers(0, 3),
    max_in_flight=st.integers(0, 3),
    time_left_s=st.floats(-1, 2),
    round_trip_s=st.floats(0, 1),
    budget_allows=st.booleans(),
    is_busy=st.booleans(),
    choice=st.none()
    | st.builds(RouteChoice, st.sampled_from(Route), st.floats(0, 1), st.just((Reason.EXPECTED_GAIN,))),
)
opinions = st.builds(
    Opinion, st.floats(0, 1), st.none() | st.floats(-1, 1), st.just((Reason.UNCERTAIN_BOXES,))
)
settings_values = st.builds(
    DecideSettings, st.floats(0.01, 1), st.floats(0, 1), st.sampled_from([Route.EDGE, Route.CLOUD])
)


def test_what_is_worth_it_and_possible_is_asked_with_probability_1() -> None:
    decision = decide(WORTH_IT, NEVER_DRAWN, SETTINGS, FREE)
    assert decision.route is Route.EDGE
    assert decision.reasons == WORTH_IT.reasons
    assert decision.expected_gain == 0.2
    assert decision.send_probability == 1
    assert not decision.is_audit


def test_an_audit_draw_on_a_frame_that_is_asked_anyway_changes_nothing() -> None:
    assert decide(WORTH_IT, DRAWN, SETTINGS, FREE) == decide(WORTH_IT, NEVER_DRAWN, SETTINGS, FREE)


def test_what_is_not_worth_it_is_local_and_sure() -> None:
    decision = decide(NOT_WORTH_IT, NEVER_DRAWN, SETTINGS, FREE)
    assert decision.route is Route.LOCAL
    assert decision.reasons == (Reason.SURE,)


@pytest.mark.parametrize("against", OBSTACLES)
def test_a_wish_that_cannot_be_met_names_both_why_and_why_not(against: Reason) -> None:
    decision = decide(WORTH_IT, NEVER_DRAWN, SETTINGS, OBSTACLES[against])
    assert decision.route is Route.LOCAL
    assert decision.reasons == (*WORTH_IT.reasons, against)


@pytest.mark.parametrize("against", OBSTACLES)
def test_nothing_is_said_against_what_nobody_wanted_to_ask(against: Reason) -> None:
    assert decide(NOT_WORTH_IT, NEVER_DRAWN, SETTINGS, OBSTACLES[against]).reasons == (Reason.SURE,)


def test_the_question_goes_to_the_tier_that_was_found_best_and_says_how_good_that_is() -> None:
    choice = RouteChoice(Route.CLOUD, 0.8, (Reason.EXPECTED_GAIN,))
    decision = decide(WORTH_IT, NEVER_DRAWN, SETTINGS, replace(FREE, choice=choice))
    assert (decision.route, decision.qoe) == (Route.CLOUD, 0.8)
    assert decision.reasons == WORTH_IT.reasons and decision.send_probability == 1


def test_an_own_answer_that_was_found_best_says_how_good_it_is() -> None:
    decision = decide(WORTH_IT, NEVER_DRAWN, SETTINGS, OBSTACLES[Reason.COSTS_MORE])
    assert (decision.route, decision.qoe, decision.send_probability) == (Route.LOCAL, 0.6, 0.02)


def test_audits_bypass_the_scales_too() -> None:
    decision = decide(WORTH_IT, DRAWN, SETTINGS, OBSTACLES[Reason.COSTS_MORE])
    assert decision.route is Route.EDGE and decision.is_audit and decision.send_probability == 0.02


def test_audits_bypass_the_budget_and_carry_their_probability() -> None:
    decision = decide(NOT_WORTH_IT, DRAWN, SETTINGS, OBSTACLES[Reason.OVER_BUDGET])
    assert decision.route is Route.EDGE
    assert decision.is_audit
    assert decision.send_probability == 0.02


def test_a_wish_over_budget_that_is_drawn_goes_as_an_audit() -> None:
    decision = decide(WORTH_IT, DRAWN, SETTINGS, OBSTACLES[Reason.OVER_BUDGET])
    assert decision.is_asked
    assert decision.reasons == (Reason.AUDIT, *WORTH_IT.reasons)
    assert decision.send_probability == 0.02


def test_an_audit_that_cannot_be_sent_now_stays_an_audit_for_the_spool() -> None:
    decision = decide(NOT_WORTH_IT, DRAWN, SETTINGS, OBSTACLES[Reason.LINK_DOWN])
    assert decision.route is Route.LOCAL
    assert decision.reasons == (Reason.AUDIT, Reason.SURE, Reason.LINK_DOWN)
    assert decision.send_probability == 0.02


def test_nobody_waiting_means_no_deadline() -> None:
    assert decide(WORTH_IT, NEVER_DRAWN, SETTINGS, replace(FREE, time_left_s=math.inf)).is_asked


def test_the_edge_asks_the_cloud() -> None:
    assert decide(WORTH_IT, NEVER_DRAWN, DecideSettings(route=Route.CLOUD), FREE).route is Route.CLOUD


def test_the_threshold_itself_is_worth_it() -> None:
    assert decide(Opinion(0.7, None, (Reason.WEAK_BOXES,)), NEVER_DRAWN, SETTINGS, FREE).is_asked


def test_what_did_not_move_is_skipped() -> None:
    assert STILL.route is Route.SKIP
    assert STILL.reasons == (Reason.STILL,)


@given(opinions, st.floats(0, 1), settings_values, situations)
def test_the_rule_holds_whatever_comes(
    opinion: Opinion, draw: float, settings: DecideSettings, situation: Situation
) -> None:
    decision = decide(opinion, draw, settings, situation)
    can_send = (
        situation.has_link
        and situation.in_flight < situation.max_in_flight
        and situation.round_trip_s <= situation.time_left_s
    )
    keeps = situation.choice is not None and situation.choice.route in (Route.SKIP, Route.LOCAL)
    by_rule = opinion.p_ask >= settings.ask_from and can_send and situation.budget_allows and not keeps
    drawn = draw < settings.audit_share
    assert decision.is_asked == (by_rule or (drawn and can_send))
    assert decision.is_audit == (drawn and not by_rule)
    if decision.is_asked:
        is_chosen = by_rule and situation.choice is not None
        assert decision.route is (situation.choice.route if is_chosen else settings.route)  # type: ignore[union-attr]
        assert decision.send_probability == (1 if by_rule else settings.audit_share)


def test_weighting_by_the_send_probability_recovers_the_mean_of_all_frames() -> None:
    rng = np.random.default_rng(0)
    settings = DecideSettings(ask_from=0.7, audit_share=0.1)
    estimate = truth = 0.0
    for _ in range(20000):
        p_ask = rng.random()
        allowed = replace(FREE, budget_allows=bool(rng.random() < 0.5))
        truth += p_ask
        decision = decide(Opinion(p_ask, None, (Reason.WEAK_BOXES,)), rng.random(), settings, allowed)
        if decision.is_asked:
            estimate += p_ask / decision.send_probability
    assert estimate == pytest.approx(truth, rel=0.05)


@pytest.mark.parametrize("draw", [-0.1, 1.1, math.nan])
def test_a_draw_outside_0_to_1_is_refused(draw: float) -> None:
    with pytest.raises(Malformed, match="audit_draw: expected 0 to 1"):
        decide(WORTH_IT, draw, SETTINGS, FREE)


@pytest.mark.parametrize(
    "settings", [{"ask_from": 0}, {"ask_from": math.nan}, {"audit_share": 1.5}, {"route": Route.LOCAL}]
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(Malformed, match="decide"):
        DecideSettings(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [{"in_flight": -1}, {"time_left_s": math.nan}, {"round_trip_s": -0.1}, {"round_trip_s": math.nan}],
)
def test_a_situation_that_cannot_be_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(Malformed, match="situation"):
        replace(FREE, **change)  # type: ignore[arg-type]
