"""A part of a source with an end: some frames passed over, a limit, again from the beginning."""

from __future__ import annotations

from collections.abc import Callable

from edge_agent.capture.source import Captured, FrameSource, SourceFacts


class Stretch:
    """Opens its source anew for each round, because not every file can be wound back."""

    def __init__(
        self, open_round: Callable[[], FrameSource], start: int, limit: int | None, is_looped: bool
    ) -> None:
        self._open_round, self._start, self._limit, self._is_looped = open_round, start, limit, is_looped
        self._source = open_round()
        self._left = limit
        self._is_begun = False
        self._frames_in_round = 0

    @property
    def facts(self) -> SourceFacts:
        return self._source.facts

    def advance(self) -> bool:
        while self._is_within():
            if self._left is not None:
                self._left -= 1
            if self._source.advance():
                self._frames_in_round += 1
                return True
            self._end_round()
        return False

    def picture(self) -> Captured:
        return self._source.picture()

    def close(self) -> None:
        self._left = 0
        self._is_looped = False
        self._source.close()

    def _is_within(self) -> bool:
        """Whether a frame may be read; begins a round where none is begun, the next where the limit is reached."""
        if self._left == 0 and self._is_looped and self._frames_in_round:
            self._next_round()
        if not self._is_begun:
            self._is_begun = True
            for _ in range(self._start):
                if not self._source.advance():
                    break
        return self._left is None or self._left > 0

    def _end_round(self) -> None:
        """The source ended before the limit. A round without a frame is the last: it would go on without rest."""
        self._left = 0
        if self._is_looped and self._frames_in_round:
            self._next_round()

    def _next_round(self) -> None:
        self._source.close()
        self._source = self._open_round()
        self._left, self._is_begun, self._frames_in_round = self._limit, False, 0
