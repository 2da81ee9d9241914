"""The acts of the second act in their order: day, night, the round, the rollout, afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from calibration.matching import MatchTable
from cloud.config import load_config
from cloud.loop_bootstrap import open_registry
from cloud.release.registered import Alias
from cloud.rollout.rollout import Status
from fovea.bench.loop_test import TestClips
from fovea.cli.demo_loop_findings import Quality, RolloutFindings, RoundFindings
from fovea.cli.demo_loop_measure import qualities_of, with_asked
from fovea.cli.demo_loop_plan import DAY, DEVICES, FAMILY, NIGHT, PlannedLoop
from fovea.cli.demo_loop_record import Recorder
from fovea.cli.demo_loop_rollout import DemoRollout
from fovea.cli.demo_loop_round import RoundRun, round_command
from fovea.cli.demo_loop_screen import ACTS
from fovea.cli.demo_loop_street import StreetPerson
from fovea.cli.demo_loop_watch import FleetWatch
from fovea.cli.tiers import TierProcesses
from fovea.core.errors import Unavailable
from fovea.runtime.bundle import Bundle

CONDITIONS: Final = (DAY, NIGHT)
_POLL_S: Final = 0.5
_FIRST_FRAMES_WITHIN_S: Final = 90.0
_MOST_RESUMES: Final = 2
_ASKED_OVER_S: Final = 60.0
"""The rate of an act is that of its last minute: each camera sees another street every half minute."""


@dataclass(slots=True)
class Found:
    """What is known so far; the acts fill it in."""

    first: Bundle
    clips: TestClips
    old: MatchTable
    qualities: list[Quality]
    golden: dict[str, int]
    new: Bundle | None = None
    asked: dict[str, float] = field(default_factory=dict)
    cases: dict[str, int] = field(default_factory=dict)
    round: RoundFindings | None = None
    rollout: RolloutFindings | None = None


class StageHands:
    """Begin what happens outside of this process."""

    def begin_round(self, planned: PlannedLoop) -> RoundRun:
        plan, config = planned.plan, planned.cloud_config
        database = load_config(config).store.address().database
        argv = round_command(config, NIGHT, plan.train_minutes)
        return RoundRun(argv, plan.train_minutes, plan.folder / "logs" / "round.log", database)

    def load_candidate(self, planned: PlannedLoop) -> Bundle:
        registry = open_registry(load_config(planned.cloud_config))
        try:
            return registry.load(registry.aliases(FAMILY)[Alias.CANDIDATE])
        finally:
            registry.close()

    def begin_rollout(self, planned: PlannedLoop, now_s: Callable[[], float]) -> DemoRollout:
        return DemoRollout(planned.cloud_config, DEVICES, now_s)


class Acts:
    """The acts in their order; each fills in what it found."""

    def __init__(
        self,
        planned: PlannedLoop,
        tiers: TierProcesses,
        watch: FleetWatch,
        recorder: Recorder,
        person: StreetPerson,
        found: Found,
        step: Callable[[str], AbstractContextManager[None]],
        hands: StageHands,
    ) -> None:
        self._planned, self._tiers, self._watch = planned, tiers, watch
        self._recorder, self._person, self._found, self._step = recorder, person, found, step
        self._plan, self._hands = planned.plan, hands

    def play(self) -> None:
        with self._act(0):
            self._day()
        with self._act(1):
            night_at = self._night()
        with self._act(2):
            self._learn(night_at)
        if self._found.new is None:
            return
        with self._act(3):
            self._roll_out()
        if self._found.rollout is not None and self._found.rollout.status == Status.DONE.value:
            with self._act(4):
                self._recorder.said = "all devices run the new student"
                self._wait(self._plan.after_s)
                self._found.asked["after"] = self._recorder.asked_share(_ASKED_OVER_S)

    @contextmanager
    def _act(self, number: int) -> Iterator[None]:
        self._recorder.act, self._recorder.said = ACTS[number], ""
        with self._step(ACTS[number]):
            yield

    def _day(self) -> None:
        self._recorder.said = "the day-only student looks at the street by day"
        self._until(lambda: self._watch.frames > 0, _FIRST_FRAMES_WITHIN_S, "no answer of an agent over MQTT")
        self._recorder.mark("day", "the cameras begin to look")
        self._wait(self._plan.day_s)
        self._found.asked["day"] = self._recorder.asked_share(_ASKED_OVER_S)

    def _night(self) -> datetime:
        recorder, found = self._recorder, self._found
        recorder.said = "the cameras are turned to the street by night"
        recorder.mark("night falls", "the agents' cameras are turned to the street by night")
        self._planned.turn_to(NIGHT)
        for device in DEVICES:
            self._tiers.restart_one(device)
        # Frames are in order of capture within an agent, and every agent is a new process now.
        night_at = datetime.now(UTC) - timedelta(seconds=1)
        recorder.said = "a person labels what a camera saw on its way past by night"
        begun_s = time.monotonic()
        found.golden[NIGHT] = self._person.label_golden(NIGHT, found.first)
        recorder.mark("labelled", f"{found.golden[NIGHT]} night frames have labels of a person")
        recorder.said = "the same student by night; cases collect"
        self._wait(self._plan.night_s - (time.monotonic() - begun_s))
        found.asked["night"] = recorder.asked_share(_ASKED_OVER_S)
        return night_at

    def _learn(self, night_at: datetime) -> None:
        planned, recorder, found = self._planned, self._recorder, self._found
        found.cases = self._person.name_conditions(night_at)
        recorder.mark("round begins", f"from {found.cases[NIGHT]} night and {found.cases[DAY]} day cases")
        with self._hands.begin_round(planned) as run:
            while not run.is_over:
                recorder.said = f"the round: {run.told()}"
                self._wait(_POLL_S)
            found.round = run.findings()
        recorder.mark(f"round: {found.round.verdict.replace('_', ' ')}", "; ".join(found.round.reasons))
        if not found.round.is_promoted:
            return
        found.new = self._hands.load_candidate(planned)
        recorder.said = "old and new student on the held-out clips"
        table = found.clips.table(found.new, CONDITIONS)
        qualities = qualities_of(found.clips, found.old, table)
        found.qualities = with_asked(qualities, found.clips, found.first, found.new, self._plan.ask_from)
        recorder.ap |= {f"{q.condition}, new": q.new.value for q in found.qualities if q.new is not None}
        recorder.new_model = found.new.ref.sha256

    def _roll_out(self) -> None:
        recorder, found = self._recorder, self._found
        with self._hands.begin_rollout(self._planned, lambda: recorder.seconds) as rollout:
            stage, resumed = "", 0
            rollout.start()
            while True:
                now = rollout.now()
                if now.stage.value != stage and now.is_open:
                    stage = now.stage.value
                    recorder.mark(stage, "; ".join(now.reasons))
                if now.status is Status.PAUSED and resumed < _MOST_RESUMES:
                    resumed += 1
                    recorder.mark("paused", "; ".join(now.reasons) + "; a person lets it go on")
                    rollout.resume()
                elif now.status is not Status.RUNNING:
                    break
                recorder.said = f"{stage}: {rollout.missing()}"
                self._wait(2 * _POLL_S)
            recorder.mark(now.status.value, "; ".join(now.reasons))
            found.rollout = rollout.findings()

    def _wait(self, seconds: float) -> None:
        ends_s = time.monotonic() + seconds
        while (left_s := ends_s - time.monotonic()) > 0:
            self._tiers.check()
            time.sleep(min(_POLL_S, left_s))
        self._tiers.check()

    def _until(self, is_so: Callable[[], bool], within_s: float, otherwise: str) -> None:
        ends_s = time.monotonic() + within_s
        while not is_so():
            if time.monotonic() > ends_s:
                raise Unavailable(f"{otherwise} within {within_s:.0f} s; logs: {self._plan.folder / 'logs'}")
            self._wait(_POLL_S)
