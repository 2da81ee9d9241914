"""Work that is done now and then: tried again, said when it changes, ended in time."""

from __future__ import annotations

import logging
import threading

import pytest

from cloud.regular import RegularWork
from fovea.core.errors import Unavailable
from tests.system.service_process import until


class Work:
    def __init__(self) -> None:
        self.error: Exception | None = None
        self.done = 0

    def __call__(self) -> None:
        self.done += 1
        if self.error is not None:
            raise self.error


def test_it_is_done_at_the_start_and_again_and_again() -> None:
    work = Work()
    regular = RegularWork("count", work, 0.01)
    regular.start()
    until(lambda: work.done > 3, "it is done again")
    regular.stop()
    done = work.done
    assert not any(thread.name == "count" for thread in threading.enumerate())
    assert work.done == done


@pytest.mark.parametrize("error", [Unavailable("the disk is away"), ZeroDivisionError("nobody foresaw it")])
def test_what_fails_is_told_once_and_tried_again_soon(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    work = Work()
    work.error = error
    regular = RegularWork("count", work, 3600.0, 0.01)
    with caplog.at_level(logging.WARNING, "cloud.regular"):
        regular.start()
        until(lambda: work.done > 3, "it is tried again")
        assert regular.trouble is not None and regular.trouble.startswith("count: ")
        work.error = None
        until(lambda: regular.trouble is None, "it goes well again")
        regular.stop()
    said = [record for record in caplog.records if record.exc_info is None]
    assert [record.levelname for record in said] == ["ERROR", "WARNING"]


def test_it_does_not_wait_for_the_next_time_to_end() -> None:
    regular = RegularWork("count", Work(), 3600.0)
    regular.start()
    regular.stop()
    regular.stop()
    assert regular.trouble is None
