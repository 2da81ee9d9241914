"""Coarse-to-fine grid search, its front, and its journal that survives a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.grid_search import Axis, Found, Journal, Objectives, Point, grid_search, pareto_front
from fovea.core.errors import BrokenError, Malformed

AXES = (Axis("x", 0.0, 1.0), Axis("y", 0.0, 1.0))
GAIN_FOR_COST = Objectives(("gain",), ("cost",))


def bowl(point: Point) -> Mapping[str, float]:
    """Best at x 0.7; y only costs."""
    x, y = point
    return {"gain": 1 - (x - 0.7) ** 2, "cost": x + y}


def journal(path: Path, of: str = "bowl") -> Journal:
    return Journal.open(path, AXES, of)


def brute_front(found: list[Found], objectives: Objectives) -> set[tuple[float, ...]]:
    costs = [tuple(objectives.costs(each.figures)) for each in found]
    return {
        own
        for own in costs
        if not any(other != own and all(o <= c for o, c in zip(other, own, strict=True)) for other in costs)
    }


numbers = st.integers(-3, 3).map(float)


@given(st.lists(st.tuples(numbers, numbers, numbers), max_size=30))
def test_the_front_is_exactly_what_nothing_else_beats(rows: list[tuple[float, float, float]]) -> None:
    objectives = Objectives(("a",), ("b", "c"))
    found = [Found((float(index),), dict(zip("abc", row, strict=True))) for index, row in enumerate(rows)]
    front = pareto_front(found, objectives)
    kept = [tuple(objectives.costs(each.figures)) for each in front]
    assert len(set(kept)) == len(kept)
    assert set(kept) == brute_front(found, objectives)
    assert [each.figures["a"] for each in front] == sorted((e.figures["a"] for e in front), reverse=True)


def test_the_best_point_of_the_fine_grid_is_found_without_walking_all_of_it(tmp_path: Path) -> None:
    found = grid_search(AXES, bowl, GAIN_FOR_COST, journal(tmp_path / "points"))
    best = pareto_front(found, GAIN_FOR_COST)[0]
    assert best.point == (0.7, 0.0)
    assert len(found) < 11 * 11
    front = {each.point for each in pareto_front(found, GAIN_FOR_COST)}
    assert front == {(round(0.1 * step, 6), 0.0) for step in range(8)}


def test_a_search_that_is_taken_up_again_measures_nothing_twice(tmp_path: Path) -> None:
    whole = grid_search(AXES, bowl, GAIN_FOR_COST, journal(tmp_path / "whole"))
    assert len(whole) > 20
    measured: list[Point] = []

    def breaking(point: Point) -> Mapping[str, float]:
        if len(measured) == 20:
            raise KeyboardInterrupt
        measured.append(point)
        return bowl(point)

    with pytest.raises(KeyboardInterrupt):
        grid_search(AXES, breaking, GAIN_FOR_COST, journal(tmp_path / "points"))

    def going_on(point: Point) -> Mapping[str, float]:
        measured.append(point)
        return bowl(point)

    found = grid_search(AXES, going_on, GAIN_FOR_COST, journal(tmp_path / "points"))
    assert len(measured) == len(set(measured)) == len(whole)
    assert {each.point for each in found} == {each.point for each in whole}


def test_a_line_that_a_kill_cut_short_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "points"
    grid_search(AXES, bowl, GAIN_FOR_COST, journal(path))
    data = path.read_bytes()
    path.write_bytes(data[:-7])
    torn = journal(path)
    before = len(torn.found)
    found = grid_search(AXES, bowl, GAIN_FOR_COST, torn)
    assert len(found) == before + 1
    assert path.read_bytes() == data


_KILLED = """
import sys
from pathlib import Path
from tests.unit.test_grid_search import AXES, GAIN_FOR_COST, bowl, journal
from calibration.grid_search import grid_search

def slow(point):
    print("measured", flush=True)
    sys.stdin.readline()
    return bowl(point)

grid_search(AXES, slow, GAIN_FOR_COST, journal(Path(sys.argv[1])))
"""


def test_a_search_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "points"
    child = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None and child.stdout is not None
    for _ in range(5):
        assert child.stdout.readline() == "measured\n"
        child.stdin.write("\n")
        child.stdin.flush()
    assert child.stdout.readline() == "measured\n"  # the fifth point is on the disk by now
    os.kill(child.pid, signal.SIGKILL)
    child.wait(timeout=60)
    child.stdin.close()
    child.stdout.close()
    assert len(journal(path).found) == 5
    found = grid_search(AXES, bowl, GAIN_FOR_COST, journal(path))
    assert pareto_front(found, GAIN_FOR_COST)[0].point == (0.7, 0.0)


def test_points_of_another_search_are_not_taken_for_these(tmp_path: Path) -> None:
    journal(tmp_path / "points")
    with pytest.raises(Malformed, match="another search"):
        journal(tmp_path / "points", of="something else")


@pytest.mark.parametrize(
    "line", [b"nonsense\n", b'{"point": [1]}\n', b'{"point": [0.1], "figures": {}}\n', b"[]\n"]
)
def test_a_damaged_line_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "points"
    journal(path)
    with path.open("ab") as file:
        file.write(line)
    with pytest.raises(Malformed, match="line 2"):
        journal(path)


def test_a_folder_that_cannot_be_written_is_a_broken_disk(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BrokenError, match="cannot keep the points"):
        journal(tmp_path / "file" / "points")


def test_the_number_of_points_is_limited(tmp_path: Path) -> None:
    assert len(grid_search(AXES, bowl, GAIN_FOR_COST, journal(tmp_path / "points"), most_points=6)) == 6


@pytest.mark.parametrize("figures", [{"gain": 1.0}, {"gain": float("nan"), "cost": 1.0}])
def test_a_figure_that_is_missing_or_no_number_is_refused(figures: dict[str, float]) -> None:
    with pytest.raises(Malformed, match="figure"):
        pareto_front([Found((0.0,), figures)], GAIN_FOR_COST)


@given(low=st.integers(-5, 5), steps=st.integers(0, 30), coarse=st.integers(1, 7))
def test_an_axis_has_all_its_values_and_finds_them_again(low: int, steps: int, coarse: int) -> None:
    axis = Axis("a", low / 10, low / 10 + steps / 10, coarse=coarse)
    values = [axis.value(index) for index in range(axis.last + 1)]
    assert len(values) == steps + 1
    assert np.allclose(np.diff(values), 0.1)
    assert [axis.index(value) for value in values] == list(range(steps + 1))
    assert set(axis.coarse_values) <= set(values)
    assert {values[0], values[-1]} <= set(axis.coarse_values)


@pytest.mark.parametrize("value", [-0.1, 1.1, 0.55])
def test_a_value_that_is_not_on_the_grid_is_refused(value: float) -> None:
    with pytest.raises(Malformed, match=r"steps of 0\.1"):
        Axis("x", 0.0, 1.0).index(value)


def test_the_journal_is_lines_of_json_that_people_can_read(tmp_path: Path) -> None:
    path = tmp_path / "points"
    journal(path).add(Found((0.1, 0.2), {"gain": 1.0, "cost": 2.0}))
    header, line = (json.loads(each) for each in path.read_text().splitlines())
    assert header["axes"] == ["x", "y"]
    assert line == {"point": [0.1, 0.2], "figures": {"gain": 1.0, "cost": 2.0}}


def test_a_search_without_axes_or_with_a_twisted_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Malformed, match="one axis"):
        grid_search((), bowl, GAIN_FOR_COST, journal(tmp_path / "points"))
    with pytest.raises(Malformed, match="low <= high"):
        Axis("x", 1.0, 0.0)
