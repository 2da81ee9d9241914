"""A training process that is killed in the middle is started again and ends with a bundle."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from cloud.learn.distil import CHECKPOINT, Mode
from cloud.learn.executor import JobState
from cloud.learn.local_executor import LOG, PROCESS, LocalExecutor
from cloud.learn.tasks import distil_task
from fovea.runtime.bundle import Bundle
from tests.learning_tasks import tiny_distillation, until

pytest.importorskip("torch")


def test_a_killed_training_goes_on_and_its_result_outlives_the_parent(tmp_path: Path) -> None:
    files: dict[str, Any] = tiny_distillation(tmp_path)
    task = distil_task("round-1", mode=Mode.PSEUDO, epochs=6.0, **files)
    executor = LocalExecutor(tmp_path / "jobs")
    executor.start(task)
    executor.start(task)  # what runs is left alone
    home, checkpoint = tmp_path / "jobs" / "round-1", files["out_dir"] / CHECKPOINT
    until(checkpoint.is_file, "a first checkpoint")
    os.kill(json.loads((home / PROCESS).read_text())["pid"], signal.SIGKILL)
    until(lambda: executor.report("round-1").state is not JobState.RUNNING, "the kill is noticed")
    was_done = executor.report("round-1").state is JobState.DONE  # it may have been quicker than the kill
    executor.close()

    after = LocalExecutor(tmp_path / "jobs")
    after.start(task)
    until(lambda: after.report("round-1").state is not JobState.RUNNING, "the training ends")
    report = after.report("round-1")
    assert report.state is JobState.DONE, report.reason
    assert report.result is not None
    bundle = Bundle.open(Path(report.result["bundle"]))
    assert bundle.manifest.parent is not None
    assert was_done or "goes on after" in (home / LOG).read_text()
