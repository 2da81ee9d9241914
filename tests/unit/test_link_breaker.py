"""The breaker: when it opens, whom it lets through, and how its pauses grow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fovea.core.errors import Malformed
from fovea.link.breaker import Breaker, BreakerSettings, BreakerState

SETTINGS = BreakerSettings(failures_in_a_row=3, first_pause_s=1.0, growth=2.0, longest_pause_s=4.0)


def ticket_of(breaker: Breaker, now_s: float) -> int:
    ticket = breaker.admit(now_s)
    assert ticket is not None
    return ticket


def fail(breaker: Breaker, now_s: float, times: int = 1) -> None:
    for _ in range(times):
        breaker.failed(ticket_of(breaker, now_s), now_s)


def test_it_opens_after_so_many_failures_in_a_row_and_a_success_starts_the_count_anew() -> None:
    breaker = Breaker(SETTINGS)
    fail(breaker, 0.0, 2)
    breaker.succeeded(ticket_of(breaker, 0.0))
    fail(breaker, 0.0, 2)
    assert breaker.is_closed and breaker.has_failures
    fail(breaker, 0.0)
    assert breaker.state is BreakerState.OPEN
    assert breaker.admit(0.999) is None


def test_it_opens_when_too_large_a_share_of_the_last_calls_failed() -> None:
    breaker = Breaker(BreakerSettings(failures_in_a_row=100, window_calls=10, failed_share=0.5))
    for number in range(9):
        ticket = ticket_of(breaker, 0.0)
        if number % 2:
            breaker.succeeded(ticket)
        else:
            breaker.failed(ticket, 0.0)
    assert breaker.is_closed, "the window is not full"
    breaker.succeeded(ticket_of(breaker, 0.0))
    assert breaker.is_closed, "a success opens nothing"
    fail(breaker, 0.0)
    assert breaker.state is BreakerState.OPEN


def test_one_trial_goes_through_after_the_pause_and_decides() -> None:
    breaker = Breaker(SETTINGS)
    fail(breaker, 0.0, 3)
    trial = ticket_of(breaker, 1.0)
    assert breaker.state is BreakerState.HALF_OPEN
    assert breaker.admit(1.0) is None, "only one at a time"
    breaker.succeeded(trial)
    assert breaker.is_closed
    assert breaker.admit(1.0) is not None


def test_a_trial_that_says_nothing_leaves_its_place_to_another() -> None:
    breaker = Breaker(SETTINGS)
    fail(breaker, 0.0, 3)
    breaker.withdrawn(ticket_of(breaker, 1.0))
    assert breaker.state is BreakerState.HALF_OPEN
    breaker.succeeded(ticket_of(breaker, 1.0))
    assert breaker.is_closed


def test_pauses_grow_up_to_the_longest_and_for_ever() -> None:
    breaker, now_s, pauses = Breaker(SETTINGS), 0.0, []
    fail(breaker, now_s, 3)
    for _ in range(6):
        pauses.append(breaker.trial_from_mono_s - now_s)
        now_s = breaker.trial_from_mono_s
        fail(breaker, now_s)
    assert pauses == [1.0, 2.0, 4.0, 4.0, 4.0, 4.0]


def test_who_fails_again_right_after_coming_back_waits_longer_and_who_has_proved_himself_does_not() -> None:
    breaker = Breaker(SETTINGS)
    fail(breaker, 0.0, 3)
    breaker.succeeded(ticket_of(breaker, 1.0))
    fail(breaker, 1.0, 3)
    assert breaker.trial_from_mono_s == 1.0 + 2.0
    breaker.succeeded(ticket_of(breaker, 3.0))
    for _ in range(SETTINGS.proven_after):
        breaker.succeeded(ticket_of(breaker, 3.0))
    fail(breaker, 3.0, 3)
    assert breaker.trial_from_mono_s == 3.0 + 1.0


def test_what_comes_from_before_the_last_change_is_of_no_account() -> None:
    breaker = Breaker(SETTINGS)
    slow = [ticket_of(breaker, 0.0) for _ in range(4)]
    fail(breaker, 0.0, 3)
    breaker.failed(slow[0], 0.9)
    assert breaker.trial_from_mono_s == 1.0, "a straggler does not make the pause longer"
    breaker.succeeded(slow[1])
    assert breaker.state is BreakerState.OPEN, "nor does one close it"
    trial = ticket_of(breaker, 1.0)
    breaker.failed(slow[2], 1.0)
    breaker.withdrawn(slow[3])
    assert breaker.admit(1.0) is None, "the trial is still under way"
    breaker.succeeded(trial)
    assert breaker.is_closed


def test_it_can_begin_open_and_be_opened_and_closed_from_outside() -> None:
    breaker = Breaker(SETTINGS, open_since_mono_s=5.0)
    assert not breaker.is_closed
    breaker.succeeded(ticket_of(breaker, 5.0))
    breaker.trip(6.0)
    assert not breaker.admits(6.9) and breaker.admits(7.0)
    breaker.trip(6.9)
    assert breaker.admits(7.0), "open already, so the pause stays"
    breaker.reset()
    assert breaker.is_closed and not breaker.has_failures


@given(st.lists(st.tuples(st.sampled_from(["ok", "bad", "none"]), st.floats(0, 3)), max_size=60))
def test_whatever_happens_a_trial_is_let_through_within_the_longest_pause(
    story: list[tuple[str, float]],
) -> None:
    breaker, now_s = Breaker(SETTINGS), 0.0
    for how, pause_s in story:
        now_s += pause_s
        could = breaker.admits(now_s)
        ticket = breaker.admit(now_s)
        assert could == (ticket is not None)
        if ticket is None:
            continue
        if how == "ok":
            breaker.succeeded(ticket)
            assert breaker.is_closed
        elif how == "bad":
            breaker.failed(ticket, now_s)
        else:
            breaker.withdrawn(ticket)
    assert breaker.admits(now_s + SETTINGS.longest_pause_s)


@pytest.mark.parametrize(
    "settings",
    [
        {"failures_in_a_row": 0},
        {"window_calls": 0},
        {"failed_share": 0.0},
        {"failed_share": float("nan")},
        {"first_pause_s": 0.0},
        {"first_pause_s": 9.0, "longest_pause_s": 5.0},
        {"longest_pause_s": float("inf")},
        {"growth": 0.5},
        {"proven_after": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(Malformed, match="breaker settings"):
        BreakerSettings(**settings)  # type: ignore[arg-type]
