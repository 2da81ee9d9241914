"""Several tiers above: who is asked, when another stands in, and what is said about all of them together."""

from __future__ import annotations

import time

import numpy as np
import pytest

from fovea.core.errors import (
    Cancelled,
    DeadlineExceeded,
    Incompatible,
    Malformed,
    Overloaded,
    TooLarge,
    Unavailable,
)
from fovea.link.link import Link, LinkState, LinkStatus
from fovea.link.upstream import Upstream
from fovea.link.upstreams import Upstreams
from fovea.runtime.images import encode_png
from protos.calls import DetectQuestion
from tests.builders import scene
from tests.fake_link import FakeLink
from tests.unit.link_server import LinkServer
from tests.unit.link_writer import case_of

UP, POOR, DOWN = LinkStatus.UP, LinkStatus.POOR, LinkStatus.DOWN
QUESTION = DetectQuestion(np.zeros((8, 8, 3), np.uint8))
CASE = case_of(1, 400)


def pair() -> tuple[FakeLink, FakeLink, Upstreams]:
    first, second = FakeLink(), FakeLink(encode=encode_png)
    return first, second, Upstreams([first, second])


def test_the_first_that_is_up_is_asked_and_given_the_cases() -> None:
    first, second, both = pair()
    both.ask(QUESTION, 1.0)
    assert both.deliver(CASE, 1.0).is_new
    assert (len(first.questions), len(second.questions), len(second.cases)) == (1, 0, 0)
    first.set(DOWN)
    both.ask(QUESTION, 1.0)
    both.deliver(CASE, 1.0)
    assert (len(first.questions), len(second.questions), len(second.cases)) == (1, 1, 1)
    first.set(UP)
    both.ask(QUESTION, 1.0)
    assert (len(first.questions), len(second.questions)) == (2, 1)


def test_one_that_is_not_to_be_asked_now_is_passed_over_for_questions_and_not_for_cases() -> None:
    first, second, both = pair()
    first.may_ask_now = False
    both.ask(QUESTION, 1.0)
    both.deliver(CASE, 1.0)
    assert (len(first.questions), len(second.questions), len(first.cases)) == (0, 1, 1)
    assert not both.is_busy, "the second may be asked"
    second.may_ask_now = False
    assert not both.may_ask and not both.is_busy
    second.is_busy = True
    assert both.is_busy


@pytest.mark.parametrize("failure", [Unavailable("gone just now"), Overloaded("full", 1.0)])
def test_the_next_one_is_asked_in_the_time_that_is_left(failure: Unavailable | Overloaded) -> None:
    first, second, both = pair()
    first.fail_with = failure
    both.ask(QUESTION, 1.0)
    [(_, timeout_s)] = second.questions
    assert 0 < timeout_s <= 1.0
    both.deliver(CASE, 1.0)
    assert CASE.id in second.cases


@pytest.mark.parametrize("failure", [TooLarge("too long"), DeadlineExceeded("late"), Cancelled("closed")])
def test_what_nobody_else_could_mend_is_not_asked_elsewhere(failure: Exception) -> None:
    first, second, both = pair()
    first.fail_with = failure  # type: ignore[assignment]
    with pytest.raises(type(failure)):
        both.ask(QUESTION, 1.0)
    assert second.questions == []


def test_one_that_takes_no_cases_is_passed_over_for_cases_and_not_for_questions() -> None:
    first, second, both = pair()
    first.fail_with = Incompatible("takes no cases")
    assert both.deliver(CASE, 1.0).is_new
    assert CASE.id in second.cases
    with pytest.raises(Incompatible):
        both.ask(QUESTION, 1.0)
    second.fail_with = Unavailable("gone just now")
    with pytest.raises(Unavailable, match="takes no cases; gone just now"):
        both.deliver(CASE, 1.0)
    second.fail_with = Incompatible("neither does this one")
    with pytest.raises(Incompatible, match="takes no cases; neither"):
        both.deliver(CASE, 1.0)


def test_the_picture_is_fitted_to_who_is_asked() -> None:
    first, second, both = pair()
    pixels = scene()
    assert both.encode(pixels) is pixels
    first.set(DOWN)
    assert both.encode(pixels) == encode_png(pixels)
    both.ask(DetectQuestion(pixels), 1.0)
    assert second.questions[0][0].image == encode_png(pixels)
    file = encode_png(scene(seed=2))
    both.ask(DetectQuestion(file), 1.0)
    assert second.questions[1][0].image == file, "a file stays as it is"


def test_when_all_refuse_the_first_to_have_room_is_told() -> None:
    first, second, both = pair()
    first.fail_with, second.fail_with = Overloaded("full", 3.0), Overloaded("full", 0.5)
    with pytest.raises(Overloaded) as told:
        both.ask(QUESTION, 1.0)
    assert told.value.retry_after_s == 0.5
    first.fail_with, second.fail_with = Overloaded("full"), Unavailable("gone")
    with pytest.raises(Overloaded):
        both.ask(QUESTION, 1.0)
    first.set(DOWN, "refused")
    second.set(DOWN, "no such name")
    with pytest.raises(Unavailable, match="refused; no such name"):
        both.ask(QUESTION, 1.0)


def test_when_the_second_finds_no_time_left_the_failure_of_the_first_is_told() -> None:
    first, second, both = pair()
    first.fail_with, second.fail_with = Unavailable("gone"), DeadlineExceeded("-0.1 s are left")
    with pytest.raises(Unavailable, match="gone"):
        both.ask(QUESTION, 1.0)


def test_a_change_is_told_once_and_one_that_stands_in_for_another_is_none() -> None:
    first, second, both = pair()
    heard: list[LinkState] = []
    both.listen(heard.append)
    assert both.state.status is UP and both.state.is_first
    first.set(DOWN)
    second.set(POOR)
    first.set(DOWN)
    second.set(DOWN, "also gone")
    for _ in range(3):
        with pytest.raises(Unavailable):
            both.ask(QUESTION, 1.0)
    first.set(UP)
    second.set(UP)
    assert [state.status for state in heard] == [POOR, DOWN, UP]
    assert "also gone" in heard[1].reason
    back = heard[-1]
    assert back.missed_calls == 3 and back.away_s > 0 and not back.is_first


def test_while_all_are_down_the_newest_reason_of_each_shows() -> None:
    first, second, both = pair()
    first.set(DOWN, "nobody listens")
    second.set(DOWN, "no such name")
    assert both.state.reason == "nobody listens; no such name"
    first.now_says("no answer in time")
    assert both.state.reason == "no answer in time; no such name"
    second.set(UP)
    assert both.state.reason == "told so"


def test_the_way_there_and_back_is_that_of_who_would_be_asked() -> None:
    first, second, both = pair()
    second.round_trip_ms = 30.0
    assert both.round_trip_ms is None
    first.set(DOWN)
    assert both.round_trip_ms == 30.0


def test_closing_closes_all() -> None:
    first, second, both = pair()
    both.close()
    assert first.is_closed and second.is_closed


def test_none_at_all_is_malformed() -> None:
    with pytest.raises(Malformed, match="at least one"):
        Upstreams([])


def test_with_real_ones_the_second_takes_over_when_the_first_goes_and_gives_back() -> None:
    first, second = LinkServer(), LinkServer()
    links: list[Link] = [Upstream(first.address), Upstream(second.address)]
    both = Upstreams(links)
    try:
        ends_s = time.monotonic() + 20

        def asked(server: LinkServer) -> bool:
            before = len(server.questions)
            try:
                both.ask(QUESTION, 5.0)
            except Unavailable:
                time.sleep(0.01)
            assert time.monotonic() < ends_s
            return len(server.questions) > before

        while not asked(first):
            pass
        first.stop()
        while not asked(second):
            pass
        for _ in range(5):
            assert asked(second), "and without a failure that anybody sees"
        first = LinkServer(first.address)
        while not asked(first):
            pass
        assert both.state.status is UP
    finally:
        both.close()
        first.stop()
        second.stop()
