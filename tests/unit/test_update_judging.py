"""The decisions of an update, each without a disk or a network: compatibility, probation, time, floors, order."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fovea.core.errors import Incompatible, StoreCorrupt, UntrustedRelease
from fovea.core.release import Compat, Health, Probation, TargetFacts
from fovea.update.floors import FloorFile, Floors, order_digest
from fovea.update.judging import Machine, check_compat, check_desired, check_facts
from fovea.update.probation import ProbationRules, Verdict, judge_probation
from fovea.update.record import Failed, Order, Record, RecordFile
from fovea.update.time_floor import TimeFloor
from tests.fakes import FakeClock
from tests.signed_repository import ANY_COMPAT, FAMILY, GROUP, NOW, desired_state, pin_of
from tests.update_device import model

OLD, NEW = model("1.0"), model("1.1")
HERE = Machine("aarch64", "1.32.0", "0.1.0", "camera")


@pytest.mark.parametrize(
    ("version", "least", "fits"),
    [
        ("1.27", "1.27.0", True),
        ("1.27.0", "1.27", True),
        ("1.100", "1.27", True),
        ("1.9", "1.27", False),
        ("2.0rc1", "2.0", True),
        ("0.1.0+local", "0.1", True),
        ("unknown", "0.1", False),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str, least: str, fits: bool) -> None:
    compat = Compat((), least, "0", (64, 64))
    if fits:
        check_compat(compat, Machine("x", version, "1"))
    else:
        with pytest.raises(Incompatible, match="it needs ONNX Runtime"):
            check_compat(compat, Machine("x", version, "1"))


def test_everything_that_does_not_fit_is_said_in_one_sentence() -> None:
    compat = Compat(("x86_64",), "9.9", "8.8", (64, 64), ("kiosk", "gate"))
    with pytest.raises(Incompatible) as caught:
        check_compat(compat, HERE)
    assert str(caught.value) == (
        "not for this device: it is for devices of class kiosk or gate, this one is camera; "
        "it is for x86_64, this is aarch64; it needs ONNX Runtime 9.9, here is 1.32.0; "
        "it needs agent 8.8, this is 0.1.0"
    )


def health(frames: int = 0, p95: float | None = 20.0, failures: int = 0, restarts: int = 0) -> Health:
    return Health(frames, restarts, p95, 100.0, 60.0, failures)


PROBATION = Probation(100, 60.0, 80.0)


@pytest.mark.parametrize(
    ("now", "elapsed_s", "verdict"),
    [
        (health(100), 60, Verdict.COMMIT),
        (health(99), 60, Verdict.WAIT),
        (health(100), 59, Verdict.WAIT),
        (health(100, 80.0), 60, Verdict.COMMIT),
        (health(100, 80.1), 60, Verdict.STEP_BACK),
        (health(100, None), 60, Verdict.WAIT),
        (health(5, failures=1), 1, Verdict.STEP_BACK),
        (health(5, restarts=1), 1, Verdict.STEP_BACK),
        (health(99), 3661, Verdict.STEP_BACK),
        (health(99), 3660, Verdict.WAIT),
    ],
)
def test_a_probation_ends_by_what_was_seen(now: Health, elapsed_s: float, verdict: Verdict) -> None:
    finding = judge_probation(PROBATION, health(), now, elapsed_s)
    assert finding.verdict is verdict
    assert finding.reason


def test_without_a_budget_the_time_of_a_frame_does_not_count() -> None:
    finding = judge_probation(Probation(10, 1.0), health(), health(10, None), 1.0)
    assert finding.verdict is Verdict.COMMIT


def test_only_what_happened_during_the_probation_counts() -> None:
    before, after = health(1000, failures=7, restarts=3), health(1050, failures=7, restarts=3)
    assert judge_probation(PROBATION, before, after, 60).verdict is Verdict.WAIT
    rules = ProbationRules(most_failures=2)
    assert judge_probation(PROBATION, before, replace(after, failures=9), 60, rules).verdict is Verdict.WAIT
    assert (
        judge_probation(PROBATION, before, replace(after, failures=10), 60, rules).verdict
        is Verdict.STEP_BACK
    )


def test_it_is_never_earlier_than_what_is_certain() -> None:
    clock = FakeClock(datetime(1970, 1, 1, tzinfo=UTC))
    time_floor = TimeFloor(clock, NOW)
    assert (time_floor.now(), time_floor.clock_synced) == (NOW, False)
    clock.advance(60)
    assert time_floor.now() == NOW + timedelta(seconds=60)
    time_floor.raise_to(NOW + timedelta(days=1))
    time_floor.raise_to(NOW)
    assert time_floor.now() == NOW + timedelta(days=1)
    clock.set_wall(NOW + timedelta(days=2))
    assert (time_floor.now(), time_floor.clock_synced) == (NOW + timedelta(days=2), True)


IN_2099 = datetime(2099, 1, 1, tzinfo=UTC)


def test_a_signed_year_2099_moves_the_floor_no_further_than_is_credible_and_only_once() -> None:
    absurd = replace(desired_state(4, OLD), issued_at=IN_2099, expires_at=IN_2099 + timedelta(days=6))
    credible = NOW + timedelta(days=30)
    once = Floors(seen_at=NOW).with_accepted(absurd, NOW, credible)
    assert once.seen_at == credible
    again = once.with_accepted(absurd, credible, credible + timedelta(days=30))
    assert again.seen_at == credible


def test_the_same_order_signed_again_moves_the_floor_again() -> None:
    first = desired_state(4, OLD)
    floors = Floors().with_accepted(first, first.issued_at, NOW)
    renewed = replace(first, issued_at=NOW - timedelta(hours=1))
    assert floors.with_accepted(renewed, first.issued_at, NOW).seen_at == renewed.issued_at


def test_floors_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    form = Floors().with_accepted(desired_state(4, OLD), NOW, NOW).to_json()
    del form["groups"][GROUP]["signed_sha256"]
    (tmp_path / "floors.json").write_text(json.dumps(form))
    assert FloorFile(tmp_path).read().group(GROUP).serial == 4


def test_credible_is_what_the_wall_clock_says_and_on_a_board_without_one_a_month_more() -> None:
    clock = FakeClock(NOW)
    time_floor = TimeFloor(clock, NOW - timedelta(days=9))
    assert time_floor.latest_credible() == NOW + timedelta(minutes=1)
    clock.set_wall(datetime(1970, 1, 1, tzinfo=UTC))
    assert time_floor.latest_credible() == NOW + timedelta(days=21)


def test_a_synced_clock_stays_synced_however_often_an_absurd_time_is_signed() -> None:
    clock = FakeClock(NOW)
    time_floor, floors = TimeFloor(clock, NOW - timedelta(days=9)), Floors()
    for serial in range(1, 50):
        absurd = replace(
            desired_state(serial, OLD), issued_at=IN_2099, expires_at=IN_2099 + timedelta(days=6)
        )
        floors = floors.with_accepted(absurd, time_floor.now(), time_floor.latest_credible())
        time_floor.raise_to(floors.seen_at)
        assert time_floor.clock_synced
    assert time_floor.now() <= NOW + timedelta(minutes=1)


@given(serials=st.lists(st.integers(1, 20), min_size=1, max_size=12))
def test_accepted_serials_never_fall(serials: list[int]) -> None:
    floors, accepted = Floors(), []
    for serial in serials:
        desired = desired_state(serial, OLD)
        try:
            check_desired(desired, GROUP, FAMILY, floors, NOW)
        except UntrustedRelease:
            continue
        floors = floors.with_accepted(desired, NOW, NOW)
        accepted.append(serial)
    assert accepted == sorted(accepted)
    assert floors.group(GROUP).serial == max(serials)


def test_the_times_are_no_part_of_an_order() -> None:
    first = desired_state(1, OLD, NEW)
    renewed = replace(first, issued_at=NOW, expires_at=NOW + timedelta(days=20))
    assert order_digest(first) == order_digest(renewed)
    assert order_digest(first) != order_digest(replace(first, run_share=0.5))


def test_a_release_below_the_floor_needs_an_order_that_is_newer_than_the_floor() -> None:
    older = TargetFacts(pin_of(OLD), 1, NOW, ANY_COMPAT)
    order = desired_state(3, OLD)
    committed_before = Floors().with_committed(FAMILY, 2, order.issued_at - timedelta(seconds=1))
    check_facts(older, pin_of(OLD), order, committed_before)
    with pytest.raises(UntrustedRelease, match="downgrade: "):
        check_facts(older, pin_of(OLD), order, Floors().with_committed(FAMILY, 2, order.issued_at))


def test_floors_come_back_from_the_disk_and_are_not_written_without_need(tmp_path: Path) -> None:
    floors = Floors().with_accepted(desired_state(4, OLD), NOW, NOW).with_committed(FAMILY, 9, NOW)
    FloorFile(tmp_path).write(floors)
    assert FloorFile(tmp_path).read() == floors
    before = (tmp_path / "floors.json").stat().st_mtime_ns
    FloorFile(tmp_path).write(floors)
    assert (tmp_path / "floors.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("damage", [b"", b"\0" * 80, b"{}x", b'{"groups": {"north": {"serial": "4"}}}'])
def test_damaged_floors_are_read_from_the_copy_and_never_taken_for_none(
    tmp_path: Path, damage: bytes
) -> None:
    floors = Floors().with_accepted(desired_state(4, OLD), NOW, NOW)
    FloorFile(tmp_path).write(floors)
    (tmp_path / "floors.json").write_bytes(damage)
    assert FloorFile(tmp_path).read() == floors
    (tmp_path / "floors.copy.json").write_bytes(damage)
    with pytest.raises(StoreCorrupt, match="no update is accepted"):
        FloorFile(tmp_path).read()


def test_a_record_comes_back_and_one_that_cannot_be_read_is_empty(tmp_path: Path) -> None:
    order = Order(pin_of(NEW), 3, NOW, 2, PROBATION, OLD.ref)
    record = Record(order, Failed("a" * 64, 2, "too slow", True), {"tell_from": 0.3})
    file = RecordFile(tmp_path / "update.json")
    assert file.read() == Record()
    file.write(record)
    assert file.read() == record
    value = json.loads((tmp_path / "update.json").read_bytes())
    (tmp_path / "update.json").write_text(json.dumps(value | {"order": 3}))
    assert file.read() == Record()
