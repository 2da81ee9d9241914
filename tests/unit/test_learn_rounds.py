"""Rounds as they are kept, and as they are run: each step's result before the next, whatever happens in between."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cloud.golden.golden_set import GoldenSet
from cloud.learn import round as rounds_at_work
from cloud.learn.distil import Mode
from cloud.learn.promotion import Verdict
from cloud.learn.round import give_up, run_round
from cloud.learn.round_data import RoundWork
from cloud.learn.round_plan import RoundPlan, RoundRecord, RoundState, Step, StepResult
from cloud.learn.round_room import Family, RoundRoom, TeacherSource
from cloud.learn.rounds import RoundStore
from cloud.release.registered import Alias
from cloud.release.registry import Registry, RegistryAddress
from fovea.core.errors import Malformed, NotFound, Unavailable
from fovea.runtime.manifest import ParentRef
from fovea.zoo.catalogue import path_of
from tests.fakes import FakeClock
from tests.unit.hard_cases import hard_case
from tests.unit.labelled_cases import Stores, stores_in

PLAN = RoundPlan(condition="night", why="a test", mode=Mode.PSEUDO, minutes=0.1)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    with stores_in(tmp_path / "kept") as opened:
        yield opened


@pytest.fixture
def rounds(stores: Stores) -> RoundStore:
    return RoundStore(stores.labels.engine, stores.clock.now)


@pytest.fixture
def room(stores: Stores, rounds: RoundStore, tmp_path: Path) -> Iterator[RoundRoom]:
    registry = Registry.open(RegistryAddress.in_folder(tmp_path / "kept"))

    def nothing(*_: object) -> Any:
        raise AssertionError("no step here needs this")

    yield RoundRoom(
        cases=stores.cases,
        labels=stores.labels,
        golden=GoldenSet(stores.labels),
        registry=registry,
        rounds=rounds,
        teacher=TeacherSource(nothing, None),
        family=Family(
            "street-student", path_of("street-student-day-fp32"), path_of("street-student-day-int8")
        ),
        folder=tmp_path / "rounds",
        executor_of=nothing,
        wait=nothing,
    )
    registry.close()


class Watching:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def began(self, record: RoundRecord, goes_on: bool) -> None:
        self.told.append("goes on" if goes_on else "begins")

    def step_began(self, step: Step) -> None:
        self.told.append(step)

    def note(self, said: str) -> None:
        self.told.append(said)

    def step_done(self, step: Step, result: StepResult, spent_s: float) -> None:
        self.told.append(f"{step} done")


def acting(monkeypatch: pytest.MonkeyPatch, **others: Callable[[RoundWork], StepResult]) -> list[Step]:
    """All steps do nothing but be counted, but for `others`; gives what was done."""
    done: list[Step] = []

    def step(name: Step) -> Callable[[RoundWork], StepResult]:
        def act(work: RoundWork) -> StepResult:
            done.append(name)
            told: dict[Step, Mapping[str, Any]] = {
                Step.JUDGE: {"verdict": "refuse", "reasons": ["worse by night"]},
                Step.REGISTER: {"candidate": "c" * 64},
            }
            facts = told.get(name, {"number": len(done)})
            return others[name](work) if name in others else StepResult(f"{name} was done", facts)

        return act

    monkeypatch.setattr(rounds_at_work, "STEPS", {name: step(name) for name in Step})
    return done


def test_a_plan_comes_back_as_it_was_written() -> None:
    assert RoundPlan.from_json(json.loads(json.dumps(PLAN.to_json()))) == PLAN


def test_a_plan_of_another_version_is_refused() -> None:
    with pytest.raises(Malformed, match="round plan"):
        RoundPlan.from_json({**PLAN.to_json(), "speed": 3})


@pytest.mark.parametrize(
    "wrong",
    [{"minutes": None}, {"minutes": 0.0}, {"new": 0}, {"recipes": 0}, {"fit_share": 1.0}, {"replay": -1}],
)
def test_a_plan_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Malformed, match="round"):
        replace(PLAN, **wrong)


def test_a_round_is_kept_step_by_step(rounds: RoundStore, stores: Stores) -> None:
    begun = rounds.begin(PLAN, "d" * 64)
    rounds.begin_step(begun.id, Step.SELECT)
    stores.clock.advance(3)
    rounds.end_step(begun.id, Step.SELECT, StepResult("12 cases", {"new": 12}), 2.5)
    rounds.begin_step(begun.id, Step.LABEL)
    kept = rounds.get(begun.id)
    assert kept.plan == PLAN
    assert kept.state is RoundState.RUNNING
    assert kept.champion == "d" * 64
    assert [step.step for step in kept.steps] == [Step.SELECT, Step.LABEL]
    assert kept.results == {Step.SELECT: StepResult("12 cases", {"new": 12})}
    assert kept.spent_s == 2.5
    rounds.end(begun.id, Verdict.REFUSE, ("worse by day", "slower"), "e" * 64)
    ended = rounds.get(begun.id)
    assert (ended.state, ended.verdict) == (RoundState.DONE, Verdict.REFUSE)
    assert ended.reasons == ("worse by day", "slower")
    assert ended.candidate == "e" * 64


def test_two_rounds_of_one_second_have_different_names(rounds: RoundStore) -> None:
    first, second = rounds.begin(PLAN), rounds.begin(PLAN)
    assert first.id != second.id
    assert {each.id for each in rounds.rounds()} == {first.id, second.id}


def test_the_oldest_unfinished_round_of_a_site_is_found(rounds: RoundStore, stores: Stores) -> None:
    first = rounds.begin(PLAN)
    stores.clock.advance(60)
    other = rounds.begin(replace(PLAN, site="yard"))
    rounds.begin(PLAN)
    assert rounds.find_running() is not None
    found, elsewhere = rounds.find_running("default"), rounds.find_running("yard")
    assert found is not None and found.id == first.id
    assert elsewhere is not None and elsewhere.id == other.id
    assert rounds.find_running("hall") is None


def test_the_newest_round_comes_first(rounds: RoundStore, stores: Stores) -> None:
    ids = []
    for _ in range(3):
        ids.append(rounds.begin(PLAN).id)
        stores.clock.advance(60)
    assert [each.id for each in rounds.rounds()] == ids[::-1]
    assert [each.id for each in rounds.rounds(limit=1)] == ids[-1:]


def test_no_such_round_is_said(rounds: RoundStore) -> None:
    with pytest.raises(NotFound, match="no such round"):
        rounds.get("20250101-000000")


def test_facts_that_are_no_json_are_refused(rounds: RoundStore) -> None:
    begun = rounds.begin(PLAN)
    rounds.begin_step(begun.id, Step.SELECT)
    with pytest.raises(Malformed, match="JSON"):
        rounds.end_step(begun.id, Step.SELECT, StepResult("", {"ap": float("nan")}), 1.0)


def test_all_steps_are_done_in_their_order_and_the_verdict_is_kept(
    room: RoundRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, watching = acting(monkeypatch), Watching()
    record = run_round(room, PLAN, watching)
    assert done == list(Step)
    assert (record.state, record.verdict) == (RoundState.DONE, Verdict.REFUSE)
    assert record.reasons == ("worse by night",)
    assert record.candidate == "c" * 64
    assert watching.told[:3] == ["begins", "select", "select done"]
    assert json.loads((room.folder / record.id / "select.json").read_bytes())["said"] == "select was done"


def test_a_round_that_was_cut_short_goes_on_at_the_step_where_it_was(
    room: RoundRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    def power_cut(work: RoundWork) -> StepResult:
        raise KeyboardInterrupt

    acting(monkeypatch, distil=power_cut)
    with pytest.raises(KeyboardInterrupt):
        run_round(room, PLAN, Watching())
    done, watching = acting(monkeypatch), Watching()
    record = run_round(room, replace(PLAN, condition="fog"), watching)
    assert done == [step for step in Step if step not in (Step.SELECT, Step.LABEL, Step.SNAPSHOT)]
    assert watching.told[0] == "goes on"
    assert record.plan == PLAN  # as it was begun, whatever is asked for now
    assert record.verdict is Verdict.REFUSE


def test_a_step_sees_what_the_steps_before_found_also_after_a_restart(
    room: RoundRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails_once(work: RoundWork) -> StepResult:
        if not (work.home / "tried").exists():
            (work.home / "tried").touch()
            raise Unavailable("the store is away")
        return StepResult("", {"saw": work.fact(Step.SELECT, "number")})

    acting(monkeypatch, label=fails_once)
    with pytest.raises(Unavailable):
        run_round(room, PLAN, Watching())
    record = run_round(room, PLAN, Watching())
    assert record.results[Step.LABEL].facts["saw"] == "1"


def test_what_cannot_be_done_ends_the_round_with_its_reason(
    room: RoundRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing_new(work: RoundWork) -> StepResult:
        raise Malformed("nothing shows night")

    acting(monkeypatch, select=nothing_new)
    record = run_round(room, PLAN, Watching())
    assert (record.state, record.verdict) == (RoundState.FAILED, None)
    assert record.reasons == ("nothing shows night",)
    assert room.rounds.find_running() is None


def test_a_second_process_does_not_work_at_the_same_rounds(
    room: RoundRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    def while_at_it(work: RoundWork) -> StepResult:
        with pytest.raises(Unavailable, match="another process"):
            run_round(room, PLAN, Watching())
        return StepResult("", {})

    acting(monkeypatch, select=while_at_it)
    assert run_round(room, PLAN, Watching()).state is RoundState.DONE


def test_a_round_can_be_given_up(room: RoundRoom) -> None:
    begun = room.rounds.begin(PLAN)
    give_up(room, begun.id, "given up for a fresh one")
    ended = room.rounds.get(begun.id)
    assert (ended.state, ended.reasons) == (RoundState.FAILED, ("given up for a fresh one",))


def test_cases_of_a_round_are_kept_while_it_is_at_work_only(
    room: RoundRoom, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    [case_id] = stores.add(hard_case(1))

    def keeps(work: RoundWork) -> StepResult:
        room.cases.protect([case_id], f"round:{work.id}")
        return StepResult("", {})

    def kept_still(work: RoundWork) -> StepResult:
        return StepResult("", {"kept": list(room.cases.protected("round"))})

    acting(monkeypatch, select=keeps, label=kept_still)
    record = run_round(room, PLAN, Watching())
    assert record.results[Step.LABEL].facts["kept"] == [case_id]
    assert room.cases.protected("round") == []


def test_a_family_without_a_champion_begins_with_the_one_of_the_configuration(room: RoundRoom) -> None:
    first = room.students()
    named = room.registry.aliases("street-student")
    assert named[Alias.CHAMPION].ref == first.champion.ref
    assert first.champion.manifest.parent is not None
    assert first.student.ref.sha256 == first.champion.manifest.parent.sha256
    assert room.students().champion.ref == first.champion.ref


def test_a_champion_whose_student_is_not_one_to_be_trained_is_refused(room: RoundRoom) -> None:
    mixed = replace(room, family=Family("mixed", room.family.champion, room.family.champion))
    with pytest.raises(Malformed, match="FP32 student"):
        mixed.students()


def test_a_champion_that_was_only_calibrated_anew_has_the_student_of_its_parent(room: RoundRoom) -> None:
    first = room.students()
    again = first.champion.with_parts({}, version="9.0.1", parent=ParentRef.of(first.champion.ref))
    room.registry.register("street-student", again)
    room.registry.name("street-student", Alias.CHAMPION, again.ref, "calibrated anew")
    assert room.students().student.ref == first.student.ref


def test_a_champion_from_nowhere_cannot_be_taught(room: RoundRoom) -> None:
    first = room.students()
    stranger = first.champion.with_parts({}, version="9.0.2", parent=None)
    room.registry.register("street-student", stranger)
    room.registry.name("street-student", Alias.CHAMPION, stranger.ref, "by hand")
    with pytest.raises(Malformed, match="none to be trained on"):
        room.students()


def test_the_second_round_starts_from_the_student_of_the_first(room: RoundRoom) -> None:
    """A promoted model names its FP32 student, and that is registered beside it."""
    first = room.students()
    student = first.student.with_parts({}, version="9.0.0")
    made = first.champion.with_parts(
        {},
        version="9.0.0",
        parent={"name": student.ref.name, "version": "9.0.0", "sha256": student.ref.sha256},
    )
    for bundle in (student, made):
        room.registry.register("street-student", bundle)
    room.registry.name("street-student", Alias.CANDIDATE, made.ref, "a round")
    room.registry.promote("street-student", "all stages")
    assert room.students().student.ref == student.ref
    assert room.students(first.champion.ref.sha256).student.ref == first.student.ref


def test_rounds_know_when_they_were(rounds: RoundStore, stores: Stores) -> None:
    begun = rounds.begin(PLAN)
    stores.clock.advance(90)
    rounds.end(begun.id, None, ("no reason",))
    ended = rounds.get(begun.id)
    assert ended.ended_at is not None
    assert ended.ended_at - ended.began_at == timedelta(seconds=90)
    assert isinstance(stores.clock, FakeClock)
