"""The seams of the product: what one part needs of another, without naming who provides it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from fovea.core.arrays import ImageArray
from fovea.core.detections import Inference, ModelRef
from fovea.core.labels import LabelSet


class Clock(Protocol):
    """Time as the caller sees it; tests bring their own."""

    def now(self) -> datetime:
        """Wall-clock time in UTC."""
        ...

    def monotonic_s(self) -> float:
        """Seconds on a clock that never steps back."""
        ...


class Detector(Protocol):
    """A model that is ready to look at frames. Built ready to run; `close` ends it.

    One contract test (`tests/contract/test_detector.py`) holds for every implementation.
    """

    @property
    def ref(self) -> ModelRef:
        """Which model this is."""
        ...

    @property
    def labels(self) -> LabelSet:
        """What it can see."""
        ...

    def detect(self, frames: Sequence[ImageArray]) -> list[Inference]:
        """Looks at frames u8[H, W, 3] (BGR, any sizes, also mixed); one Inference each, in order.

        The answer to a frame does not depend on its neighbours. An empty list gives an empty list.
        Raises Malformed for what is no image, DetectorFailed when the model could not run, and, where the model
        runs elsewhere, the RetryableErrors.
        """
        ...

    def close(self) -> None:
        """Frees the model; calling it twice is fine. `detect` afterwards raises DetectorFailed."""
        ...
