"""What there is to say about a tier above that goes and comes back: once for each change."""

from __future__ import annotations

import threading

from fovea.link.link import LinkState, LinkStatus


class OutageTeller:
    """Gives each sentence once. Safe for several threads: frames and the link have threads of their own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_told = False
        self._was_reached = False
        self._degraded_frames = 0

    def frame_degraded(self) -> str | None:
        """A frame was answered without the look that was meant; a sentence when that is news. A link that was there
        tells of its loss itself, and knows why: a moment after the first such frames, for it makes sure."""
        with self._lock:
            self._degraded_frames += 1
            return None if self._was_reached else self._tell("edge not reached yet, answering locally")

    def link_changed(self, state: LinkState) -> str | None:
        """The link stands otherwise than before; a sentence when that is news."""
        with self._lock:
            if state.status is not LinkStatus.UP:
                return None if state.is_first else self._tell(f"edge lost, answering locally: {state.reason}")
            frames, self._degraded_frames = self._degraded_frames, 0
            was_told, self._is_told, self._was_reached = self._is_told, False, True
            if state.is_first:
                return f"edge reached, {frames} frames degraded before" if was_told else "edge reached"
            return f"edge back after {state.away_s:.0f} s, {frames} frames degraded"

    def _tell(self, sentence: str) -> str | None:
        if self._is_told:
            return None
        self._is_told = True
        return sentence
