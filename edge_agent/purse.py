"""What questions may cost, and what one has to be worth now: the budget, spent on the frames that promise most."""

from __future__ import annotations

import math

from fovea.core.budget import Budget
from fovea.core.gate import Opinion
from fovea.core.price import AskPrice, PriceSettings

RULES_PRICE = PriceSettings(start=1.0)
"""For gates that only rank: in doubts, see `worth_of`."""
GAIN_PRICE = PriceSettings(start=0.01)
"""For gates that estimate a gain in AP."""

_CERTAIN = 50.0


class Purse:
    """For one thread. Where the budget is ample the price falls until every question is paid; where many frames would
    be asked about it rises, so that the budget goes to the best of them instead of the first."""

    def __init__(self, budget: Budget, price: AskPrice) -> None:
        self._budget = budget
        self._price = price

    def allows(self, opinion: Opinion, now_mono_s: float) -> bool:
        """Whether a question is worth its price and can be paid now; takes nothing. To be asked for every frame."""
        price = self._price.now(self._budget.level(now_mono_s), now_mono_s)
        return self._budget.allows(now_mono_s) and worth_of(opinion) >= price

    def can_pay(self, now_mono_s: float) -> bool:
        """Whether a question can be paid now, whatever it is worth."""
        return self._budget.allows(now_mono_s)

    def spend_ask(self, now_mono_s: float) -> None:
        """One question is being asked."""
        self._budget.spend_ask(now_mono_s)

    def spend_bytes(self, now_mono_s: float, size_bytes: int) -> None:
        """It took `size_bytes` on the wire."""
        self._budget.spend_bytes(now_mono_s, size_bytes)


def worth_of(opinion: Opinion) -> float:
    """The expected gain, where the gate estimates one; else its doubt, which adds up where p_ask only saturates."""
    if opinion.expected_gain is not None:
        return opinion.expected_gain
    return -math.log(1 - opinion.p_ask) if opinion.p_ask < 1 else _CERTAIN
