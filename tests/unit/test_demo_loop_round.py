"""A round followed from outside, and its measured end."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cloud.cases.store import CaseStore, StoreAddress
from cloud.learn.round_plan import RoundPlan, Step, StepResult
from cloud.learn.rounds import RoundStore
from fovea.cli.demo_loop_round import RoundRun, findings_of, round_command, step_told
from fovea.core.errors import BrokenError

AT = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture
def database(tmp_path: Path) -> str:
    address = StoreAddress.in_folder(tmp_path / "cases")
    CaseStore.open(address).close()
    return address.database


def facts(**changes: Any) -> dict[str, Any]:
    return {
        "verdict": "refuse",
        "state": "done",
        "reasons": ["day: worse"],
        "steps": {
            "distil": {"said": "trained", "spent_s": 3.5, "facts": {}},
            "judge": {"said": "refuse", "spent_s": 1.0, "facts": {"golden_frames": 96}},
        },
    } | changes


def test_the_step_at_work_is_told_with_its_place_among_all(database: str) -> None:
    rounds = RoundStore.open(database)
    plan = RoundPlan()
    record = rounds.begin(plan)
    assert step_told(record, 4) == "select (1 of 9)"
    rounds.begin_step(record.id, Step.SELECT)
    rounds.end_step(record.id, Step.SELECT, StepResult("done", {}), 1.0)
    rounds.begin_step(record.id, Step.DISTIL)
    assert step_told(rounds.get(record.id), 2.5) == "distil (4 of 9), 2.5 minutes of training"
    rounds.close()


def test_what_a_round_said_becomes_findings() -> None:
    found = findings_of(facts())
    assert (found.verdict, found.golden_frames, found.is_promoted) == ("refuse", 96, False)
    assert [(step.name, step.spent_s) for step in found.steps] == [("distil", 3.5), ("judge", 1.0)]
    assert findings_of(facts(verdict="promote")).is_promoted


def test_a_round_without_a_verdict_goes_by_its_state() -> None:
    assert findings_of(facts(verdict=None, state="failed", steps={})).verdict == "failed"


def script(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", text)


def finished(run: RoundRun) -> RoundRun:
    run._process.wait(60)
    assert run.is_over
    return run


def test_the_last_line_of_the_process_is_its_finding(tmp_path: Path, database: str) -> None:
    said = script(f"print('chatter'); print({json.dumps(json.dumps(facts()))})")
    with RoundRun(said, 4.0, tmp_path / "log", database) as run:
        assert finished(run).findings().reasons == ("day: worse",)


def test_a_process_that_dies_is_an_error_with_its_last_words(tmp_path: Path, database: str) -> None:
    said = script("import sys; sys.exit('no room on the disk')")
    with (
        RoundRun(said, 4.0, tmp_path / "log", database) as run,
        pytest.raises(BrokenError, match="ended with 1: no room on the disk"),
    ):
        finished(run).findings()


def test_a_round_that_is_left_early_does_not_stay_behind(tmp_path: Path, database: str) -> None:
    said = script("import time; time.sleep(600)")
    with RoundRun(said, 4.0, tmp_path / "log", database) as run:
        assert not run.is_over
        assert run.told() == "beginning"
    assert run.is_over


def test_the_command_is_what_a_person_would_type() -> None:
    words = round_command(Path("cloud.yaml"), "night", 2.5)
    told = "loop run --config cloud.yaml --condition night --minutes 2.5 --why"
    assert words[-11:] == (*told.split(), "the demo", "--json")
