"""A Detector that stands before the one that runs and can be given another one between two looks."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from fovea.core.arrays import ImageArray
from fovea.core.detections import Inference, ModelRef
from fovea.core.errors import Unavailable
from fovea.core.labels import LabelSet
from fovea.core.ports import Detector


class ModelSlot:
    """Looks are taken by one thread; `put` may be called from any. What stands in it is closed with it."""

    def __init__(self, detector: Detector) -> None:
        self._now = detector
        self._is_looking = threading.Lock()

    @property
    def ref(self) -> ModelRef:
        return self._now.ref

    @property
    def labels(self) -> LabelSet:
        return self._now.labels

    def detect(self, frames: Sequence[ImageArray]) -> list[Inference]:
        with self._is_looking:
            return self._now.detect(frames)

    def put(self, detector: Detector, timeout_s: float) -> Detector:
        """From the next look on `detector`, which is warm, answers; gives the one before, which nobody uses any more,
        to be closed. Raises Unavailable, and changes nothing, when the look under way does not end in time."""
        if not self._is_looking.acquire(timeout=timeout_s):
            raise Unavailable(f"{self._now.ref}: the look under way did not end within {timeout_s:g} s")
        try:
            before, self._now = self._now, detector
        finally:
            self._is_looking.release()
        return before

    def close(self) -> None:
        self._now.close()
