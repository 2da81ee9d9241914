"""Is it worth asking somebody with sharper eyes about this frame? The seam, and the first, hand-set gate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from fovea.core.errors import Malformed
from fovea.core.features import FrameFeatures
from fovea.core.routing import Reason

_AT_THE_LIMIT = -math.log(1 - 0.7)
"""Doubt of 1 becomes p_ask 0.7, from which a frame is asked by default."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """What a gate thinks of a frame.

    p_ask          0..1, the probability that asking pays (only a fitted gate means it as one; a rule only ranks)
    expected_gain  what asking should add to the AP of the frame, None where the gate does not estimate it
    reasons        what speaks for asking, strongest first; SURE alone when nothing does
    """

    p_ask: float
    expected_gain: float | None
    reasons: tuple[Reason, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.p_ask <= 1:
            raise Malformed(f"opinion p_ask: expected 0 to 1, got {self.p_ask}")
        if self.expected_gain is not None and not math.isfinite(self.expected_gain):
            raise Malformed(f"opinion expected_gain: expected a finite number, got {self.expected_gain}")
        if not self.reasons:
            raise Malformed("opinion: expected at least one reason, got none")


class Gate(Protocol):
    """Pure and fast (well under 0.3 ms): the same features always give the same opinion."""

    def judge(self, features: FrameFeatures) -> Opinion:
        """What the features say."""
        ...


@dataclass(frozen=True, slots=True)
class RuleGateSettings:
    """The doubt that one unit of each thing adds, 0 or more (0 turns a rule off), chosen on street val so that about
    a quarter of the frames of a camera are worth a question (docs/experiments.md).

    uncertain_boxes       a box answered with a middling score
    weak_mass             a score of 1, made of boxes just below the answer
    vanished_tracks       a track that went without leaving
    unexplained_motion    the whole frame moves without a box
    """

    uncertain_boxes: float = 0.15
    weak_mass: float = 0.35
    vanished_tracks: float = 0.28
    unexplained_motion: float = 1.4

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not 0 <= getattr(self, name) < math.inf:
                raise Malformed(f"rule gate {name}: expected 0 or more, got {getattr(self, name)}")


class RuleGate:
    """The first gate: four hand-set rules, no fitting.

    Each rule doubts by its weight times the square root of its feature (the tenth uncertain box says less than the
    first). Together they count as much less as there is more in view, by the fourth root of 1 + boxes, and
    p_ask = 1 - 0.3 ** doubt: 0 without doubt, 0.7 at a doubt of 1. An empty frame is asked about like any other:
    three of the four rules need no box.
    """

    def __init__(self, settings: RuleGateSettings = RuleGateSettings()) -> None:
        self.settings = settings

    def judge(self, features: FrameFeatures) -> Opinion:
        """What the four rules say; a rule is named as a reason when it holds a quarter of the doubt or more."""
        weights = self.settings
        doubts = [
            (weights.uncertain_boxes * math.sqrt(features.uncertain_count), Reason.UNCERTAIN_BOXES),
            (weights.weak_mass * math.sqrt(features.weak_mass), Reason.WEAK_BOXES),
            (weights.vanished_tracks * math.sqrt(features.vanished_count), Reason.VANISHED_TRACK),
            (
                weights.unexplained_motion * math.sqrt(features.unexplained_motion),
                Reason.MOTION_WITHOUT_BOXES,
            ),
        ]
        total = sum(doubt for doubt, _ in doubts)
        if total <= 0:
            return Opinion(0.0, None, (Reason.SURE,))
        doubts.sort(key=lambda each: -each[0])
        reasons = tuple(reason for doubt, reason in doubts if doubt >= total / 4)
        doubt = total / (1 + features.box_count) ** 0.25
        return Opinion(1 - math.exp(-_AT_THE_LIMIT * doubt), None, reasons)
