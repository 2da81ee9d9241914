"""Tasks are checked before they start, and what a local executor started survives it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cloud.learn.executor import JobState, Task, perform
from cloud.learn.local_executor import (
    ANSWER,
    LOG,
    PROCESS,
    TASK,
    LocalExecutor,
    child_environment,
    started_at,
)
from cloud.learn.tasks import distil_task, run_distil
from fovea.core.errors import Malformed, NotFound
from tests.learning_tasks import until

BROKEN = {"mode": "pseudo"}  # arguments that `run_distil` refuses at once


def task(name: str = "round-1") -> Task:
    return Task(name, "cloud.learn.tasks:run_distil", BROKEN)


def ended(executor: LocalExecutor, name: str = "round-1") -> JobState:
    until(lambda: executor.report(name).state is not JobState.RUNNING, "the task ends")
    return executor.report(name).state


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "x" * 81])
def test_a_task_name_is_no_path(name: str) -> None:
    with pytest.raises(Malformed, match="task name"):
        task(name)


@pytest.mark.parametrize(
    "function", ["os:system", "cloud.learn.tasks", "cloud:x", "cloudy.a:b", "cloud.a:b c"]
)
def test_only_functions_of_the_cloud_are_run(function: str) -> None:
    with pytest.raises(Malformed, match="task function"):
        Task("a", function, {})


def test_a_task_survives_being_text(tmp_path: Path) -> None:
    one = distil_task("a", tmp_path / "s", tmp_path / "d", tmp_path / "o", minutes=1.0)
    assert Task.from_json(one.to_json()) == one
    with pytest.raises(Malformed, match="arguments that are JSON"):
        Task("a", "cloud.a:b", {"x": tmp_path}).to_json()


def test_what_a_task_refuses_is_its_answer() -> None:
    assert "distillation task" in perform(task())["reason"]
    with pytest.raises(Malformed, match="student"):
        run_distil({"out_dir": "x"})


def test_a_failed_task_says_why_and_can_be_started_again(tmp_path: Path) -> None:
    executor = LocalExecutor(tmp_path)
    executor.start(task())
    assert ended(executor) is JobState.FAILED
    assert "distillation task" in executor.report("round-1").reason
    first = json.loads((tmp_path / "round-1" / PROCESS).read_text())
    executor.start(task())
    assert json.loads((tmp_path / "round-1" / PROCESS).read_text()) != first
    assert ended(executor) is JobState.FAILED


def test_a_done_task_is_not_done_again(tmp_path: Path) -> None:
    home = tmp_path / "round-1"
    home.mkdir()
    (home / TASK).write_text(task().to_json())
    (home / ANSWER).write_text('{"result": {"bundle": "x"}}')
    executor = LocalExecutor(tmp_path)
    executor.start(task())
    report = executor.report("round-1")
    assert (report.state, report.result) == (JobState.DONE, {"bundle": "x"})
    assert not (home / PROCESS).exists()


def test_a_process_that_ended_without_a_word_is_lost_with_the_end_of_its_log(tmp_path: Path) -> None:
    home = tmp_path / "round-1"
    home.mkdir()
    (home / TASK).write_text(task().to_json())
    (home / PROCESS).write_text(
        json.dumps({"pid": os.getpid(), "started": (started_at(os.getpid()) or 0) - 1})
    )
    (home / LOG).write_text("step 3\nKilled\n")
    report = LocalExecutor(tmp_path).report("round-1")
    assert report.state is JobState.LOST  # our own number, but another process had it
    assert report.reason.endswith("last said: Killed")


def test_a_living_process_is_found_by_an_executor_that_did_not_start_it(tmp_path: Path) -> None:
    home = tmp_path / "round-1"
    home.mkdir()
    (home / TASK).write_text(task().to_json())
    (home / PROCESS).write_text(json.dumps({"pid": os.getpid(), "started": started_at(os.getpid())}))
    assert LocalExecutor(tmp_path).report("round-1").state is JobState.RUNNING


def test_an_unknown_task_is_not_found(tmp_path: Path) -> None:
    executor = LocalExecutor(tmp_path)
    with pytest.raises(NotFound, match="never started"):
        executor.report("round-9")
    executor.stop("round-9")


def test_children_use_as_many_threads_as_they_were_given() -> None:
    environment = child_environment(3)
    assert (environment["OMP_NUM_THREADS"], environment["OMP_WAIT_POLICY"]) == ("3", "PASSIVE")
