"""Rules as they would run: frames one after another, a budget, and the price that holds it.

The agent's own purse spends the budget. Our gate asks as it does in the product: p_ask from a threshold on, and a
gain per byte that is worth the price. A rule that only ranks is given what it lacks: its score becomes the share of
validation frames with a higher one, and its worth one over that share, so that the price moves the share of frames
asked. In both, where the price begins was found on validation frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from calibration.cascade import Flags, Floats
from edge_agent.purse import Purse, worth_of
from fovea.core.budget import Budget
from fovea.core.gate import Opinion
from fovea.core.price import AskPrice, PriceSettings
from fovea.core.routing import Reason

ASK_FROM = 0.7
BURST_S = 20.0


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """What a rule says of the frames: `opinions` of each, what its price begins with, and what a question weighs
    where the price is one for each byte."""

    opinions: Sequence[Opinion]
    start_price: float
    ask_bytes: float | None = None


class Timed(Protocol):
    """What a replay needs of a frame; `fovea.bench.gate_set.AskFrame` is one."""

    @property
    def at_s(self) -> float: ...

    @property
    def jpeg_bytes(self) -> int: ...


def replay(
    frames: Sequence[Timed],
    offer: Offer,
    share: float,
    ask_from: float = ASK_FROM,
    wanted: Flags | None = None,
) -> Flags:
    """bool[F]: which of the frames, in the order of time, are asked when the budget is this share (0..1) of them.
    `wanted` bool[F]: those that something else, too, wants to be asked; all, when it is left out.

    The bucket begins as full as it is kept (half), as if it had been running.
    """
    span_s = frames[-1].at_s - frames[0].at_s
    rate_per_s = share * len(frames) / max(span_s, 1.0)
    settings = PriceSettings(offer.start_price)
    budget = Budget(rate_per_s, burst_s=max(BURST_S, 4 / rate_per_s))
    budget.spend_bytes(frames[0].at_s, 0)
    for _ in range(round(rate_per_s * max(BURST_S, 4 / rate_per_s) * (1 - settings.target_level))):
        budget.spend_ask(frames[0].at_s)
    purse = Purse(budget, AskPrice(settings), offer.ask_bytes)
    asked = np.zeros(len(frames), bool)
    for row, (frame, opinion) in enumerate(zip(frames, offer.opinions, strict=True)):
        # The price follows every frame, wanted or not, as the agent has it.
        is_wanted = opinion.p_ask >= ask_from and (wanted is None or bool(wanted[row]))
        if purse.allows(opinion, frame.at_s) and is_wanted:
            purse.spend_ask(frame.at_s)
            purse.spend_bytes(frame.at_s, frame.jpeg_bytes)
            asked[row] = True
    return asked


def ranked_offer(scores: Floats, on_val: Floats, share: float) -> Offer:
    """A rule that only ranks: `scores` f64[F] of the frames, and those of the validation frames."""
    ordered = np.sort(on_val)
    below = np.searchsorted(ordered, scores, "left") + np.searchsorted(ordered, scores, "right")
    above = 1 - (below / 2 + 0.5) / (len(ordered) + 1)
    opinions = [Opinion(1.0, float(1 / each), (Reason.EXPECTED_GAIN,)) for each in above]
    return Offer(opinions, 1 / share)


def start_price(
    opinions: Sequence[Opinion], jpeg_bytes: Floats, share: float, ask_from: float = ASK_FROM
) -> float:
    """Gain per byte above which this share (0..1) of validation frames would be asked."""
    gains = np.array([worth_of(each) if each.p_ask >= ask_from else 0.0 for each in opinions], np.float64)
    return max(float(np.quantile(gains / jpeg_bytes.mean(), 1 - share)), 1e-12)
