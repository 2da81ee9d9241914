"""The spool: nothing kept is lost, nothing half is read, and a full or broken disk harms nobody."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fovea.core.errors import BrokenError, Malformed, Unavailable
from fovea.core.frame import FrameId
from fovea.core.hard_case import HardCase
from fovea.link.case_spool import CaseSpool
from fovea.link.spool_files import DiskFiles
from fovea.link.spool_index import Shelf, SpoolEntry, SpoolIndex, SpoolLimits, entry_named
from protos.calls import Delivery
from protos.codec import delivery_to_bytes
from tests.unit.link_writer import LIMITS, STEPS, case_of

ROOT = Path(__file__).parents[2]
ROOMY = SpoolLimits(max_bytes=10_000_000, max_cases=1000, min_free_bytes=0)
HARD = [number for number in range(1, 60) if number % 5]
AUDITS = [number for number in range(1, 60) if not number % 5]


def small(number: int) -> HardCase:
    return case_of(number, 400)


SIZE = len(delivery_to_bytes(Delivery(small(1))))


def numbers(spool: CaseSpool, most: int = 1000) -> list[int]:
    return [case.frame_id.sequence for case in spool.oldest(most)]


@contextmanager
def opened(folder: Path, limits: SpoolLimits = ROOMY, files: DiskFiles | None = None) -> Iterator[CaseSpool]:
    spool = CaseSpool.open(folder, limits, files)
    try:
        yield spool
    finally:
        spool.close()


class MoodyFiles(DiskFiles):
    """A disk that fails when it is told to, and says how much is free."""

    def __init__(self) -> None:
        self.fail: dict[str, OSError] = {}
        self.free: int | None = None
        self.writes_fail_until_removed = 0

    def write(self, path: Path, data: bytes) -> None:
        if self.writes_fail_until_removed:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._maybe("write")
        super().write(path, data)

    def read(self, path: Path) -> bytes:
        self._maybe("read")
        return super().read(path)

    def move(self, source: Path, target: Path) -> None:
        self._maybe("move")
        super().move(source, target)

    def remove(self, path: Path) -> None:
        self._maybe("remove")
        super().remove(path)
        self.writes_fail_until_removed = max(self.writes_fail_until_removed - 1, 0)

    def free_bytes(self, folder: Path) -> int:
        self._maybe("free_bytes")
        return super().free_bytes(folder) if self.free is None else self.free

    def _maybe(self, name: str) -> None:
        if name in self.fail:
            raise self.fail[name]


# What goes in comes out


def test_a_case_comes_back_whole_and_in_order_also_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        assert all(spool.put(small(number)) for number in (3, 1, 2))
        assert numbers(spool) == [3, 1, 2]
        assert numbers(spool, 2) == [3, 1]
        assert spool.counts.waiting == spool.counts.put == 3
        assert spool.counts.waiting_bytes == spool.counts.total_bytes == 3 * SIZE
    with opened(tmp_path) as spool:
        assert numbers(spool) == [3, 1, 2]
        assert spool.put(small(4))
        assert numbers(spool) == [3, 1, 2, 4]
        [first] = spool.oldest(1)
        original = small(3)
        assert (first.jpeg, first.id, first.reasons) == (original.jpeg, original.id, original.reasons)
        assert (first.frame_id, first.captured_at) == (original.frame_id, original.captured_at)


def test_what_is_known_by_its_id_is_not_kept_twice_whether_it_waits_or_was_delivered(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        assert spool.put(small(1)) and spool.put(small(1))
        assert spool.mark_delivered(small(1).id)
        assert spool.put(small(1))
        counts = spool.counts
        assert (counts.put, counts.duplicates, counts.waiting, counts.delivered) == (1, 2, 0, 1)
    with opened(tmp_path) as spool:
        assert spool.put(small(1))
        assert numbers(spool) == []


def test_delivered_and_rejected_cases_do_not_wait_any_more_also_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        for number in (1, 2, 3):
            spool.put(small(number))
        assert spool.mark_delivered(small(2).id)
        assert spool.set_aside(small(1).id)
        assert not spool.mark_delivered(small(2).id) and not spool.set_aside("0" * 64)
        assert numbers(spool) == [3]
        assert (spool.counts.marked_delivered, spool.counts.rejected) == (1, 1)
    with opened(tmp_path) as spool:
        assert numbers(spool) == [3]
        assert (spool.counts.waiting, spool.counts.delivered, spool.counts.aside) == (1, 1, 1)
        assert spool.counts.total_bytes == 3 * SIZE


def test_cases_can_be_passed_over(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        for number in (1, 2, 3):
            spool.put(small(number))
        assert [case.frame_id.sequence for case in spool.oldest(5, skip={small(1).id})] == [2, 3]


def test_who_listens_hears_of_new_cases_only(tmp_path: Path) -> None:
    heard: list[int] = []
    with opened(tmp_path) as spool:
        spool.listen(lambda: heard.append(spool.counts.waiting))
        spool.put(small(1))
        spool.put(small(1))
        spool.put(small(2))
        assert heard == [1, 2]


def test_threads_may_share_it(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:

        def put(start: int) -> None:
            for number in range(start, start + 20):
                assert spool.put(small(number))
                for case in spool.oldest(1):
                    spool.mark_delivered(case.id)

        threads = [threading.Thread(target=put, args=(100 * number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        counts = spool.counts
        assert counts.put == 80 and counts.waiting + counts.delivered == 80
        assert counts.total_bytes == sum(path.stat().st_size for path in tmp_path.rglob("*.case"))


# Limits


def test_delivered_cases_go_first_then_the_oldest_that_are_no_audits_then_audits(tmp_path: Path) -> None:
    limits = replace(ROOMY, max_cases=6)
    with opened(tmp_path, limits) as spool:
        for number in (5, 1, 2, 10, 3, 4):  # 5 and 10 are audits
            spool.put(small(number))
        spool.mark_delivered(small(2).id)
        spool.put(small(6))
        assert numbers(spool) == [5, 1, 10, 3, 4, 6]
        spool.put(small(7))
        assert numbers(spool) == [5, 10, 3, 4, 6, 7]
        for number in (15, 20, 25, 30):
            spool.put(small(number))
        assert numbers(spool) == [5, 10, 15, 20, 25, 30]
        spool.put(small(8))
        assert numbers(spool) == [10, 15, 20, 25, 30, 8]
        assert (spool.counts.evicted_delivered, spool.counts.evicted_waiting) == (1, 6)


def test_bytes_are_bounded_and_a_case_that_can_never_fit_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path, replace(ROOMY, max_bytes=3 * SIZE)) as spool:
        for number in range(1, 10):
            assert spool.put(small(number))
            assert spool.counts.total_bytes <= 3 * SIZE
        assert not spool.put(case_of(11, 4 * SIZE))
        assert spool.counts.refused == {"too_large": 1}
        assert spool.counts.waiting == 3


def test_smaller_limits_take_effect_at_the_next_start(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        for number in HARD[:10]:
            spool.put(small(number))
    with opened(tmp_path, replace(ROOMY, max_cases=4)) as spool:
        assert numbers(spool) == HARD[6:10]
    assert len(list((tmp_path / "waiting").iterdir())) == 4


def test_others_keep_their_room_on_the_disk(tmp_path: Path) -> None:
    files = MoodyFiles()
    with opened(tmp_path, replace(ROOMY, min_free_bytes=1000), files) as spool:
        files.free = 1000 + 10 * SIZE
        for number in (1, 2, 3):
            assert spool.put(small(number))
        spool.mark_delivered(small(2).id)
        files.free = 1000
        assert spool.put(small(4)), "what was delivered makes room"
        assert numbers(spool) == [1, 3, 4]
        assert spool.put(small(6)), "and then the oldest"
        assert numbers(spool) == [3, 4, 6]
        spool.mark_delivered(small(3).id)
        files.free = 0
        assert not spool.put(small(7)), "giving up all of it would not help"
        assert numbers(spool) == [4, 6]
        assert spool.counts.refused == {"no_room": 1}
        assert spool.counts.delivered == 0, "but what nobody misses goes"


def entries(story: list[tuple[Shelf, bool, int]]) -> SpoolIndex:
    index = SpoolIndex()
    for number, (shelf, is_audit, size_bytes) in enumerate(story):
        index.add(SpoolEntry(number, is_audit, f"{number:064x}", 0, size_bytes, shelf))
    return index


@given(
    st.lists(st.tuples(st.sampled_from(Shelf), st.booleans(), st.integers(0, 50)), max_size=20),
    st.integers(1, 300),
    st.integers(1, 20),
    st.integers(0, 100),
    st.integers(0, 200),
    st.integers(0, 60),
)
def test_what_goes_makes_enough_room_and_nothing_goes_that_need_not(
    story: list[tuple[Shelf, bool, int]], most_bytes: int, most: int, least_free: int, free: int, size: int
) -> None:
    index = entries(story)
    limits = SpoolLimits(most_bytes, most, least_free)

    def fits(gone: list[SpoolEntry]) -> bool:
        gone_bytes = sum(entry.size_bytes for entry in gone)
        return (
            index.total_bytes - gone_bytes + size <= most_bytes
            and len(index) - len(gone) + 1 <= most
            and free + gone_bytes - size >= least_free
        )

    leaving = index.to_evict(limits, free, size)
    if leaving is None:
        assert not fits(list(index.evictable()))
        return
    assert fits(leaving)
    assert not leaving or not fits(leaving[:-1])
    assert leaving == list(index.evictable())[: len(leaving)]


@given(st.integers(0, 10**12 - 1), st.booleans(), st.integers(0, 2**256 - 1), st.integers(0, 2**32 - 1))
def test_the_name_of_a_file_says_all_that_a_start_has_to_know(
    sequence: int, is_audit: bool, digest: int, crc: int
) -> None:
    entry = SpoolEntry(sequence, is_audit, f"{digest:064x}", crc, 7, Shelf.WAITING)
    assert entry_named(entry.file_name, 7, Shelf.WAITING) == entry


# A disk that fails


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES])
def test_a_write_that_fails_is_false_and_counted_and_the_next_one_is_kept(tmp_path: Path, code: int) -> None:
    files = MoodyFiles()
    with opened(tmp_path, ROOMY, files) as spool:
        spool.put(small(1))
        files.fail["write"] = OSError(code, os.strerror(code))
        assert not spool.put(small(2))
        assert spool.counts.refused == {"disk_failed": 1}
        del files.fail["write"]
        assert spool.put(small(2))
        assert small(2).id in {case.id for case in spool.oldest(9)}
    assert not list(tmp_path.rglob("*.part"))


def test_a_full_disk_that_pretends_to_have_room_gets_it_from_what_is_here(tmp_path: Path) -> None:
    files = MoodyFiles()
    with opened(tmp_path, ROOMY, files) as spool:
        for number in (1, 2, 3):
            spool.put(small(number))
        spool.mark_delivered(small(2).id)
        files.writes_fail_until_removed = 1
        assert spool.put(small(4))
        assert numbers(spool) == [1, 3, 4]
        assert spool.counts.evicted_delivered == 1


@pytest.mark.parametrize("method", ["move", "remove", "free_bytes", "read", "write"])
def test_whatever_the_disk_refuses_nobody_is_thrown_out(tmp_path: Path, method: str) -> None:
    files = MoodyFiles()
    limits = replace(ROOMY, max_cases=3)
    with opened(tmp_path, limits, files) as spool:
        for number in (1, 2, 3):
            spool.put(small(number))
        files.fail[method] = OSError(errno.EIO, "Input/output error")
        spool.put(small(4))
        spool.oldest(5)
        spool.mark_delivered(small(2).id)
        spool.set_aside(small(3).id)
        files.fail.clear()
        assert spool.put(small(6))
        assert small(6).frame_id.sequence in numbers(spool)


def test_a_case_that_cannot_be_read_today_is_not_given_up(tmp_path: Path) -> None:
    files = MoodyFiles()
    with opened(tmp_path, ROOMY, files) as spool:
        spool.put(small(1))
        files.fail["read"] = OSError(errno.EMFILE, "Too many open files")
        assert spool.oldest(1) == []
        files.fail.clear()
        assert numbers(spool) == [1]
        assert spool.counts.damaged == 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: b"\xff" * len(data),
    ],
    ids=["cut", "empty", "one bit", "garbage"],
)
def test_a_damaged_file_is_set_aside_and_counted_and_the_others_are_read(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    with opened(tmp_path) as spool:
        for number in (1, 2):
            spool.put(small(number))
    [first, _] = sorted((tmp_path / "waiting").iterdir())
    first.write_bytes(damage(first.read_bytes()))
    with opened(tmp_path) as spool:
        assert numbers(spool) == [2]
        assert (spool.counts.damaged, spool.counts.aside, spool.counts.waiting) == (1, 1, 1)
        assert (tmp_path / "aside" / first.name).exists()
        assert spool.put(small(1)), "the same case, whole this time"
        assert numbers(spool) == [2, 1]
        assert spool.counts.aside == 0


def test_a_file_that_somebody_has_removed_is_not_waited_for(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        for number in (1, 2):
            spool.put(small(number))
        sorted((tmp_path / "waiting").iterdir())[0].unlink()
        assert numbers(spool) == [2]
        assert (spool.counts.waiting, spool.counts.damaged) == (1, 1)
        assert spool.counts.total_bytes == SIZE


def test_files_of_others_stay_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "waiting").mkdir()
    note = tmp_path / "waiting" / "note.txt"
    note.write_text("mine")
    with opened(tmp_path, replace(ROOMY, max_cases=1)) as spool:
        spool.put(small(1))
        spool.put(small(2))
        assert numbers(spool) == [2]
    assert note.read_text() == "mine"


def test_two_files_of_one_case_count_once_after_a_start(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        spool.put(small(1))
    [file] = (tmp_path / "waiting").iterdir()
    (tmp_path / "delivered" / file.name.replace("000000000001", "000000000009")).write_bytes(
        file.read_bytes()
    )
    with opened(tmp_path) as spool:
        assert numbers(spool) == []
        assert (spool.counts.delivered, spool.counts.total_bytes) == (1, SIZE)


def test_a_spool_belongs_to_one_process_at_a_time(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        with pytest.raises(Unavailable, match="in use by another process"):
            CaseSpool.open(tmp_path)
        spool.close()
        spool.close()
        with opened(tmp_path):
            pass


def test_a_folder_that_cannot_be_is_said_in_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(BrokenError, match=r"spool .*file/spool: Not a directory"):
        CaseSpool.open(file / "spool")


def test_a_case_that_no_message_can_hold_is_refused_and_counted(tmp_path: Path) -> None:
    case = HardCase(b"x", FrameId("half \ud800", "b", 1), small(1).captured_at, (), ("audit",))
    with opened(tmp_path) as spool:
        assert not spool.put(case)
        assert spool.counts.refused == {"unwritable": 1}


@pytest.mark.parametrize("limits", [{"max_bytes": 0}, {"max_cases": 0}, {"min_free_bytes": -1}])
def test_limits_that_make_no_sense_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(Malformed, match="spool limits"):
        SpoolLimits(**limits)


# Power cuts


def killed_writer(folder: Path, step: str, first: int, lifetime_s: float | None) -> list[str]:
    """What a writer said until it ended: by itself at `step`, or killed after `lifetime_s`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.link_writer", str(folder), step, str(first)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    if lifetime_s is not None:
        assert process.stdout is not None
        said = [process.stdout.readline()]
        time.sleep(lifetime_s)
        process.kill()
        return (said[0] + process.communicate(timeout=60)[0]).splitlines()
    return process.communicate(timeout=60)[0].splitlines()


def assert_holds(folder: Path, said: list[str]) -> CaseSpool:
    """All that was said to be kept is there and whole, but for what the limits took (the oldest), and no part."""
    spool = CaseSpool.open(folder, LIMITS)
    assert not list(folder.rglob("*.part"))
    kept = {case.id for case in spool.oldest(10_000)}
    put = [line.split()[1] for line in said if line.startswith("put ")]
    delivered = {line.split()[1] for line in said if line.startswith("delivered ")}
    newest = put[-(LIMITS.max_cases // 2) :]
    lost = set(newest) - kept - {path.name.split(".")[2] for path in (folder / "delivered").iterdir()}
    assert put and not lost
    assert not kept & delivered
    assert spool.counts.damaged == 0
    counts = spool.counts
    assert counts.total_bytes == sum(path.stat().st_size for path in folder.rglob("*.case"))
    assert counts.total_bytes <= LIMITS.max_bytes
    assert counts.waiting + counts.delivered + counts.aside <= LIMITS.max_cases
    return spool


@pytest.mark.parametrize("step", STEPS)
def test_a_writer_that_dies_at_this_step_leaves_what_it_kept_and_no_part(tmp_path: Path, step: str) -> None:
    said = killed_writer(tmp_path, step, 0, None)
    spool = assert_holds(tmp_path, said)
    assert spool.put(case_of(999_999))
    spool.close()


def test_a_writer_that_is_killed_at_any_moment_again_and_again_loses_nothing(tmp_path: Path) -> None:
    for round_number in range(5):
        said = killed_writer(tmp_path, "never", 1000 * round_number, 0.02 + 0.05 * round_number)
        assert_holds(tmp_path, [line for line in said if len(line.split()) == 2 and len(line) > 67]).close()


# Whatever happens, the books are right


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "deliver", "aside", "reopen"]), st.integers(1, 12)), max_size=30
    )
)
def test_counts_are_those_of_the_disk_after_any_story(
    tmp_path_factory: pytest.TempPathFactory, story: list[tuple[str, int]]
) -> None:
    folder, limits = tmp_path_factory.mktemp("spool"), replace(ROOMY, max_cases=5, max_bytes=5 * SIZE)
    spool = CaseSpool.open(folder, limits)
    for action, number in story:
        if action == "put":
            assert spool.put(small(number))
        elif action == "deliver":
            spool.mark_delivered(small(number).id)
        elif action == "aside":
            spool.set_aside(small(number).id)
        else:
            spool.close()
            spool = CaseSpool.open(folder, limits)
        found = {shelf: len(list((folder / shelf).iterdir())) for shelf in Shelf}
        counts = spool.counts
        assert (counts.waiting, counts.delivered, counts.aside) == tuple(found.values())
        assert counts.total_bytes == sum(path.stat().st_size for path in folder.rglob("*.case"))
        assert sum(found.values()) <= 5
        assert len(numbers(spool)) == counts.waiting
    spool.close()
