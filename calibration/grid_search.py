"""Grid search, coarse to fine, over settings in steps of 0.1: what is worth having is the Pareto front.

The first round measures a coarse grid. Each later round halves the step and looks only around the points that nothing
else beats in every respect. Every point is written down as soon as it is measured, so that a search that was killed
goes on where it was.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from fovea.core.errors import BrokenError, Malformed

JOURNAL_FORMAT = 1
_DIGITS = 6

Point = tuple[float, ...]
"""One value for each axis, in the order of the axes."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One setting: from `low` to `high` in steps of `step`; the first round goes in steps of `coarse` of them."""

    name: str
    low: float
    high: float
    step: float = 0.1
    coarse: int = 4

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and self.low <= self.high < math.inf and self.step > 0):
            raise Malformed(f"axis {self.name}: expected low <= high and a step above 0, got {self}")
        if self.coarse < 1:
            raise Malformed(f"axis {self.name}: expected a coarse step of 1 or more, got {self.coarse}")

    @property
    def last(self) -> int:
        """Index of the highest value."""
        return int((self.high - self.low) / self.step + 1e-9)

    def value(self, index: int) -> float:
        return round(self.low + index * self.step, _DIGITS)

    def index(self, value: float) -> int:
        """Raises Malformed for a value that is not on the grid."""
        index = round((value - self.low) / self.step)
        if not 0 <= index <= self.last or abs(self.value(index) - value) > 1e-6:
            raise Malformed(
                f"axis {self.name}: expected {self.low} to {self.high} in steps of {self.step}, got {value}"
            )
        return index

    @property
    def coarse_values(self) -> list[float]:
        """The first round's values; the highest is always among them."""
        return [self.value(index) for index in sorted({*range(0, self.last + 1, self.coarse), self.last})]


@dataclass(frozen=True, slots=True)
class Objectives:
    """What is better the more there is of it, and what is better the less there is; by name of a figure."""

    more: tuple[str, ...]
    less: tuple[str, ...]

    def costs(self, figures: Mapping[str, float]) -> list[float]:
        """The less, the better, all of it. Raises Malformed for a figure that is missing or not finite."""
        try:
            costs = [-figures[name] for name in self.more] + [figures[name] for name in self.less]
        except KeyError as error:
            raise Malformed(f"grid search: expected a figure {error}, got {', '.join(figures)}") from error
        if not all(math.isfinite(cost) for cost in costs):
            raise Malformed(f"grid search: expected finite figures, got {dict(figures)}")
        return costs


@dataclass(frozen=True, slots=True)
class Found:
    """One point and what was measured there, by name."""

    point: Point
    figures: Mapping[str, float]


def pareto_front(found: Sequence[Found], objectives: Objectives) -> list[Found]:
    """Those that no other is at least as good as in everything and better in something; of equals the first. In the
    order of what there should be most of, best first."""
    if not found:
        return []
    costs = np.array([objectives.costs(each.figures) for each in found])
    kept: list[int] = []
    for row in np.lexsort(costs.T[::-1]).tolist():  # whatever beats a row stands before it
        before = costs[kept]
        if not len(before) or not (before <= costs[row]).all(axis=1).any():
            kept.append(row)
    return [found[row] for row in kept]


class Journal:
    """The finished points of one search, in a file of JSON lines. For one process at a time."""

    def __init__(self, path: Path, found: dict[Point, Found]) -> None:
        self.path = path
        self._found = found

    @classmethod
    def open(cls, path: Path, axes: Sequence[Axis], of: str) -> Self:
        """Goes on with the file, or begins it. `of` says what is measured, on what; a line that a kill cut short is
        dropped.

        Raises Malformed for a file of another search and for one that is damaged elsewhere, BrokenError for the disk.
        """
        header = {"format": JOURNAL_FORMAT, "of": of, "axes": [each.name for each in axes]}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            data = path.read_bytes() if path.exists() else b""
            whole = data[: data.rfind(b"\n") + 1]
            if len(whole) != len(data):
                os.truncate(path, len(whole))
            found = _read(path, whole, header, len(axes))
            if not whole:
                _append(path, header)
        except OSError as error:
            raise BrokenError(f"cannot keep the points in {path}: {error.strerror}") from error
        return cls(path, found)

    @property
    def found(self) -> list[Found]:
        return list(self._found.values())

    def find(self, point: Point) -> Found | None:
        """What was measured there, if it was."""
        return self._found.get(point)

    def add(self, found: Found) -> None:
        """On the disk when it returns. Raises BrokenError."""
        try:
            _append(self.path, {"point": list(found.point), "figures": dict(found.figures)})
        except OSError as error:
            raise BrokenError(f"cannot keep the points in {self.path}: {error.strerror}") from error
        self._found[found.point] = found


def grid_search(
    axes: Sequence[Axis],
    measure: Callable[[Point], Mapping[str, float]],
    objectives: Objectives,
    journal: Journal,
    progress: Callable[[int, int], None] = lambda done, planned: None,
    most_points: int = 100_000,
) -> list[Found]:
    """All finished points; `pareto_front` of them is the result. `progress(done, planned)` counts those of a round.

    Points are measured in an order in which the first axes change least: put there what is dear to change. Raises
    Malformed without axes.
    """
    if not axes:
        raise Malformed("grid search: expected at least one axis, got none")
    done: dict[Point, Found] = {}
    wanted = {tuple(point) for point in itertools.product(*(axis.coarse_values for axis in axes))}
    strides = [axis.coarse for axis in axes]
    while True:
        # Points of the journal count only where this search comes to them, so that it takes the same way again.
        new = sorted(wanted - done.keys())
        for number, point in enumerate(new):
            if len(done) >= most_points:
                return list(done.values())
            progress(number, len(new))
            done[point] = journal.find(point) or _measured(point, measure, journal)
        if max(strides) == 1 and not new:
            return list(done.values())
        strides = [max(stride // 2, 1) for stride in strides]
        front = pareto_front(list(done.values()), objectives)
        wanted = {near for each in front for near in _neighbours(axes, each.point, strides)}


def _measured(point: Point, measure: Callable[[Point], Mapping[str, float]], journal: Journal) -> Found:
    found = Found(point, dict(measure(point)))
    journal.add(found)
    return found


def _neighbours(axes: Sequence[Axis], point: Point, strides: Sequence[int]) -> Iterable[Point]:
    """One step to either side along each axis."""
    for place, (axis, stride) in enumerate(zip(axes, strides, strict=True)):
        for index in (axis.index(point[place]) - stride, axis.index(point[place]) + stride):
            if 0 <= index <= axis.last:
                yield (*point[:place], axis.value(index), *point[place + 1 :])


def _read(path: Path, data: bytes, header: Mapping[str, Any], width: int) -> dict[Point, Found]:
    found: dict[Point, Found] = {}
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            entry = json.loads(line)
            if number == 1:
                if entry != header:
                    raise Malformed(f"{path}: these are the points of another search; name another file")
                continue
            point = tuple(float(value) for value in entry["point"])
            figures = {str(name): float(value) for name, value in entry["figures"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Malformed(f"{path}: line {number} is not a finished point") from error
        if len(point) != width:
            raise Malformed(f"{path}: line {number}: expected {width} values, got {len(point)}")
        found[point] = Found(point, figures)
    return found


def _append(path: Path, entry: Mapping[str, Any]) -> None:
    with path.open("ab") as file:
        file.write((json.dumps(entry, allow_nan=False) + "\n").encode())
        file.flush()
        os.fsync(file.fileno())
