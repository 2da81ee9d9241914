"""What other threads want done between two frames: once, or not at all, and somebody always hears."""

from __future__ import annotations

import threading

import pytest

from edge_agent.chore import Chore
from edge_agent.inbox import Inbox
from fovea.core.errors import Cancelled, DetectorFailed, Unavailable

LIVENESS_S = 20.0


def test_who_waits_goes_on_when_it_is_done() -> None:
    done: list[int] = []
    chore = Chore(lambda: done.append(1))
    runner = threading.Thread(target=chore.run)
    runner.start()
    chore.wait(LIVENESS_S)
    runner.join(LIVENESS_S)
    assert done == [1]


def test_what_it_raises_goes_to_who_waits_and_not_to_the_frames() -> None:
    def broken() -> None:
        raise DetectorFailed("no")

    chore = Chore(broken)
    chore.run()
    with pytest.raises(DetectorFailed, match="no"):
        chore.wait(0)


def test_a_chore_whose_turn_does_not_come_is_not_done_later_either() -> None:
    done: list[int] = []
    chore = Chore(lambda: done.append(1))
    with pytest.raises(Unavailable, match="did not end"):
        chore.wait(0)
    chore.run()
    assert done == []


def test_a_chore_that_has_begun_is_waited_for_to_its_end() -> None:
    began, may_end = threading.Event(), threading.Event()

    def slow() -> None:
        began.set()
        assert may_end.wait(LIVENESS_S)

    chore = Chore(slow)
    runner = threading.Thread(target=chore.run)
    runner.start()
    assert began.wait(LIVENESS_S)
    threading.Timer(0.05, may_end.set).start()
    chore.wait(0)
    runner.join(LIVENESS_S)


def test_the_inbox_gives_it_to_the_agent_before_the_next_frame() -> None:
    inbox = Inbox()
    chore = Chore(lambda: None)
    inbox.do(chore)
    work = inbox.take(LIVENESS_S)
    assert work is not None and work.chores == (chore,)
    again = inbox.take(0)
    assert again is not None and again.chores == ()


def test_an_inbox_that_closes_or_is_closed_cancels_it() -> None:
    inbox = Inbox()
    before, after = Chore(lambda: None), Chore(lambda: None)
    inbox.do(before)
    inbox.close()
    inbox.do(after)
    for chore in (before, after):
        with pytest.raises(Cancelled, match="the agent ends"):
            chore.wait(0)
