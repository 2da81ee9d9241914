"""When a round is due: one reason at a time, never two rounds at once, and no hurry after failures."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.learn.triggers import TriggerFacts, TriggerKind, TriggerSettings, due
from fovea.core.errors import Malformed

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
BEGUN = NOW - timedelta(days=2)
QUIET = TriggerFacts(begun_at=BEGUN, cases=100)
SETTINGS = TriggerSettings(new_cases=500, every_s=7 * 86_400, least_cases=50, least_pause_s=21_600)


def kind(
    facts: TriggerFacts, now: datetime = NOW, settings: TriggerSettings = SETTINGS
) -> TriggerKind | None:
    trigger = due(now, facts, settings)
    assert trigger is None or trigger.reason
    return trigger.kind if trigger else None


def test_nothing_is_due_while_little_is_new() -> None:
    assert kind(QUIET) is None


def test_enough_new_cases_are_a_reason() -> None:
    assert kind(replace(QUIET, cases=499)) is None
    assert kind(replace(QUIET, cases=500)) is TriggerKind.NEW_CASES
    assert kind(replace(QUIET, cases=9999), settings=replace(SETTINGS, new_cases=None)) is None


def test_drift_is_a_reason_and_says_what_drifted() -> None:
    facts = replace(QUIET, drifted=("asked rate of gate 0.1 -> 0.3", "scores of yard"))
    trigger = due(NOW, facts, SETTINGS)
    assert trigger is not None and trigger.kind is TriggerKind.DRIFT
    assert "gate" in trigger.reason and "yard" in trigger.reason


def test_a_schedule_counts_from_the_last_round_or_from_the_beginning() -> None:
    assert kind(QUIET, NOW + timedelta(days=5)) is TriggerKind.SCHEDULE
    assert kind(QUIET, NOW + timedelta(days=5, seconds=-1)) is None
    later = replace(QUIET, last_round_at=NOW)
    assert kind(later, NOW + timedelta(days=6)) is None
    assert kind(later, NOW + timedelta(days=7)) is TriggerKind.SCHEDULE
    assert kind(later, NOW + timedelta(days=700), replace(SETTINGS, every_s=None)) is None


def test_too_few_cases_teach_nothing_whatever_calls_but_a_person() -> None:
    few = replace(QUIET, cases=49, drifted=("scores",))
    assert kind(few, NOW + timedelta(days=100)) is None
    assert kind(replace(few, asked_by="ada")) is TriggerKind.PERSON


def test_rounds_never_overlap_not_even_for_a_person() -> None:
    assert kind(replace(QUIET, cases=9999, asked_by="ada", is_running=True)) is None


def test_there_is_a_pause_between_rounds_but_not_for_a_person() -> None:
    facts = replace(QUIET, cases=9999, drifted=("scores",), last_round_at=NOW - timedelta(hours=5))
    assert kind(facts) is None
    assert kind(facts, NOW + timedelta(hours=1)) is TriggerKind.DRIFT
    trigger = due(NOW, replace(facts, asked_by="ada"), SETTINGS)
    assert trigger is not None and trigger.kind is TriggerKind.PERSON and "ada" in trigger.reason


@pytest.mark.parametrize(("failures", "hours"), [(0, 6), (1, 6), (4, 8), (5, 16), (60, 7 * 24)])
def test_the_pause_grows_with_failures_up_to_a_week(failures: int, hours: int) -> None:
    facts = replace(QUIET, cases=9999, last_round_at=NOW, failures=failures)
    assert kind(facts, NOW + timedelta(hours=hours, seconds=-1)) is None
    assert kind(facts, NOW + timedelta(hours=hours)) is TriggerKind.NEW_CASES


def test_a_clock_that_was_set_back_makes_nothing_due_and_does_not_break() -> None:
    facts = replace(QUIET, cases=9999, last_round_at=NOW + timedelta(days=3))
    assert kind(facts) is None
    assert kind(QUIET, NOW - timedelta(days=900)) is None


def test_what_comes_first_is_told() -> None:
    facts = replace(QUIET, cases=9999, drifted=("scores",), asked_by="ada")
    now = NOW + timedelta(days=30)
    told = [
        kind(facts, now),
        kind(replace(facts, asked_by=None), now),
        kind(replace(facts, asked_by=None, drifted=()), now),
        kind(replace(facts, asked_by=None, drifted=(), cases=60), now),
    ]
    assert told == list(TriggerKind)


@given(
    cases=st.integers(0, 1000),
    hours=st.integers(-100, 1000),
    failures=st.integers(0, 3000),
    drifted=st.booleans(),
)
def test_waiting_longer_never_makes_it_less_due(cases: int, hours: int, failures: int, drifted: bool) -> None:
    facts = TriggerFacts(BEGUN, cases, NOW, failures, drifted=("scores",) if drifted else ())
    at = NOW + timedelta(hours=hours)
    if kind(facts, at) is not None:
        assert kind(facts, at + timedelta(hours=1)) is not None


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: TriggerSettings(new_cases=0),
        lambda: TriggerSettings(every_s=0),
        lambda: TriggerSettings(least_pause_s=-1),
        lambda: replace(QUIET, cases=-1),
        lambda: replace(QUIET, begun_at=datetime(2025, 1, 1)),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: object) -> None:
    with pytest.raises(Malformed):
        wrong()  # type: ignore[operator]
