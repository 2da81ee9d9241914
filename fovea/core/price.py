"""What a question has to be worth now: a price per byte that moves so that the budget is used, and not more.

The best use of a budget asks exactly the frames whose gain per byte is above one price (the Lagrange multiplier of a
knapsack). That price is not known beforehand and changes with the scene, so it is followed: a bucket that stays full
means that the price was too high, one that runs empty that it was too low (a PI controller on the level of the
bucket, in the logarithm of the price).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fovea.core.errors import Malformed


@dataclass(frozen=True, slots=True)
class PriceSettings:
    """How the price moves.

    start         gain per byte to begin with, fitted on recorded frames
    target_level  how full the bucket is kept
    reaction      e-folds of the price between a bucket at the target and an empty one
    settle_s      seconds in which a bucket that stays at the end of its range moves the price by one e-fold
    spread        the price stays within this factor of where it began, either way, so that a long night does not make
                  the first car of the morning free or priceless
    """

    start: float
    target_level: float = 0.5
    reaction: float = 0.25
    settle_s: float = 30.0
    spread: float = 1000.0

    def __post_init__(self) -> None:
        if not (self.start > 0 and math.isfinite(self.start)):
            raise Malformed(f"price start: expected a finite gain per byte above 0, got {self.start}")
        if not (0 < self.target_level < 1 and self.reaction >= 0 and self.settle_s > 0 and self.spread > 1):
            raise Malformed(
                f"price settings: expected a target level within 0 to 1 and times above 0, got {self}"
            )


class AskPrice:
    """The price of one budget, for one thread. Tell it the level of the bucket (0 empty, 1 full) and the time."""

    def __init__(self, settings: PriceSettings) -> None:
        self.settings = settings
        self._drift = 0.0
        self._at_mono_s: float | None = None

    def now(self, level: float, now_mono_s: float) -> float:
        """Gain per byte that a question has to promise at least."""
        own = self.settings
        error = own.target_level - min(max(level, 0.0), 1.0)
        if self._at_mono_s is not None:
            # Long silences teach nothing: at most one second of them counts.
            passed_s = min(max(now_mono_s - self._at_mono_s, 0.0), 1.0)
            limit = math.log(own.spread)
            self._drift += passed_s / own.settle_s * error / max(own.target_level, 1 - own.target_level)
            self._drift = min(max(self._drift, -limit), limit)
        self._at_mono_s = now_mono_s
        return own.start * math.exp(self._drift + own.reaction * error / own.target_level)
