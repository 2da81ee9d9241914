"""`fovea policy`: what a bundle's policies are, and what agents found out about two of them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fovea import zoo
from fovea.cli.policy import app
from fovea.core.ab import ArmFigures, Estimate
from fovea.core.errors import Malformed, NotFound
from fovea.core.policy import Measured, Policy, Span
from fovea.runtime.bundle import POLICIES, Bundle

A = ArmFigures(
    "balanced", 1000, 300, 12, Estimate(0.3, 0.01, 1000), Estimate(0.9, 0.01, 12), Estimate(90.0, 5.0, 1000),
    Estimate(25_000.0, 900.0, 1000),
)  # fmt: skip
B = ArmFigures(
    "frugal", 990, 99, 14, Estimate(0.1, 0.01, 990), Estimate(0.88, 0.02, 14), Estimate(40.0, 5.0, 990),
    Estimate(9_000.0, 500.0, 990),
)  # fmt: skip
SPAN = Span(0.3, 0.2, 0.4)
MEASURED = Measured(
    "288 test frames", datetime(2026, 11, 30, tzinfo=UTC), 288, 0.3, SPAN, SPAN, SPAN, SPAN, SPAN
)
runner = CliRunner(env={"COLUMNS": "200"})


def stats(path: Path, a: ArmFigures = A, b: ArmFigures = B) -> str:
    path.write_text(json.dumps({"device": "porch", "ab": {"a": asdict(a), "b": asdict(b)}}))
    return str(path)


def test_two_policies_are_told_apart_with_intervals(tmp_path: Path) -> None:
    told = runner.invoke(
        app, ["compare", stats(tmp_path / "stats.json"), "--json", str(tmp_path / "out.json")]
    )
    assert told.exit_code == 0, told.output
    assert "a: balanced" in told.output and "b: frugal" in told.output
    assert told.output.count("b has less") == 3  # asked, latency and bytes
    assert "no difference seen" in told.output  # agreement
    difference = json.loads((tmp_path / "out.json").read_text())["asked_share"][2]
    assert difference["value"] == pytest.approx(-0.2)
    assert difference["low"] < -0.2 < difference["high"] < 0


def test_several_agents_narrow_the_interval(tmp_path: Path) -> None:
    one = runner.invoke(app, ["compare", stats(tmp_path / "1.json"), "--json", str(tmp_path / "one.json")])
    files = [stats(tmp_path / f"{number}.json") for number in range(4)]
    four = runner.invoke(app, ["compare", *files, "--json", str(tmp_path / "four.json")])
    assert one.exit_code == four.exit_code == 0
    widths = []
    for name in ("one", "four"):
        found = json.loads((tmp_path / f"{name}.json").read_text())["latency_ms"][0]
        widths.append(found["high"] - found["low"])
    assert widths[1] == pytest.approx(widths[0] / 2)
    assert "3,960" in four.output


def test_what_is_too_short_to_tell_is_not_told(tmp_path: Path) -> None:
    short = replace(A, asked_share=Estimate(0.3, None, 10), agreement=None)
    told = runner.invoke(app, ["compare", stats(tmp_path / "stats.json", a=short)])
    assert told.exit_code == 0
    assert told.output.count("nobody knows yet") == 2
    assert "too short for an interval" in told.output


@pytest.mark.parametrize(
    "text", ["{}", "[]", "nonsense", '{"ab": {}}', '{"ab": {"a": {}, "b": {}}}', '{"ab": 3}']
)
def test_a_file_without_a_comparison_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "stats.json").write_text(text)
    told = runner.invoke(app, ["compare", str(tmp_path / "stats.json")])
    assert isinstance(told.exception, Malformed)


def test_agents_that_compare_different_things_are_not_mixed(tmp_path: Path) -> None:
    files = [stats(tmp_path / "1.json"), stats(tmp_path / "2.json", b=replace(B, policy="sharp"))]
    told = runner.invoke(app, ["compare", *files])
    assert isinstance(told.exception, Malformed)
    assert "frugal, sharp" in str(told.exception)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    told = runner.invoke(app, ["compare", str(tmp_path / "nowhere.json")])
    assert isinstance(told.exception, NotFound)


def test_policies_travel_in_the_bundle_and_are_listed(tmp_path: Path) -> None:
    own = Bundle.open(zoo.path_of("street-student-int8"))
    policies = (Policy("frugal", 0.9, 0.4, measured=MEASURED), Policy("sharp", 0.1, 1.0))
    path = own.with_policies(policies, version="9.9.9").write(tmp_path)
    assert Bundle.open(path).policies() == policies
    told = runner.invoke(app, ["list", str(path)])
    assert told.exit_code == 0, told.output
    assert "frugal" in told.output and "0.300 (0.200 to 0.400)" in told.output
    assert "288 test frames" in told.output


def test_a_bundle_without_policies_says_how_to_get_some(tmp_path: Path) -> None:
    own = Bundle.open(zoo.path_of("street-student-int8")).with_parts({POLICIES: None}, version="9.9.9")
    told = runner.invoke(app, ["list", str(own.write(tmp_path))])
    assert told.exit_code == 0
    assert "fovea calibrate grid" in told.output


@pytest.mark.parametrize("data", [b"nonsense", b"[]", b'{"format": 1}', b'{"format": 1, "policies": [{}]}'])
def test_a_bundle_with_policies_that_are_none_does_not_open(data: bytes) -> None:
    own = Bundle.open(zoo.path_of("street-student-int8"))
    with pytest.raises(Malformed, match=r"polic"):
        own.with_parts({POLICIES: data})
