"""The demo and `fovea up` as a person runs them: real processes, real gRPC and MQTT, nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fovea import zoo
from fovea.cli.tier_plan import TierPlan, street_cameras, write_plan
from fovea.runtime.images import encode_jpeg
from tests.builders import scene

LIVENESS_S = 240.0
FOVEA = (sys.executable, "-u", "-m", "fovea.cli.main")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "COLUMNS": "100"}


def processes_about(folder: Path) -> list[str]:
    """Command lines of processes that name a folder, zombies and ourselves left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(folder) in words:
                found.append(words)
    return found


def wait_until_gone(folder: Path) -> None:
    ends_s = time.monotonic() + 30
    while left := processes_about(folder):
        assert time.monotonic() < ends_s, left
        time.sleep(0.05)


def run_demo(out: Path, *options: str) -> str:
    done = subprocess.run(
        [*FOVEA, "demo", "--out", str(out), *options],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=LIVENESS_S,
        check=False,
    )
    logs = "\n".join(f"{log.name}: {log.read_text()[-1500:]}" for log in out.glob("run/logs/*.log"))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
    assert done.stderr == ""
    return done.stdout


@pytest.mark.timeout(300)
def test_the_demo_runs_all_tiers_measures_them_and_writes_its_report(tmp_path: Path) -> None:
    said = run_demo(tmp_path, "--seconds", "8", "--frames", "small")
    wait_until_gone(tmp_path)
    for words in ("agent only", "edge only", "cloud only", "hybrid", "Hybrid against cloud only", "report:"):
        assert words in said, said
    last = re.findall(r"live +\d+ s +day ([\d.]+) fps, answers (\d+)/(\d+)/(\d+).*?night ([\d.]+) fps", said)[
        -1
    ]
    assert int(last[1]) > 0
    assert float(last[0]) > 0
    assert float(last[4]) > 0
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert html.count("<svg") == 4
    assert html.count("data:image/jpeg") == 6 * 5
    assert "18 frames, four ways to answer them" in html
    # What the table shows came from the running processes: the cloud kept the frames that it was asked about.
    assert list((tmp_path / "run" / "cases").rglob("*.jpg"))
    assert (tmp_path / "run" / "results.jsonl").read_text().count("\n") >= int(last[1])


@pytest.mark.timeout(300)
def test_the_demo_runs_on_a_persons_own_pictures_and_models_without_any_truth(tmp_path: Path) -> None:
    footage = tmp_path / "yard"
    footage.mkdir()
    for number in range(6):
        (footage / f"{number}.jpg").write_bytes(encode_jpeg(scene(270, 480, seed=number), 90))
    bundles = tmp_path / "models"
    bundles.mkdir()
    for tier, name in (("agent", "street-student-fp32"), ("edge", "street-edge"), ("cloud", "street-edge")):
        (bundles / f"{tier}.fovea").symlink_to(zoo.path_of(name))
    said = run_demo(tmp_path / "out", "--seconds", "3", "--source", str(footage), "--bundles", str(bundles))
    wait_until_gone(tmp_path / "out")
    assert "agreement" in said
    html = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "6 frames of your footage" in html
    assert "AP50-95" not in html
    assert "street-student-fp32" in html


@pytest.fixture
def configs(tmp_path: Path) -> list[str]:
    """An edge and an agent that need neither cloud nor broker to start."""
    planned = write_plan(TierPlan(tmp_path, street_cameras()))
    return [f"--config={planned.configs[name]}" for name in ("edge", "agent")]


@pytest.fixture
def up(configs: list[str], tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """`fovea up`, ready."""
    process = subprocess.Popen(
        [*FOVEA, "up", *configs],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=ENVIRONMENT,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout:
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if "all ready" in line:
                break
        else:
            pytest.fail("".join(lines))
        yield process
        process.kill()
        process.wait(LIVENESS_S)
    wait_until_gone(tmp_path)


def test_up_stops_all_tiers_in_order_when_it_is_told_to(up: subprocess.Popen[str], tmp_path: Path) -> None:
    assert len(processes_about(tmp_path)) >= 3
    up.send_signal(signal.SIGTERM)
    assert up.stdout is not None
    said = up.stdout.read()
    assert up.wait(LIVENESS_S) == 0, said
    assert re.search(r"stopped: agent \(0\), edge \(0\), broker \(0\)", said), said


def test_up_says_which_tier_died_and_takes_the_others_down(up: subprocess.Popen[str], tmp_path: Path) -> None:
    (edge,) = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdecimal()
        and f"edge\0--config\0{tmp_path}".encode() in (entry / "cmdline").read_bytes()
    ]
    os.kill(edge, signal.SIGKILL)
    assert up.stdout is not None
    said = up.stdout.read()
    assert up.wait(LIVENESS_S) == 70
    assert "edge ended by SIGKILL" in said
    wait_until_gone(tmp_path)


def test_no_tier_outlives_an_up_that_is_killed(up: subprocess.Popen[str], tmp_path: Path) -> None:
    up.kill()
    up.wait(LIVENESS_S)
    wait_until_gone(tmp_path)
