"""The numbers that the tracker goes by."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fovea.core.errors import Malformed


@dataclass(frozen=True, slots=True)
class TrackerSettings:
    """Scores are calibrated ones of 0..1, times seconds.

    start_score     a box at or above starts a track; the others only continue one
    confirm_hits    looks by the camera until a track may be told to others
    coast_s         an unseen track is told this long, at the place where its motion takes it
    vanish_s        an unseen track counts as vanished this long
    lost_after_s    an unseen track is given up after this long, and all of them after a pause of this length
    leave_after_s   the same for one that was last seen leaving by the border
    adopt_score     a late box at or above that belongs to no track starts one
    adopt_within_s  it may be told at once if the answer is no older, else when anybody sees it once more
    told_half_life_s  how fast a late answer loses its say over the score
    history_s       a late answer about an older frame is ignored
    most_tracks     no more are started
    """

    start_score: float = 0.4
    confirm_hits: int = 2
    coast_s: float = 0.3
    vanish_s: float = 1.0
    lost_after_s: float = 3.0
    leave_after_s: float = 0.5
    adopt_score: float = 0.4
    adopt_within_s: float = 0.5
    told_half_life_s: float = 1.0
    history_s: float = 3.0
    most_tracks: int = 200

    def __post_init__(self) -> None:
        for name in ("start_score", "adopt_score"):
            if not 0 <= getattr(self, name) <= 1:
                raise Malformed(f"tracker {name}: expected 0 to 1, got {getattr(self, name)}")
        for name in (
            "coast_s",
            "vanish_s",
            "lost_after_s",
            "leave_after_s",
            "adopt_within_s",
            "told_half_life_s",
            "history_s",
        ):
            if not 0 < getattr(self, name) < math.inf:
                raise Malformed(f"tracker {name}: expected seconds above 0, got {getattr(self, name)}")
        if self.confirm_hits < 1 or self.most_tracks < 1:
            raise Malformed(
                f"tracker confirm_hits, most_tracks: expected at least 1, got {self.confirm_hits}, {self.most_tracks}"
            )
