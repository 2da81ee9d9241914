"""The learning rate over a run, and how far a run has come, by its clock or by its batches."""

import math
from dataclasses import dataclass

FLOOR = 0.02


@dataclass(frozen=True, slots=True)
class Horizon:
    """Where a run ends: after `batches`, or after `budget_s` seconds where a budget is set."""

    batches: int
    budget_s: float | None = None

    def progress(self, batches_done: int, elapsed_s: float) -> float:
        """Share of the run that is over, 0 to 1; whichever end is nearer decides."""
        by_batches = batches_done / max(self.batches, 1)
        by_clock = elapsed_s / self.budget_s if self.budget_s else 0.0
        return min(max(by_batches, by_clock), 1.0)


def rate_factor(progress: float, batches_done: int, warmup_batches: int) -> float:
    """Multiplier of the peak rate: a linear warm-up, then a cosine down to `FLOOR` (Loshchilov & Hutter 2017)."""
    cosine = FLOOR + (1.0 - FLOOR) * 0.5 * (1.0 + math.cos(math.pi * progress))
    return min(1.0, (batches_done + 1) / max(warmup_batches, 1)) * cosine
