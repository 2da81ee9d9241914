"""kill -9 at every step of an update leaves a camera with a working model, and the update goes on or goes back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest


@pytest.fixture(scope="module")
def runs() -> list[dict[str, Any]]:
    memory = Path("/dev/shm")  # some thousand syncs: on a disk they take minutes
    with TemporaryDirectory(prefix="fovea-kills-", dir=memory if memory.is_dir() else None) as folder:
        done = subprocess.run(
            [sys.executable, "-m", "tests.system.update_kills", folder],
            capture_output=True,
            timeout=280,
            check=True,
        )
    return [json.loads(line) for line in done.stdout.splitlines()]


def _killed(runs: list[dict[str, Any]], failures: int) -> list[dict[str, Any]]:
    return [run for run in runs if run["failures"] == failures and run["ended"] is None]


def test_it_was_killed_at_many_points_and_then_came_to_its_end(runs: list[dict[str, Any]]) -> None:
    assert len(_killed(runs, 0)) > 40
    ends = {run["failures"]: run["ended"] for run in runs if run["ended"] is not None}
    assert ends[0]["phase"] == "committed" and ends[0]["running"] == "1.1"
    assert ends[1]["phase"] == "stepped_back" and ends[1]["running"] == "1.0"


@pytest.mark.parametrize("failures", [0, 1])
def test_the_camera_starts_with_a_working_model_after_every_kill(
    runs: list[dict[str, Any]], failures: int
) -> None:
    for run in _killed(runs, failures):
        if "camera" in run:
            assert run["camera"] is not None, run
            assert run["camera"].get("booted") in ("1.0", "1.1"), run


def test_a_good_update_is_completed_after_every_kill(runs: list[dict[str, Any]]) -> None:
    for run in _killed(runs, 0):
        if "after" in run:
            assert run["then"]["phase"] == "committed", run
            assert (run["then"]["running"], run["then"]["booted"]) == ("1.1", "1.1"), run
            assert (run["then"]["counter"], run["then"]["serial"]) == (2, 1), run


def test_a_model_that_breaks_is_gone_after_every_kill(runs: list[dict[str, Any]]) -> None:
    for run in _killed(runs, 1):
        if "after" in run:
            assert run["then"]["running"] == "1.0", run
            assert run["then"]["phase"] == "stepped_back", run
            assert run["then"]["counter"] == 0, run
