"""One round of learning: step by step, each result kept before the next begins, so that it can be killed anywhere."""

from __future__ import annotations

import fcntl
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from cloud.learn import round_data, round_model
from cloud.learn.promotion import Verdict
from cloud.learn.round_data import RoundWork
from cloud.learn.round_plan import RoundPlan, RoundRecord, Step, StepResult
from cloud.learn.round_room import RoundRoom
from fovea.core.errors import BrokenError, RejectedError, Unavailable
from fovea.runtime.atomic_file import write_atomically

_log = logging.getLogger(__name__)

STEPS: Final[Mapping[Step, Callable[[RoundWork], StepResult]]] = {
    Step.SELECT: round_data.select,
    Step.LABEL: round_data.label,
    Step.SNAPSHOT: round_data.snapshot,
    Step.DISTIL: round_model.distil,
    Step.QUANTIZE: round_model.quantize,
    Step.SCORES: round_model.scores,
    Step.GATE: round_model.gate,
    Step.JUDGE: round_model.verdict,
    Step.REGISTER: round_model.register,
}


class Watcher(Protocol):
    """Is told how a round goes."""

    def began(self, record: RoundRecord, goes_on: bool) -> None: ...

    def step_began(self, step: Step) -> None: ...

    def note(self, said: str) -> None: ...

    def step_done(self, step: Step, result: StepResult, spent_s: float) -> None: ...


class LogWatcher:
    """Writes a line for each step into the log."""

    def began(self, record: RoundRecord, goes_on: bool) -> None:
        _log.info("round %s %s", record.id, "goes on" if goes_on else "begins")

    def step_began(self, step: Step) -> None:
        _log.debug("%s", step)

    def note(self, said: str) -> None:
        _log.debug("%s", said)

    def step_done(self, step: Step, result: StepResult, spent_s: float) -> None:
        _log.info("%s: %s (%.0f s)", step, result.said, spent_s)


def run_round(
    room: RoundRoom,
    plan: RoundPlan,
    watcher: Watcher,
    clock_s: Callable[[], float] = time.monotonic,
) -> RoundRecord:
    """Goes on with the site's round that is not over, whatever its plan; else begins one by `plan`.

    A round that cannot come to a verdict ends as failed, with the reason. Raises Unavailable where another process is
    at it, and what is passing (a store that is away, a full disk): then the round is gone on with later.
    """
    with _alone(room.folder):
        found = room.rounds.find_running(plan.site)
        record = found or room.rounds.begin(plan, room.students().champion.ref.sha256)
        watcher.began(record, found is not None)
        try:
            return _finish(room, record, watcher, clock_s)
        except RejectedError as error:
            _log.warning("round %s failed: %s", record.id, error)
            _fail(room, record.id, str(error))
            return room.rounds.get(record.id)


def give_up(room: RoundRoom, round_id: str, why: str) -> None:
    """Ends a round that is not over. Raises NotFound, Unavailable where a process is at it."""
    with _alone(room.folder):
        if room.rounds.get(round_id).ended_at is None:
            _fail(room, round_id, why)


def _finish(
    room: RoundRoom, record: RoundRecord, watcher: Watcher, clock_s: Callable[[], float]
) -> RoundRecord:
    home = room.folder / record.id
    home.mkdir(parents=True, exist_ok=True)
    students = room.students(record.champion)
    work = RoundWork(room, record.plan, record.id, home, students, record.results, watcher.note)
    for step, act in STEPS.items():
        if step in work.results:
            continue
        watcher.step_began(step)
        room.rounds.begin_step(record.id, step)
        begun_s = clock_s()
        result = act(work)
        spent_s = clock_s() - begun_s
        work.results[step] = result
        _write(home, step, result)
        room.rounds.end_step(record.id, step, result, spent_s)
        watcher.step_done(step, result, spent_s)
    facts = work.results[Step.JUDGE].facts
    candidate = str(work.results[Step.REGISTER].facts["candidate"])
    room.cases.unprotect(f"round:{record.id}")
    room.rounds.end(record.id, Verdict(facts["verdict"]), tuple(facts["reasons"]), candidate)
    return room.rounds.get(record.id)


def _fail(room: RoundRoom, round_id: str, why: str) -> None:
    room.cases.unprotect(f"round:{round_id}")
    room.rounds.end(round_id, None, (why,))


def _write(home: Path, step: Step, result: StepResult) -> None:
    """For people: the database is what a resumed round goes by."""
    told = {"said": result.said, "facts": dict(result.facts)}
    write_atomically(home / f"{step}.json", json.dumps(told, indent=1, default=str).encode())


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time works at the rounds of a folder; the lock goes with it, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / ".lock").open("a")
    except OSError as error:
        raise BrokenError(f"rounds: cannot write into {folder}: {error.strerror}") from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Unavailable(f"rounds in {folder}: another process is at work on one") from error
        yield
