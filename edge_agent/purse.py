"""What questions may cost, and what one has to be worth now: the budget, spent on the frames that promise most."""

from __future__ import annotations

import math

from fovea.core.budget import Budget
from fovea.core.gate import Gate, Opinion
from fovea.core.learned_gate import LearnedGate
from fovea.core.price import AskPrice, PriceSettings

RULES_PRICE = PriceSettings(start=1.0)
"""For gates that only rank: in doubts, see `worth_of`."""

_CERTAIN = 50.0
_NEWEST_SHARE = 0.1
"""How much the newest question says about what a question weighs."""


class Purse:
    """For one thread. Where the budget is ample the price falls until every question is paid; where many frames would
    be asked about it rises, so that the budget goes to the best of them instead of the first."""

    def __init__(self, budget: Budget, price: AskPrice, ask_bytes: float | None = None) -> None:
        """`ask_bytes` is what a question usually weighs: the price is one for each byte. Where the budget limits the
        bytes the weight is followed from there; where it does not, a link that carries raw pictures must not make
        questions dear. None: the price is one for each question."""
        self._budget = budget
        self._price = price
        self._ask_bytes = ask_bytes

    def allows(self, opinion: Opinion, now_mono_s: float) -> bool:
        """Whether a question is worth its price and can be paid now; takes nothing. To be asked for every frame."""
        price = self._price.now(self._budget.level(now_mono_s), now_mono_s)
        worth = worth_of(opinion) / (self._ask_bytes or 1.0)
        return self._budget.allows(now_mono_s) and worth >= price

    def can_pay(self, now_mono_s: float) -> bool:
        """Whether a question can be paid now, whatever it is worth."""
        return self._budget.allows(now_mono_s)

    def spend_ask(self, now_mono_s: float) -> None:
        """One question is being asked."""
        self._budget.spend_ask(now_mono_s)

    def spend_bytes(self, now_mono_s: float, size_bytes: int) -> None:
        """It took `size_bytes` on the wire."""
        self._budget.spend_bytes(now_mono_s, size_bytes)
        if self._ask_bytes is not None and size_bytes > 0 and self._budget.limits_bytes:
            self._ask_bytes += _NEWEST_SHARE * (size_bytes - self._ask_bytes)


def purse_for(gate: Gate, budget: Budget) -> Purse:
    """The purse that spends a budget by the opinions of this gate."""
    if isinstance(gate, LearnedGate):
        return Purse(budget, AskPrice(PriceSettings(start=gate.price.gain_per_byte)), gate.price.ask_bytes)
    return Purse(budget, AskPrice(RULES_PRICE))


def worth_of(opinion: Opinion) -> float:
    """The expected gain, where the gate estimates one; else its doubt, which adds up where p_ask only saturates."""
    if opinion.expected_gain is not None:
        return opinion.expected_gain
    return -math.log(1 - opinion.p_ask) if opinion.p_ask < 1 else _CERTAIN
