"""A detector asked over the wire, by a real client of a real server: it answers, and fails, as a local one does."""

from __future__ import annotations

import inspect
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from fovea.core import errors
from fovea.core.arrays import ImageArray
from fovea.core.detections import Detections, Inference, ModelRef
from fovea.core.errors import (
    DeadlineExceeded,
    DetectorFailed,
    FoveaError,
    Incompatible,
    Malformed,
    Overloaded,
    TooLarge,
    Unavailable,
)
from fovea.core.frame import FrameId, ImageSize
from fovea.core.labels import LabelSet
from fovea.link.remote_detector import PixelEncoding, RemoteDetector, RemoteSettings
from fovea.runtime.images import decode_image, encode_jpeg, encode_png
from fovea.serving.admission import QueueLimits
from fovea.serving.batcher import BatchPolicy
from fovea.serving.latency_model import LatencyModel
from fovea.serving.outcomes import Ending, Outcome
from fovea.serving.server import ServerSettings
from fovea.serving.worker import BatchingWorker, Look
from protos.calls import Description, DetectAnswer, DetectQuestion, Priority, ServiceLimits, Timings
from protos.codec import answer_to_bytes, description_to_bytes, question_from_bytes, question_to_bytes
from protos.rpc import DETECT_SERVICE, DetectStub, error_of, status_of
from tests.builders import model_ref, scene
from tests.contract.serving_thread import ServingThread, answering_with, served
from tests.fakes import FAKE_REF, FakeDetector, Seen, bright_parts

PATIENT = RemoteSettings(timeout_s=20.0, encoding=PixelEncoding.RAW)
LABELS = LabelSet.from_names(["person", "car", "bicycle"])
WAIT_S = 20.0


class HeldDetector(FakeDetector):
    """Looks at a picture only when it is let; `begun` says that it is at one. It remembers how bright they were."""

    def __init__(self) -> None:
        super().__init__(self._look_when_let)
        self.begun = threading.Semaphore(0)
        self.let = threading.Semaphore(0)
        self.seen: list[int] = []

    def _look_when_let(self, pixels: ImageArray) -> Seen:
        self.begun.release()
        assert self.let.acquire(timeout=WAIT_S)
        self.seen.append(int(pixels[0, 0, 0]))
        return bright_parts(pixels)


def shade(brightness: int) -> ImageArray:
    return np.full((8, 8, 3), brightness, np.uint8)


@contextmanager
def asked(server: ServingThread, settings: RemoteSettings = PATIENT) -> Iterator[RemoteDetector]:
    remote = RemoteDetector.connect(server.address, settings)
    try:
        yield remote
    finally:
        remote.close()


@contextmanager
def stub_of(server: ServingThread) -> Iterator[DetectStub]:
    """A client that knows nothing about limits and deadlines."""
    with grpc.insecure_channel(server.address) as channel:
        yield DetectStub(channel)


def failure_of(call: Callable[[], Any]) -> FoveaError:
    """The error that a raw call means."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    failed: Any = caught.value
    return error_of(failed)


def assert_same(one: Inference, other: Inference) -> None:
    for part in ("boxes_xyxy", "scores", "class_ids"):
        np.testing.assert_array_equal(getattr(one.detections, part), getattr(other.detections, part))
    np.testing.assert_array_equal(one.candidates.boxes_xyxy, other.candidates.boxes_xyxy)
    np.testing.assert_array_equal(one.candidates.class_scores, other.candidates.class_scores)
    assert one.detections.model == other.detections.model
    assert one.detections.image_size == other.detections.image_size
    assert (one.candidates.kind, one.candidates.labels) == (other.candidates.kind, other.candidates.labels)


# Answers


@pytest.mark.parametrize("encoding", [PixelEncoding.RAW, PixelEncoding.PNG, PixelEncoding.AUTO])
def test_the_answer_is_that_of_the_detector_itself_to_the_bit(encoding: PixelEncoding) -> None:
    local, frames = FakeDetector(), [scene(48, 64, 1), scene(7, 300, 2), scene(1, 1, 3)]
    with served(local) as server, asked(server, RemoteSettings(timeout_s=20, encoding=encoding)) as remote:
        for far, near in zip(remote.detect(frames), local.detect(frames), strict=True):
            assert_same(far, near)


def test_a_jpeg_is_answered_as_the_picture_that_it_holds() -> None:
    local, pixels = FakeDetector(), scene(60, 80, 4)
    settings = RemoteSettings(timeout_s=20, jpeg_quality=70)
    with served(local) as server, asked(server, settings) as remote:
        [far] = remote.detect([pixels])
        [near] = local.detect([decode_image(encode_jpeg(pixels, 70))])
    assert_same(far, near)


def test_within_the_machine_pixels_go_raw_where_they_fit_into_a_message_and_as_jpeg_where_not() -> None:
    local, settings = FakeDetector(), RemoteSettings(timeout_s=20, encoding=PixelEncoding.AUTO)
    small, large = scene(60, 80, 4), scene(300, 400, 5)
    limits = ServiceLimits(max_request_bytes=100_000)
    with served(local, ServerSettings(limits)) as server, asked(server, settings) as remote:
        far = remote.detect([small, large])
    near = local.detect([small, decode_image(encode_jpeg(large, settings.jpeg_quality))])
    for one, other in zip(far, near, strict=True):
        assert_same(one, other)


def test_the_client_knows_model_labels_and_limits_before_it_asks() -> None:
    limits = ServiceLimits(max_request_bytes=1_000_000, max_pixels=9_999)
    with served(FakeDetector(), ServerSettings(limits)) as server, asked(server) as remote:
        assert (remote.ref, remote.labels, remote.limits) == (FAKE_REF, LABELS, limits)


def test_the_client_follows_when_the_server_changes_its_model() -> None:
    newer, labels = model_ref("newer"), LabelSet.from_names(["forklift"])
    [seen] = FakeDetector(ref=newer, labels=labels).detect([shade(1)])
    answer = answer_to_bytes(DetectAnswer(seen.detections, newer, labels, seen.candidates))
    with answering_with(OtherServer(answer)) as server, asked(server) as remote:
        assert remote.ref == FAKE_REF
        remote.detect([shade(1)])
        assert (remote.ref, remote.labels) == (newer, labels)


def test_a_question_is_answered_with_what_it_asks_for_and_where_the_time_went() -> None:
    question = DetectQuestion(
        encode_png(scene()),
        FrameId("yard/é", "b1", 7),
        captured_at=datetime(2030, 1, 1, tzinfo=UTC),
        captured_mono_s=12.5,
        priority=Priority.HIGH,
    )
    with served(FakeDetector(), ServerSettings(revision=2)) as server, asked(server) as remote:
        answer = remote.ask(question, timeout_s=WAIT_S)
        assert (answer.revision, answer.is_degraded, answer.candidates) == (2, False, None)
        assert (answer.model, answer.labels) == (FAKE_REF, LABELS)
        assert answer.timings.decode_ms > 0 and answer.timings.infer_ms > 0
        assert len(answer.detections) == 1


# Errors


class Asked(NamedTuple):
    """A detector, the server around it, and a client of that."""

    local: FakeDetector
    server: ServingThread
    remote: RemoteDetector


@pytest.fixture(scope="module")
def shared() -> Iterator[Asked]:
    local = FakeDetector()
    with served(local) as server, asked(server) as remote:
        yield Asked(local, server, remote)


@pytest.mark.parametrize(
    "kind",
    [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, FoveaError) and value is not FoveaError
    ],
)
def test_every_error_of_the_detector_arrives_as_itself_and_the_server_goes_on(
    kind: type[FoveaError], shared: Asked
) -> None:
    shared.local.fail_with = kind("the reason: ünlucky\n100 %")
    with pytest.raises(FoveaError) as caught:
        shared.remote.detect([shade(1)])
    assert type(caught.value) is kind
    assert str(caught.value) == "the reason: ünlucky\n100 %"
    shared.local.fail_with = None
    assert len(shared.remote.detect([shade(1)])) == 1


def test_a_busy_server_says_when_to_come_back(shared: Asked) -> None:
    shared.local.fail_with = Overloaded("full", retry_after_s=0.125)
    with pytest.raises(Overloaded) as caught:
        shared.remote.detect([shade(1)])
    shared.local.fail_with = None
    assert caught.value.retry_after_s == 0.125


def test_an_unforeseen_failure_is_logged_by_the_server_and_told_without_its_details(
    shared: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    shared.local.fail_with = KeyError("secret path")
    with pytest.raises(DetectorFailed, match="internal error") as caught:
        shared.remote.detect([shade(1)])
    shared.local.fail_with = None
    assert "secret" not in str(caught.value)
    assert "secret path" in caplog.text
    assert len(shared.remote.detect([shade(1)])) == 1


@pytest.mark.parametrize("data", [b"", b"\xff\xff\xff", b"\x22\x03abc"], ids=["empty", "garbage", "no image"])
def test_what_is_no_question_is_malformed(data: bytes, shared: Asked) -> None:
    with stub_of(shared.server) as stub:
        assert type(failure_of(lambda: stub.detect(data, timeout=WAIT_S))) is Malformed


def test_a_damaged_picture_fails_alone_while_its_neighbours_are_answered(shared: Asked) -> None:
    jpeg = encode_jpeg(scene(100, 100))
    pictures = [jpeg, jpeg[: len(jpeg) // 2], encode_png(scene()), b"<html>404</html>"] * 5
    with ThreadPoolExecutor(8) as clients:
        calls = [clients.submit(shared.remote.ask, DetectQuestion(picture), WAIT_S) for picture in pictures]
        outcomes = [call.exception() for call in calls]
    assert [type(outcome) for outcome in outcomes] == [type(None), Malformed, type(None), Malformed] * 5


# Limits


def test_a_picture_over_the_limit_is_refused_before_it_is_sent_and_nothing_is_tried_again() -> None:
    local = FakeDetector()
    settings = ServerSettings(ServiceLimits(max_request_bytes=1000))
    with served(local, settings) as server, asked(server) as remote:
        with pytest.raises(TooLarge, match=r"expected at most 1000 bytes, got 30\d\d\d"):
            remote.detect([np.zeros((100, 100, 3), np.uint8)])
        assert local.batch_sizes == []
        assert len(remote.detect([shade(3)])) == 1


def test_a_client_that_does_not_know_the_limit_hears_too_large_and_not_too_busy() -> None:
    local = FakeDetector()
    settings = ServerSettings(ServiceLimits(max_request_bytes=1000))
    with served(local, settings) as server, stub_of(server) as stub:
        data = question_to_bytes(DetectQuestion(np.zeros((100, 100, 3), np.uint8)))
        assert type(failure_of(lambda: stub.detect(data, timeout=WAIT_S))) is TooLarge
    assert local.batch_sizes == []


def test_an_answer_over_the_clients_own_limit_is_too_large() -> None:
    def many(_: ImageArray) -> Seen:
        return [((0.0, 0.0, 1.0, 1.0), 0.5, 0)] * 300

    settings = RemoteSettings(timeout_s=20, encoding=PixelEncoding.RAW, max_message_bytes=2000)
    with served(FakeDetector(many)) as server, asked(server, settings) as remote, pytest.raises(TooLarge):
        remote.detect([shade(1)])


@pytest.mark.parametrize(
    "encode", [encode_png, encode_jpeg, lambda pixels: pixels], ids=["png", "jpeg", "raw"]
)
def test_a_picture_with_too_many_pixels_is_refused(
    encode: Callable[[ImageArray], bytes | ImageArray],
) -> None:
    local = FakeDetector()
    question = DetectQuestion(encode(scene(100, 100)))
    with (
        served(local, ServerSettings(ServiceLimits(max_pixels=5000))) as server,
        asked(server) as remote,
        pytest.raises(TooLarge, match="expected at most 5000 pixels"),
    ):
        remote.ask(question, WAIT_S)
    assert local.batch_sizes == []


# Time


def test_a_slow_detector_costs_the_client_its_deadline_and_no_more() -> None:
    local = HeldDetector()
    with served(local) as server:
        with asked(server, RemoteSettings(timeout_s=0.3)) as remote, pytest.raises(DeadlineExceeded):
            remote.detect([shade(1)])
        local.let.release()
        with asked(server) as remote:
            local.let.release()
            assert len(remote.detect([shade(2)])) == 1


def test_who_gave_up_in_the_queue_is_not_looked_at_and_who_waits_behind_is() -> None:
    local = HeldDetector()
    with served(local) as server, asked(server) as remote, ThreadPoolExecutor(3) as clients:
        first = clients.submit(remote.detect, [shade(1)])
        assert local.begun.acquire(timeout=WAIT_S)
        with pytest.raises(DeadlineExceeded):
            remote.ask(DetectQuestion(shade(2)), timeout_s=0.2)
        third = clients.submit(remote.detect, [shade(3)])
        local.let.release(3)
        assert len(first.result(WAIT_S)) == len(third.result(WAIT_S)) == 1
    assert local.seen == [1, 3]


async def test_an_order_that_expired_before_it_came_is_not_looked_at() -> None:
    local = FakeDetector()
    worker = BatchingWorker(local)
    worker.start()
    with pytest.raises(DeadlineExceeded, match="before the picture came to the queue"):
        await worker.look(Look(shade(1), expires_mono_s=time.monotonic() - 1))
    assert local.batch_sizes == []
    await worker.look(Look(shade(1), expires_mono_s=time.monotonic() + WAIT_S))
    assert local.batch_sizes == [1]
    await worker.stop(WAIT_S)
    with pytest.raises(Unavailable):
        await worker.look(Look(shade(1), expires_mono_s=time.monotonic() + WAIT_S))


def test_no_time_left_means_no_call_at_all() -> None:
    local = FakeDetector()
    with served(local) as server, asked(server, RemoteSettings(timeout_s=20, margin_s=0.05)) as remote:
        for timeout_s in (0.05, 0.0, -1.0, float("nan")):
            with pytest.raises(DeadlineExceeded, match="are left"):
                remote.ask(DetectQuestion(shade(1)), timeout_s)
    assert local.batch_sizes == []


def test_a_client_that_goes_away_harms_nobody() -> None:
    local = HeldDetector()
    data = question_to_bytes(DetectQuestion(shade(9)))
    with served(local) as server, stub_of(server) as stub, asked(server) as remote:
        calls: list[Any] = [stub.detect.future(data, timeout=WAIT_S) for _ in range(2)]
        assert local.begun.acquire(timeout=WAIT_S)
        with ThreadPoolExecutor(1) as client:
            answered = client.submit(remote.detect, [shade(1)])
            for call in calls:  # one is being looked at, one waits
                call.cancel()
            local.let.release(3)
            assert len(answered.result(WAIT_S)) == 1
        local.let.release()
        assert len(remote.detect([shade(2)])) == 1
    assert local.seen[-2:] == [1, 2]


# Batching, admission, and how calls are counted


class Counting:
    """An Observer that remembers everything."""

    def __init__(self) -> None:
        self.endings: list[Ending] = []
        self.batches: list[int] = []
        self.answers: list[Timings] = []
        self.deliveries: list[Ending] = []

    def delivery_ended(self, ending: Ending, seconds: float) -> None:
        assert seconds >= 0
        self.deliveries.append(ending)

    def call_ended(self, ending: Ending, seconds: float) -> None:
        assert seconds >= 0
        self.endings.append(ending)

    def call_answered(self, timings: Timings) -> None:
        self.answers.append(timings)

    def batch_ran(self, size: int, seconds: float) -> None:
        assert seconds >= 0
        self.batches.append(size)

    def counted(self, calls: int) -> Counter[Ending]:
        """All of them, when `calls` have ended: a client knows that a call is over a moment before its server."""
        wait_until(lambda: len(self.endings) >= calls)
        return Counter(self.endings)


def test_one_more_than_a_batch_at_once_are_all_answered_each_with_its_own_picture() -> None:
    max_batch, counting, local = 4, Counting(), FakeDetector()
    frames = [scene(20 + shade, 30, shade) for shade in range(max_batch + 1)]
    settings = ServerSettings(batching=BatchPolicy(max_batch))
    with served(local, settings, observer=counting) as server, asked(server) as remote:
        for _ in range(20):
            for far, near in zip(remote.detect(frames), FakeDetector().detect(frames), strict=True):
                assert_same(far, near)
    assert max(counting.batches) <= max_batch
    assert sum(counting.batches) == len(counting.answers) == 20 * len(frames)
    assert counting.counted(100) == {Ending(Outcome.SERVED): 100}


def test_what_cannot_be_done_in_time_is_refused_at_once_and_before_its_picture_is_opened() -> None:
    local, slow, counting = FakeDetector(), LatencyModel(), Counting()
    slow.observe(1, 5.0, now_s=time.monotonic())
    with served(local, observer=counting, latency=slow) as server, asked(server) as remote:
        begun_s = time.monotonic()
        with pytest.raises(Overloaded, match="it would be finished in 5000 ms") as caught:
            remote.ask(DetectQuestion(shade(1)), timeout_s=2.0)
        assert time.monotonic() - begun_s < 2.0
        assert caught.value.retry_after_s is not None and caught.value.retry_after_s > 2.5
        damaged = encode_jpeg(scene(100, 100))[:-500]
        with pytest.raises(Overloaded):
            remote.ask(DetectQuestion(damaged), timeout_s=2.0)
        assert len(remote.ask(DetectQuestion(shade(1)), WAIT_S).detections) == 0
    assert local.batch_sizes == [1]
    assert counting.counted(3) == {Ending(Outcome.REFUSED, "too_late"): 2, Ending(Outcome.SERVED): 1}


def test_a_full_queue_refuses_while_who_waits_is_answered() -> None:
    local, counting = HeldDetector(), Counting()
    settings = ServerSettings(queue=QueueLimits(max_items=2))
    with (
        served(local, settings, observer=counting) as server,
        asked(server) as remote,
        ThreadPoolExecutor(8) as clients,
    ):
        first = clients.submit(remote.detect, [shade(1)])
        assert local.begun.acquire(timeout=WAIT_S)
        others = [clients.submit(remote.detect, [shade(2)]) for _ in range(6)]
        wait_until(lambda: len(counting.endings) == 4)
        local.let.release(3)
        failures = [call.exception(WAIT_S) for call in (first, *others)]
    assert Counter(type(failure) for failure in failures) == {type(None): 3, Overloaded: 4}
    assert counting.counted(7) == {Ending(Outcome.REFUSED, "queue_full"): 4, Ending(Outcome.SERVED): 3}


def test_a_picture_that_the_model_dies_of_fails_alone_in_its_batch() -> None:
    class Allergic(HeldDetector):
        def detect(self, frames: Sequence[ImageArray]) -> list[Inference]:
            if any(frame[0, 0, 0] == 13 for frame in frames):
                self.begun.release()
                raise DetectorFailed("13")
            return super().detect(frames)

    local, counting = Allergic(), Counting()
    with (
        served(local, observer=counting) as server,
        asked(server) as remote,
        ThreadPoolExecutor(8) as clients,
    ):
        first = clients.submit(remote.detect, [shade(1)])
        assert local.begun.acquire(timeout=WAIT_S)
        others = [clients.submit(remote.detect, [shade(brightness)]) for brightness in (2, 13, 3)]
        time.sleep(0.3)  # they wait for their turn, and nothing shows from outside that they do
        local.let.release(3)
        failures = [call.exception(WAIT_S) for call in (first, *others)]
    assert [type(failure) for failure in failures] == [type(None), type(None), DetectorFailed, type(None)]
    assert counting.counted(4) == {Ending(Outcome.SERVED): 3, Ending(Outcome.FAILED, "detector_failed"): 1}


def test_every_call_is_counted_once_however_it_ends() -> None:
    local, counting = HeldDetector(), Counting()
    local.let.release(1000)
    settings = ServerSettings(ServiceLimits(max_request_bytes=10_000), grace_s=0.0)
    with (
        served(local, settings, observer=counting) as server,
        stub_of(server) as stub,
        asked(server) as remote,
    ):
        remote.detect([shade(1)])
        for data in (b"\xff\xff", bytes(15_000)):
            failure_of(lambda data=data: stub.detect(data, timeout=WAIT_S))  # type: ignore[misc]
        local.fail_with = KeyError("unforeseen")
        with pytest.raises(DetectorFailed):
            remote.detect([shade(1)])
        local.fail_with = None
        while local.let.acquire(blocking=False):
            pass
        with pytest.raises(DeadlineExceeded):
            remote.ask(DetectQuestion(shade(2)), timeout_s=0.3)
        call: Any = stub.detect.future(question_to_bytes(DetectQuestion(shade(3))), timeout=WAIT_S)
        time.sleep(0.3)
        call.cancel()
        counted = counting.counted(6)
        local.let.release(1000)
    assert counted == {
        Ending(Outcome.SERVED): 1,
        Ending(Outcome.REFUSED, "malformed"): 1,
        Ending(Outcome.REFUSED, "too_large"): 1,
        Ending(Outcome.FAILED, "detector_failed"): 1,
        Ending(Outcome.EXPIRED): 1,
        Ending(Outcome.CANCELLED): 1,
    }


def test_a_model_that_hangs_does_not_keep_the_server_from_ending() -> None:
    local = HeldDetector()
    with (
        served(local, ServerSettings(grace_s=0.1, stop_s=0.1)) as server,
        asked(server) as remote,
        ThreadPoolExecutor(1) as client,
    ):
        call = client.submit(remote.detect, [shade(1)])
        assert local.begun.acquire(timeout=WAIT_S)
        begun_s = time.monotonic()
        server.stop()
        assert time.monotonic() - begun_s < 5
        assert type(call.exception(WAIT_S)) is Unavailable
        local.let.release()


# Availability


def test_no_server_is_unavailable_and_one_that_goes_is_too() -> None:
    with served(FakeDetector()) as server:
        remote = RemoteDetector.connect(server.address, PATIENT)
        assert len(remote.detect([shade(1)])) == 1
    with pytest.raises(Unavailable):
        remote.detect([shade(1)])
    remote.close()
    with pytest.raises(Unavailable):
        RemoteDetector.connect(server.address, PATIENT)


def test_a_server_that_comes_back_is_used_again() -> None:
    with served(FakeDetector()) as server, asked(server) as remote:
        remote.detect([shade(1)])
        server.stop()
        with pytest.raises(Unavailable):
            remote.detect([shade(1)])
        port = int(server.address.rpartition(":")[2])
        with served(FakeDetector(ref=model_ref("again")), port=port):
            deadline = time.monotonic() + WAIT_S
            while remote.ref != model_ref("again"):
                assert time.monotonic() < deadline
                try:
                    remote.detect([shade(1)])
                except Unavailable:
                    time.sleep(0.05)


def test_a_port_that_is_taken_is_not_shared() -> None:
    with served(FakeDetector()) as server:
        port = int(server.address.rpartition(":")[2])
        with (
            pytest.raises(Unavailable, match=f"cannot listen on 127.0.0.1:{port}"),
            served(FakeDetector(), port=port),
        ):
            pass


def test_closing_while_asked_fails_the_call_and_does_not_hang() -> None:
    local = HeldDetector()
    with served(local) as server, ThreadPoolExecutor(1) as client:
        remote = RemoteDetector.connect(server.address, PATIENT)
        call = client.submit(remote.detect, [shade(1)])
        assert local.begun.acquire(timeout=WAIT_S)
        remote.close()
        with pytest.raises(DetectorFailed, match="close"):
            call.result(WAIT_S)
        local.let.release()


# Health, reflection, and stopping


def health_of(server: ServingThread, service: str = DETECT_SERVICE) -> int:
    with grpc.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        return int(stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=WAIT_S).status)


def test_health_answers_for_the_server_and_the_service_also_while_the_detector_is_busy() -> None:
    local = HeldDetector()
    with served(local) as server, asked(server) as remote, ThreadPoolExecutor(1) as client:
        call = client.submit(remote.detect, [shade(1)])
        assert local.begun.acquire(timeout=WAIT_S)
        serving = health_pb2.HealthCheckResponse.SERVING
        assert (health_of(server), health_of(server, "")) == (serving, serving)
        local.let.release()
        call.result(WAIT_S)


def test_reflection_names_the_service_and_gives_its_definition() -> None:
    asks = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=DETECT_SERVICE),
    ]
    with served(FakeDetector()) as server, grpc.insecure_channel(server.address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        listed, defined = stub.ServerReflectionInfo(iter(asks), timeout=WAIT_S)
    names = {service.name for service in listed.list_services_response.service}
    assert {DETECT_SERVICE, "grpc.health.v1.Health"} <= names
    assert any(b"DetectService" in proto for proto in defined.file_descriptor_response.file_descriptor_proto)


def test_readiness_goes_before_the_service_does_and_what_is_under_way_is_finished() -> None:
    local = HeldDetector()
    with (
        served(local, ServerSettings(notice_s=1.0, grace_s=WAIT_S)) as server,
        asked(server) as remote,
        ThreadPoolExecutor(2) as clients,
    ):
        under_way = clients.submit(remote.detect, [shade(1)])
        assert local.begun.acquire(timeout=WAIT_S)
        server.begin_stop()
        wait_until(lambda: health_of(server) == health_pb2.HealthCheckResponse.NOT_SERVING)
        in_the_notice = clients.submit(remote.detect, [shade(2)])
        time.sleep(1.2)
        with pytest.raises(Unavailable, match="stopping"):
            remote.detect([shade(3)])
        local.let.release(2)
        assert len(under_way.result(WAIT_S)) == len(in_the_notice.result(WAIT_S)) == 1
        server.stop()
    assert local.seen == [1, 2]
    assert not local.is_closed, "the detector belongs to whoever built it"


def test_a_stop_without_grace_leaves_nobody_waiting() -> None:
    local = HeldDetector()
    with (
        served(local, ServerSettings(batching=BatchPolicy(max_batch=1), grace_s=0.0)) as server,
        asked(server) as remote,
        ThreadPoolExecutor(2) as clients,
    ):
        calls = [clients.submit(remote.detect, [shade(shade_of)]) for shade_of in (1, 2)]
        assert local.begun.acquire(timeout=WAIT_S)
        time.sleep(0.3)  # the other one waits for its turn, and nothing shows from outside that it does
        server.begin_stop()
        failures = [call.exception(WAIT_S) for call in calls]
        local.let.release(2)
        server.stop()
    assert [type(failure) for failure in failures] == [Unavailable, Unavailable]
    assert len(local.seen) == 1


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Servers of another version


class OtherServer:
    """Answers with given bytes, or with an error, and remembers what it was asked."""

    def __init__(self, answer: bytes | FoveaError, description: bytes | None = None) -> None:
        self._answer = answer
        self._description = description or description_to_bytes(
            Description(FAKE_REF, LABELS, ServiceLimits())
        )
        self.asked: list[tuple[DetectQuestion, float | None]] = []

    async def detect(self, request: bytes, context: Any) -> bytes:
        self.asked.append((question_from_bytes(request), context.time_remaining()))
        if isinstance(self._answer, FoveaError):
            await context.abort(*status_of(self._answer))
        assert isinstance(self._answer, bytes)
        return self._answer

    async def describe(self, request: bytes, context: Any) -> bytes:
        return self._description


def answer_about(size: ImageSize, model: ModelRef = FAKE_REF) -> bytes:
    return answer_to_bytes(DetectAnswer(Detections.empty(size, model), model, LABELS))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"\xff\xff\xff", "cannot be read"),
        (b"", "cannot be read"),
        (answer_about(ImageSize(8, 8)), "no candidates"),
    ],
)
def test_an_answer_that_is_none_is_incompatible(answer: bytes, told: str) -> None:
    with (
        answering_with(OtherServer(answer)) as server,
        asked(server) as remote,
        pytest.raises(Incompatible, match=told),
    ):
        remote.detect([shade(1)])


def test_an_answer_about_another_picture_is_incompatible() -> None:
    local = FakeDetector()
    [elsewhere] = local.detect([scene(9, 9)])
    answer = answer_to_bytes(DetectAnswer(elsewhere.detections, FAKE_REF, LABELS, elsewhere.candidates))
    with (
        answering_with(OtherServer(answer)) as server,
        asked(server) as remote,
        pytest.raises(Incompatible, match="an answer about 9x9 px when asked about 8x8 px"),
    ):
        remote.detect([shade(1)])


def test_a_server_that_describes_itself_in_another_language_is_incompatible() -> None:
    with (
        answering_with(OtherServer(b"", description=b"\xff\xff")) as server,
        pytest.raises(Incompatible, match="cannot be read"),
    ):
        RemoteDetector.connect(server.address, PATIENT)


@pytest.mark.parametrize("refusal", [Overloaded("full", 0.1), TooLarge("too many"), Unavailable("not yet")])
def test_the_client_asks_once_and_leaves_the_second_try_to_its_caller(refusal: FoveaError) -> None:
    other = OtherServer(refusal)
    with answering_with(other) as server, asked(server) as remote:
        with pytest.raises(type(refusal)):
            remote.detect([shade(1)])
        time.sleep(0.1)
    assert len(other.asked) == 1


def test_the_server_is_given_the_time_that_is_left_minus_the_margin() -> None:
    other = OtherServer(answer_about(ImageSize(8, 8)))
    with (
        answering_with(other) as server,
        asked(server, RemoteSettings(margin_s=1.0, timeout_s=9.0)) as remote,
    ):
        remote.ask(DetectQuestion(shade(1)), timeout_s=WAIT_S)
        with pytest.raises(Incompatible):
            remote.detect([shade(1)])
    left_s = [left for _, left in other.asked if left is not None]
    # On the wire gRPC rounds a timeout up, by 1 % at most.
    assert left_s[0] <= (WAIT_S - 1) * 1.01 and left_s[1] <= 8.0 * 1.01 and min(left_s) > 0


@pytest.mark.parametrize("times", [(1.0, 1.0), (1.0, 2.0), (0.0, 0.0), (1.0, -0.1), (float("nan"), 0.1)])
def test_a_margin_that_leaves_no_time_is_malformed(times: tuple[float, float]) -> None:
    with pytest.raises(
        Malformed, match=r"^remote settings: expected a margin of 0 or more within the timeout, got "
    ):
        RemoteSettings(timeout_s=times[0], margin_s=times[1])


@pytest.mark.parametrize(
    "changes",
    [
        {"open_threads": 0},
        {"max_calls": 0},
        {"longest_wait_s": 0.0},
        {"notice_s": -1.0},
        {"grace_s": -1.0},
        {"stop_s": -1.0},
    ],
)
def test_server_settings_that_cannot_serve_are_malformed(changes: dict[str, Any]) -> None:
    with pytest.raises(Malformed, match=r"^server settings: expected threads, calls and times above 0, got "):
        ServerSettings(**changes)


def test_more_calls_than_a_server_has_room_for_are_refused_before_they_are_read() -> None:
    local = HeldDetector()
    data = question_to_bytes(DetectQuestion(shade(9)))
    with served(local, ServerSettings(max_calls=2)) as server, stub_of(server) as stub:
        calls: list[Any] = [stub.detect.future(data, timeout=WAIT_S) for _ in range(2)]
        assert local.begun.acquire(timeout=WAIT_S)
        refused = failure_of(lambda: stub.detect(data, timeout=WAIT_S))
        assert isinstance(refused, Overloaded)
        local.let.release(2)
        assert all(call.result() for call in calls)
        local.let.release()
        assert stub.detect(data, timeout=WAIT_S), "there is room again"


def test_one_connection_does_not_take_the_place_of_another() -> None:
    local = HeldDetector()
    data = question_to_bytes(DetectQuestion(shade(9)))
    settings = ServerSettings(max_calls_per_connection=1)
    with served(local, settings) as server, stub_of(server) as stub:
        call: Any = stub.detect.future(data, timeout=WAIT_S)
        assert local.begun.acquire(timeout=WAIT_S)
        waiting: Any = stub.describe.future(b"", timeout=WAIT_S)
        with asked(server) as other:
            assert other.ref == FAKE_REF
        assert not waiting.done()
        local.let.release()
        assert call.result() and waiting.result()
