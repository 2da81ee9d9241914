"""When frames are due, when a file shows its next frame, and when a lost camera is tried again. No clock in here."""

from __future__ import annotations

from collections.abc import Callable

_EARLY = 0.23
"""Of a period. No simple fraction: a stream of four times the wanted rate would come to lie on it exactly."""
_FAR_BEHIND_S = 1.0


class DueFrames:
    """Thins a stream to at most `fps`: a grid of due times, of which each is served by the first frame near it.

    A frame is taken up to a quarter of a period early, or a camera whose rate is the wanted one would lose every
    frame that comes a moment before its time.
    """

    def __init__(self, fps: float | None) -> None:
        self._period_s = None if fps is None else 1 / fps
        self._due_s: float | None = None

    def is_due(self, at_s: float) -> bool:
        """Whether the frame of this moment is wanted; times do not go back."""
        if self._period_s is None:
            return True
        if self._due_s is None or at_s >= self._due_s + self._period_s:
            self._due_s = at_s  # the first frame, or one after a gap: the grid begins here
        if at_s < self._due_s - _EARLY * self._period_s:
            return False
        self._due_s += self._period_s
        return True


class PlaybackPace:
    """Times at which the frames of a file are shown, `fps` apart. Who falls far behind goes on from where it is."""

    def __init__(self, fps: float) -> None:
        self._period_s = 1 / fps
        self._next_s: float | None = None

    def next_at(self, now_s: float) -> float:
        """The moment of the next frame; in the past by a little when the reader is late."""
        if self._next_s is None or now_s > self._next_s + max(_FAR_BEHIND_S, self._period_s):
            self._next_s = now_s
        at_s = self._next_s
        self._next_s += self._period_s
        return at_s


class RetryPauses:
    """Pauses that double, from `first_s` or up to its double, to between half of `longest_s` and all of it: drawn, so
    that cameras lost together do not come back together."""

    def __init__(self, first_s: float, longest_s: float, draw: Callable[[], float]) -> None:
        """`draw` gives 0 to 1."""
        self._first_s, self._longest_s, self._draw = first_s, longest_s, draw
        self._failures = 0

    def next_s(self) -> float:
        """How long to wait after one more failure."""
        top_s = min(self._first_s * 2.0 ** min(self._failures + 1, 32), self._longest_s)
        self._failures += 1
        return max(self._first_s, top_s * (0.5 + 0.5 * self._draw()))

    def reset(self) -> None:
        """It went well for long enough."""
        self._failures = 0
