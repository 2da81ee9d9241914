"""Applying a score calibration: raw scores in, probabilities that can be compared across models out.

A calibration is strictly monotone, so it never changes the order of a model's own boxes (and so never its AP within
a class); scores closer than float32 can tell after the map become equal, never swapped. It is fitted by
`calibration.fit_scores` and travels in the bundle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fovea.core.arrays import FloatArray, frozen_floats
from fovea.core.errors import Malformed

_LOWEST, _HIGHEST = 2.0**-150, 1 - 2.0**-25
"""The open interval in which the logit is finite: 0 and 1 are moved by half a float32 step, no other score is."""
_LARGEST_EXPONENT = 700.0


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
        return _platt(scores, self.slope, self.offset)


def _platt(scores: FloatArray, slope: _Numbers, offset: _Numbers) -> FloatArray:
    """One curve for all scores, or one for each column."""
    inside = scores.astype(np.float64)
    np.minimum(np.maximum(inside, _LOWEST, out=inside), _HIGHEST, out=inside)
    logits = slope * (np.log(inside) - np.log1p(-inside)) + offset
    return (1 / (1 + np.exp(-np.maximum(logits, -_LARGEST_EXPONENT)))).astype(np.float32)


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
    _plans: dict[tuple[int, ...], _Plan] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_class", dict(self.by_class))

    @classmethod
    def identity(cls) -> ScoreCalibration:
        """Leaves scores as they are: a model that nobody calibrated yet."""
        return cls(PiecewiseCurve(np.array([0, 1]), np.array([0, 1])))

    def apply(self, class_scores: FloatArray, class_ids: tuple[int, ...]) -> FloatArray:
        """Calibrates f32[N, C], channel j being class `class_ids[j]`. A raw 0 (no claim at all) stays 0.

        Raises Malformed when there are not as many ids as channels.
        """
        if class_scores.ndim != 2 or class_scores.shape[1] != len(class_ids):
            raise Malformed(
                f"score calibration: expected scores (N, {len(class_ids)}), got {class_scores.shape}"
            )
        plan = self._plans.get(class_ids)
        if plan is None:
            plan = self._plans[class_ids] = _plan(self, class_ids)
        calibrated = np.empty(class_scores.shape, np.float32)
        for channels, curve in plan:
            calibrated[:, channels] = curve(class_scores[:, channels])
        calibrated[class_scores <= 0] = 0
        return calibrated


_Numbers = float | NDArray[np.float64]
_Channels = int | slice | NDArray[np.intp]
_Plan = tuple[tuple[_Channels, Callable[[FloatArray], FloatArray]], ...]


def _plan(calibration: ScoreCalibration, class_ids: tuple[int, ...]) -> _Plan:
    """Which channels go through which map: all Platt curves at once, each other curve once."""
    curves = [calibration.by_class.get(class_id, calibration.fallback) for class_id in class_ids]
    plan: list[tuple[_Channels, Callable[[FloatArray], FloatArray]]] = []
    platt = [channel for channel, curve in enumerate(curves) if isinstance(curve, PlattCurve)]
    if platt:
        slopes = np.array([curve.slope for curve in curves if isinstance(curve, PlattCurve)])
        offsets = np.array([curve.offset for curve in curves if isinstance(curve, PlattCurve)])
        plan.append((_run(platt), partial(_platt, slope=slopes, offset=offsets)))
    others = {id(curve): curve for curve in curves if not isinstance(curve, PlattCurve)}
    for curve in others.values():
        channels = [channel for channel, each in enumerate(curves) if each is curve]
        plan.append((_run(channels), curve.apply))
    return tuple(plan)


def _run(channels: list[int]) -> _Channels:
    """A slice where they follow one another: no copy is made then."""
    first, last = channels[0], channels[-1]
    return slice(first, last + 1) if len(channels) == last + 1 - first else np.array(channels, np.intp)
