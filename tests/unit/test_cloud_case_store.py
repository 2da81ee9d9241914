"""The case store: nothing lost, nothing twice, nothing replaced, and every kind of damage told by name."""

from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from cloud.cases.store import CaseStore, KeepRules, StoreAddress
from cloud.cases.stored_case import CaseFilter, Order
from cloud.database import checked_database, migrate, open_engine, revision_of, shown
from cloud.table import Table
from fovea.core.errors import (
    FoveaError,
    Incompatible,
    Malformed,
    NotFound,
    StoreCorrupt,
    TooLarge,
    Unavailable,
)
from fovea.core.frame import ImageSize
from fovea.core.hard_case import HardCase
from fovea.core.labels import LabelSet
from fovea.core.routing import Tier
from fovea.runtime.images import ImageLimits, encode_png
from tests.builders import scene
from tests.fakes import FakeClock
from tests.unit.hard_cases import (
    CAPTURED_AT,
    SIZE,
    assert_same_answer,
    hard_case,
    picture,
    tier_answer,
)

ROOT = Path(__file__).resolve().parents[2]
NEWEST = "0006"
EVERYTHING = CaseFilter()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CaseStore]:
    opened = CaseStore.open(StoreAddress.in_folder(tmp_path / "kept"), now=FakeClock().now)
    yield opened
    opened.close()


def files_of(store_folder: Path) -> list[str]:
    return sorted(str(path.relative_to(store_folder)) for path in store_folder.rglob("*") if path.is_file())


def image_file(tmp_path: Path, case: HardCase) -> Path:
    return tmp_path / "kept" / "images" / case.id[:2] / f"{case.id}.jpg"


def test_a_case_comes_out_as_it_went_in_to_the_last_bit(store: CaseStore, tmp_path: Path) -> None:
    case = hard_case(
        answers=(
            tier_answer(Tier.AGENT, [[0.1, 0.2, 63.999, 47.3]], scores=[1 / 3]),
            tier_answer(Tier.EDGE, []),
            tier_answer(Tier.CLOUD, labels=LabelSet.from_names(["car", "person", "dog"])),
        ),
        camera="Tür/Süd #1 +",
        sequence=2**63 - 1,
        reasons=("weak_boxes", "audit", "a word of my own"),
        send_probability=0.0123,
    )
    receipt = store.add(case)
    assert (receipt.id, receipt.is_new, receipt.case_id) == (case.id, True, case.id)

    found = store.find(case.id)
    assert found is not None
    assert found.frame_id == case.frame_id
    assert (found.captured_at, found.received_at) == (CAPTURED_AT, FakeClock().now())
    assert (found.image_size, found.image_bytes) == (SIZE, len(case.jpeg))
    assert (found.reasons, found.send_probability, found.is_audit) == (case.reasons, 0.0123, True)
    for kept, given_answer in zip(found.answers, case.answers, strict=True):
        assert_same_answer(kept, given_answer)
    assert store.load_image(found) == case.jpeg == image_file(tmp_path, case).read_bytes()


def test_a_second_delivery_is_not_new_and_changes_nothing(store: CaseStore) -> None:
    case = hard_case()
    assert store.add(case).is_new
    assert not store.add(case).is_new
    assert store.count() == 1


def test_a_second_delivery_adds_what_was_missing_and_replaces_nothing(store: CaseStore) -> None:
    first = hard_case(tiers=(Tier.EDGE,), reasons=("weak_boxes",), send_probability=0.5)
    other_edge = tier_answer(Tier.EDGE, [[1, 1, 2, 2]])
    second = hard_case(
        answers=(other_edge, tier_answer(Tier.AGENT), tier_answer(Tier.CLOUD)),
        reasons=("audit", "weak_boxes"),
        send_probability=0.9,
        captured_at=CAPTURED_AT + timedelta(hours=1),
    )
    store.add(first)
    store.add(second)
    found = store.find(first.id)
    assert found is not None
    assert [answer.tier for answer in found.answers] == [Tier.AGENT, Tier.EDGE, Tier.CLOUD]
    assert_same_answer(found.answers[1], first.answers[0])
    assert (found.reasons, found.is_audit) == (("weak_boxes", "audit"), True)
    assert (found.send_probability, found.captured_at) == (0.5, CAPTURED_AT)


def test_another_picture_of_the_same_frame_is_the_same_case(store: CaseStore, tmp_path: Path) -> None:
    """A frame that is forwarded live and lies in a spool, too, was encoded twice."""
    first = hard_case(jpeg=picture(quality=95), tiers=(Tier.CLOUD,))
    again = hard_case(jpeg=picture(quality=80), tiers=(Tier.AGENT,))
    assert first.id != again.id
    store.add(first)
    receipt = store.add(again)
    assert (receipt.id, receipt.is_new, receipt.case_id) == (again.id, False, first.id)
    assert not store.add(again).is_new
    assert store.count() == 1
    found = store.find(again.id)
    assert found is not None and found.id == first.id
    assert [answer.tier for answer in found.answers] == [Tier.AGENT, Tier.CLOUD]
    assert store.load_image(found) == first.jpeg
    assert not image_file(tmp_path, again).exists()


@pytest.mark.parametrize(
    "other",
    [
        {"captured_at": CAPTURED_AT + timedelta(microseconds=1)},
        {"sequence": 7},
        {"camera": "other"},
        {"jpeg": encode_png(scene(20, 20))},
    ],
    ids=["id minted twice", "another frame", "another camera", "a crop"],
)
def test_what_is_not_surely_the_same_frame_is_a_case_of_its_own(
    store: CaseStore, other: dict[str, Any]
) -> None:
    store.add(hard_case())
    assert store.add(hard_case(**({"jpeg": picture(quality=70)} | other))).is_new
    assert store.count() == 2


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"<html>not found</html>", "image: expected"),
        (picture()[:200], "image"),
        (picture()[:-300], "damaged or cut short"),
        (b"\xff\xd8", "image"),
    ],
    ids=["html", "header only", "cut short", "two bytes"],
)
def test_what_is_no_whole_picture_is_refused_and_leaves_nothing(
    store: CaseStore, tmp_path: Path, data: bytes, told: str
) -> None:
    before = files_of(tmp_path / "kept")
    with pytest.raises(Malformed, match=told):
        store.add(hard_case(jpeg=data))
    assert store.count() == 0
    assert [name for name in files_of(tmp_path / "kept") if name.endswith((".jpg", ".part"))] == []
    assert set(before) <= set(files_of(tmp_path / "kept"))


def test_a_picture_beyond_the_limits_is_too_large(tmp_path: Path) -> None:
    with pytest.raises(TooLarge, match="at most 100 pixels"):
        CaseStore.open(StoreAddress.in_folder(tmp_path), KeepRules(ImageLimits(max_pixels=100))).add(
            hard_case()
        )


def test_every_image_format_keeps_its_bytes_and_its_ending(store: CaseStore, tmp_path: Path) -> None:
    case = hard_case(jpeg=encode_png(scene(30, 40)))
    store.add(case)
    found = store.find(case.id)
    assert found is not None
    assert (found.image_path, found.image_size) == (f"{case.id[:2]}/{case.id}.png", ImageSize(40, 30))
    assert store.load_image(found) == case.jpeg


def test_a_missing_and_a_damaged_picture_are_told_by_name_and_mended_by_the_next_delivery(
    store: CaseStore, tmp_path: Path
) -> None:
    case = hard_case()
    store.add(case)
    found = store.get(case.id[:10])
    file = image_file(tmp_path, case)
    damaged = bytearray(case.jpeg)
    damaged[-5] ^= 1
    for spoil, told in ((file.unlink, "is missing"), (lambda: file.write_bytes(damaged), "is damaged")):
        spoil()
        with pytest.raises(StoreCorrupt, match=f"{case.id[:12]}.*{told}"):
            store.load_image(found)
        assert not store.add(case).is_new
        assert store.load_image(found) == case.jpeg


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_under_the_pictures_is_unavailable_and_nothing_is_half_written(
    store: CaseStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        with pytest.raises(Unavailable, match="no room left"):
            store.add(hard_case())
    assert store.count() == 0
    assert [name for name in files_of(tmp_path / "kept") if "images" in name] == []
    assert store.add(hard_case()).is_new


def test_a_full_disk_under_the_database_is_unavailable_and_takes_its_picture_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = StoreAddress.in_folder(tmp_path / "kept")
    store = CaseStore.open(address)
    store.add(hard_case(1))
    with sqlite3.connect(tmp_path / "kept" / "cases.sqlite") as other:
        pages = other.execute("PRAGMA page_count").fetchone()[0]

    # SQLite says "database or disk is full" at this limit, too, which is kept by each connection.
    store.close()
    limited = CaseStore.open(address)

    @event.listens_for(limited._engine, "checkout")
    def limit(connection: Any, *_: object) -> None:
        connection.execute(f"PRAGMA max_page_count={pages}")

    crowd = tier_answer(Tier.AGENT, [[0, 0, 1, 1]] * 2000)
    case = hard_case(2, answers=(crowd,))
    with pytest.raises(Unavailable, match="disk is full"):
        limited.add(case)
    assert not image_file(tmp_path, case).exists()
    assert limited.count() == 1
    limited.close()

    again = CaseStore.open(address)
    assert again.add(case).is_new
    assert len(again.get(case.id).answers[0].detections) == 2000
    again.close()


def test_a_store_that_is_locked_by_somebody_else_waits_and_goes_on(store: CaseStore, tmp_path: Path) -> None:
    store.add(hard_case(1))
    other = sqlite3.connect(tmp_path / "kept" / "cases.sqlite", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(1) as pool:
        adding = pool.submit(store.add, hard_case(2))
        assert store.count() == 1, "readers do not wait for writers"
        assert not adding.done()
        other.execute("ROLLBACK")
        assert adding.result(30).is_new
    other.close()


def test_a_file_that_is_no_database_is_corrupt_and_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "cases.sqlite"
    file.write_bytes(b"<html>" * 500)
    with pytest.raises(StoreCorrupt, match=r"cases\.sqlite"):
        CaseStore.open(StoreAddress.in_folder(tmp_path))
    assert file.read_bytes() == b"<html>" * 500


def test_a_store_of_a_newer_version_is_incompatible_and_left_as_it_is(tmp_path: Path) -> None:
    CaseStore.open(StoreAddress.in_folder(tmp_path)).close()
    with sqlite3.connect(tmp_path / "cases.sqlite") as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(Incompatible, match="newer version"):
        CaseStore.open(StoreAddress.in_folder(tmp_path))


def test_rows_that_make_no_sense_are_corrupt_and_named(store: CaseStore, tmp_path: Path) -> None:
    case = hard_case()
    store.add(case)
    with sqlite3.connect(tmp_path / "kept" / "cases.sqlite") as database:
        database.execute("UPDATE case_boxes SET score = 7")
    with pytest.raises(StoreCorrupt, match=case.id[:12]):
        store.find(case.id)


def test_the_migrations_make_exactly_the_tables_that_the_code_speaks_of(tmp_path: Path) -> None:
    for file in (ROOT / "cloud").rglob("tables.py"):
        import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
    engine = open_engine(checked_database(f"sqlite:///{tmp_path / 'x'}"))
    assert migrate(engine) == (None, NEWEST)
    assert migrate(engine) == (NEWEST, NEWEST)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Table.metadata) == []
        assert revision_of(connection) == NEWEST
    engine.dispose()


def test_a_migration_that_fails_leaves_the_database_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from alembic import op

    made: list[str] = []
    create = op.create_table

    def fail_at_the_third(name: str, *columns: Any) -> Any:
        made.append(name)
        if len(made) == 3:
            raise RuntimeError("power cut")
        return create(name, *columns)

    engine = open_engine(checked_database(f"sqlite:///{tmp_path / 'x'}"))
    with monkeypatch.context() as patch:
        patch.setattr(op, "create_table", fail_at_the_third)
        with pytest.raises(RuntimeError):
            migrate(engine)
    with sqlite3.connect(tmp_path / "x") as database:
        assert database.execute("SELECT name FROM sqlite_master").fetchall() == []
    assert migrate(engine) == (None, NEWEST)
    engine.dispose()


def test_two_that_open_a_new_store_at_once_both_get_it(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        stores = [pool.submit(CaseStore.open, StoreAddress.in_folder(tmp_path)) for _ in range(4)]
        opened = [store.result(60) for store in stores]
    assert [store.add(hard_case(seed)).is_new for seed, store in enumerate(opened)] == [True] * 4
    assert {store.count() for store in opened} == {4}
    for store in opened:
        store.close()


def test_many_writers_and_readers_of_two_stores_agree_in_the_end(store: CaseStore, tmp_path: Path) -> None:
    """Each case is delivered four times, by threads of two stores over one folder; each is new exactly once."""
    other = CaseStore.open(StoreAddress.in_folder(tmp_path / "kept"))
    tiers = (Tier.AGENT, Tier.EDGE, Tier.CLOUD, Tier.AGENT)
    is_over = threading.Event()
    seen: list[int] = []

    def read() -> None:
        while not is_over.is_set():
            seen.append(sum(1 for case in store.walk() if store.load_image(case)))

    with ThreadPoolExecutor(5) as pool:
        reader = pool.submit(read)
        adding = [
            pool.submit((store, other)[turn % 2].add, hard_case(seed, tiers=(tiers[turn],)))
            for turn in range(4)
            for seed in range(20)
        ]
        receipts = [future.result(120) for future in adding]
        is_over.set()
        reader.result(30)
    assert sum(receipt.is_new for receipt in receipts) == 20
    assert store.count() == other.count() == 20
    assert seen == sorted(seen)
    for case in store.walk():
        assert [answer.tier for answer in case.answers] == [Tier.AGENT, Tier.EDGE, Tier.CLOUD]
    other.close()


def test_filters_leave_in_what_they_say(store: CaseStore) -> None:
    store.add(hard_case(1, camera="a", reasons=("audit",), tiers=(Tier.AGENT, Tier.CLOUD)))
    store.add(hard_case(2, camera="a", reasons=("weak_boxes", "uncertain_boxes"), tiers=(Tier.EDGE,)))
    store.add(hard_case(3, camera="b", reasons=("weak_boxes",), tiers=()))

    def found(wanted: CaseFilter) -> list[int]:
        sequences = [case.frame_id.sequence for case in store.walk(wanted)]
        assert store.count(wanted) == len(sequences)
        return sequences

    assert found(EVERYTHING) == [3, 2, 1]
    assert found(CaseFilter(camera="a")) == [2, 1]
    assert found(CaseFilter(camera="A")) == []
    assert found(CaseFilter(reason="weak_boxes")) == [3, 2]
    assert found(CaseFilter(reason="weak")) == []
    assert found(CaseFilter(tier=Tier.EDGE)) == [2]
    assert found(CaseFilter(tier=Tier.CLOUD)) == [1]
    assert found(CaseFilter(is_audit=True)) == [1]
    assert found(CaseFilter(is_audit=False)) == [3, 2]
    assert found(CaseFilter(since=CAPTURED_AT + timedelta(seconds=2))) == [3, 2]
    assert found(CaseFilter(camera="a", reason="weak_boxes", is_audit=True)) == []
    with pytest.raises(Malformed, match="zone"):
        CaseFilter(since=datetime(2025, 1, 1))


def test_the_time_of_capture_is_compared_as_an_instant_whatever_its_zone(store: CaseStore) -> None:
    east = datetime(2025, 6, 1, 1, 0, tzinfo=timezone(timedelta(hours=9)))
    store.add(hard_case(1, captured_at=east))
    [case] = store.walk(CaseFilter(since=datetime(2025, 5, 31, 16, 0, tzinfo=UTC)))
    assert case.captured_at == east
    assert list(store.walk(CaseFilter(since=datetime(2025, 5, 31, 16, 0, 1, tzinfo=UTC)))) == []


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("limit", [None, 0, 1, 3, 5, 6, 100])
def test_walking_page_by_page_gives_each_case_once_also_when_instants_are_equal(
    store: CaseStore, order: Order, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloud.cases.store._PAGE", 2)
    instants = [CAPTURED_AT + timedelta(seconds=seed // 3) for seed in range(6)]
    cases = [hard_case(seed, captured_at=instants[seed]) for seed in range(6)]
    for case in cases:
        store.add(case)
    walked = [(case.captured_at, case.id) for case in store.walk(order=order, limit=limit)]
    expected = sorted(((case.captured_at, case.id) for case in cases), reverse=order is Order.NEWEST)
    assert walked == expected[:limit]


def test_a_walk_goes_on_where_it_was_while_others_write(
    store: CaseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloud.cases.store._PAGE", 1)
    for seed in (1, 2, 3):
        store.add(hard_case(seed))
    walk = store.walk()
    assert next(walk).frame_id.sequence == 3
    store.add(hard_case(9))
    assert [case.frame_id.sequence for case in walk] == [2, 1]


def test_what_is_kept_of_each_camera_is_counted(store: CaseStore) -> None:
    assert store.count_by_camera() == ()
    cases = [hard_case(1, camera="b"), hard_case(2, camera="a"), hard_case(3, camera="a", reasons=("audit",))]
    for case in cases:
        store.add(case)
    a, b = store.count_by_camera()
    assert (a.camera, a.cases, a.audits, a.newest_at) == ("a", 2, 1, CAPTURED_AT + timedelta(seconds=3))
    assert (b.camera, b.cases, b.audits) == ("b", 1, 0)
    assert a.image_bytes == len(cases[1].jpeg) + len(cases[2].jpeg)


def test_a_case_is_found_by_the_start_of_its_id(store: CaseStore) -> None:
    cases = [hard_case(seed) for seed in range(17)]
    for case in cases:
        store.add(case)
    for case in cases:
        assert store.get(case.id[:16].upper()).id == case.id
    first_letters = [case.id[0] for case in cases]
    twice = next(letter for letter in first_letters if first_letters.count(letter) > 1)
    for start, told in (
        (twice, "more than one"),
        ("%", "no case"),
        ("xyz", "no case"),
        ("", "more than one"),
    ):
        with pytest.raises(NotFound, match=told):
            store.get(start)
    assert store.find("0" * 64) is None


def test_a_killed_writer_leaves_whole_cases_and_nothing_that_the_sweep_does_not_take(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    writer = (
        "import sys; from pathlib import Path\n"
        "from cloud.cases.store import CaseStore, KeepRules, StoreAddress\n"
        "from tests.unit.hard_cases import hard_case\n"
        "store = CaseStore.open(StoreAddress.in_folder(Path(sys.argv[1])))\n"
        "for seed in range(100000):\n"
        "    print(store.add(hard_case(seed)).id, flush=True)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", writer, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    acknowledged = [child.stdout.readline().strip() for _ in range(15)]
    child.kill()
    acknowledged += child.stdout.read().split()
    child.wait(30)
    child.stdout.close()

    store = CaseStore.open(StoreAddress.in_folder(folder))
    cases = {case.id: case for case in store.walk()}
    assert set(acknowledged) <= set(cases)
    for case in cases.values():
        assert hashlib.sha256(store.load_image(case)).hexdigest() == case.id
    pictures = [name for name in files_of(folder) if name.endswith(".jpg")]
    assert len(cases) <= len(pictures) <= len(cases) + 1
    store.close()


def test_the_sweep_takes_old_parts_and_leaves_what_is_being_written(store: CaseStore, tmp_path: Path) -> None:
    parts = tmp_path / "kept" / "images" / ".new"
    store.add(hard_case())
    old, young = parts / "a.jpg.1.part", parts / "b.jpg.2.part"
    for part in (old, young):
        part.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    assert store.sweep() == 1
    assert (old.exists(), young.exists()) == (False, True)


def test_a_password_is_never_shown(tmp_path: Path) -> None:
    address = StoreAddress("postgresql+nodriver://fovea:hunter2@db/cases", "s3://key:hunter2@bucket/x")
    assert "hunter2" not in repr(address)
    assert "hunter2" not in shown(checked_database(address.database))
    with pytest.raises(FoveaError) as refused:
        CaseStore.open(StoreAddress(address.database, str(tmp_path)))
    assert "hunter2" not in str(refused.value)
    with pytest.raises(Incompatible) as unknown:
        CaseStore.open(StoreAddress("sqlite://", "nosuch://me:hunter2@bucket/x"))
    assert "hunter2" not in str(unknown.value)


@pytest.mark.parametrize("url", ["", "cases.sqlite", "sqlite", "postgresql://[::1"])
def test_what_is_no_database_url_is_refused_in_one_sentence(url: str, tmp_path: Path) -> None:
    with pytest.raises((Malformed, Incompatible), match="database"):
        CaseStore.open(StoreAddress(url, str(tmp_path)))


def test_pictures_can_live_in_another_file_system(tmp_path: Path) -> None:
    store = CaseStore.open(StoreAddress(f"sqlite:///{tmp_path / 'x'}", "memory://cases-of-a-test"))
    case = hard_case()
    store.add(case)
    found = store.get(case.id)
    assert store.load_image(found) == case.jpeg
    store._images.remove(found.image_path)
    with pytest.raises(StoreCorrupt, match="missing"):
        store.load_image(found)
    store.close()


@settings(max_examples=40, deadline=None)
@given(
    deliveries=st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sets(st.sampled_from(list(Tier))),
            st.lists(st.sampled_from(["audit", "weak_boxes", "x"]), min_size=1, max_size=3, unique=True),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_deliveries_in_any_order_add_up(
    deliveries: list[tuple[int, set[Tier], list[str]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = CaseStore.open(StoreAddress.in_folder(tmp_path_factory.mktemp("store")))
    tiers: dict[int, set[Tier]] = {}
    reasons: dict[int, set[str]] = {}
    for seed, answered, why in deliveries:
        receipt = store.add(hard_case(seed, tiers=tuple(answered), reasons=tuple(why)))
        assert receipt.is_new == (seed not in tiers)
        tiers.setdefault(seed, set()).update(answered)
        reasons.setdefault(seed, set()).update(why)
    kept = {case.frame_id.sequence: case for case in store.walk()}
    assert {seed: {answer.tier for answer in case.answers} for seed, case in kept.items()} == tiers
    assert {seed: set(case.reasons) for seed, case in kept.items()} == reasons
    assert {seed: case.is_audit for seed, case in kept.items()} == {
        seed: "audit" in why for seed, why in reasons.items()
    }
    store.close()
