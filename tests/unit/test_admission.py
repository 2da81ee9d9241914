"""Verdicts on who may come in: each rule, what it says, and the error it becomes."""

from __future__ import annotations

from typing import Any

import pytest

from fovea.core.errors import DeadlineExceeded, Malformed, Overloaded, TooLarge, Unavailable
from fovea.serving.admission import (
    Ask,
    DoorLimits,
    Line,
    QueueLimits,
    Reason,
    Refused,
    Unread,
    judge_arrival,
    judge_wait,
)
from fovea.serving.outcomes import Ending, Outcome, ending_of

DOOR = DoorLimits(max_request_bytes=1000, max_unread=3, max_unread_bytes=2500)


def line(**changes: Any) -> Line:
    usual = {
        "waiting": 0,
        "waiting_bytes": 0,
        "is_idle": False,
        "finish_in_s": 0.1,
        "next_free_in_s": 0.2,
        "silence_s": 0.0,
    }
    return Line(**(usual | changes))


def reason_of(refused: Refused | None) -> Reason | None:
    return refused and refused.reason


@pytest.mark.parametrize(
    ("size_bytes", "left_s", "unread", "is_stopping", "reason"),
    [
        (1000, 1.0, Unread(), False, None),
        (1001, 1.0, Unread(), False, Reason.TOO_LARGE),
        (1000, 0.0, Unread(), False, Reason.EXPIRED),
        (1000, -1.0, Unread(), False, Reason.EXPIRED),
        (1, 1.0, Unread(2, 2499), False, None),
        (2, 1.0, Unread(2, 2499), False, Reason.UNREAD_FULL),
        (1, 1.0, Unread(3, 3), False, Reason.UNREAD_FULL),
        (1, 1.0, Unread(), True, Reason.STOPPING),
        (1001, -1.0, Unread(3, 3), True, Reason.STOPPING),
    ],
)
def test_the_door_knows_size_time_and_whether_the_server_stops(
    size_bytes: int, left_s: float, unread: Unread, is_stopping: bool, reason: Reason | None
) -> None:
    assert reason_of(judge_arrival(size_bytes, left_s, unread, DOOR, is_stopping)) is reason


@pytest.mark.parametrize(
    ("left_s", "found", "reason"),
    [
        (0.106, line(), None),
        (0.104, line(), Reason.TOO_LATE),
        (0.0, line(), Reason.EXPIRED),
        (9.0, line(waiting=64), Reason.QUEUE_FULL),
        (9.0, line(waiting=63), None),
        (9.0, line(waiting=1, waiting_bytes=999), Reason.QUEUE_BYTES_FULL),
        (9.0, line(waiting=1, waiting_bytes=900), None),
    ],
)
def test_the_queue_refuses_what_has_no_place_or_would_be_finished_too_late(
    left_s: float, found: Line, reason: Reason | None
) -> None:
    ask = Ask(50.0 + left_s, size_bytes=100)
    assert (
        reason_of(judge_wait(ask, found, QueueLimits(max_bytes=1000, margin_s=0.005), now_s=50.0)) is reason
    )


def test_who_would_be_late_is_told_to_come_back_when_the_line_is_shorter_by_as_much() -> None:
    refused = judge_wait(Ask(0.2), line(finish_in_s=0.5), QueueLimits(margin_s=0.1), now_s=0.0)
    assert refused is not None
    assert refused.retry_after_s == pytest.approx(0.4)
    assert refused.message == "it would be finished in 500 ms, and 200 ms are left"


def test_an_estimate_that_refuses_everyone_is_tried_again_after_a_silence_on_an_idle_device() -> None:
    limits = QueueLimits(stale_after_s=5.0)
    hopeless: dict[str, Any] = {"finish_in_s": 100.0}
    verdicts = [
        judge_wait(Ask(1.0), line(is_idle=is_idle, silence_s=silence_s, **hopeless), limits, now_s=0.0)
        for is_idle, silence_s in ((True, 4.9), (True, 5.1), (False, 5.1))
    ]
    assert [reason_of(verdict) for verdict in verdicts] == [Reason.TOO_LATE, None, Reason.TOO_LATE]


@pytest.mark.parametrize(
    ("reason", "error", "ending"),
    [
        (Reason.STOPPING, Unavailable, Ending(Outcome.REFUSED, "unavailable")),
        (Reason.EXPIRED, DeadlineExceeded, Ending(Outcome.EXPIRED)),
        (Reason.TOO_LARGE, TooLarge, Ending(Outcome.REFUSED, "too_large")),
        (Reason.UNREAD_FULL, Overloaded, Ending(Outcome.REFUSED, "unread_full")),
        (Reason.QUEUE_FULL, Overloaded, Ending(Outcome.REFUSED, "queue_full")),
        (Reason.QUEUE_BYTES_FULL, Overloaded, Ending(Outcome.REFUSED, "queue_bytes_full")),
        (Reason.TOO_LATE, Overloaded, Ending(Outcome.REFUSED, "too_late")),
    ],
)
def test_every_reason_becomes_an_error_that_tells_the_caller_what_to_do_and_an_outcome_that_is_counted(
    reason: Reason, error: type[Exception], ending: Ending
) -> None:
    told = Refused(reason, "because", 0.25).error()
    assert isinstance(told, error)
    assert str(told) == "because"
    assert ending_of(told) == ending
    if isinstance(told, Overloaded):
        assert told.retry_after_s == 0.25


def test_the_table_above_has_every_reason() -> None:
    assert len(Reason) == 7


@pytest.mark.parametrize(
    "changes", [{"max_items": 0}, {"max_bytes": 0}, {"margin_s": -1.0}, {"stale_after_s": -1.0}]
)
def test_limits_that_let_nobody_in_are_malformed(changes: dict[str, Any]) -> None:
    with pytest.raises(Malformed, match=r"^queue limits: expected"):
        QueueLimits(**changes)
