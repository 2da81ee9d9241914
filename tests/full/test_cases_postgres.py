"""The case store over a real PostgreSQL: the same promises as over SQLite, and those that many processes need."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from typer.testing import CliRunner

from cloud.cases.near import NearRule
from cloud.cases.retention import Retention
from cloud.cases.selection import Selection
from cloud.cases.store import CaseStore, KeepRules, StoreAddress
from cloud.cases.stored_case import CaseFilter
from cloud.database import checked_database, migrate, open_engine
from cloud.table import Table
from fovea.cli.cases import app
from fovea.core.errors import Incompatible, NotFound, StoreCorrupt, Unavailable
from fovea.core.routing import Tier
from tests.full.database_server import running_postgres
from tests.unit.hard_cases import CAPTURED_AT, assert_same_answer, hard_case, tier_answer
from tests.unit.test_cloud_case_near import frame

pytest.importorskip("psycopg", reason="the driver of PostgreSQL is not installed here (extra `postgres`)")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running_postgres() as url:
        yield url


@pytest.fixture
def address(server: str, tmp_path: Path) -> Iterator[StoreAddress]:
    """A database of its own, without tables."""
    name = f"cases_{abs(hash(tmp_path)):x}"
    admin = create_engine(server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    url = make_url(server).set(database=name).render_as_string(hide_password=False)
    yield StoreAddress(url, str(tmp_path / "images"))
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


@pytest.fixture
def migrated(address: StoreAddress) -> StoreAddress:
    engine = open_engine(checked_database(address.database))
    migrate(engine)
    engine.dispose()
    return address


@pytest.fixture
def store(migrated: StoreAddress) -> Iterator[CaseStore]:
    opened = CaseStore.open(migrated)
    yield opened
    opened.close()


def whole_cases(store: CaseStore) -> set[str]:
    cases = list(store.walk())
    assert all(store.load_image(case) for case in cases)
    return {case.id for case in cases}


def test_tables_are_made_by_the_migrations_alone_and_are_those_that_the_code_speaks_of(
    address: StoreAddress, tmp_path: Path
) -> None:
    with pytest.raises(Incompatible, match="fovea cases migrate"):
        CaseStore.open(address)
    config = tmp_path / "cloud.yaml"
    config.write_text(f"store: {{database: '{address.database}', images: '{address.images}'}}")
    done = CliRunner().invoke(app, ["migrate", "--config", str(config)])
    assert done.exit_code == 0 and "was empty, is now at revision" in done.output
    assert "odd" not in done.output, "a password is never shown"
    for file in (ROOT / "cloud").rglob("tables.py"):
        import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
    engine = open_engine(checked_database(address.database))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Table.metadata) == []
    engine.dispose()
    CaseStore.open(address).close()


def test_a_case_comes_out_as_it_went_in(store: CaseStore) -> None:
    case = hard_case(
        answers=(
            tier_answer(Tier.AGENT, [[0.1, 0.2, 63.999, 47.3]], scores=[1 / 3]),
            tier_answer(Tier.CLOUD, []),
        ),
        camera="Tür/Süd #1 +",
        sequence=2**63 - 1,
        reasons=("weak_boxes", "audit"),
        send_probability=0.0123,
    )
    assert store.add(case).is_new
    assert not store.add(case).is_new
    found = store.find(case.id)
    assert found is not None
    assert (found.frame_id, found.captured_at, found.reasons) == (case.frame_id, CAPTURED_AT, case.reasons)
    assert (found.send_probability, found.is_audit, found.measured_gain) == (0.0123, True, 1.0)
    assert found.picture_hash is not None and found.condition is not None
    for kept, given in zip(found.answers, case.answers, strict=True):
        assert_same_answer(kept, given)
    assert store.load_image(found) == case.jpeg


def test_walking_counting_tags_and_selecting_work_as_over_sqlite(store: CaseStore) -> None:
    for seed in range(8):
        reasons = ("audit",) if seed == 7 else ("weak_boxes",)
        store.add(hard_case(seed, camera="ab"[seed % 2], tiers=(Tier.AGENT, Tier.CLOUD), reasons=reasons))
    assert [case.frame_id.sequence for case in store.walk(CaseFilter(camera="b"))] == [7, 5, 3, 1]
    assert [(count.camera, count.cases, count.audits) for count in store.count_by_camera()] == [
        ("a", 4, 0),
        ("b", 4, 1),
    ]
    assert sum(count.cases for count in store.count_by_condition()) == 8
    ids = [case.id for case in store.walk()]
    store.tag(ids[:3], ["wet"])
    store.tag(ids[:3], ["wet"])
    assert (store.count_by_tag(), store.count(CaseFilter(tag="wet"))) == ({"wet": 3}, 3)
    store.protect([ids[0]], "golden:yard")
    chosen = [case.frame_id.sequence for case in store.select(Selection(3))]
    assert len(set(chosen)) == 3 and 7 not in chosen
    store.unprotect("golden:yard")
    assert [case.frame_id.sequence for case in store.select(Selection(3))][-1] == 7
    assert store.get(ids[0][:20]).id == ids[0]


def test_many_writers_of_several_stores_agree_in_the_end(migrated: StoreAddress) -> None:
    """Each case is delivered four times at once. Who loses a race is told to come again, as any sender does."""
    stores = [CaseStore.open(migrated) for _ in range(3)]
    tiers = (Tier.AGENT, Tier.EDGE, Tier.CLOUD, Tier.AGENT)

    def deliver(turn: int, seed: int) -> bool:
        while True:
            try:
                return stores[turn % 3].add(hard_case(seed, tiers=(tiers[turn],))).is_new
            except Unavailable:
                continue

    with ThreadPoolExecutor(6) as pool:
        adding = [pool.submit(deliver, turn, seed) for seed in range(15) for turn in range(4)]
        assert sum(future.result(120) for future in adding) == 15
    assert stores[0].count() == 15
    for case in stores[1].walk():
        assert [answer.tier for answer in case.answers] == [Tier.AGENT, Tier.EDGE, Tier.CLOUD]
    for store in stores:
        store.close()


def test_near_duplicates_of_several_processes_are_counted_once_each(migrated: StoreAddress) -> None:
    stores = [CaseStore.open(migrated, KeepRules(near=NearRule())) for _ in range(2)]
    stores[0].add(frame(0))

    def deliver(turn: int, seed: int) -> bool:
        while True:
            try:
                return stores[turn % 2].add(frame(seed)).is_new
            except Unavailable:
                continue

    with ThreadPoolExecutor(4) as pool:
        adding = [pool.submit(deliver, turn, seed) for turn in range(3) for seed in range(1, 9)]
        assert not any(future.result(120) for future in adding)
    assert (stores[0].count(), stores[0].get(frame(0).id).near_frames) == (1, 8)
    for store in stores:
        store.close()


def test_adding_protecting_and_pruning_at_once_leaves_every_row_with_its_picture(
    migrated: StoreAddress, tmp_path: Path
) -> None:
    adding, pruning = CaseStore.open(migrated), CaseStore.open(migrated)
    is_over = threading.Event()

    def prune() -> int:
        gone = 0
        while not is_over.is_set():
            try:
                gone += pruning.prune(Retention(max_bytes=0)).cases
            except Unavailable:
                continue
        return gone

    def add(seed: int) -> None:
        while True:
            try:
                adding.add(hard_case(seed % 5))
                adding.protect([hard_case(seed % 5).id], "review")
                adding.unprotect("review", [hard_case(seed % 5).id])
                return
            except (Unavailable, NotFound):
                continue

    with ThreadPoolExecutor(4) as pool:
        pruner = pool.submit(prune)
        for future in [pool.submit(add, seed) for seed in range(60)]:
            future.result(120)
        is_over.set()
        assert pruner.result(60) > 0
    pictures = {path.stem for path in (tmp_path / "images").rglob("*.jpg")}
    assert whole_cases(adding) == pictures
    for store in (adding, pruning):
        store.close()


def test_what_is_protected_cannot_be_deleted_by_anybody(store: CaseStore, migrated: StoreAddress) -> None:
    store.add(hard_case())
    store.protect([hard_case().id], "golden:yard")
    engine = create_engine(migrated.database)
    with pytest.raises(Exception, match="case_protections"), engine.begin() as connection:
        connection.execute(text("DELETE FROM cases"))
    engine.dispose()
    assert store.prune(Retention(max_bytes=0, max_age_days=0)).cases == 0
    assert whole_cases(store) == {hard_case().id}


def test_a_killed_writer_leaves_whole_cases(migrated: StoreAddress) -> None:
    writer = (
        "import sys\n"
        "from cloud.cases.store import CaseStore, StoreAddress\n"
        "from tests.unit.hard_cases import hard_case\n"
        "store = CaseStore.open(StoreAddress(sys.argv[1], sys.argv[2]))\n"
        "for seed in range(100000):\n"
        "    print(store.add(hard_case(seed)).id, flush=True)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", writer, migrated.database, migrated.images],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    acknowledged = [child.stdout.readline().strip() for _ in range(15)]
    child.kill()
    acknowledged += child.stdout.read().split()
    child.wait(30)
    child.stdout.close()
    store = CaseStore.open(migrated)
    assert set(acknowledged) <= whole_cases(store)
    store.close()


def test_a_server_that_goes_away_is_unavailable_and_the_store_finds_it_again(
    tmp_path: Path,
) -> None:
    with running_postgres() as url:
        engine = open_engine(checked_database(url))
        migrate(engine)
        engine.dispose()
        store = CaseStore.open(StoreAddress(url, str(tmp_path / "images")))
        store.add(hard_case(1))
        admin = create_engine(url)
        with admin.connect() as connection:
            connection.execute(
                text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
            )
        admin.dispose()
        store.add(hard_case(2))
        assert store.count() == 2
    with pytest.raises(Unavailable) as away:
        store.add(hard_case(3, captured_at=CAPTURED_AT + timedelta(days=1)))
    assert "odd" not in str(away.value) and not isinstance(away.value, StoreCorrupt)
    assert len(list((tmp_path / "images").rglob("*.jpg"))) <= 3
    store.close()
