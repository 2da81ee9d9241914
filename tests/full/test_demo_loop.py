"""The second act as a person plays it, at reduced size: real processes, signed releases, one round of training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LIVENESS_S = 1500.0
FOVEA = (sys.executable, "-u", "-m", "fovea.cli.main")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "COLUMNS": "100"}
ENDS = ("promote", "refuse", "shadow_only")


@pytest.mark.timeout(LIVENESS_S + 60)
def test_the_second_act_comes_to_an_honest_end_and_leaves_no_process_behind(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = subprocess.run(
        [*FOVEA, "demo-loop", "--out", str(out), "--size", "small", "--minutes", "0.5"],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=LIVENESS_S,
        check=False,
    )
    logs = "\n".join(f"{log.name}: {log.read_text()[-1500:]}" for log in out.glob("run/logs/*.log"))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
    figures = json.loads((out / "figures.json").read_text())
    assert figures["round"]["verdict"] in ENDS
    assert [mark["name"] for mark in figures["marks"]][:4] == [
        "day",
        "night falls",
        "labelled",
        "round begins",
    ]
    assert figures["cases"]["night"] > 0
    assert figures["bytes_up"] > 0
    if figures["round"]["verdict"] == "promote":
        assert figures["rollout"]["moves"]
    else:
        assert figures["round"]["reasons"]
        assert figures["rollout"] is None
    assert "report:" in done.stdout
    assert (out / "report.html").read_text().count("<svg") == 2
    left = [
        entry.name
        for entry in Path("/proc").iterdir()
        if entry.name.isdecimal() and str(out).encode() in _command_line(entry)
    ]
    assert left == []


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""
