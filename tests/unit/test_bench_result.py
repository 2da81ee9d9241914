"""The result of a benchmark: its JSON form, and what may not stand in it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fovea.bench.result import BenchResult, Machine
from fovea.core.errors import BrokenError, Malformed


def test_a_result_is_one_json_object_with_flat_numeric_figures(tmp_path: Path) -> None:
    result = BenchResult.now("zoo", {"split": "test", "frames": 432}, {"ap.edge.all": 0.5, "bytes.edge": 7})
    result.write(tmp_path / "deep" / "zoo.json")
    read = json.loads((tmp_path / "deep" / "zoo.json").read_text())
    assert set(read) == {"name", "when", "machine", "settings", "figures"}
    assert read["name"] == "zoo"
    assert datetime.fromisoformat(read["when"]).tzinfo is not None
    assert read["figures"] == {"ap.edge.all": 0.5, "bytes.edge": 7}
    assert read["settings"] == {"split": "test", "frames": 432}


def test_the_machine_is_described() -> None:
    machine = Machine.here()
    assert machine.cores >= 1
    assert machine.memory_bytes > 1 << 28
    assert machine.cpu
    assert machine.python.startswith("3.")
    assert machine.onnxruntime.count(".") == 2


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_figure_that_is_no_number_is_refused(value: float) -> None:
    with pytest.raises(Malformed, match=r"expected finite numbers, got (nan|inf) for ap\.edge"):
        BenchResult.now("zoo", {}, {"ap.edge": value})


@pytest.mark.parametrize("name", ["", "ap edge", "ap..edge", ".ap", "ap/edge"])
def test_a_figure_without_a_dotted_name_is_refused(name: str) -> None:
    with pytest.raises(Malformed, match="expected dotted names"):
        BenchResult.now("zoo", {}, {name: 1.0})


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(Malformed, match="a time with a zone"):
        BenchResult("zoo", datetime(2025, 1, 1), Machine.here(), {}, {})


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = BenchResult("zoo", datetime.now(UTC), Machine.here(), {}, {})
    with pytest.raises(BrokenError, match="cannot write"):
        result.write(tmp_path / "file" / "zoo.json")
