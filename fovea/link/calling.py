"""One call over gRPC as every client of the product makes it: its channel, its deadline, what a failure means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

import grpc

from fovea.core.errors import Cancelled, DeadlineExceeded, FoveaError, Incompatible, RejectedError
from protos.rpc import ERROR_KEY, CaseStub, DetectStub, client_options, error_of
from protos.tls import Pems, client_credentials

Read = TypeVar("Read")

Method: TypeAlias = "grpc.UnaryUnaryMultiCallable[bytes, bytes]"
CallFailure = grpc.RpcError | grpc.FutureCancelledError
CALL_FAILURES = (grpc.RpcError, grpc.FutureCancelledError)


def open_channel(address: str, tls: Pems | None, max_message_bytes: int) -> grpc.Channel:
    """A channel to `address` (host:port, unix:path) with connections of its own; it connects when it is asked.

    Connections are not shared with other channels of the process: a new channel is a new connection, and does not
    inherit the pauses of one that failed.
    """
    options = [*client_options(max_message_bytes), ("grpc.use_local_subchannel_pool", 1)]
    if tls is None:
        return grpc.insecure_channel(address, options=options)
    return grpc.secure_channel(address, client_credentials(tls), options=options)


class Connection:
    """A channel of its own, and the calls that go over it."""

    def __init__(self, address: str, tls: Pems | None, max_message_bytes: int) -> None:
        self._channel = open_channel(address, tls, max_message_bytes)
        detect, cases = DetectStub(self._channel), CaseStub(self._channel)
        self.detect: Method = detect.detect
        self.describe: Method = detect.describe
        self.deliver: Method = cases.deliver

    def close(self) -> None:
        """Calls under way end as cancelled, later ones with a ValueError."""
        self._channel.close()


def time_for_server_s(timeout_s: float, margin_s: float) -> float:
    """What of `timeout_s` the server is given. Raises DeadlineExceeded when nothing is left of it (or it is NaN)."""
    if not timeout_s > margin_s:
        raise DeadlineExceeded(f"{timeout_s:.3f} s are left, of which {margin_s:.3f} s are for the way back")
    return timeout_s - margin_s


@dataclass(frozen=True, slots=True)
class Failure:
    """What a failed call means; `is_from_server`: it is the word of a Fovea server, so there is one."""

    error: FoveaError
    is_from_server: bool


def failure_of(error: CallFailure) -> Failure:
    """The meaning of what a call raised."""
    if isinstance(error, grpc.FutureCancelledError):
        return Failure(Cancelled("cancelled here"), is_from_server=False)
    # Every RpcError that a call raises is the call itself, which the type does not say.
    call = cast(Any, error)
    said = {key for key, _ in call.trailing_metadata() or ()}
    return Failure(error_of(call), ERROR_KEY in said)


def read_answer(read: Callable[[bytes], Read], data: bytes) -> Read:
    """What `read` makes of an answer. Raises Incompatible when it cannot be read."""
    try:
        return read(data)
    except RejectedError as error:
        raise Incompatible(f"the server gave an answer that cannot be read: {error}") from error
