"""Stand-ins for the seams of `fovea.core.ports`, for tests that are about something else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from fovea.core.answering import answer
from fovea.core.arrays import ImageArray
from fovea.core.detections import Candidates, Inference, ModelRef, ScoreKind
from fovea.core.errors import DetectorFailed
from fovea.core.frame import checked_pixels, size_of
from fovea.core.labels import LabelSet
from fovea.core.scores import ScoreCalibration

FAKE_REF = ModelRef("fake", "1", "f" * 64)

Seen = Sequence[tuple[tuple[float, float, float, float], float, int]]
"""Boxes xyxy in px of the frame, each with a score and a class channel."""


def bright_parts(pixels: ImageArray) -> Seen:
    """One box of channel 0 around everything that is brighter than the frame's mean; its score is the contrast."""
    light = pixels.mean(axis=2)
    rows, columns = np.nonzero(light > light.mean())
    if not rows.size:
        return []
    box = (float(columns.min()), float(rows.min()), float(columns.max() + 1), float(rows.max() + 1))
    return [(box, float(np.clip(light.std() / 64, 0.05, 1.0)), 0)]


class FakeDetector:
    """A Detector whose answer is a function of the pixels; it counts its calls and fails when told to."""

    def __init__(
        self,
        look: Callable[[ImageArray], Seen] = bright_parts,
        labels: LabelSet | None = None,
        ref: ModelRef = FAKE_REF,
        min_score: float = 0.0,
    ) -> None:
        self._look = look
        self._labels = labels or LabelSet.from_names(["person", "car", "bicycle"])
        self._ref = ref
        self._min_score = min_score
        self._is_closed = False
        self.batch_sizes: list[int] = []
        self.fail_with: Exception | None = None

    @property
    def ref(self) -> ModelRef:
        return self._ref

    @property
    def labels(self) -> LabelSet:
        return self._labels

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def detect(self, frames: Sequence[ImageArray]) -> list[Inference]:
        if self._is_closed:
            raise DetectorFailed(f"{self._ref}: detect was called after close")
        checked = [checked_pixels(pixels) for pixels in frames]
        if self.fail_with is not None:
            raise self.fail_with
        self.batch_sizes.append(len(checked))
        return [self._infer(pixels) for pixels in checked]

    def close(self) -> None:
        self._is_closed = True

    def _infer(self, pixels: ImageArray) -> Inference:
        seen = list(self._look(pixels))
        boxes = np.array([box for box, _, _ in seen], np.float32).reshape(-1, 4)
        scores = np.zeros((len(seen), len(self._labels)), np.float32)
        for row, (_, score, channel) in enumerate(seen):
            scores[row, channel] = score
        candidates = Candidates(boxes, scores, ScoreKind.PER_CLASS, self._labels, size_of(pixels))
        return answer(candidates, ScoreCalibration.identity(), self._min_score, self._ref)


class FakeClock:
    """A Clock that stands still until `advance`; the wall clock can be set apart from the monotonic one."""

    def __init__(self, now: datetime = datetime(2025, 1, 1, tzinfo=UTC), monotonic_s: float = 1000.0) -> None:
        self._now = now
        self._monotonic_s = monotonic_s

    def now(self) -> datetime:
        return self._now

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def advance(self, seconds: float) -> None:
        """Both clocks go on by `seconds`."""
        self._now += timedelta(seconds=seconds)
        self._monotonic_s += seconds

    def set_wall(self, now: datetime) -> None:
        """The wall clock jumps (an NTP sync); the monotonic clock does not notice."""
        self._now = now
