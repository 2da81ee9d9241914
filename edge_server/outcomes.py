"""What becomes of a frame at the edge with respect to the cloud, and who is told."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol


class Escalated(StrEnum):
    """kept: not hard. spared: hard, but the budget is spent. hindered: hard or audited, but the cloud cannot be asked
    now. answered: the cloud answered in time. failed: asked in vain. left: the caller went while the cloud was asked.
    """

    KEPT = "kept"
    SPARED = "spared"
    HINDERED = "hindered"
    ANSWERED = "answered"
    FAILED = "failed"
    LEFT = "left"


class EscalationObserver(Protocol):
    """Is told what becomes of each frame, once, from any thread, and returns at once."""

    def frame_ended(self, outcome: Escalated, reason: str, asked_s: float | None) -> None:
        """`reason` is a word from a small set; `asked_s` how long the cloud was asked, None when it was not."""
        ...


class NobodyCounts:
    """An EscalationObserver that takes no notice."""

    def frame_ended(self, outcome: Escalated, reason: str, asked_s: float | None) -> None:
        pass
