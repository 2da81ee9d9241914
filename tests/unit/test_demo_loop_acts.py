"""The acts in their order, with a fleet, a round and a rollout that are made up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import numpy as np
import pytest
from rich.console import Console

from calibration.predict import LabelledFrame
from calibration.truth import GroundTruth
from cloud.rollout.rollout import Status
from fovea.bench import loop_test
from fovea.bench.street_frames import CLASS_IDS
from fovea.cli.demo_loop_acts import CONDITIONS, Acts, Found
from fovea.cli.demo_loop_findings import Mark, RolloutFindings, RoundFindings, StepFindings
from fovea.cli.demo_loop_measure import qualities_of
from fovea.cli.demo_loop_plan import DEVICES, LoopPlan, plan_loop
from fovea.cli.demo_loop_record import Recorder
from fovea.cli.demo_loop_watch import FleetWatch
from fovea.core.errors import BrokenError
from fovea.core.release import Stage
from fovea.runtime.bundle import Bundle
from tests.builders import tiny_bundle
from tests.unit.test_demo_loop_watch import answer, say


@dataclass
class FakeTiers:
    restarted: list[str] = field(default_factory=list)
    broken: bool = False

    def check(self) -> None:
        if self.broken:
            raise BrokenError("the cloud ended")

    def restart_one(self, name: str) -> None:
        self.restarted.append(name)


class FakePerson:
    night_at: datetime | None = None

    def label_golden(self, condition: str, agent: Bundle) -> int:
        return 80

    def name_conditions(self, night_at: datetime) -> dict[str, int]:
        self.night_at = night_at
        return {"day": 30, "night": 90}


@dataclass
class FakeRound:
    verdict: str
    is_over: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def told(self) -> str:
        self.is_over = True
        return "select"

    def findings(self) -> RoundFindings:
        return RoundFindings(self.verdict, ("because",), (StepFindings("judge", 1.0, "said"),), 96)


@dataclass
class FakeRollout:
    """Goes through these, one at each look."""

    steps: list[tuple[Stage, Status]]
    resumed: int = 0
    at: int = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def start(self) -> None:
        return

    def now(self) -> Any:
        self.at = min(self.at + 1, len(self.steps) - 1)
        stage, status = self.steps[self.at]
        is_open = status in (Status.RUNNING, Status.PAUSED)
        return SimpleNamespace(stage=stage, status=status, reasons=(f"why {stage}",), is_open=is_open)

    def missing(self) -> str:
        return "more frames"

    def resume(self) -> None:
        self.resumed += 1

    def findings(self) -> RolloutFindings:
        stage, status = self.steps[-1]
        return RolloutFindings(status.value, stage.value, [Mark(1.0, "shadow")])


@dataclass
class Hands:
    round: FakeRound
    rollout: FakeRollout
    candidate: Bundle

    def begin_round(self, planned: object) -> FakeRound:
        return self.round

    def load_candidate(self, planned: object) -> Bundle:
        return self.candidate

    def begin_rollout(self, planned: object, now_s: object) -> FakeRollout:
        return self.rollout


def clips() -> loop_test.TestClips:
    pixels = np.full((96, 96, 3), 90, np.uint8)
    truth = GroundTruth(
        np.array([[10, 10, 40, 40]], np.float32), np.array([CLASS_IDS[0]], np.int32), np.zeros(1, bool)
    )
    return loop_test.TestClips(
        {name: [LabelledFrame(f"{name}/test/{n}", pixels, truth) for n in (0, 1)] for name in CONDITIONS}
    )


@dataclass
class Play:
    acts: Acts
    found: Found
    recorder: Recorder
    tiers: FakeTiers
    person: FakePerson
    hands: Hands
    steps: list[str]

    @property
    def marks(self) -> list[str]:
        return [mark.name for mark in self.recorder.marks]


def play_of(tmp_path: Path, verdict: str, steps: list[tuple[Stage, Status]]) -> Play:
    plan = replace(LoopPlan(tmp_path), day_s=0.0, night_s=0.0, after_s=0.0)
    planned = plan_loop(plan)
    watch = FleetWatch(DEVICES)
    say(watch, "north", answer())
    recorder = Recorder(watch, {}, lambda: 0, Console(quiet=True))
    first, known = tiny_bundle(), clips()
    old = known.table(first, CONDITIONS)
    found = Found(first, known, old, qualities_of(known, old, None), {"day": 80})
    tiers, person = FakeTiers(), FakePerson()
    hands = Hands(FakeRound(verdict), FakeRollout(steps), tiny_bundle(version="2"))
    names: list[str] = []

    @contextmanager
    def step(name: str) -> Iterator[None]:
        names.append(name)
        yield

    acts = Acts(planned, cast(Any, tiers), watch, recorder, cast(Any, person), found, step, cast(Any, hands))
    return Play(acts, found, recorder, tiers, person, hands, names)


GOOD = [
    (Stage.SHADOW, Status.RUNNING),
    (Stage.CANARY, Status.RUNNING),
    (Stage.ALL, Status.RUNNING),
    (Stage.IDLE, Status.DONE),
]


def test_a_good_end_goes_through_all_acts_and_marks_every_moment(tmp_path: Path) -> None:
    play = play_of(tmp_path, "promote", GOOD)
    play.acts.play()
    assert play.steps == ["day", "night falls", "the round", "the rollout", "afterwards"]
    assert play.marks == [
        "day", "night falls", "labelled", "round begins", "round: promote", "shadow", "canary", "all", "done",
    ]  # fmt: skip
    assert play.tiers.restarted == list(DEVICES)
    assert play.found.golden == {"day": 80, "night": 80}
    assert set(play.found.asked) == {"day", "night", "after"}
    assert [quality.gain is not None for quality in play.found.qualities] == [True, True]
    assert all(0 <= (quality.asked_new or 0.0) <= 1 for quality in play.found.qualities)
    assert play.recorder.new_model == play.hands.candidate.ref.sha256
    assert play.found.rollout is not None
    assert play.found.rollout.status == "done"


def test_night_is_what_the_cameras_see_from_then_on(tmp_path: Path) -> None:
    before = datetime.now(UTC)
    play = play_of(tmp_path, "refuse", GOOD)
    play.acts.play()
    assert play.person.night_at is not None
    assert (before - play.person.night_at).total_seconds() < 2
    assert "/night?" in (tmp_path / "east.yaml").read_text()


def test_a_refused_student_is_not_rolled_out_and_the_old_one_stays_measured(tmp_path: Path) -> None:
    play = play_of(tmp_path, "refuse", GOOD)
    play.acts.play()
    assert play.steps == ["day", "night falls", "the round"]
    assert play.marks[-1] == "round: refuse"
    assert play.found.new is None
    assert play.found.rollout is None
    assert [quality.new for quality in play.found.qualities] == [None, None]


def test_a_rollout_that_goes_back_has_no_afterwards(tmp_path: Path) -> None:
    play = play_of(tmp_path, "promote", [*GOOD[:2], (Stage.BACK, Status.BACK)])
    play.acts.play()
    assert play.steps[-1] == "the rollout"
    assert play.marks[-1] == "back"
    assert "after" not in play.found.asked


def test_a_pause_is_let_go_on_twice_and_then_it_is_the_end(tmp_path: Path) -> None:
    paused = (Stage.SHADOW, Status.PAUSED)
    play = play_of(tmp_path, "promote", [GOOD[0], paused, GOOD[0], paused, GOOD[0], paused])
    play.acts.play()
    assert play.hands.rollout.resumed == 2
    assert play.marks[-3:] == ["paused", "paused", "paused"]
    assert play.found.rollout is not None
    assert play.found.rollout.status == "paused"


def test_a_process_that_ends_by_itself_ends_the_play(tmp_path: Path) -> None:
    play = play_of(tmp_path, "promote", GOOD)
    play.tiers.broken = True
    with pytest.raises(BrokenError, match="the cloud ended"):
        play.acts.play()
