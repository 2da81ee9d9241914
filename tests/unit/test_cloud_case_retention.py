"""What goes and what stays: by size and by age, never what is protected, and no row is ever without its picture."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.cases.pruner import CasePruner
from cloud.cases.retention import Held, PruneReport, Retention, going
from cloud.cases.store import CaseStore, StoreAddress
from cloud.cases.stored_case import CaseFilter
from fovea.core.errors import Malformed, NotFound, StoreCorrupt, Unavailable
from tests.unit.hard_cases import CAPTURED_AT, hard_case

ROOT = Path(__file__).resolve().parents[2]
NOW = CAPTURED_AT + timedelta(days=400)


class Calendar:
    """The clock of a store, set by hand."""

    def __init__(self) -> None:
        self.at = CAPTURED_AT

    def now(self) -> datetime:
        return self.at


@pytest.fixture
def calendar() -> Calendar:
    return Calendar()


@pytest.fixture
def store(tmp_path: Path, calendar: Calendar) -> Iterator[CaseStore]:
    opened = CaseStore.open(StoreAddress.in_folder(tmp_path / "kept"), now=calendar.now)
    yield opened
    opened.close()


def fill(store: CaseStore, calendar: Calendar, count: int, audits: tuple[int, ...] = ()) -> list[str]:
    """A case a day, the oldest first; the clock stands at the day after."""
    ids = []
    for seed in range(count):
        reasons = ("audit",) if seed in audits else ("weak_boxes",)
        ids.append(store.add(hard_case(seed, reasons=reasons)).id)
        calendar.at += timedelta(days=1)
    return ids


def kept(store: CaseStore) -> set[str]:
    cases = list(store.walk())
    assert all(store.load_image(case) for case in cases)
    return {case.id for case in cases}


def pictures(tmp_path: Path) -> set[str]:
    return {path.stem for path in (tmp_path / "kept" / "images").rglob("*.jpg")}


def test_what_is_too_old_goes_with_its_picture(store: CaseStore, calendar: Calendar, tmp_path: Path) -> None:
    ids = fill(store, calendar, 5)
    retention = Retention(max_age_days=2.5)
    told = store.would_prune(retention)
    assert kept(store) == set(ids), "asking what would go deletes nothing"
    report = store.prune(retention)
    assert (report, report.cases) == (told, 3)
    assert kept(store) == pictures(tmp_path) == set(ids[3:])
    with pytest.raises(NotFound):
        store.get(ids[0])
    assert store.find(ids[0]) is None


def test_what_is_too_much_goes_the_oldest_first_and_no_more_than_has_to(
    store: CaseStore, calendar: Calendar, tmp_path: Path
) -> None:
    ids = fill(store, calendar, 6)
    sizes = [store.get(case_id).image_bytes for case_id in ids]
    report = store.prune(Retention(max_bytes=sum(sizes[2:])))
    assert report == PruneReport(2, sum(sizes[:2]), sum(sizes[2:]), 0)
    assert kept(store) == pictures(tmp_path) == set(ids[2:])
    assert store.prune(Retention(max_bytes=sum(sizes[2:]) - 1)).cases == 1


def test_without_limits_nothing_goes(store: CaseStore, calendar: Calendar) -> None:
    ids = fill(store, calendar, 3)
    calendar.at = NOW
    assert not Retention().is_limited
    assert (store.prune(Retention()).cases, store.would_prune(Retention()).cases) == (0, 0)
    assert kept(store) == set(ids)


def test_the_age_counts_from_when_the_store_took_it_not_by_the_clock_of_a_camera(
    store: CaseStore, calendar: Calendar
) -> None:
    calendar.at = NOW
    store.add(hard_case(1, captured_at=NOW - timedelta(days=9000)))
    store.add(hard_case(2, captured_at=NOW + timedelta(days=9000)))
    calendar.at = NOW + timedelta(days=1)
    assert store.prune(Retention(max_age_days=2)).cases == 0
    calendar.at = NOW + timedelta(days=3)
    assert store.prune(Retention(max_age_days=2)).cases == 2


def test_audits_stay_as_long_as_was_said_whatever_the_age_and_the_size(
    store: CaseStore, calendar: Calendar
) -> None:
    ids = fill(store, calendar, 6, audits=(0, 4))
    report = store.prune(Retention(max_bytes=0, max_age_days=0, keep_audits_days=4))
    assert kept(store) == {ids[4]}
    assert report.over_bytes == report.left_bytes > 0
    calendar.at += timedelta(days=4)
    assert store.prune(Retention(max_bytes=0, keep_audits_days=4)) == PruneReport(
        1, report.left_bytes, 0, over_bytes=0
    )


def test_what_is_protected_stays_until_the_last_reason_is_gone(store: CaseStore, calendar: Calendar) -> None:
    ids = fill(store, calendar, 4)
    store.protect(ids[:2], "golden:yard")
    store.protect(ids[:2], "golden:yard")
    store.protect([ids[1]], "snapshot:ab12")
    nothing = Retention(max_bytes=0)
    assert store.prune(nothing).cases == 2
    assert kept(store) == set(ids[:2])
    assert store.protections_of(ids[1]) == ("golden:yard", "snapshot:ab12")
    store.unprotect("golden:yard")
    assert store.prune(nothing).cases == 1
    store.unprotect("snapshot:ab12", [ids[1]])
    assert store.prune(nothing).cases == 1
    assert kept(store) == set()


def test_protections_are_found_by_their_kind_and_leave_out_of_a_walk(store: CaseStore) -> None:
    ids = sorted(store.add(hard_case(seed)).id for seed in range(4))
    store.protect([ids[0]], "golden:yard")
    store.protect([ids[1]], "golden")
    store.protect([ids[2]], "goldenrod")
    assert store.protected("golden") == sorted(ids[:2])
    assert store.protected("golden:yard") == [ids[0]]
    assert {case.id for case in store.walk(CaseFilter(unprotected_as="golden"))} == set(ids[2:])
    assert store.protections_of(ids[3]) == ()


@pytest.mark.parametrize("why", ["", " golden", "a\nb", "x" * 101])
def test_a_reason_that_is_no_word_is_refused(store: CaseStore, why: str) -> None:
    store.add(hard_case())
    with pytest.raises(Malformed, match="protection"):
        store.protect([hard_case().id], why)


def test_protecting_what_is_not_there_names_it_and_protects_nothing(store: CaseStore) -> None:
    store.add(hard_case())
    with pytest.raises(NotFound, match="0000"):
        store.protect([hard_case().id, "0" * 64], "golden")
    assert store.protected("golden") == []


def test_many_cases_are_protected_and_pruned_in_portions(
    store: CaseStore, calendar: Calendar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloud.cases.marks._AT_ONCE", 2)
    monkeypatch.setattr("cloud.cases.store._PAGE", 2)
    monkeypatch.setattr("cloud.cases.deleting._PICTURES_AT_ONCE", 2)
    ids = fill(store, calendar, 9)
    store.protect(ids[::2], "review")
    assert store.would_prune(Retention(max_bytes=0)).cases == 4
    assert store.prune(Retention(max_bytes=0)).cases == 4
    assert kept(store) == set(ids[::2])
    store.unprotect("review", ids[::2])
    assert store.prune(Retention(max_bytes=0)).cases == 5


def test_a_picture_that_cannot_be_deleted_now_is_deleted_next_time(
    store: CaseStore, calendar: Calendar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = fill(store, calendar, 2)

    def refuse(path: str) -> None:
        raise Unavailable(f"images: cannot delete {path}: read-only")

    with monkeypatch.context() as patch:
        patch.setattr(store._images, "delete", refuse)
        with pytest.raises(Unavailable, match="read-only"):
            store.prune(Retention(max_bytes=0))
    assert (store.count(), pictures(tmp_path)) == (0, set(ids))
    assert store.prune(Retention(max_bytes=0)).cases == 0
    assert pictures(tmp_path) == set()


def test_a_case_that_comes_again_while_its_picture_waits_to_be_deleted_keeps_it(
    store: CaseStore, calendar: Calendar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [case_id] = fill(store, calendar, 1)
    with monkeypatch.context() as patch:
        patch.setattr(store, "_delete_pictures", lambda: None)
        assert store.prune(Retention(max_bytes=0)).cases == 1
    assert store.add(hard_case(0)).is_new
    store.prune(Retention(max_bytes=10**9))
    assert kept(store) == pictures(tmp_path) == {case_id}


def test_a_picture_that_was_deleted_under_the_hands_of_who_adds_it_is_put_again(
    store: CaseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process deletes the file between the moment it is written and the moment its row is."""
    put = store._images.put

    def put_and_lose(path: str, data: bytes) -> None:
        put(path, data)
        monkeypatch.setattr(store._images, "put", put)
        store._images.delete(path)

    monkeypatch.setattr(store._images, "put", put_and_lose)
    store.add(hard_case())
    assert kept(store) == {hard_case().id}


def test_a_reader_is_told_that_a_case_was_deleted_not_that_it_is_damaged(
    store: CaseStore, calendar: Calendar, tmp_path: Path
) -> None:
    [case_id] = fill(store, calendar, 1)
    case = store.get(case_id)
    store.prune(Retention(max_bytes=0))
    with pytest.raises(NotFound, match="deleted"):
        store.load_image(case)
    store.add(hard_case(0))
    (tmp_path / "kept" / "images" / case.image_path).unlink()
    with pytest.raises(StoreCorrupt, match="missing"):
        store.load_image(case)


def test_adding_and_pruning_at_once_leaves_every_row_with_its_picture(tmp_path: Path) -> None:
    """Two stores, as two processes: the same cases come again and again while all are deleted again and again."""
    address = StoreAddress.in_folder(tmp_path / "kept")
    adding, pruning = CaseStore.open(address), CaseStore.open(address)
    is_over = threading.Event()

    def prune() -> int:
        gone = 0
        while not is_over.is_set():
            gone += pruning.prune(Retention(max_bytes=0)).cases
        return gone

    with ThreadPoolExecutor(3) as pool:
        pruner = pool.submit(prune)
        for future in [
            pool.submit(lambda seed=seed: adding.add(hard_case(seed % 5)))  # type: ignore[misc]
            for seed in range(60)
        ]:
            future.result(120)
        is_over.set()
        assert pruner.result(60) > 0
    assert kept(adding) == pictures(tmp_path)
    for store in (adding, pruning):
        store.close()


def test_a_pruner_that_is_killed_leaves_whole_cases_and_the_next_one_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    store = CaseStore.open(StoreAddress.in_folder(folder))
    for seed in range(30):
        store.add(hard_case(seed))
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "import cloud.cases.store as module\n"
        "module._PAGE = 4\n"
        "from cloud.cases.retention import Retention\n"
        "from cloud.cases.store import CaseStore, StoreAddress\n"
        "store = CaseStore.open(StoreAddress.in_folder(Path(sys.argv[1])))\n"
        "delete, left = store._images.delete, [7]\n"
        "def dying(path):\n"
        "    delete(path); left[0] -= 1\n"
        "    if not left[0]: os.kill(os.getpid(), signal.SIGKILL)\n"
        "store._images.delete = dying\n"
        "store.prune(Retention(max_bytes=0))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], cwd=ROOT, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert kept(store) == set()
    assert len(pictures(tmp_path)) == 23
    store.prune(Retention(max_bytes=0))
    assert pictures(tmp_path) == set()
    store.close()


# The judgement alone.


def held(*sizes: int) -> list[Held]:
    """A case a day, today the last."""
    return [
        Held(str(place), NOW - timedelta(days=len(sizes) - 1 - place), size)
        for place, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("retention", "held_bytes", "expected"),
    [
        (Retention(max_age_days=1.5), 30, 1),
        (Retention(max_bytes=20), 30, 1),
        (Retention(max_bytes=19), 30, 2),
        (Retention(max_bytes=30), 30, 0),
        (Retention(max_bytes=25, max_age_days=0.5), 30, 2),
        (Retention(max_bytes=0), 1000, 3),
        (Retention(max_age_days=1e9), 30, 0),
        (Retention(), 30, 0),
    ],
)
def test_the_oldest_go_until_the_rest_is_allowed(
    retention: Retention, held_bytes: int, expected: int
) -> None:
    assert going(held(10, 10, 10), held_bytes, NOW, retention) == expected


@given(
    sizes=st.lists(st.integers(0, 100), max_size=20),
    max_bytes=st.none() | st.integers(0, 1000),
    max_age_days=st.none() | st.floats(0, 30),
)
def test_what_is_left_is_allowed_and_nothing_went_without_need(
    sizes: list[int], max_bytes: int | None, max_age_days: float | None
) -> None:
    cases, retention = held(*sizes), Retention(max_bytes, max_age_days)
    gone = going(cases, sum(sizes), NOW, retention)
    left = cases[gone:]
    limit = float("inf") if max_bytes is None else max_bytes
    oldest = retention.all_go_before(NOW)
    assert sum(case.image_bytes for case in left) <= limit
    assert oldest is None or all(case.received_at >= oldest for case in left)
    if gone:
        last = cases[gone - 1]
        is_old = oldest is not None and last.received_at < oldest
        assert is_old or sum(case.image_bytes for case in cases[gone - 1 :]) > limit


@pytest.mark.parametrize(
    "wrong",
    [{"max_bytes": -1}, {"max_age_days": -0.1}, {"max_age_days": float("nan")}, {"keep_audits_days": -1}],
)
def test_a_retention_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(Malformed, match="retention"):
        Retention(**wrong)  # type: ignore[arg-type]


# The thread.


class Answers:
    """A store that says what it is told, one for each time it is pruned, and then the last again."""

    def __init__(self, *answers: PruneReport | Exception) -> None:
        self._answers = list(answers)
        self.calls = 0
        self.has_said_all = threading.Event()

    def prune(self, retention: Retention) -> PruneReport:
        self.calls += 1
        answer = self._answers[0]
        if len(self._answers) > 1:
            self._answers.pop(0)
        elif self.calls > 1:
            self.has_said_all.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


NOTHING = PruneReport(0, 0, 10, 0)


def test_the_pruner_works_again_and_again_says_trouble_once_and_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    away = Unavailable("store: away")
    store = Answers(
        PruneReport(2, 5, 10, 3), PruneReport(0, 0, 10, 3), away, away, ValueError("odd"), NOTHING
    )
    pruner = CasePruner(store, Retention(max_bytes=1), every_s=0.001)
    with caplog.at_level("INFO"):
        pruner.start()
        assert store.has_said_all.wait(60)
        pruner.stop()
        pruner.stop()
    said = [record.message for record in caplog.records]
    assert sum("2 old cases" in line for line in said) == 1
    assert sum("more are kept than was allowed" in line for line in said) == 1
    assert sum("cannot be deleted for now" in line for line in said) == 1
    assert said[-1] == "old cases are deleted again"
    assert pruner.trouble is None


def test_a_pruner_without_limits_starts_no_thread_and_a_long_pause_does_not_hold_up_the_end() -> None:
    store = Answers(NOTHING)
    idle = CasePruner(store, Retention(), every_s=1)
    idle.start()
    idle.stop()
    assert store.calls == 0
    waiting = CasePruner(store, Retention(max_bytes=1), every_s=86_400)
    waiting.start()
    waiting.stop(60)
    assert store.calls <= 1 and not waiting._thread.is_alive()
