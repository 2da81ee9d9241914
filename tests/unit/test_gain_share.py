"""What part of the possible gain a rule gets, and when one rule is better than another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.cascade import CascadeFrame, CascadeTable, top_share
from calibration.evaluate import Interval
from calibration.gain_share import (
    NEVER_PCT,
    Comparison,
    Verdict,
    ap_curve,
    compare_gain_shares,
    equals_strong_at_pct,
    gain_share,
    misroute_cost,
    misroutes,
    needless_pct,
)
from calibration.reward import context_reward
from fovea.core.errors import Malformed
from tests.unit.evaluation_frames import LABELS
from tests.unit.test_cascade import cascade_frames

ONE_WINDOW = np.zeros(6, np.int64)
REWARD = np.array([0.5, 0.4, 0.3, 0.0, -0.1, 0.2])


def flags(*rows: int, count: int = 6) -> np.ndarray:
    asked = np.zeros(count, bool)
    asked[list(rows)] = True
    return asked


@pytest.fixture(scope="module")
def table() -> CascadeTable:
    return CascadeTable.of(cascade_frames(60), LABELS.ids)


@pytest.fixture(scope="module")
def reward(table: CascadeTable) -> np.ndarray:
    return context_reward(table, contexts_per_share=1)


def test_the_oracle_has_the_whole_gain_and_who_asks_nothing_has_none(
    table: CascadeTable, reward: np.ndarray
) -> None:
    oracle = top_share(reward, 0.3)
    assert gain_share(table, oracle, oracle) == pytest.approx(1)
    assert gain_share(table, np.zeros(60, bool), oracle) == 0


def test_the_share_of_a_random_rule_is_the_mean_over_its_draws(
    table: CascadeTable, reward: np.ndarray
) -> None:
    oracle, rng = top_share(reward, 0.3), np.random.default_rng(0)
    draws = np.column_stack([top_share(rng.random(60), 0.3) for _ in range(5)])
    shares = [gain_share(table, draws[:, column], oracle) for column in range(5)]
    assert gain_share(table, draws, oracle) == pytest.approx(np.mean(shares))
    assert 0 < np.mean(shares) < 1


def test_an_oracle_that_gains_nothing_leaves_nothing_to_share(table: CascadeTable) -> None:
    nobody = np.zeros(60, bool)
    with pytest.raises(Malformed, match="expected an oracle that gains"):
        gain_share(table, nobody, nobody)
    with pytest.raises(Malformed, match="expected an oracle that gains"):
        compare_gain_shares(table, nobody, [nobody], nobody, resamples=10)


def test_the_oracle_is_above_its_opposite_and_ties_with_itself(
    table: CascadeTable, reward: np.ndarray
) -> None:
    oracle, worst = top_share(reward, 0.3), top_share(-reward, 0.3)
    above, tie = compare_gain_shares(table, oracle, [worst, oracle], oracle, resamples=200)
    assert (above.verdict, tie.verdict) == (Verdict.ABOVE, Verdict.TIE)
    assert tie.difference == Interval(0, 0, 0)
    [below] = compare_gain_shares(table, worst, [oracle], oracle, resamples=200)
    assert below.verdict is Verdict.BELOW
    assert below.difference.value == pytest.approx(-above.difference.value)


def test_the_difference_compared_is_that_of_the_gain_shares(table: CascadeTable, reward: np.ndarray) -> None:
    oracle, other = top_share(reward, 0.2), top_share(np.arange(60.0), 0.2)
    [found] = compare_gain_shares(table, oracle, [other], oracle, resamples=50)
    assert found.difference.value == pytest.approx(1 - gain_share(table, other, oracle))
    assert found.difference.low <= found.difference.value <= found.difference.high


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.01, 0.2, Verdict.ABOVE), (0.0, 0.2, Verdict.TIE), (-0.2, -0.01, Verdict.BELOW)],
)
def test_only_an_interval_that_leaves_zero_out_is_a_verdict(
    low: float, high: float, verdict: Verdict
) -> None:
    assert Comparison(Interval((low + high) / 2, low, high)).verdict is verdict


def test_the_curve_begins_with_the_weak_model_and_ends_with_everything_merged(
    table: CascadeTable, reward: np.ndarray
) -> None:
    curve = ap_curve(table, reward, [0, 0.5, 1])
    assert curve[[0, 2]] == pytest.approx(table.ap(np.repeat([[False, True]], 60, axis=0)))


def test_the_first_percentage_that_is_as_good_as_the_strong_model_is_found(
    table: CascadeTable, reward: np.ndarray
) -> None:
    curve = ap_curve(table, reward, [pct / 100 for pct in range(101)])
    assert equals_strong_at_pct(table, reward, float(curve[40])) <= 40
    assert equals_strong_at_pct(table, reward, 1.0) == NEVER_PCT
    assert equals_strong_at_pct(table, reward, 0.0) == 0


def test_a_misroute_is_kept_although_it_gains_more_than_one_that_was_asked() -> None:
    assert misroutes(REWARD, flags(0, 1), ONE_WINDOW) == 0
    assert misroutes(REWARD, flags(0, 2), ONE_WINDOW) == pytest.approx(1 / 6)
    assert misroutes(REWARD, flags(3), ONE_WINDOW) == pytest.approx(4 / 6)
    assert misroutes(REWARD, flags(), ONE_WINDOW) == 0


def test_misroutes_are_only_looked_for_within_a_window() -> None:
    halves = np.array([0, 0, 0, 1, 1, 1])
    assert misroutes(REWARD, flags(2), halves) == pytest.approx(2 / 6)
    assert misroutes(REWARD, flags(2), ONE_WINDOW) == pytest.approx(2 / 6)
    assert misroutes(REWARD, flags(5), halves) == 0


def test_what_misroutes_cost_is_the_gain_that_the_best_choice_would_have_on_top() -> None:
    assert misroute_cost(REWARD, flags(0, 1), ONE_WINDOW) == 0
    assert misroute_cost(REWARD, flags(3, 4), ONE_WINDOW) == pytest.approx(1.0 / 6)


def test_misroutes_of_draws_are_their_mean() -> None:
    draws = np.column_stack([flags(0, 1), flags(3, 4)])
    assert misroute_cost(REWARD, draws, ONE_WINDOW) == pytest.approx(0.5 / 6)
    assert misroutes(REWARD, draws, ONE_WINDOW) == pytest.approx(2 / 6)


@given(st.lists(st.booleans(), min_size=6, max_size=6))
def test_no_choice_costs_less_than_the_best(choice: list[bool]) -> None:
    asked = np.array(choice)
    best = np.zeros(6, bool)
    best[np.argsort(-REWARD, kind="stable")[: asked.sum()]] = True
    assert misroute_cost(REWARD, asked, ONE_WINDOW) >= -1e-12
    assert misroute_cost(REWARD, best, ONE_WINDOW) == pytest.approx(0, abs=1e-12)
    assert misroutes(REWARD, best, ONE_WINDOW) == 0


def test_a_question_that_gains_nothing_is_needless() -> None:
    assert needless_pct(REWARD, flags(0, 3, 4, 5)) == 50
    assert needless_pct(REWARD, flags()) == 0


def test_answers_that_stay_the_same_have_no_share_to_compare() -> None:
    frames = [CascadeFrame(f.clip, f.truth, f.weak, f.weak) for f in cascade_frames(12)]
    table = CascadeTable.of(frames, LABELS.ids)
    with pytest.raises(Malformed, match="expected an oracle that gains"):
        gain_share(table, flags(1, count=12), flags(2, count=12))
