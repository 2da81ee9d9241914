"""Applying a score calibration: raw scores in, probabilities that can be compared across models out.

A calibration is strictly monotone, so it never changes the order of a model's own boxes (and so never its AP within
a class). It is fitted by `calibration.fit_scores` and travels in the bundle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from fovea.core.arrays import FloatArray, frozen_floats
from fovea.core.errors import Malformed

_EDGE = 1e-6


class ScoreCurve(Protocol):
    """A strictly increasing map of 0..1 onto a part of 0..1."""

    def apply(self, scores: FloatArray) -> FloatArray:
        """Calibrated scores, the shape of `scores`."""
        ...


@dataclass(frozen=True, slots=True)
class PlattCurve:
    """p = 1 / (1 + exp(-(slope * logit(score) + offset))), slope > 0 (Platt 1999, on the logit)."""

    slope: float
    offset: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.slope) and np.isfinite(self.offset) and self.slope > 0):
            raise Malformed(f"platt curve: expected a finite slope above 0, got {self.slope}, {self.offset}")

    def apply(self, scores: FloatArray) -> FloatArray:
        inside = np.clip(scores.astype(np.float64), _EDGE, 1 - _EDGE)
        logits = np.log(inside / (1 - inside))
        # Beyond the clip the curve goes on as a short line, so that it stays strictly increasing to both ends.
        tilt = 1e-3 * _EDGE * (scores.astype(np.float64) - 0.5)
        calibrated = 0.5 * (1 + np.tanh(0.5 * (self.slope * logits + self.offset)))
        return np.clip(calibrated + tilt, 0, 1).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class PiecewiseCurve:
    """Straight lines between knots: isotonic regression with a slope. Knots rise strictly from 0 to 1 in x."""

    x: FloatArray
    y: FloatArray

    def __post_init__(self) -> None:
        x = frozen_floats("piecewise curve x", self.x, (None,))
        y = frozen_floats("piecewise curve y", self.y, (len(x),))
        if len(x) < 2 or x[0] != 0 or x[-1] != 1 or (np.diff(x) <= 0).any():
            raise Malformed("piecewise curve x: expected knots rising strictly from 0 to 1")
        if y[0] < 0 or y[-1] > 1 or (np.diff(y) <= 0).any():
            raise Malformed("piecewise curve y: expected values rising strictly within 0 to 1")
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "y", y)

    def apply(self, scores: FloatArray) -> FloatArray:
        return np.interp(scores, self.x, self.y).astype(np.float32)


@dataclass(frozen=True, slots=True)
class ScoreCalibration:
    """A curve for all classes, and curves of their own for class ids that had enough data."""

    fallback: ScoreCurve
    by_class: Mapping[int, ScoreCurve] = field(default_factory=dict)

    @classmethod
    def identity(cls) -> ScoreCalibration:
        """Leaves scores as they are: a model that nobody calibrated yet."""
        return cls(PiecewiseCurve(np.array([0, 1]), np.array([0, 1])))

    def apply(self, class_scores: FloatArray, class_ids: tuple[int, ...]) -> FloatArray:
        """Calibrates f32[N, C], channel j being class `class_ids[j]`. A raw 0 (no claim at all) stays 0."""
        calibrated = np.empty_like(class_scores, dtype=np.float32)
        for channel, class_id in enumerate(class_ids):
            curve = self.by_class.get(class_id, self.fallback)
            calibrated[:, channel] = curve.apply(class_scores[:, channel])
        return np.where(class_scores > 0, calibrated, 0).astype(np.float32)
