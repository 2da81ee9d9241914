"""Rounds that begin by themselves: one at a time, when they are due, and never the end of the process beside them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cloud.learn.round_process import LoopRun, loop_arguments
from cloud.learn.supervisor import Known, RoundSupervisor
from cloud.learn.triggers import TriggerFacts, TriggerSettings
from cloud.learn.triggers_config import QuietHours, TriggersConfig
from fovea.core.errors import Unavailable
from tests.system.service_process import until

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Process:
    def __init__(self) -> None:
        self.code: int | None = None
        self.is_stopped = False

    def find_code(self) -> int | None:
        return self.code

    def last_words(self) -> str:
        return "round 1: promote"

    def stop(self) -> None:
        self.is_stopped = True


class World:
    """A clock, what the stores know, and the processes that were begun."""

    def __init__(self) -> None:
        self.now = NOON
        self.known = Known(TriggerFacts(NOON - timedelta(days=1), cases=600))
        self.is_quiet = True
        self.begun: list[str] = []
        self.processes: list[Process] = []
        self.supervisor = RoundSupervisor(
            TriggerSettings(), self._known, self._begin, lambda now: self.is_quiet, lambda: self.now
        )  # fmt: skip

    def _known(self) -> Known:
        return self.known

    def _begin(self, why: str) -> Process:
        self.begun.append(why)
        self.processes.append(Process())
        return self.processes[-1]

    def end(self, code: int) -> None:
        self.processes[-1].code = code
        self.supervisor.look()

    def learned(self) -> None:
        """A round has ended well, and the stores know it."""
        self.known = Known(replace(self.known.facts, cases=0, last_round_at=self.now))

    def later(self, **span: float) -> None:
        self.now += timedelta(**span)
        self.supervisor.look()


@pytest.fixture
def world() -> World:
    return World()


def test_a_round_begins_when_it_is_due_and_says_why(world: World) -> None:
    world.supervisor.look()
    assert world.begun == ["600 new cases, 500 are enough"]
    assert world.supervisor.running == world.begun[0]


def test_too_few_cases_begin_nothing(world: World) -> None:
    world.known = Known(replace(world.known.facts, cases=10))
    world.supervisor.look()
    assert world.begun == []


def test_two_rounds_never_overlap(world: World) -> None:
    for _ in range(5):
        world.later(hours=10)
    assert len(world.begun) == 1


def test_outside_the_quiet_hours_nothing_begins_but_what_works_goes_on(world: World) -> None:
    world.is_quiet = False
    world.supervisor.look()
    assert world.begun == []
    world.is_quiet = True
    world.supervisor.look()
    world.is_quiet = False
    world.later(hours=1)
    assert world.supervisor.running is not None and not world.processes[0].is_stopped


def test_a_round_that_ended_well_is_counted_and_the_next_one_waits_for_its_reason(world: World) -> None:
    world.supervisor.look()
    world.learned()
    world.end(0)
    world.later(minutes=1)
    assert len(world.begun) == 1
    assert world.supervisor.counts == {"begun": 1, "well": 1, "failed": 0, "elsewhere": 0}


def test_a_round_that_breaks_is_tried_again_later_and_later(world: World) -> None:
    world.supervisor.look()
    world.end(70)
    assert world.supervisor.counts["failed"] == 1
    world.later(hours=5.9)
    assert len(world.begun) == 1
    world.later(hours=0.2)
    assert len(world.begun) == 2


def test_an_unfinished_round_is_gone_on_with_at_once_whatever_is_due(world: World) -> None:
    world.known = Known(replace(world.known.facts, cases=0), "20260501-110000")
    world.supervisor.look()
    assert world.begun == ["goes on with round 20260501-110000"]


def test_an_unfinished_round_that_breaks_again_rests(world: World) -> None:
    world.known = Known(replace(world.known.facts, cases=0), "20260501-110000")
    world.supervisor.look()
    world.end(1)
    world.later(hours=1)
    assert len(world.begun) == 1
    world.later(hours=6)
    assert len(world.begun) == 2


def test_a_round_of_somebody_else_is_no_failure_and_waited_for(world: World) -> None:
    world.supervisor.look()
    world.end(75)
    world.later(minutes=5)
    assert len(world.begun) == 1
    world.later(minutes=6)
    assert (len(world.begun), world.supervisor.counts["failed"]) == (2, 0)


def test_when_the_cloud_ends_the_round_is_put_down_and_none_begins(world: World) -> None:
    world.supervisor.look()
    world.supervisor.stop()
    assert world.processes[0].is_stopped
    world.later(hours=20)
    assert len(world.begun) == 1


def test_a_store_that_is_away_leaves_the_supervisor_as_it_was(world: World) -> None:
    def away() -> Known:
        raise Unavailable("busy")

    world.supervisor = RoundSupervisor(
        TriggerSettings(), away, world._begin, lambda now: True, lambda: world.now
    )
    with pytest.raises(Unavailable):
        world.supervisor.look()
    assert world.begun == [] and world.supervisor.running is None


def test_a_real_process_is_begun_ends_and_leaves_its_words(tmp_path: Path) -> None:
    run = LoopRun(("--version",), tmp_path / "rounds" / "last.log")
    until(lambda: run.find_code() is not None, "it ends")
    assert run.find_code() == 0
    assert run.last_words().startswith("fovea ")


def test_a_real_process_that_fails_says_so(tmp_path: Path) -> None:
    run = LoopRun(loop_arguments(tmp_path / "no.yaml", "default", "x"), tmp_path / "last.log")
    until(lambda: run.find_code() is not None, "it ends")
    assert run.find_code() == 2
    assert "no.yaml" in run.last_words()


def test_a_real_process_is_stopped(tmp_path: Path) -> None:
    run = LoopRun(("release", "serve", "--folder", str(tmp_path)), tmp_path / "last.log")
    run.stop()
    assert run.find_code() is not None


@pytest.mark.parametrize(
    ("begin", "end", "hour", "holds"),
    [
        ("22:00", "06:00", 23, True),
        ("22:00", "06:00", 5, True),
        ("22:00", "06:00", 6, False),
        ("01:00", "05:00", 1, True),
        ("01:00", "05:00", 12, False),
        ("00:00", "00:00", 12, True),
    ],
)
def test_quiet_hours_may_go_over_midnight(begin: str, end: str, hour: int, holds: bool) -> None:
    assert QuietHours(begin=begin, end=end).hold(datetime(2026, 5, 1, hour)) is holds


def test_the_triggers_are_as_they_are_told() -> None:
    told = TriggersConfig(new_cases=None, every_days=2.0, least_cases=5, least_pause_hours=0.5)
    assert told.settings() == TriggerSettings(None, 2 * 86_400.0, 5, 1800.0, 3600.0)
