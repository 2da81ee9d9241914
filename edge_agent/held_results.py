"""Own answers that are held back for a while, for a better one may come in time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fovea.core.frame import FrameId

if TYPE_CHECKING:
    from edge_agent.frame_walk import Walked


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """What is held back, and until when."""

    walked: Walked
    until_mono_s: float


class HeldResults:
    """At most one per frame. Not thread-safe."""

    def __init__(self) -> None:
        self._held: dict[FrameId, Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, walked: Walked, until_mono_s: float) -> None:
        self._held[walked.result.frame_id] = Held(walked, until_mono_s)

    def take(self, frame_id: FrameId) -> Held | None:
        """What is held for a frame, which is held no longer; None when it is out already."""
        return self._held.pop(frame_id, None)

    def take_due(self, now_mono_s: float) -> list[Held]:
        """All whose time is over, the earliest first; they are held no longer."""
        due = sorted(
            (held for held in self._held.values() if held.until_mono_s <= now_mono_s),
            key=lambda held: held.until_mono_s,
        )
        for held in due:
            del self._held[held.walked.result.frame_id]
        return due

    def take_all(self) -> list[Held]:
        """All, due or not; nothing is held any more."""
        return self.take_due(float("inf"))

    @property
    def next_due_mono_s(self) -> float | None:
        """When the next one is due; None when nothing is held."""
        return min((held.until_mono_s for held in self._held.values()), default=None)
