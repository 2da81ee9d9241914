"""A detector that runs elsewhere: the same contract as a local one, asked over gRPC."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import grpc

from fovea.core.arrays import ImageArray
from fovea.core.detections import Inference, ModelRef
from fovea.core.errors import DetectorFailed, Incompatible, Malformed, TooLarge
from fovea.core.frame import checked_pixels, size_of
from fovea.core.labels import LabelSet
from fovea.link.calling import CALL_FAILURES, failure_of, open_channel, read_answer, time_for_server_s
from fovea.link.encoding import PixelEncoding as PixelEncoding
from fovea.link.encoding import encode_pixels
from protos.calls import Description, DetectAnswer, DetectQuestion, ServiceLimits
from protos.codec import (
    answer_from_bytes,
    description_from_bytes,
    description_request_to_bytes,
    question_to_bytes,
)
from protos.rpc import DetectStub
from protos.tls import Pems


@dataclass(frozen=True, slots=True)
class RemoteSettings:
    """timeout_s: what `detect` and `connect` wait at most. margin_s: how much less of it the server is given, so that
    its answer, or its refusal, is here before the time is over. tls: None is plain text."""

    timeout_s: float = 2.0
    margin_s: float = 0.02
    encoding: PixelEncoding = PixelEncoding.JPEG
    jpeg_quality: int = 90
    max_message_bytes: int = ServiceLimits().max_request_bytes
    tls: Pems | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.margin_s < self.timeout_s:
            raise Malformed(
                f"remote settings: expected a margin of 0 or more within the timeout, "
                f"got margin_s {self.margin_s} and timeout_s {self.timeout_s}"
            )


class RemoteDetector:
    """A Detector whose model is behind a server. Threads may share it. It never asks twice: that is for its caller.

    Errors are those of the server by the table in `protos.rpc`, so retryable when another try makes sense; an answer
    that cannot be read is Incompatible (the server is of another version).
    """

    def __init__(
        self, channel: grpc.Channel, description: Description, settings: RemoteSettings, address: str = ""
    ) -> None:
        """For `connect`, and for callers that have a channel of their own. `address`: where that leads, so that AUTO
        knows how to encode."""
        self._channel = channel
        self._address = address
        self._stub = DetectStub(channel)
        self._settings = settings
        self._limits = description.limits
        # What the server said last about its model, which may change while we are connected: replaced as one.
        self._seen = (description.model, description.labels)
        self._is_closed = threading.Event()

    @classmethod
    def connect(cls, address: str, settings: RemoteSettings = RemoteSettings()) -> Self:
        """Asks the server at `address` (host:port, unix:path) what it is. Raises the RetryableErrors when it does not
        answer, so also when one side of TLS does not accept the other."""
        channel = open_channel(address, settings.tls, settings.max_message_bytes)
        try:
            return cls(channel, _described(channel, settings), settings, address)
        except BaseException:
            channel.close()
            raise

    @property
    def ref(self) -> ModelRef:
        """The model that gave the last answer."""
        return self._seen[0]

    @property
    def labels(self) -> LabelSet:
        """What that model can see."""
        return self._seen[1]

    @property
    def limits(self) -> ServiceLimits:
        """What the server said it takes."""
        return self._limits

    def detect(self, frames: Sequence[ImageArray]) -> list[Inference]:
        """As the contract says. All frames are under way at once; the timeout is for all of them together,
        and for encoding them."""
        self._check_open()
        ends_mono_s = time.monotonic() + self._settings.timeout_s
        questions = [self._question(pixels) for pixels in [checked_pixels(pixels) for pixels in frames]]
        calls: list[grpc.Future[bytes]] = []
        try:
            for question in questions:
                calls.append(self._start(question, ends_mono_s - time.monotonic()))
            return [
                _inference(self._finish(call), pixels) for call, pixels in zip(calls, frames, strict=True)
            ]
        finally:
            for call in calls:
                call.cancel()

    def ask(self, question: DetectQuestion, timeout_s: float) -> DetectAnswer:
        """One question with all that goes with it, answered within `timeout_s`, the way there and back included.

        Raises DeadlineExceeded at once when there is no time left.
        """
        self._check_open()
        return self._finish(self._start(question, timeout_s))

    def close(self) -> None:
        self._is_closed.set()
        self._channel.close()

    def _check_open(self) -> None:
        if self._is_closed.is_set():
            raise self._closed()

    def _question(self, pixels: ImageArray) -> DetectQuestion:
        settings = self._settings
        image = encode_pixels(
            pixels, settings.encoding, settings.jpeg_quality, self._address, self._limit_bytes
        )
        return DetectQuestion(image, wants_candidates=True)

    @property
    def _limit_bytes(self) -> int:
        return min(self._limits.max_request_bytes, self._settings.max_message_bytes)

    def _start(self, question: DetectQuestion, timeout_s: float) -> grpc.Future[bytes]:
        data = question_to_bytes(question)
        if len(data) > self._limit_bytes:
            raise TooLarge(f"question: expected at most {self._limit_bytes} bytes, got {len(data)}")
        try:
            return self._stub.detect.future(
                data, timeout=time_for_server_s(timeout_s, self._settings.margin_s)
            )
        except ValueError as error:  # how gRPC says that the channel is closed
            raise self._closed() from error

    def _finish(self, call: grpc.Future[bytes]) -> DetectAnswer:
        try:
            data = call.result()
        except CALL_FAILURES as error:
            if self._is_closed.is_set():
                raise self._closed() from error
            raise failure_of(error).error from error
        answer = read_answer(answer_from_bytes, data)
        self._seen = (answer.model, answer.labels)
        return answer

    def _closed(self) -> DetectorFailed:
        return DetectorFailed(f"{self.ref}: detect was called after close")


def _described(channel: grpc.Channel, settings: RemoteSettings) -> Description:
    timeout_s = time_for_server_s(settings.timeout_s, settings.margin_s)
    try:
        data = DetectStub(channel).describe(description_request_to_bytes(), timeout=timeout_s)
    except grpc.RpcError as error:
        raise failure_of(error).error from error
    return read_answer(description_from_bytes, data)


def _inference(answer: DetectAnswer, pixels: ImageArray) -> Inference:
    if answer.candidates is None:
        raise Incompatible("the server gave no candidates, though it was asked for them")
    if answer.detections.image_size != size_of(pixels):
        raise Incompatible(
            f"the server gave an answer about {answer.detections.image_size} px "
            f"when asked about {size_of(pixels)} px"
        )
    return Inference(answer.detections, answer.candidates)
