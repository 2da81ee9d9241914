"""The rollout benchmark's own arithmetic and files; that it runs as a whole, the system test of a fleet shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fovea.bench.rollout import RolloutSettings
from fovea.bench.rollout_cloud import CloudPlan
from fovea.bench.rollout_processes import DeviceProcesses
from fovea.bench.rollout_site import BEGAN_AT, SiteSettings
from fovea.bench.rollout_switch import Looked, dropped_in
from fovea.cli.main import app
from fovea.core.errors import BrokenError, Malformed
from fovea.sim.fleet_process import CRASHED, ProcessPlan, Status


def looked(*frames: tuple[int, str]) -> list[Looked]:
    return [Looked(sequence, version) for sequence, version in frames]


def test_only_frames_that_are_missing_between_two_models_count() -> None:
    seen = looked((1, "a"), (2, "a"), (5, "a"), (6, "b"), (7, "b"), (10, "a"))
    assert dropped_in(seen, 2) == 2


def test_a_switch_that_did_not_happen_is_said() -> None:
    with pytest.raises(BrokenError, match="expected 2 switches in the results of the agent, got 1"):
        dropped_in(looked((1, "a"), (2, "b")), 2)


def test_a_fleet_of_processes_alone_is_refused() -> None:
    with pytest.raises(Malformed, match="fewer processes than devices"):
        RolloutSettings(SiteSettings(devices=20, processes=20))


def test_the_command_refuses_it_in_one_sentence() -> None:
    result = CliRunner().invoke(app, ["bench", "rollout", "--devices", "4", "--processes", "4"])
    assert result.exit_code != 0
    assert isinstance(result.exception, Malformed)


def plan(folder: Path) -> ProcessPlan:
    return ProcessPlan(
        name="process-00",
        folder=str(folder / "process-00"),
        clock=str(folder / "clock"),
        began_at=BEGAN_AT,
        base_url="http://127.0.0.1:1",
        root="root.json",
        built_in="first.fovea",
        group="yard",
        family="fleet",
        broker_port=1,
        models={"1.0": {"agreement": 0.8}},
        seed=1,
    )


def test_what_processes_are_told_comes_back_from_their_files(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    plan(tmp_path).write(file)
    assert ProcessPlan.read(file) == plan(tmp_path)
    cloud = CloudPlan(str(tmp_path), 1883, BEGAN_AT)
    cloud.write(file)
    assert CloudPlan.read(file) == cloud


def test_what_a_process_has_done_is_known_only_once_it_said_so(tmp_path: Path) -> None:
    assert Status.read(tmp_path) is None
    Status("1.0", {"1.0": 7}, 0, 2).write(tmp_path)
    status = Status.read(tmp_path)
    assert status is not None and (status.answered["1.0"], status.restarts) == (7, 2)


class FakeProcess:
    """Ends with the codes that it is given, one for each start."""

    codes: list[int | None]
    starts = 0

    def __init__(self, *_: object, **__: object) -> None:
        self._code = type(self).codes[type(self).starts]
        type(self).starts += 1

    def poll(self) -> int | None:
        return self._code

    def terminate(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int:
        return 0


def test_a_process_that_its_model_took_down_is_started_again_and_another_end_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeProcess.codes, FakeProcess.starts = [CRASHED, None], 0
    monkeypatch.setattr("subprocess.Popen", FakeProcess)
    with DeviceProcesses([plan(tmp_path)], tmp_path) as processes:
        assert processes.running() == {"": 1}
        processes.tend()
        processes.tend()
        assert FakeProcess.starts == 2
    FakeProcess.codes, FakeProcess.starts = [1], 0
    with DeviceProcesses([plan(tmp_path)], tmp_path) as processes:
        (tmp_path / "process-00.log").write_text("it broke\n")
        with pytest.raises(BrokenError, match=r"process-00 ended with exit code 1.*\n.*it broke"):
            processes.tend()
