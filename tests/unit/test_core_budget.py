"""Token buckets that are told the time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fovea.core.budget import Budget, TokenBucket
from fovea.core.errors import Malformed


def test_a_bucket_starts_full_and_fills_at_its_rate() -> None:
    bucket = TokenBucket(rate_per_s=2, burst=3)
    assert [bucket.take(10.0) for _ in range(4)] == [True, True, True, False]
    assert not bucket.take(10.4)
    assert bucket.take(10.5)
    assert bucket.available(10.5) == 0


def test_a_bucket_never_holds_more_than_its_burst() -> None:
    bucket = TokenBucket(rate_per_s=2, burst=3)
    assert bucket.available(0) == 3
    assert bucket.available(1000) == 3


def test_what_is_not_all_there_is_not_taken_in_part() -> None:
    bucket = TokenBucket(rate_per_s=1, burst=3)
    assert not bucket.take(0, 4)
    assert bucket.available(0) == 3


def test_a_debt_is_paid_back_before_anything_is_available() -> None:
    bucket = TokenBucket(rate_per_s=1, burst=2)
    bucket.spend(0, 5)
    assert bucket.available(0) == -3
    assert not bucket.take(3.5)
    assert bucket.take(4)


def test_a_clock_that_steps_back_adds_nothing_and_does_not_stop_the_bucket() -> None:
    bucket = TokenBucket(rate_per_s=1, burst=1)
    assert bucket.take(100)
    assert bucket.available(50) == 0
    assert bucket.available(50.5) == pytest.approx(0.5)


def test_an_infinite_rate_never_runs_dry_and_a_rate_of_0_never_fills() -> None:
    endless, fixed = TokenBucket(math.inf, 1), TokenBucket(0, 1)
    assert all(endless.take(0, 1e9) for _ in range(5))
    assert fixed.take(0)
    assert not fixed.take(1e9)


@given(
    st.floats(0.1, 20),
    st.floats(1, 10),
    st.lists(st.tuples(st.floats(0, 2), st.floats(0.1, 3)), max_size=60),
)
def test_no_more_is_taken_than_burst_and_rate_allow(
    rate: float, burst: float, wishes: list[tuple[float, float]]
) -> None:
    bucket = TokenBucket(rate, burst)
    now = taken = 0.0
    for passed, tokens in wishes:
        now += passed
        taken += tokens if bucket.take(now, tokens) else 0
        assert taken <= burst + rate * now + 1e-6


def test_a_budget_allows_while_questions_and_bytes_last() -> None:
    budget = Budget(asks_per_s=1, bytes_per_s=1000, burst_s=2)
    assert budget.allows(0)
    budget.spend_ask(0)
    budget.spend_ask(0)
    assert not budget.allows(0)
    assert budget.allows(1)


def test_a_large_question_is_paid_for_afterwards() -> None:
    budget = Budget(asks_per_s=100, bytes_per_s=1000, burst_s=1)
    budget.spend_ask(0)
    budget.spend_bytes(0, 5000)
    assert not budget.allows(3.9)
    assert budget.allows(4.1)


def test_a_slow_rate_still_has_a_whole_question_to_begin_with() -> None:
    budget = Budget(asks_per_s=0.01, burst_s=1)
    assert budget.allows(0)
    budget.spend_ask(0)
    assert not budget.allows(99)
    assert budget.allows(101)


def test_asking_is_free_where_no_byte_rate_is_set() -> None:
    budget = Budget(asks_per_s=math.inf)
    for _ in range(100):
        budget.spend_ask(0)
        budget.spend_bytes(0, 10**9)
    assert budget.allows(0)


@pytest.mark.parametrize(("rate", "burst"), [(-1, 1), (math.nan, 1), (1, 0), (1, math.nan)])
def test_a_bucket_that_makes_no_sense_is_refused(rate: float, burst: float) -> None:
    with pytest.raises(Malformed, match="token bucket"):
        TokenBucket(rate, burst)


@pytest.mark.parametrize("burst_s", [0, -1, math.inf, math.nan])
def test_a_budget_without_a_burst_is_refused(burst_s: float) -> None:
    with pytest.raises(Malformed, match="burst_s"):
        Budget(1, burst_s=burst_s)


def test_a_time_that_is_no_number_is_refused() -> None:
    with pytest.raises(Malformed, match="now_mono_s"):
        TokenBucket(1, 1).take(math.nan)
