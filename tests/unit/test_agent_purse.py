"""The purse of a gate that estimates a gain: a price for each byte."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from edge_agent.purse import RULES_PRICE, Purse, purse_for
from fovea.core.budget import Budget
from fovea.core.gate import Opinion, RuleGate
from fovea.core.learned_gate import LearnedGate, StartPrice
from fovea.core.price import AskPrice, PriceSettings
from fovea.core.routing import Reason
from fovea.core.scores import PlattCurve


class Flat:
    def apply(self, x: np.ndarray) -> float:
        return 0.0


GATE = LearnedGate(Flat(), PlattCurve(1.0, 0.0), Flat(), StartPrice(gain_per_byte=1e-6, ask_bytes=50_000))


def worth(gain: float) -> Opinion:
    return Opinion(0.9, gain, (Reason.EXPECTED_GAIN,))


def half_full(bytes_per_s: float = math.inf) -> Budget:
    """A budget whose bucket is where the price does not move it."""
    budget = Budget(1.0, bytes_per_s, burst_s=10.0)
    for _ in range(5):
        budget.spend_ask(0.0)
    return budget


def test_a_fitted_gate_begins_with_its_own_price_for_a_byte() -> None:
    assert purse_for(GATE, half_full()).allows(worth(0.051), 0.0)
    assert not purse_for(GATE, half_full()).allows(worth(0.049), 0.0)
    dearer = replace(GATE, price=StartPrice(2e-6, 50_000))
    assert not purse_for(dearer, half_full()).allows(worth(0.051), 0.0)


def test_a_gate_of_rules_is_paid_by_its_doubt() -> None:
    doubtful, calm = (Opinion(p_ask, None, (Reason.WEAK_BOXES,)) for p_ask in (0.7, 0.5))
    assert purse_for(RuleGate(), half_full()).allows(doubtful, 0.0)
    assert not purse_for(RuleGate(), half_full()).allows(calm, 0.0)


def test_questions_that_turn_out_heavier_have_to_be_worth_more() -> None:
    purse = purse_for(GATE, half_full(bytes_per_s=1e9))
    for _ in range(100):
        purse.spend_bytes(0.0, 100_000)
    assert not purse.allows(worth(0.09), 0.0)
    assert purse.allows(worth(0.101), 0.0)


def test_where_nobody_counts_the_bytes_heavy_questions_are_worth_no_more_than_light_ones() -> None:
    purse = purse_for(GATE, half_full())
    for _ in range(100):
        purse.spend_bytes(0.0, 1_500_000)
    assert purse.allows(worth(0.051), 0.0)


def test_a_price_for_each_question_does_not_care_for_bytes() -> None:
    purse = Purse(half_full(), AskPrice(PriceSettings(RULES_PRICE.start)))
    purse.spend_bytes(0.0, 10**9)
    assert purse.allows(worth(1.01), 0.0) and not purse.allows(worth(0.99), 0.0)
