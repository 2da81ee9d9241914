"""What is true of the models, cameras and days of a simulated fleet; nobody in it is told, all have to find out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fovea.core.errors import Malformed

_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class ModelTruth:
    """How good a model really is.

    agreement: with the tier above, 0..1, on a camera of usual difficulty at a usual hour. ms_p95: of one frame, on a
    usual board. asked_share: of the frames that it sends upwards. failures_per_h: frames on which it breaks.
    crashes_per_h: how often it takes the process down where it answers; in shadow it does not.
    """

    agreement: float = 0.8
    ms_p95: float = 30.0
    asked_share: float = 0.1
    failures_per_h: float = 0.0
    crashes_per_h: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.agreement <= 1 or not 0 < self.asked_share <= 1:
            raise Malformed(
                f"model truth: expected an agreement and an asked_share of 0 to 1, got {self.agreement} and "
                f"{self.asked_share}"
            )


@dataclass(frozen=True, slots=True)
class CameraTruth:
    """What one camera has to look at, and with what. difficulty: added to the agreement of every model; slowness:
    factor on its times; busy: factor on its asked share. taste: how much more or less one model agrees here than
    another one, as a spread; `view` says which."""

    difficulty: float = 0.0
    slowness: float = 1.0
    busy: float = 1.0
    fps: float = 2.0
    taste: float = 0.0
    view: int = 0

    def liking(self, sha256: str) -> float:
        """What is added to the agreement of this one model on this one camera."""
        if not self.taste:
            return 0.0
        return self.taste * float(np.random.default_rng((self.view, int(sha256[:12], 16))).normal())


@dataclass(frozen=True, slots=True)
class FleetTruth:
    """How cameras differ, and what changes for all of them at the same time. frame_spread: of one frame's agreement;
    drift: how far the agreement of all falls and rises within a day; taste: see CameraTruth."""

    difficulty_spread: float = 0.06
    slowness_spread: float = 0.15
    busy_spread: float = 0.2
    frame_spread: float = 0.25
    drift: float = 0.08
    fps: float = 2.0
    taste: float = 0.015

    def camera(self, rng: np.random.Generator) -> CameraTruth:
        """One of the fleet, at random."""
        return CameraTruth(
            float(np.clip(rng.normal(0, self.difficulty_spread), -0.2, 0.15)),
            float(np.exp(rng.normal(0, self.slowness_spread))),
            float(np.exp(rng.normal(0, self.busy_spread))),
            self.fps,
            self.taste,
            int(rng.integers(1 << 40)),
        )

    def conditions(self, at_s: float) -> float:
        """What the hour adds to the agreement of every model on every camera."""
        return self.drift * math.sin(2 * math.pi * at_s / _DAY_S)
