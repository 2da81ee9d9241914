"""The uploader: every case arrives, none counts twice, and answers that somebody waits for go first."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fovea.core.errors import (
    Cancelled,
    DeadlineExceeded,
    DetectorFailed,
    FoveaError,
    Incompatible,
    Malformed,
    NotAllowed,
    Overloaded,
    StoreCorrupt,
    TooLarge,
    Unavailable,
)
from fovea.core.hard_case import HardCase
from fovea.link.case_spool import CaseSpool
from fovea.link.case_uploader import CaseUploader, UploaderSettings
from fovea.link.link import LinkState, LinkStatus
from fovea.link.spool_index import SpoolLimits
from fovea.link.upstream import Upstream
from protos.calls import DeliveryReceipt
from tests.unit.link_server import LinkServer
from tests.unit.link_writer import case_of

ROOT = Path(__file__).parents[2]
WAIT_S = 20.0
LIMITS = SpoolLimits(max_bytes=50_000_000, max_cases=1000, min_free_bytes=0)
QUICK = UploaderSettings(
    bytes_per_s=1e9, timeout_s=5.0, first_pause_s=0.01, longest_pause_s=0.05, busy_poll_s=0.005
)


class Store:
    """A tier above that knows cases by their ids, and fails as it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, float]] = []
        self.stored: list[str] = []
        self.failures: dict[int, list[FoveaError]] = {}

    def deliver(self, case: HardCase, timeout_s: float) -> DeliveryReceipt:
        number = case.frame_id.sequence
        self.calls.append((number, timeout_s))
        if self.failures.get(number):
            raise self.failures[number].pop(0)
        is_new = case.id not in self.stored
        if is_new:
            self.stored.append(case.id)
        return DeliveryReceipt(case.id, is_new)

    @property
    def order(self) -> list[int]:
        return [number for number, _ in self.calls]


def wait_until(holds: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < ends_s
        time.sleep(0.005)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[CaseSpool]:
    spool = CaseSpool.open(tmp_path / "spool", LIMITS)
    yield spool
    spool.close()


@contextmanager
def uploading(
    spool: CaseSpool, deliver: Any, settings: UploaderSettings = QUICK, **more: Any
) -> Iterator[CaseUploader]:
    uploader = CaseUploader(spool, deliver, settings, **more)
    uploader.start()
    try:
        yield uploader
    finally:
        begun_s = time.monotonic()
        uploader.stop(WAIT_S)
        assert time.monotonic() - begun_s < 5
        assert not uploader._thread.is_alive()


def small(number: int) -> HardCase:
    return case_of(number, 400)


def test_a_camera_that_asks_without_a_pause_gets_rid_of_its_cases_all_the_same(spool: CaseSpool) -> None:
    store = Store()
    for number in (1, 2):
        spool.put(small(number))
    settings = replace(QUICK, longest_busy_s=0.05)
    with uploading(spool, store.deliver, settings, is_busy=lambda: True) as uploader:
        wait_until(lambda: uploader.counts.delivered == 2)


def test_cases_go_up_in_order_those_that_wait_and_those_that_come(spool: CaseSpool) -> None:
    store = Store()
    for number in (3, 1, 2):
        spool.put(small(number))
    with uploading(spool, store.deliver) as uploader:
        wait_until(lambda: len(store.stored) == 3)
        spool.put(small(4))
        wait_until(lambda: uploader.counts.delivered == 4)
        assert store.order == [3, 1, 2, 4]
        assert (uploader.counts.failed, uploader.counts.sent_bytes) == (0, 1600)
        wait_until(lambda: spool.counts.delivered == 4 and spool.counts.waiting == 0)


@pytest.mark.parametrize(
    "failure",
    [
        Unavailable("gone"),
        DeadlineExceeded("late"),
        Overloaded("full", 0.02),
        Overloaded("full"),
        NotAllowed("who are you"),
        Incompatible("of another version"),
        DetectorFailed("broken"),
        StoreCorrupt("broken"),
        Cancelled("closed"),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_what_another_try_may_mend_is_tried_again(spool: CaseSpool, failure: FoveaError) -> None:
    store = Store()
    store.failures = {1: [failure] * 10}
    spool.put(small(1))
    with uploading(spool, store.deliver) as uploader:
        wait_until(lambda: uploader.counts.delivered == 1)
        assert (len(store.calls), uploader.counts.failed, uploader.counts.set_aside) == (11, 10, 0)


@pytest.mark.parametrize(
    "failure", [NotAllowed("who are you"), Incompatible("no such call")], ids=lambda failure: str(failure)
)
def test_a_tier_above_that_takes_no_cases_is_told_to_a_person_once_and_so_is_the_end_of_it(
    spool: CaseSpool, failure: FoveaError, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="fovea.link.case_uploader")
    store = Store()
    store.failures = {number: [failure] * 5 for number in (1, 2)}
    for number in (1, 2, 3):
        spool.put(small(number))
    with uploading(spool, store.deliver) as uploader:
        wait_until(lambda: uploader.counts.delivered == 3)
    told = [(record.levelname, record.message) for record in caplog.records]
    assert [level for level, _ in told] == ["WARNING", "INFO"] * 2, told
    assert str(failure) in told[0][1] and "cloud.spool" in told[0][1]
    assert "again" in told[1][1]


@pytest.mark.parametrize("failure", [Unavailable("gone"), Overloaded("full"), Cancelled("closed")])
def test_what_passes_by_itself_is_no_warning(
    spool: CaseSpool, failure: FoveaError, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store()
    store.failures = {1: [failure] * 5}
    spool.put(small(1))
    with uploading(spool, store.deliver) as uploader:
        wait_until(lambda: uploader.counts.delivered == 1)
    assert caplog.records == []


@pytest.mark.parametrize("failure", [Malformed("no picture"), TooLarge("too long")])
def test_a_case_that_will_never_be_taken_is_set_aside_and_the_next_one_goes(
    spool: CaseSpool, failure: FoveaError
) -> None:
    store = Store()
    store.failures = {1: [failure] * 100}
    for number in (1, 2):
        spool.put(small(number))
    with uploading(spool, store.deliver) as uploader:
        wait_until(lambda: uploader.counts.delivered == 1)
        assert store.order == [1, 2]
        assert (spool.counts.aside, spool.counts.rejected, uploader.counts.set_aside) == (1, 1, 1)


@pytest.mark.parametrize("failure", [StoreCorrupt("broken"), DeadlineExceeded("late")])
def test_one_case_at_which_the_other_side_breaks_does_not_block_the_rest_and_is_not_given_up(
    spool: CaseSpool, failure: FoveaError
) -> None:
    store = Store()
    store.failures = {1: [failure] * 7}
    for number in (1, 2, 3):
        spool.put(small(number))
    with uploading(spool, store.deliver) as uploader:
        wait_until(lambda: uploader.counts.delivered == 3)
        assert store.order[:5] == [1, 1, 1, 2, 3]
        assert store.order[-1] == 1


def test_who_is_too_slow_for_the_time_given_is_given_more(spool: CaseSpool) -> None:
    store = Store()
    store.failures = {1: [DeadlineExceeded("late")] * 6}
    spool.put(small(1))
    with uploading(spool, store.deliver) as uploader:
        wait_until(lambda: uploader.counts.delivered == 1)
        spool.put(small(2))
        wait_until(lambda: uploader.counts.delivered == 2)
    assert [timeout_s for _, timeout_s in store.calls] == [5, 10, 20, 40, 40, 40, 40, 5]


def test_it_waits_for_as_long_as_it_is_told_to(spool: CaseSpool) -> None:
    times_s: list[float] = []

    def deliver(case: HardCase, timeout_s: float) -> DeliveryReceipt:
        times_s.append(time.monotonic())
        if len(times_s) == 1:
            raise Overloaded("full", 0.3)
        return DeliveryReceipt(case.id, True)

    spool.put(small(1))
    with uploading(spool, deliver):
        wait_until(lambda: len(times_s) == 2)
    assert times_s[1] - times_s[0] >= 0.3


def test_it_pauses_while_answers_are_waited_for(spool: CaseSpool) -> None:
    store, is_busy = Store(), threading.Event()
    is_busy.set()
    looks: list[float] = []

    def busy() -> bool:
        looks.append(time.thread_time())
        return is_busy.is_set()

    spool.put(small(1))
    with uploading(spool, store.deliver, is_busy=busy) as uploader:
        wait_until(lambda: len(looks) > 10)
        assert store.calls == []
        is_busy.clear()
        wait_until(lambda: uploader.counts.delivered == 1)


def test_it_sends_no_faster_than_it_may(spool: CaseSpool) -> None:
    store = Store()
    for number in range(1, 6):
        spool.put(small(number))
    begun_s = time.monotonic()
    with uploading(spool, store.deliver, UploaderSettings(bytes_per_s=4000.0)) as uploader:
        wait_until(lambda: uploader.counts.delivered == 5)
    assert time.monotonic() - begun_s >= 0.4, "four pauses of 400 bytes at 4000 bytes a second"


def test_an_idle_uploader_does_nothing_at_all(spool: CaseSpool) -> None:
    reads: list[int] = []

    class Watched:
        def listen(self, listener: Callable[[], None]) -> None:
            spool.listen(listener)

        def oldest(self, most: int = 1, skip: Any = ()) -> list[HardCase]:
            reads.append(most)
            return spool.oldest(most, skip)

    watched: Any = Watched()
    with uploading(watched, Store().deliver, UploaderSettings()):
        time.sleep(0.5)
        assert len(reads) <= 2


def test_a_stop_does_not_wait_for_a_delivery_that_hangs_and_its_case_stays(spool: CaseSpool) -> None:
    begun, let = threading.Event(), threading.Event()

    def deliver(case: HardCase, timeout_s: float) -> DeliveryReceipt:
        begun.set()
        let.wait(WAIT_S)
        raise Cancelled("closed")

    spool.put(small(1))
    uploader = CaseUploader(spool, deliver, QUICK)
    uploader.start()
    assert begun.wait(WAIT_S)
    begun_s = time.monotonic()
    uploader.stop(0.1)
    assert time.monotonic() - begun_s < 5
    let.set()
    uploader.stop(WAIT_S)
    assert spool.counts.waiting == 1


def test_a_stop_ends_a_long_pause(spool: CaseSpool) -> None:
    store = Store()
    store.failures = {1: [Unavailable("gone")] * 9}
    spool.put(small(1))
    with uploading(spool, store.deliver, UploaderSettings(first_pause_s=500, longest_pause_s=500)):
        wait_until(lambda: len(store.calls) == 1)


def test_when_the_link_is_back_the_pause_after_failures_of_before_is_over(spool: CaseSpool) -> None:
    store = Store()
    store.failures = {1: [Unavailable("gone")]}
    spool.put(small(1))
    with uploading(
        spool, store.deliver, UploaderSettings(first_pause_s=500, longest_pause_s=500)
    ) as uploader:
        wait_until(lambda: uploader.counts.failed == 1)
        uploader.link_changed(LinkState(LinkStatus.DOWN, 0.0, "gone"))
        uploader.link_changed(LinkState(LinkStatus.UP, 1.0, "answers"))
        wait_until(lambda: uploader.counts.delivered == 1)


def test_a_link_that_is_back_does_not_hurry_a_slow_upload(spool: CaseSpool) -> None:
    store = Store()
    for number in (1, 2):
        spool.put(small(number))
    with uploading(spool, store.deliver, UploaderSettings(bytes_per_s=1.0)) as uploader:
        wait_until(lambda: uploader.counts.delivered == 1)
        uploader.link_changed(LinkState(LinkStatus.UP, 1.0, "answers"))
        assert uploader._next_mono_s > time.monotonic() + 60
    assert store.order == [1]


def test_an_unforeseen_failure_is_logged_and_does_not_end_it(
    spool: CaseSpool, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def deliver(case: HardCase, timeout_s: float) -> DeliveryReceipt:
        calls.append(case.frame_id.sequence)
        if len(calls) < 3:
            raise KeyError("unforeseen")
        return DeliveryReceipt(case.id, True)

    spool.put(small(1))
    with uploading(spool, deliver) as uploader:
        wait_until(lambda: uploader.counts.delivered == 1)
    assert "unforeseen" in caplog.text


def test_a_receipt_for_something_else_is_none(spool: CaseSpool) -> None:
    def deliver(case: HardCase, timeout_s: float) -> DeliveryReceipt:
        return DeliveryReceipt("0" * 64, True)

    spool.put(small(1))
    with uploading(spool, deliver) as uploader:
        wait_until(lambda: uploader.counts.failed >= 2)
        assert spool.counts.waiting == 1


def test_what_was_delivered_before_a_crash_is_known_already_and_counts_once(tmp_path: Path) -> None:
    folder, store = tmp_path / "spool", Store()
    first = CaseSpool.open(folder, LIMITS)
    first.put(small(1))
    store.deliver(first.oldest(1)[0], 1.0)
    first.close()  # and the process is gone before it could mark the case
    second = CaseSpool.open(folder, LIMITS)
    with uploading(second, store.deliver) as uploader:
        wait_until(lambda: uploader.counts.known_already == 1)
        assert len(store.stored) == 1
    second.close()


def test_over_a_real_link_that_goes_and_comes_back_every_case_arrives_once(spool: CaseSpool) -> None:
    server = LinkServer()
    upstream = Upstream(server.address)
    settings = UploaderSettings(bytes_per_s=200_000, timeout_s=5, first_pause_s=0.05, longest_pause_s=0.2)
    try:
        for number in range(1, 31):
            spool.put(case_of(number, 4000))
        with uploading(spool, upstream.deliver, settings) as uploader:
            wait_until(lambda: len(server.cases) >= 5)
            server.stop()
            before = server.cases
            server = LinkServer(server.address)
            wait_until(lambda: spool.counts.waiting == 0)
            assert uploader.counts.delivered + uploader.counts.known_already == 30
            assert set(before) | set(server.cases) == {case_of(number, 4000).id for number in range(1, 31)}
            assert len(before) + len(server.cases) <= 31, "at most the one under way came twice"
    finally:
        upstream.close()
        server.stop()


def test_an_uploader_that_is_killed_leaves_every_case_delivered_or_waiting(tmp_path: Path) -> None:
    program = (
        "import sys, threading; from pathlib import Path\n"
        "from fovea.link.case_spool import CaseSpool; from fovea.link.spool_index import SpoolLimits\n"
        "from fovea.link.case_uploader import CaseUploader, UploaderSettings\n"
        "from fovea.link.upstream import Upstream\n"
        "spool = CaseSpool.open(Path(sys.argv[1]), SpoolLimits(min_free_bytes=0))\n"
        "CaseUploader(spool, Upstream(sys.argv[2]).deliver, UploaderSettings(bytes_per_s=1e6)).start()\n"
        "threading.Event().wait(60)\n"
    )
    server = LinkServer()
    all_ids = {case_of(number, 4000).id for number in range(1, 61)}
    try:
        filled = CaseSpool.open(tmp_path, LIMITS)
        for number in range(1, 61):
            filled.put(case_of(number, 4000))
        filled.close()
        for least in (5, 20):
            process = subprocess.Popen(
                [sys.executable, "-c", program, str(tmp_path), server.address], cwd=ROOT
            )
            wait_until(lambda least=least: len(server.cases) >= least)  # type: ignore[misc]
            process.kill()
            process.wait()
        spool = CaseSpool.open(tmp_path, LIMITS)
        waiting = {case.id for case in spool.oldest(1000)}
        assert set(server.cases) | waiting == all_ids
        assert len(server.cases) <= len(set(server.cases)) + 2, "one for each time it was killed"
        spool.close()
    finally:
        server.stop()


@pytest.mark.parametrize(
    "settings",
    [
        {"bytes_per_s": 0.0},
        {"timeout_s": float("nan")},
        {"first_pause_s": 2.0, "longest_pause_s": 1.0},
        {"busy_poll_s": 0.0},
        {"tries": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(Malformed, match="uploader settings"):
        UploaderSettings(**settings)
