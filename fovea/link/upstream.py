"""The tier above over gRPC: it connects by itself, again and for ever, and says at once when it cannot ask."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from fovea.core.arrays import ImageArray
from fovea.core.errors import (
    Cancelled,
    FoveaError,
    Incompatible,
    Malformed,
    Overloaded,
    TooLarge,
    Unavailable,
)
from fovea.core.hard_case import HardCase
from fovea.link.calling import (
    CALL_FAILURES,
    Connection,
    Failure,
    Method,
    Read,
    failure_of,
    read_answer,
    time_for_server_s,
)
from fovea.link.encoding import PixelEncoding, encode_pixels
from fovea.link.link import LinkState, Listener
from fovea.link.link_judge import JudgeSettings, LinkJudge, Permit, Verdict, verdict_of
from protos.calls import Delivery, DeliveryReceipt, Description, DetectAnswer, DetectQuestion, ServiceLimits
from protos.codec import (
    answer_from_bytes,
    delivery_to_bytes,
    description_from_bytes,
    description_request_to_bytes,
    question_to_bytes,
    receipt_from_bytes,
)
from protos.tls import Pems

_log = logging.getLogger(__name__)

_WAY_OUT_S = 0.9
_LONGEST_NAP_S = 60.0
_AFTER_A_BUG_S = 1.0
_LONGEST_REASON = 300
_WEIGHT_OF_THE_LAST = 0.2
"""Of the newest round trip in their running mean."""


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    """How a tier above is asked.

    margin_s         how much less than the time of a call the server is given
    check_timeout_s  what a server has to answer a small question in, connecting included, or it is not there
    longest_hold_s   a busy server may ask for so long a pause at most
    tls              None is plain text
    """

    margin_s: float = 0.02
    check_timeout_s: float = 2.0
    longest_hold_s: float = 5.0
    encoding: PixelEncoding = PixelEncoding.AUTO
    jpeg_quality: int = 90
    max_message_bytes: int = ServiceLimits().max_request_bytes
    tls: Pems | None = None
    judge: JudgeSettings = field(default_factory=JudgeSettings)

    def __post_init__(self) -> None:
        if not (self.margin_s >= 0 and self.check_timeout_s > 0 and self.longest_hold_s >= 0):
            raise Malformed(f"upstream settings: expected times above 0, got {self}")
        if not 1 <= self.jpeg_quality <= 100:
            raise Malformed(f"upstream settings jpeg_quality: expected 1 to 100, got {self.jpeg_quality}")


class Upstream:
    """A Link to one server. Making one never fails for want of a server: a daemon thread connects, checks and tells
    listeners; `close` ends it.

    While nobody is there every check goes over a new connection, so that neither a stuck one, nor a name that could
    not be resolved, nor the pauses of TCP stand in the way of coming back.
    """

    def __init__(
        self,
        address: str,
        settings: UpstreamSettings = UpstreamSettings(),
    ) -> None:
        """`address`: host:port or unix:path. Connecting begins at once, in the background."""
        self._address = address
        self._settings = settings
        self._wake = threading.Condition()
        self._judge = LinkJudge(settings.judge, time.monotonic())
        self._connection: Connection | None = None
        self._description: Description | None = None
        self._round_trip_ms: float | None = None
        self._listeners: tuple[Listener, ...] = ()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=f"link {address}", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return self._address

    @property
    def state(self) -> LinkState:
        with self._wake:
            return self._judge.state

    @property
    def may_ask(self) -> bool:
        with self._wake:
            return not self._is_closed and self._judge.may_ask(time.monotonic())

    @property
    def is_busy(self) -> bool:
        with self._wake:
            is_held = time.monotonic() < self._judge.held_until_mono_s
            return is_held and self._judge.is_reachable and not self._is_closed

    @property
    def round_trip_ms(self) -> float | None:
        return self._round_trip_ms

    @property
    def description(self) -> Description | None:
        """What the server said of itself last; None before it was reached."""
        return self._description

    def listen(self, listener: Listener) -> None:
        with self._wake:
            self._listeners = (*self._listeners, listener)

    @property
    def takes_mosaics(self) -> bool:
        description = self._description
        return description is not None and description.limits.takes_mosaics

    def encode(self, pixels: ImageArray) -> bytes | ImageArray:
        settings = self._settings
        return encode_pixels(
            pixels, settings.encoding, settings.jpeg_quality, self._address, self._limit_bytes()
        )

    def ask(self, question: DetectQuestion, timeout_s: float) -> DetectAnswer:
        """One answer within `timeout_s`, the way there and back included.

        Raises Unavailable at once while nobody is there or the server is too slow (but for a trial now and then),
        Overloaded at once while it has asked for a pause, DeadlineExceeded at once when no time is left, Incompatible
        at once for a mosaic that it does not take, Cancelled after `close`, and otherwise what the server says.
        """
        begun_s = time.monotonic()
        if question.mosaic is not None and not self.takes_mosaics:
            raise Incompatible(f"{self._address}: expected a question about a whole frame, got a mosaic")
        time_for_server_s(timeout_s, self._settings.margin_s)
        permit, connection = self._admit_question(begun_s)
        ends_s = begun_s + timeout_s
        answer = self._call(
            permit, connection.detect, lambda: question_to_bytes(question), ends_s, answer_from_bytes
        )
        self._learn_round_trip((time.monotonic() - begun_s) * 1000 - answer.timings.total_ms)
        return answer

    def deliver(self, case: HardCase, timeout_s: float) -> DeliveryReceipt:
        """Hands over a case within `timeout_s`; its id makes a second time harmless. Raises as `ask` does."""
        ends_s = time.monotonic() + timeout_s
        time_for_server_s(timeout_s, self._settings.margin_s)
        permit, connection = self._admit_delivery()
        delivery = Delivery(case)
        return self._call(
            permit, connection.deliver, lambda: delivery_to_bytes(delivery), ends_s, receipt_from_bytes
        )

    def close(self) -> None:
        with self._wake:
            self._is_closed = True
            connection = self._connection
            self._wake.notify_all()
        if connection is not None:
            connection.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(_WAY_OUT_S)

    # Letting calls through, and hearing how they ended

    def _admit_question(self, now_s: float) -> tuple[Permit, Connection]:
        with self._wake:
            self._check_open()
            held_s = self._judge.held_until_mono_s - now_s
            if held_s > 0 and self._judge.is_reachable:
                raise Overloaded(f"{self._address}: asked for a pause, {held_s:.3f} s are left of it", held_s)
            return self._with_connection(self._judge.admit_question(now_s))

    def _admit_delivery(self) -> tuple[Permit, Connection]:
        with self._wake:
            self._check_open()
            return self._with_connection(self._judge.admit_delivery())

    def _with_connection(self, permit: Permit | None) -> tuple[Permit, Connection]:
        if permit is None or self._connection is None:
            raise Unavailable(f"{self._address}: {self._judge.state.status}: {self._judge.last_reason}")
        return permit, self._connection

    def _check_open(self) -> None:
        if self._is_closed:
            raise Cancelled(f"{self._address}: the link was closed")

    def _call(
        self,
        permit: Permit,
        method: Method,
        write: Callable[[], bytes],
        ends_s: float,
        read: Callable[[bytes], Read],
    ) -> Read:
        """One call; the judge hears how it ended, exactly once, however that is."""
        verdict, reason = None, ""
        try:
            data = self._within_limit(write())
            given_s = time_for_server_s(ends_s - time.monotonic(), self._settings.margin_s)
            said = method.future(data, timeout=given_s).result()
            verdict, reason = Verdict.UNFIT, "its answers cannot be read"
            answer = read_answer(read, said)
            verdict = Verdict.ANSWERED
            return answer
        except CALL_FAILURES as error:
            failure = failure_of(error)
            verdict, reason = verdict_of(failure), _in_short(failure.error)
            raise self._meaning_of(failure, permit) from error
        except ValueError as error:  # how gRPC says that the channel is closed
            raise self._meaning_of(Failure(Cancelled(str(error)), is_from_server=False), permit) from error
        finally:
            self._ended(permit, verdict, reason)

    def _within_limit(self, data: bytes) -> bytes:
        if len(data) > self._limit_bytes():
            raise TooLarge(f"{self._address}: expected at most {self._limit_bytes()} bytes, got {len(data)}")
        return data

    def _limit_bytes(self) -> int:
        description, limit_bytes = self._description, self._settings.max_message_bytes
        return limit_bytes if description is None else min(description.limits.max_request_bytes, limit_bytes)

    def _ended(self, permit: Permit, verdict: Verdict | None, reason: str) -> None:
        with self._wake:
            if verdict is None:
                self._judge.withdrawn(permit)
            else:
                self._judge.ended(permit, verdict, time.monotonic(), reason)
            if verdict is not Verdict.ANSWERED or self._judge.has_changes():
                self._wake.notify_all()

    def _meaning_of(self, failure: Failure, permit: Permit) -> FoveaError:
        """What the caller is told, when the server (or nobody) has said `failure`."""
        error = failure.error
        with self._wake:
            if self._is_closed:
                return Cancelled(f"{self._address}: the link was closed")
            if isinstance(error, Overloaded) and error.retry_after_s is not None and permit.pace is not None:
                hold_s = min(error.retry_after_s, self._settings.longest_hold_s)
                self._judge.hold(time.monotonic() + hold_s)
        if isinstance(error, Cancelled):  # nobody here cancels calls, but a connection that is given up does
            return Unavailable(f"{self._address}: the connection was given up: {error}")
        return error

    def _learn_round_trip(self, beside_server_ms: float) -> None:
        newest_ms, mean_ms = max(beside_server_ms, 0.0), self._round_trip_ms
        self._round_trip_ms = (
            newest_ms if mean_ms is None else mean_ms + _WEIGHT_OF_THE_LAST * (newest_ms - mean_ms)
        )

    # The link's own thread

    def _run(self) -> None:
        while True:
            try:
                if not self._step():
                    return
            except Exception:
                _log.exception("%s: the thread of the link failed, and goes on", self._address)
                with self._wake:
                    self._wake.wait_for(lambda: self._is_closed, _AFTER_A_BUG_S)

    def _step(self) -> bool:
        """Waits for something to do, and does it; False when the link is closed."""
        with self._wake:
            while not self._is_closed and not self._judge.has_changes():
                pause_s = self._judge.check_due_mono_s() - time.monotonic()
                if pause_s <= 0:
                    break
                self._wake.wait(min(pause_s, _LONGEST_NAP_S))
            if self._is_closed:
                return False
            changes, listeners = self._judge.take_changes(), self._listeners
            is_due = self._judge.check_due_mono_s() <= time.monotonic()
        for change in changes:
            for listener in listeners:
                _tell(listener, change)
        if is_due:
            self._check()
        return True

    def _check(self) -> None:
        with self._wake:
            ticket = self._judge.admit_check(time.monotonic())
        try:
            connection = self._connection_to_check()
            if connection is None:
                return
            call = connection.describe.future(
                description_request_to_bytes(), timeout=self._settings.check_timeout_s
            )
            self._description = read_answer(description_from_bytes, call.result())
        except CALL_FAILURES as error:
            self._check_failed(ticket, failure_of(error).error)
        except (FoveaError, ValueError) as error:
            self._check_failed(ticket, error)
        else:
            with self._wake:
                self._judge.check_succeeded(ticket, time.monotonic())

    def _check_failed(self, ticket: int, error: Exception) -> None:
        with self._wake:
            self._judge.check_failed(ticket, time.monotonic(), _in_short(error))

    def _connection_to_check(self) -> Connection | None:
        """The present connection, or a new one while nobody is there; None when the link is closed."""
        with self._wake:
            if self._connection is not None and self._judge.is_reachable:
                return self._connection
        fresh = Connection(self._address, self._settings.tls, self._settings.max_message_bytes)
        with self._wake:
            is_closed, old = self._is_closed, self._connection
            if not is_closed:
                self._connection = fresh
        given_up = fresh if is_closed else old
        if given_up is not None:
            given_up.close()
        return None if is_closed else fresh


def _tell(listener: Listener, change: LinkState) -> None:
    # The code of somebody else: what it raises must not end the link.
    try:
        listener(change)
    except Exception:
        _log.exception("a listener of the link failed")


def _in_short(error: Exception) -> str:
    return " ".join(str(error).split())[:_LONGEST_REASON]
