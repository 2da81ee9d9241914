"""Errors survive the wire, and every status that gRPC knows means something to the caller."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fovea.core import errors
from fovea.core.errors import (
    DetectorFailed,
    FoveaError,
    Malformed,
    NotAllowed,
    Overloaded,
    RejectedError,
    RetryableError,
    TooLarge,
    Unavailable,
)
from protos.rpc import (
    CLIENT_PING_EVERY_MS,
    SERVER_ALLOWS_PING_EVERY_MS,
    STATUS_TABLE,
    client_options,
    error_of,
    server_options,
    status_of,
)

ERRORS = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, FoveaError) and value is not FoveaError
]


class Failed:
    """A call that failed, as a client sees it."""

    def __init__(
        self,
        status: grpc.StatusCode,
        text: str | None = "why",
        metadata: Iterable[tuple[str, str | bytes]] | None = (),
    ) -> None:
        self._parts = status, text, metadata

    def code(self) -> grpc.StatusCode:
        return self._parts[0]

    def details(self) -> str | None:
        return self._parts[1]

    def trailing_metadata(self) -> Iterable[tuple[str, str | bytes]] | None:
        return self._parts[2]


@pytest.mark.parametrize("status", [status for status in grpc.StatusCode if status is not grpc.StatusCode.OK])
def test_every_status_is_an_error_also_when_nothing_else_is_said(status: grpc.StatusCode) -> None:
    error = error_of(Failed(status, None, None))
    assert type(error) is next(kind for known, kind in STATUS_TABLE if known is status)
    assert str(error) == "no details"


def test_a_call_that_went_well_has_no_row_in_the_table() -> None:
    assert grpc.StatusCode.OK not in dict(STATUS_TABLE)


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_arrives_as_itself(kind: type[FoveaError]) -> None:
    arrived = error_of(Failed(*status_of(kind("the reason"))))
    assert type(arrived) is kind
    assert str(arrived) == "the reason"


def test_an_error_of_a_kind_that_the_table_does_not_know_arrives_as_its_nearest_parent() -> None:
    class Crowded(Overloaded):
        pass

    arrived = error_of(Failed(*status_of(Crowded("full", retry_after_s=0.2))))
    assert type(arrived) is Overloaded and arrived.retry_after_s == 0.2


@pytest.mark.parametrize(
    ("status", "family"),
    [
        (grpc.StatusCode.UNAVAILABLE, RetryableError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, RetryableError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, RetryableError),
        (grpc.StatusCode.INVALID_ARGUMENT, RejectedError),
        (grpc.StatusCode.UNAUTHENTICATED, NotAllowed),
        (grpc.StatusCode.UNIMPLEMENTED, RejectedError),
        (grpc.StatusCode.INTERNAL, DetectorFailed),
    ],
)
def test_the_family_tells_the_caller_whether_to_try_again(
    status: grpc.StatusCode, family: type[FoveaError]
) -> None:
    assert isinstance(error_of(Failed(status)), family)


def test_too_large_and_too_busy_share_a_status_and_are_told_apart() -> None:
    large, busy = status_of(TooLarge("9 MB")), status_of(Overloaded("full"))
    assert large[0] is busy[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert type(error_of(Failed(*large))) is TooLarge
    assert type(error_of(Failed(*busy))) is Overloaded


@pytest.mark.parametrize("side", ["CLIENT", "SERVER"])
@pytest.mark.parametrize("way", ["Received", "Sent"])
def test_too_large_is_recognised_also_when_grpc_itself_says_it(side: str, way: str) -> None:
    text = f"{side}: {way} message larger than max (5000 vs. 1000)"
    assert type(error_of(Failed(grpc.StatusCode.RESOURCE_EXHAUSTED, text))) is TooLarge


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("250", 0.25),
        ("0", 0.0),
        ("99999999999999999999", None),
        ("9999999999", 3600.0),
        ("-5", None),
        ("nan", None),
        ("", None),
        ("1e3", None),
        ("²", None),
        (b"250", None),
    ],
)
def test_the_delay_is_read_with_care(said: str | bytes, read: float | None) -> None:
    metadata = [("fovea-error", "Overloaded"), ("retry-after-ms", said)]
    error = error_of(Failed(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", metadata))
    assert isinstance(error, Overloaded) and error.retry_after_s == read


@pytest.mark.parametrize("given_s", [0.0, 0.25, -1.0, 1e12, float("inf"), float("nan"), None])
def test_any_delay_can_be_sent(given_s: float | None) -> None:
    arrived = error_of(Failed(*status_of(Overloaded("full", retry_after_s=given_s))))
    assert isinstance(arrived, Overloaded)
    assert arrived.retry_after_s is None or 0 <= arrived.retry_after_s <= 3600
    if given_s in (0.0, 0.25):
        assert arrived.retry_after_s == given_s


@pytest.mark.parametrize("name", ["Malformed", "FoveaError", "SystemExit", "", "toolarge"])
def test_a_name_that_does_not_go_with_the_status_is_not_believed(name: str) -> None:
    error = error_of(Failed(grpc.StatusCode.UNAVAILABLE, "why", [("fovea-error", name)]))
    assert type(error) is Unavailable


@given(
    st.sampled_from([status for status in grpc.StatusCode if status is not grpc.StatusCode.OK]),
    st.none() | st.text(max_size=50),
    st.none()
    | st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20) | st.binary(max_size=20)), max_size=4),
)
def test_whatever_a_server_says_is_one_of_our_errors(
    status: grpc.StatusCode, text: str | None, metadata: list[tuple[str, str | bytes]] | None
) -> None:
    assert isinstance(error_of(Failed(status, text, metadata)), FoveaError)


def test_a_long_story_is_cut_before_it_fills_the_headers() -> None:
    assert len(status_of(Malformed("x" * 100_000))[1]) == 1000


def test_clients_ping_less_often_than_servers_allow() -> None:
    assert dict(client_options(1))["grpc.keepalive_time_ms"] == CLIENT_PING_EVERY_MS
    assert (
        dict(server_options(1))["grpc.http2.min_ping_interval_without_data_ms"] == SERVER_ALLOWS_PING_EVERY_MS
    )
    assert CLIENT_PING_EVERY_MS >= 2 * SERVER_ALLOWS_PING_EVERY_MS
