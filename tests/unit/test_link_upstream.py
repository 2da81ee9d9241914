"""An upstream over real connections: servers that come, go, hang, stop, are slow, busy, or of another kind."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fovea.core.errors import (
    Cancelled,
    DeadlineExceeded,
    DetectorFailed,
    Malformed,
    Overloaded,
    TooLarge,
    Unavailable,
)
from fovea.core.frame import FrameId
from fovea.core.hard_case import HardCase
from fovea.link.breaker import BreakerSettings
from fovea.link.encoding import PixelEncoding, encode_pixels, is_same_machine
from fovea.link.link import LinkState, LinkStatus
from fovea.link.link_judge import JudgeSettings
from fovea.link.upstream import Upstream, UpstreamSettings
from protos.calls import DetectQuestion, ServiceLimits
from protos.rpc import STATUS_TABLE
from tests.builders import scene
from tests.unit.link_server import LinkServer, server_process

WAIT_S = 20.0
QUICK = UpstreamSettings(
    check_timeout_s=0.6,
    judge=JudgeSettings(
        reach=BreakerSettings(first_pause_s=0.05, longest_pause_s=0.3),
        pace=BreakerSettings(failures_in_a_row=4, first_pause_s=0.05, longest_pause_s=0.3),
        check_every_s=0.4,
        recheck_s=0.05,
    ),
)
QUESTION = DetectQuestion(np.zeros((8, 8, 3), np.uint8))


class Heard:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.states: list[LinkState] = []

    def __call__(self, state: LinkState) -> None:
        self.states.append(state)

    @property
    def statuses(self) -> list[LinkStatus]:
        return [state.status for state in self.states]


def wait_until(holds: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < ends_s
        time.sleep(0.005)


@contextmanager
def linked(address: str, settings: UpstreamSettings = QUICK) -> Iterator[tuple[Upstream, Heard]]:
    heard, upstream = Heard(), Upstream(address, settings)
    upstream.listen(heard)
    try:
        yield upstream, heard
    finally:
        begun_s = time.monotonic()
        upstream.close()
        assert time.monotonic() - begun_s < 5
        wait_until(lambda: not any(thread.name == f"link {address}" for thread in threading.enumerate()))


@contextmanager
def running(*arguments: Any, **more: Any) -> Iterator[LinkServer]:
    server = LinkServer(*arguments, **more)
    try:
        yield server
    finally:
        server.stop()


def wait_for(upstream: Upstream, status: LinkStatus) -> None:
    wait_until(lambda: upstream.state.status is status)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def ask_until_not_up(upstream: Upstream, timeout_s: float = 0.3) -> set[type[BaseException]]:
    failures: set[type[BaseException]] = set()
    ends_s = time.monotonic() + WAIT_S
    while upstream.state.status is LinkStatus.UP:
        assert time.monotonic() < ends_s
        try:
            upstream.ask(QUESTION, timeout_s)
        except (Unavailable, DeadlineExceeded) as failure:
            failures.add(type(failure))
        time.sleep(0.005)
    return failures


def hard_case(number: int = 0) -> HardCase:
    return HardCase(
        b"picture %d" % number, FrameId("yard", "b", number), datetime(2030, 1, 1, tzinfo=UTC), (), ("audit",)
    )


# There, gone, and back


def test_it_connects_by_itself_asks_delivers_and_knows_the_way_there_and_back() -> None:
    with running() as server, linked(server.address) as (upstream, heard):
        wait_for(upstream, LinkStatus.UP)
        assert upstream.may_ask and upstream.round_trip_ms is None
        assert upstream.ask(QUESTION, WAIT_S).timings.infer_ms == 2
        assert upstream.round_trip_ms is not None and 0 <= upstream.round_trip_ms < WAIT_S * 1000
        assert upstream.deliver(hard_case(), WAIT_S).is_new
        assert not upstream.deliver(hard_case(), WAIT_S).is_new
        wait_until(lambda: len(heard.states) == 1)
        assert heard.states[0].is_first


def test_without_a_server_it_is_made_all_the_same_and_refuses_at_once() -> None:
    address = f"127.0.0.1:{free_port()}"
    with linked(address) as (upstream, heard):
        begun_s = time.monotonic()
        for _ in range(500):
            with pytest.raises(Unavailable, match=address):
                upstream.ask(QUESTION, 10.0)
        assert time.monotonic() - begun_s < 5
        wait_until(lambda: "refused" in str(failure_of(lambda: upstream.ask(QUESTION, 1.0))))
        with pytest.raises(Unavailable):
            upstream.deliver(hard_case(), 10.0)
        assert (upstream.state.is_up, upstream.may_ask, heard.states) == (False, False, [])


def failure_of(call: Callable[[], Any]) -> BaseException:
    with pytest.raises(Exception) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("address", ["nobody.invalid:50051", "not an address", "", "unix:/nowhere/at.all"])
def test_an_address_that_leads_nowhere_is_down_with_its_reason_and_tried_for_ever(address: str) -> None:
    with linked(address) as (upstream, heard):
        wait_until(lambda: "not asked yet" not in str(failure_of(lambda: upstream.ask(QUESTION, 1.0))))
        assert heard.states == []
        assert upstream._thread.is_alive()


def test_a_server_that_comes_later_is_found() -> None:
    port = free_port()
    with linked(f"127.0.0.1:{port}") as (upstream, heard):
        wait_until(lambda: "refused" in str(failure_of(lambda: upstream.ask(QUESTION, 1.0))))
        with running(f"127.0.0.1:{port}"):
            wait_for(upstream, LinkStatus.UP)
            upstream.ask(QUESTION, WAIT_S)
        wait_until(lambda: len(heard.states) == 2 or upstream.state.status is LinkStatus.DOWN)


def test_a_server_that_restarts_on_the_same_port_is_lost_once_and_back_once() -> None:
    with running() as server, linked(server.address) as (upstream, heard):
        wait_for(upstream, LinkStatus.UP)
        for round_number in range(3):
            server.stop()
            assert ask_until_not_up(upstream) <= {Unavailable, DeadlineExceeded}
            wait_for(upstream, LinkStatus.DOWN)
            for _ in range(10):
                failure_of(lambda: upstream.ask(QUESTION, 1.0))
            server = LinkServer(server.address)
            wait_for(upstream, LinkStatus.UP)
            upstream.ask(QUESTION, WAIT_S)
            wait_until(lambda: len(heard.states) == 3 + 2 * round_number)  # noqa: B023
            back = heard.states[-1]
            assert back.away_s > 0 and back.missed_calls >= 13 and not back.is_first
        server.stop()
    up, down = LinkStatus.UP, LinkStatus.DOWN
    assert heard.statuses[:7] == [up, down, up, down, up, down, up]


def test_a_server_that_goes_while_nobody_asks_is_noticed() -> None:
    with running() as server, linked(server.address) as (upstream, _):
        wait_for(upstream, LinkStatus.UP)
        server.stop()
        wait_for(upstream, LinkStatus.DOWN)


def test_a_peer_that_accepts_and_never_answers_is_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with linked(f"127.0.0.1:{port}") as (upstream, heard):
            time.sleep(QUICK.check_timeout_s * 2)
            begun_s = time.monotonic()
            with pytest.raises(Unavailable):
                upstream.ask(QUESTION, 10.0)
            assert time.monotonic() - begun_s < 5
            assert heard.states == []


def test_a_peer_that_speaks_another_language_is_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor(1) as pool:
        other.settimeout(WAIT_S)

        def answer_once() -> None:
            peer, _ = other.accept()
            peer.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            peer.close()

        answered = pool.submit(answer_once)
        with linked(f"127.0.0.1:{other.getsockname()[1]}") as (upstream, heard):
            answered.result(WAIT_S)
            with pytest.raises(Unavailable):
                upstream.ask(QUESTION, 1.0)
            assert heard.states == []


def test_a_stopped_server_is_down_and_a_continued_one_is_back_without_a_person() -> None:
    process, port = server_process()
    try:
        with linked(f"127.0.0.1:{port}") as (upstream, heard):
            wait_for(upstream, LinkStatus.UP)
            upstream.ask(QUESTION, WAIT_S)
            process.send_signal(signal.SIGSTOP)
            assert ask_until_not_up(upstream, 0.1) <= {Unavailable, DeadlineExceeded}
            wait_for(upstream, LinkStatus.DOWN)
            begun_s = time.monotonic()
            with pytest.raises(Unavailable):
                upstream.ask(QUESTION, 10.0)
            assert time.monotonic() - begun_s < 5
            process.send_signal(signal.SIGCONT)
            wait_for(upstream, LinkStatus.UP)
            upstream.ask(QUESTION, WAIT_S)
            wait_until(lambda: len(heard.states) == 3)
            assert heard.statuses == [LinkStatus.UP, LinkStatus.DOWN, LinkStatus.UP]
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_a_killed_server_is_down_and_its_successor_is_used() -> None:
    process, port = server_process()
    try:
        with linked(f"127.0.0.1:{port}") as (upstream, heard):
            wait_for(upstream, LinkStatus.UP)
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
            ask_until_not_up(upstream)
            wait_for(upstream, LinkStatus.DOWN)
            with running(f"127.0.0.1:{port}"):
                wait_for(upstream, LinkStatus.UP)
                upstream.ask(QUESTION, WAIT_S)
            assert heard.statuses[:2] == [LinkStatus.UP, LinkStatus.DOWN]
    finally:
        process.kill()
        process.wait()


# Slow, busy, unfit


def test_a_slow_server_is_poor_and_not_down_and_recovers_by_itself_when_asked() -> None:
    with running() as server, linked(server.address) as (upstream, heard):
        wait_for(upstream, LinkStatus.UP)
        server.answer_after = threading.Event()
        assert DeadlineExceeded in ask_until_not_up(upstream, 0.1)
        assert upstream.state.status is LinkStatus.POOR and upstream.state.is_up
        for _ in range(20):
            assert isinstance(
                failure_of(lambda: upstream.ask(QUESTION, 0.05)), Unavailable | DeadlineExceeded
            )
        assert upstream.state.status is LinkStatus.POOR
        server.answer_after.set()
        server.answer_after = None

        def is_answered() -> bool:
            try:
                upstream.ask(QUESTION, WAIT_S)
            except Unavailable:
                return False
            return True

        wait_until(is_answered)
        wait_until(lambda: heard.statuses == [LinkStatus.UP, LinkStatus.POOR, LinkStatus.UP])
        assert heard.states[-1].away_s > 0 and heard.states[-1].missed_calls >= 24


def test_many_that_are_late_at_the_same_moment_do_not_mean_that_nobody_is_there() -> None:
    with running() as server, linked(server.address) as (upstream, heard):
        wait_for(upstream, LinkStatus.UP)
        server.answer_after = threading.Event()
        with ThreadPoolExecutor(8) as clients:
            calls = [clients.submit(upstream.ask, QUESTION, 0.3) for _ in range(8)]
            assert {type(call.exception(WAIT_S)) for call in calls} <= {DeadlineExceeded, Unavailable}
        server.answer_after.set()
        wait_until(lambda: len(heard.states) == 2)
        assert heard.statuses == [LinkStatus.UP, LinkStatus.POOR]


def test_a_busy_server_is_left_alone_for_as_long_as_it_asks_and_uploads_are_not() -> None:
    with running() as server, linked(server.address) as (upstream, heard):
        wait_for(upstream, LinkStatus.UP)
        server.fail_with = Overloaded("full", retry_after_s=0.4)
        with pytest.raises(Overloaded, match="full") as told:
            upstream.ask(QUESTION, WAIT_S)
        begun_s = time.monotonic()
        assert told.value.retry_after_s == 0.4
        server.fail_with = None
        with pytest.raises(Overloaded, match="asked for a pause") as held:
            upstream.ask(QUESTION, WAIT_S)
        assert held.value.retry_after_s is not None and 0 < held.value.retry_after_s <= 0.4
        assert not upstream.may_ask and upstream.is_busy
        assert upstream.deliver(hard_case(), WAIT_S).is_new
        wait_until(lambda: upstream.may_ask)
        assert not upstream.is_busy
        assert time.monotonic() - begun_s >= 0.39
        upstream.ask(QUESTION, WAIT_S)
        assert heard.statuses == [LinkStatus.UP]


def test_a_server_may_not_ask_for_an_hour_of_peace() -> None:
    settings = UpstreamSettings(longest_hold_s=0.1, judge=QUICK.judge)
    with running() as server, linked(server.address, settings) as (upstream, _):
        wait_for(upstream, LinkStatus.UP)
        server.fail_with = Overloaded("full", retry_after_s=3600)
        failure_of(lambda: upstream.ask(QUESTION, WAIT_S))
        server.fail_with = None
        wait_until(lambda: upstream.may_ask)


def test_a_server_whose_model_fails_is_poor_and_back_when_it_answers() -> None:
    with running() as server, linked(server.address) as (upstream, _):
        wait_for(upstream, LinkStatus.UP)
        server.fail_with = DetectorFailed("broken")
        for _ in range(4):
            with pytest.raises(DetectorFailed, match="broken"):
                upstream.ask(QUESTION, WAIT_S)
        assert upstream.state.status is LinkStatus.POOR
        server.fail_with = None
        wait_until(lambda: upstream.may_ask)
        upstream.ask(QUESTION, WAIT_S)
        wait_for(upstream, LinkStatus.UP)


def test_what_is_wrong_with_a_question_is_not_held_against_the_link() -> None:
    with running() as server, linked(server.address) as (upstream, heard):
        wait_for(upstream, LinkStatus.UP)
        server.fail_with = Malformed("no picture")
        for _ in range(30):
            with pytest.raises(Malformed):
                upstream.ask(QUESTION, WAIT_S)
        for timeout_s in (0.01, 0.0, -1.0, float("nan")):
            with pytest.raises(DeadlineExceeded, match="are left"):
                upstream.ask(QUESTION, timeout_s)
        assert heard.statuses == [LinkStatus.UP]


def test_answers_that_cannot_be_read_make_it_poor() -> None:
    with running() as server, linked(server.address) as (upstream, _):
        wait_for(upstream, LinkStatus.UP)
        server.answer = b"\xff\xff"
        for _ in range(4):
            failure_of(lambda: upstream.ask(QUESTION, WAIT_S))
        wait_for(upstream, LinkStatus.POOR)


def test_a_server_that_is_going_down_by_its_own_word_is_down_when_its_checks_say_so() -> None:
    with running() as server, linked(server.address) as (upstream, _):
        wait_for(upstream, LinkStatus.UP)
        server.fail_describe_with = Unavailable("stopping")
        wait_for(upstream, LinkStatus.DOWN)
        assert "stopping" in upstream.state.reason


# What it costs and how it ends


def test_a_down_link_is_checked_with_pauses() -> None:
    with running() as server, linked(server.address) as (upstream, _):
        wait_for(upstream, LinkStatus.UP)
        server.fail_describe_with = Unavailable("stopping")
        wait_for(upstream, LinkStatus.DOWN)
        before, spent_s = server.described, time.process_time()
        time.sleep(1.5)
        assert 1 <= server.described - before <= 1.5 / 0.05
        assert time.process_time() - spent_s < 1.0


def test_an_idle_link_is_asked_rarely() -> None:
    with running() as server, linked(server.address) as (upstream, _):
        wait_for(upstream, LinkStatus.UP)
        before = server.described
        time.sleep(1.0)
        assert server.described - before <= 4


def test_a_listener_that_fails_does_not_keep_others_from_hearing() -> None:
    def failing(_: LinkState) -> None:
        raise RuntimeError("a listener's own trouble")

    heard = Heard()
    with running() as server, linked(server.address) as (upstream, _):
        upstream.listen(failing)
        upstream.listen(heard)
        wait_for(upstream, LinkStatus.UP)
        server.stop()
        wait_until(lambda: LinkStatus.DOWN in heard.statuses)


def test_closing_ends_calls_under_way_at_once_and_later_ones_too() -> None:
    with running() as server, ThreadPoolExecutor(2) as clients:
        server.answer_after = threading.Event()
        upstream = Upstream(server.address, QUICK)
        wait_for(upstream, LinkStatus.UP)
        asked = clients.submit(upstream.ask, QUESTION, 30.0)
        delivered = clients.submit(upstream.deliver, hard_case(), 30.0)
        wait_until(lambda: len(server.questions) == 1)
        begun_s = time.monotonic()
        upstream.close()
        assert type(asked.exception(WAIT_S)) is type(delivered.exception(WAIT_S)) is Cancelled
        assert time.monotonic() - begun_s < 5
        with pytest.raises(Cancelled):
            upstream.ask(QUESTION, 1.0)
        assert not upstream.may_ask
        upstream.close()
        server.answer_after.set()


def test_closing_while_it_connects_to_a_silent_peer_takes_no_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        upstream = Upstream(f"127.0.0.1:{silent.getsockname()[1]}", UpstreamSettings(check_timeout_s=30.0))
        peer, _ = silent.accept()
        begun_s = time.monotonic()
        upstream.close()
        assert time.monotonic() - begun_s < 5
        wait_until(lambda: not upstream._thread.is_alive())
        peer.close()


def test_closing_from_a_listener_does_not_hang() -> None:
    with running() as server:
        upstream = Upstream(server.address, QUICK)
        upstream.listen(lambda _: upstream.close())
        wait_until(lambda: not upstream._thread.is_alive())


# Sizes and encodings


def test_what_is_over_the_limit_of_the_server_is_not_sent() -> None:
    small = ServiceLimits(max_request_bytes=1000)
    with running(limits=small) as server, linked(server.address) as (upstream, heard):
        wait_for(upstream, LinkStatus.UP)
        for _ in range(10):
            with pytest.raises(TooLarge, match="at most 1000 bytes, got 30"):
                upstream.ask(DetectQuestion(np.zeros((100, 100, 3), np.uint8)), WAIT_S)
        assert server.questions == [] and heard.statuses == [LinkStatus.UP]


def test_pixels_go_raw_within_the_machine_and_as_jpeg_beyond_it(tmp_path: Path) -> None:
    pixels = scene(90, 120)
    with running(f"unix:{tmp_path}/s") as server, linked(server.address) as (upstream, _):
        wait_for(upstream, LinkStatus.UP)
        image = upstream.encode(pixels)
        assert isinstance(image, np.ndarray)
        upstream.ask(DetectQuestion(image), WAIT_S)
        np.testing.assert_array_equal(server.questions[0].image, pixels)
    with linked("nobody.invalid:1") as (far, _):
        assert bytes(far.encode(pixels))[:2] == b"\xff\xd8"


@pytest.mark.parametrize(
    ("address", "is_same"),
    [
        ("127.0.0.1:50051", True),
        ("127.9.9.9:1", True),
        ("localhost:50051", True),
        ("[::1]:50051", True),
        ("ipv4:127.0.0.1:1", True),
        ("ipv6:[::1]:1", True),
        ("dns:///localhost:1", True),
        ("unix:/run/fovea.sock", True),
        ("unix-abstract:fovea", True),
        ("10.0.0.1:50051", False),
        ("edge.example:50051", False),
        ("localhost.example:1", False),
        ("[2001:db8::1]:1", False),
        ("0.0.0.0:1", False),
        ("", False),
    ],
)
def test_it_knows_which_addresses_are_of_the_same_machine(address: str, is_same: bool) -> None:
    assert is_same_machine(address) is is_same


def test_pixels_that_do_not_fit_into_a_message_go_as_jpeg_also_within_the_machine() -> None:
    pixels = np.zeros((400, 400, 3), np.uint8)
    raw = encode_pixels(pixels, PixelEncoding.AUTO, 90, "localhost:1", pixels.nbytes + 100_000)
    assert raw is pixels
    assert isinstance(
        encode_pixels(pixels, PixelEncoding.AUTO, 90, "localhost:1", pixels.nbytes + 100), bytes
    )


@pytest.mark.parametrize(
    "settings", [{"margin_s": -1.0}, {"check_timeout_s": 0.0}, {"longest_hold_s": -1.0}, {"jpeg_quality": 0}]
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(Malformed, match="upstream settings"):
        UpstreamSettings(**settings)


def test_every_error_of_the_table_arrives_as_itself() -> None:
    kinds = {kind for _, kind in STATUS_TABLE} - {Cancelled}
    quiet = UpstreamSettings(
        judge=JudgeSettings(pace=BreakerSettings(failures_in_a_row=100, window_calls=100))
    )
    with running() as server, linked(server.address, quiet) as (upstream, _):
        wait_for(upstream, LinkStatus.UP)
        for kind in kinds:
            server.fail_with = kind("the reason")
            failure = failure_of(lambda: upstream.ask(QUESTION, WAIT_S))
            assert type(failure) is kind and str(failure) == "the reason"
