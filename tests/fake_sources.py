"""Stand-ins for what is behind `edge_agent.capture.source` and OpenCV, for tests that open no camera."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np

from edge_agent.capture.source import Captured, SourceFacts
from edge_agent.capture.sources.url import SourceKind
from fovea.core.arrays import ImageArray
from fovea.core.errors import FoveaError
from fovea.core.ports import Clock

Step = ImageArray | FoveaError
"""A frame; or an error, Unavailable while waiting for it, a RejectedError in place of its picture."""


def flat(level: int, height: int = 24, width: int = 32) -> ImageArray:
    """One grey level."""
    return np.full((height, width, 3), level % 256, np.uint8)


class FakeSource:
    """Gives `steps` one after the other; then it ends, or stays silent until it is closed when it is live."""

    def __init__(
        self,
        steps: Sequence[Step],
        clock: Clock,
        kind: SourceKind = SourceKind.FILE,
        fps: float | None = None,
        before: Callable[[int], None] = lambda index: None,
    ) -> None:
        self._steps, self._clock, self._before = list(steps), clock, before
        self._at = -1
        self.facts = SourceFacts(kind, "fake", None, fps, is_live=kind is not SourceKind.FILE)
        self.closed = threading.Event()
        self.pictures = 0

    def advance(self) -> bool:
        from fovea.core.errors import RetryableError

        self._at += 1
        self._before(self._at)
        if self._at >= len(self._steps):
            if self.facts.is_live:
                self.closed.wait(30)
            return False
        step = self._steps[self._at]
        if isinstance(step, RetryableError):
            raise step
        return True

    def picture(self) -> Captured:
        step = self._steps[self._at]
        if isinstance(step, FoveaError):
            raise step
        self.pictures += 1
        return Captured(step.copy(), self._clock.now(), self._clock.monotonic_s())

    def close(self) -> None:
        self.closed.set()


class FakeCapture:
    """A cv2.VideoCapture of given properties that gives `frames` grey frames."""

    def __init__(self, frames: int, is_open: bool = True, **properties: float) -> None:
        self._left, self._is_open = frames, is_open
        self._properties = {
            getattr(cv2, f"CAP_PROP_{name.upper()}"): value for name, value in properties.items()
        }
        self.picture: Any = flat(90)
        self.is_released = False

    def isOpened(self) -> bool:  # noqa: N802
        return self._is_open

    def grab(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def retrieve(self) -> tuple[bool, Any]:
        return self.picture is not None, self.picture

    def get(self, prop: int, /) -> float:
        return self._properties.get(prop, 0.0)

    def release(self) -> None:
        self.is_released = True
