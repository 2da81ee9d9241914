"""The service as gRPC knows it: method paths, wiring, channel options, and errors as statuses and back.

One table says which status stands for which error. Where several errors share a status (too large and too busy are
both RESOURCE_EXHAUSTED), the trailing metadata `fovea-error` names the error; a status without it, from a proxy or
from gRPC itself, is read as the first error of the table that has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import grpc

from fovea.core.errors import (
    BrokenError,
    Cancelled,
    DeadlineExceeded,
    DetectorFailed,
    FoveaError,
    Incompatible,
    Malformed,
    NotAllowed,
    NotFound,
    Overloaded,
    RejectedError,
    RetryableError,
    StoreCorrupt,
    TooLarge,
    Unavailable,
    UntrustedRelease,
)

DETECT_SERVICE = "fovea.v1.DetectService"
DETECT = "Detect"
DESCRIBE = "Describe"
CASE_SERVICE = "fovea.v1.CaseService"
DELIVER = "Deliver"

ERROR_KEY = "fovea-error"
RETRY_AFTER_KEY = "retry-after-ms"
_LONGEST_RETRY_AFTER_MS = 3_600_000
_LONGEST_MESSAGE = 1000

_Status = grpc.StatusCode

STATUS_TABLE: tuple[tuple[grpc.StatusCode, type[FoveaError]], ...] = (
    (_Status.CANCELLED, Cancelled),
    (_Status.DEADLINE_EXCEEDED, DeadlineExceeded),
    (_Status.UNAVAILABLE, Unavailable),
    (_Status.UNAVAILABLE, RetryableError),
    (_Status.ABORTED, Unavailable),
    (_Status.RESOURCE_EXHAUSTED, Overloaded),
    (_Status.RESOURCE_EXHAUSTED, TooLarge),
    (_Status.INVALID_ARGUMENT, Malformed),
    (_Status.INVALID_ARGUMENT, RejectedError),
    (_Status.OUT_OF_RANGE, Malformed),
    (_Status.ALREADY_EXISTS, RejectedError),
    (_Status.NOT_FOUND, NotFound),
    (_Status.FAILED_PRECONDITION, Incompatible),
    (_Status.FAILED_PRECONDITION, UntrustedRelease),
    (_Status.UNIMPLEMENTED, Incompatible),
    (_Status.PERMISSION_DENIED, NotAllowed),
    (_Status.UNAUTHENTICATED, NotAllowed),
    (_Status.INTERNAL, DetectorFailed),
    (_Status.INTERNAL, BrokenError),
    (_Status.UNKNOWN, DetectorFailed),
    (_Status.DATA_LOSS, StoreCorrupt),
)
"""Read downwards: the first row of a status is the error it is read as, the first row of an error is the status it is
sent as. Every status but OK has a row, and so has every error."""

_ERROR_OF_STATUS = dict(reversed(STATUS_TABLE))
_STATUS_OF_ERROR = {error: status for status, error in reversed(STATUS_TABLE)}
_ERROR_NAMED = {error.__name__: error for _, error in STATUS_TABLE}

Metadata = tuple[tuple[str, str], ...]


class FailedCall(Protocol):
    """What an RpcError of gRPC, blocking or asyncio, lets us know."""

    def code(self) -> grpc.StatusCode: ...

    def details(self) -> str | None: ...

    def trailing_metadata(self) -> Iterable[tuple[str, str | bytes]] | None: ...


def status_of(error: FoveaError) -> tuple[grpc.StatusCode, str, Metadata]:
    """The status, the text and the trailing metadata with which a server says `error`."""
    kind = next(known for known in type(error).__mro__ if known in _STATUS_OF_ERROR)
    metadata: Metadata = ((ERROR_KEY, kind.__name__),)
    if isinstance(error, Overloaded) and error.retry_after_s is not None:
        retry_after_ms = min(max(error.retry_after_s * 1000, 0), _LONGEST_RETRY_AFTER_MS)
        metadata += ((RETRY_AFTER_KEY, f"{retry_after_ms:.0f}"),)
    return _STATUS_OF_ERROR[kind], str(error)[:_LONGEST_MESSAGE], metadata


def error_of(call: FailedCall) -> FoveaError:
    """The error that a failed call means to its caller, whoever answered: our server, a proxy, or gRPC itself."""
    status, text = call.code(), call.details() or "no details"
    metadata = {key: value for key, value in call.trailing_metadata() or () if isinstance(value, str)}
    named = _ERROR_NAMED.get(metadata.get(ERROR_KEY, ""))
    if named is None and status is _Status.RESOURCE_EXHAUSTED and "larger than max" in text:
        named = TooLarge  # said by gRPC itself, on either side, about a message over the limit
    kind = named if (status, named) in STATUS_TABLE and named is not None else _ERROR_OF_STATUS[status]
    if kind is Overloaded:
        return Overloaded(text, _retry_after_s(metadata.get(RETRY_AFTER_KEY)))
    return kind(text)


def _retry_after_s(text: str | None) -> float | None:
    if text is None or not (text.isascii() and text.isdecimal()) or len(text) > 10:
        return None
    return min(int(text), _LONGEST_RETRY_AFTER_MS) / 1000


class DetectMethods(Protocol):
    """The server's side of the service: bytes in, bytes out, on an asyncio server."""

    async def detect(self, request: bytes, context: Any) -> bytes: ...

    async def describe(self, request: bytes, context: Any) -> bytes: ...


def detect_handlers(methods: DetectMethods) -> grpc.GenericRpcHandler[bytes, bytes]:
    """What a server is given to answer the service. Messages are read by the methods, so that bytes that are no
    message are Malformed like any other bad input, not an INTERNAL error of gRPC."""
    return grpc.method_handlers_generic_handler(
        DETECT_SERVICE,
        {
            DETECT: grpc.unary_unary_rpc_method_handler(methods.detect),
            DESCRIBE: grpc.unary_unary_rpc_method_handler(methods.describe),
        },
    )


class CaseMethods(Protocol):
    """The server's side of the service that takes cases: bytes in, bytes out, on an asyncio server."""

    async def deliver(self, request: bytes, context: Any) -> bytes: ...


def case_handlers(methods: CaseMethods) -> grpc.GenericRpcHandler[bytes, bytes]:
    """As `detect_handlers`, for cases."""
    return grpc.method_handlers_generic_handler(
        CASE_SERVICE, {DELIVER: grpc.unary_unary_rpc_method_handler(methods.deliver)}
    )


class DetectStub:
    """The client's side of the service on a blocking channel: bytes in, bytes out."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.detect: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            f"/{DETECT_SERVICE}/{DETECT}", _as_it_is, _as_it_is
        )
        self.describe: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            f"/{DETECT_SERVICE}/{DESCRIBE}", _as_it_is, _as_it_is
        )


class CaseStub:
    """The client's side of the service that takes cases, on a blocking channel: bytes in, bytes out."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.deliver: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            f"/{CASE_SERVICE}/{DELIVER}", _as_it_is, _as_it_is
        )


def _as_it_is(data: bytes) -> bytes:
    return data


CLIENT_PING_EVERY_MS = 30_000
SERVER_ALLOWS_PING_EVERY_MS = 10_000
"""A client that pings more often than its server allows is cut off (GOAWAY, too_many_pings)."""


def client_options(max_message_bytes: int) -> list[tuple[str, int]]:
    """Channel options: message limits, pings that find a dead link, and a reconnect within seconds, not minutes."""
    return [
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.keepalive_time_ms", CLIENT_PING_EVERY_MS),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.min_reconnect_backoff_ms", 1_000),
        ("grpc.max_reconnect_backoff_ms", 5_000),
    ]


def server_options(max_message_bytes: int) -> list[tuple[str, int]]:
    """Server options: message limits, the pings it puts up with, and a port that is not shared by accident."""
    return [
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.http2.min_ping_interval_without_data_ms", SERVER_ALLOWS_PING_EVERY_MS),
        ("grpc.so_reuseport", 0),
    ]
