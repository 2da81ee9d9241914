"""What a tier makes of its look, and the desk that takes cases, asked over a socket as clients do."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter as CountOf
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from fovea.core.arrays import ImageArray
from fovea.core.detections import Detections
from fovea.core.errors import (
    DetectorFailed,
    FoveaError,
    Malformed,
    Overloaded,
    StoreCorrupt,
    TooLarge,
    Unavailable,
)
from fovea.core.frame import FrameId, ImageSize
from fovea.core.hard_case import HardCase, TierAnswer
from fovea.core.labels import LabelSet
from fovea.core.routing import Tier
from fovea.link.remote_detector import RemoteDetector, RemoteSettings
from fovea.runtime.images import encode_jpeg, encode_png
from fovea.serving.answerer import Answerer, MergedAnswer
from fovea.serving.outcomes import Ending, NobodyWatches, Outcome
from fovea.serving.server import ServerSettings
from fovea.serving.worker import Looked
from protos.calls import Delivery, DeliveryReceipt, DetectAnswer, DetectQuestion, ServiceLimits
from protos.codec import (
    answer_from_bytes,
    answer_to_bytes,
    delivery_to_bytes,
    question_to_bytes,
    receipt_from_bytes,
)
from protos.rpc import CASE_SERVICE, CaseStub, DetectStub, error_of
from tests.builders import model_ref, scene
from tests.contract.serving_thread import ServingThread, served
from tests.fakes import FAKE_REF, FakeDetector

WAIT_S = 30.0
PIXELS = scene(48, 64)
LABELS = LabelSet.from_names(["person", "car", "bicycle"])
HERE = (0.0, 0.0, 20.0, 20.0)


def seeing(score: float) -> FakeDetector:
    """A detector that always sees one person at HERE."""
    return FakeDetector(lambda _: [(HERE, score, 0)], LABELS)


def camera_saw(score: float, size: ImageSize = ImageSize(64, 48)) -> TierAnswer:
    boxes, scores = np.array([HERE], np.float32), np.array([score], np.float32)
    seen = Detections(boxes, scores, np.array([0], np.int32), size, model_ref("student"))
    return TierAnswer(Tier.AGENT, seen, LABELS)


def asked(server: ServingThread, question: DetectQuestion) -> DetectAnswer:
    """The answer, or the error that the server gave."""
    with grpc.insecure_channel(server.address) as channel:
        try:
            reply = DetectStub(channel).detect(question_to_bytes(question), timeout=WAIT_S)
        except grpc.RpcError as error:
            raise error_of(error) from None  # type: ignore[arg-type]
    return answer_from_bytes(reply)


def test_without_an_answerer_the_server_says_what_the_model_saw_and_nothing_else() -> None:
    with served(seeing(0.9), ServerSettings(revision=2)) as server:
        answer = asked(server, DetectQuestion(PIXELS, answers=(camera_saw(0.1),)))
    assert answer.detections.scores.tolist() == [pytest.approx(0.9)]
    assert (answer.revision, answer.detections.model, answer.answers) == (2, FAKE_REF, ())


def test_a_merging_server_says_what_all_saw_together_and_what_each_saw_alone() -> None:
    with served(seeing(0.9), answerer=MergedAnswer(Tier.CLOUD)) as server:
        answer = asked(server, DetectQuestion(PIXELS, answers=(camera_saw(0.5),), wants_candidates=True))
    assert 0.5 < answer.detections.scores[0] < 0.9
    assert [(each.tier, each.detections.model.name) for each in answer.answers] == [
        (Tier.AGENT, "student"),
        (Tier.CLOUD, "fake"),
    ]
    assert (answer.revision, answer.model) == (2, FAKE_REF)
    assert answer.detections.model.name == "student+fake"
    assert answer.candidates is not None and len(answer.candidates) == 1
    assert answer.timings.infer_ms >= 0


def test_without_a_tier_below_a_merging_server_answers_in_its_own_name() -> None:
    with served(seeing(0.9), answerer=MergedAnswer(Tier.EDGE)) as server:
        answer = asked(server, DetectQuestion(PIXELS))
    assert answer.detections.model == FAKE_REF
    assert answer.detections.scores.tolist() == [pytest.approx(0.9)]


def test_an_answer_about_a_picture_of_another_size_is_malformed_before_anybody_looks() -> None:
    local = seeing(0.9)
    with served(local, answerer=MergedAnswer(Tier.EDGE)) as server:
        picture = encode_png(PIXELS)  # an encoded picture says its size only when it is opened
        with pytest.raises(
            Malformed, match="expected answers about 64x48 px, as the picture has, got one about 32x"
        ):
            asked(server, DetectQuestion(picture, answers=(camera_saw(0.5, ImageSize(32, 24)),)))
    assert local.batch_sizes == []


class Behaving:
    """An Answerer that does what it is told with each picture, by the value of its first pixel."""

    def __init__(self, told: dict[int, Callable[[], Any]]) -> None:
        self._told = told

    async def answer(
        self, question: DetectQuestion, pixels: ImageArray, looked: Looked, expires_mono_s: float
    ) -> DetectAnswer:
        assert expires_mono_s > time.monotonic()
        await self._told[int(pixels[0, 0, 0])]()
        return DetectAnswer(looked.inference.detections, looked.model, looked.labels, revision=1)


def shade(brightness: int) -> ImageArray:
    return np.full((8, 8, 3), brightness, np.uint8)


async def nothing() -> None:
    pass


async def for_ever() -> None:
    await asyncio.Event().wait()


async def refusing() -> None:
    raise Overloaded("not now", 0.5)


async def breaking() -> None:
    raise KeyError("unforeseen")


def test_an_answerer_that_fails_fails_one_call_and_a_caller_who_leaves_harms_no_neighbour() -> None:
    answerer: Answerer = Behaving({0: nothing, 1: refusing, 2: breaking, 3: for_ever})
    with (
        served(FakeDetector(lambda _: []), ServerSettings(grace_s=0.1), answerer=answerer) as server,
        grpc.insecure_channel(server.address) as channel,
        ThreadPoolExecutor(8) as clients,
    ):
        leaving: Any = DetectStub(channel).detect.future(question_to_bytes(DetectQuestion(shade(3))))
        calls = [clients.submit(asked, server, DetectQuestion(shade(kind))) for kind in (0, 1, 2, 0)]
        failures = [call.exception(WAIT_S) for call in calls]
        leaving.cancel()
        assert len(asked(server, DetectQuestion(shade(0))).detections) == 0
    assert [type(failure) for failure in failures] == [type(None), Overloaded, DetectorFailed, type(None)]
    assert isinstance(failures[1], Overloaded) and failures[1].retry_after_s == 0.5


def test_a_remote_detector_takes_the_answers_of_a_merging_server_like_any_other() -> None:
    with served(seeing(0.9), answerer=MergedAnswer(Tier.EDGE)) as server:
        remote = RemoteDetector.connect(server.address, RemoteSettings(timeout_s=WAIT_S))
        [inference] = remote.detect([PIXELS])
        remote.close()
    assert len(inference.detections) == len(inference.candidates) == 1


# Cases


class Desk:
    """A CaseDesk that keeps cases by their id."""

    def __init__(self) -> None:
        self.cases: dict[str, HardCase] = {}
        self.fail_with: FoveaError | Exception | None = None
        self.let = threading.Event()
        self.let.set()

    async def deliver(self, case: HardCase) -> DeliveryReceipt:
        while not self.let.is_set():
            await asyncio.sleep(0.01)
        if self.fail_with is not None:
            raise self.fail_with
        is_new = case.id not in self.cases
        self.cases[case.id] = case
        return DeliveryReceipt(case.id, is_new)


class CountingDeliveries(NobodyWatches):
    def __init__(self) -> None:
        self.endings: list[Ending] = []

    def delivery_ended(self, ending: Ending, seconds: float) -> None:
        assert seconds >= 0
        self.endings.append(ending)

    def counted(self, calls: int) -> CountOf[Ending]:
        ends_s = time.monotonic() + WAIT_S
        while len(self.endings) < calls and time.monotonic() < ends_s:
            threading.Event().wait(0.01)
        return CountOf(self.endings)


def case_of(seed: int = 0, jpeg: bytes | None = None) -> HardCase:
    return HardCase(
        jpeg or encode_jpeg(scene(48, 64, seed)),
        FrameId("gate", "boot", seed),
        datetime(2030, 1, 2, tzinfo=UTC),
        (camera_saw(0.4),),
        ("audit",),
        0.02,
    )


@contextmanager
def taking(
    desk: Desk, settings: ServerSettings = ServerSettings(), observer: CountingDeliveries | None = None
) -> Iterator[Callable[[HardCase | bytes], DeliveryReceipt]]:
    """Gives a way to deliver a case, or bytes that should be one, to a server that has `desk`."""
    observer = observer or CountingDeliveries()
    with (
        served(FakeDetector(), settings, observer=observer, case_desk=desk) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        stub = CaseStub(channel)

        def deliver(case: HardCase | bytes) -> DeliveryReceipt:
            data = case if isinstance(case, bytes) else delivery_to_bytes(Delivery(case))
            try:
                return receipt_from_bytes(stub.deliver(data, timeout=WAIT_S))
            except grpc.RpcError as error:
                raise error_of(error) from None  # type: ignore[arg-type]

        yield deliver


def test_a_case_is_taken_with_all_that_is_known_of_it_and_twice_is_once() -> None:
    desk, counting, case = Desk(), CountingDeliveries(), case_of()
    with taking(desk, observer=counting) as deliver:
        assert deliver(case) == DeliveryReceipt(case.id, is_new=True)
        assert deliver(case) == DeliveryReceipt(case.id, is_new=False)
        assert counting.counted(2) == {Ending(Outcome.SERVED): 2}
    [kept] = desk.cases.values()
    assert (kept.jpeg, kept.frame_id, kept.captured_at) == (case.jpeg, case.frame_id, case.captured_at)
    assert (kept.reasons, kept.send_probability) == (("audit",), 0.02)
    assert [answer.tier for answer in kept.answers] == [Tier.AGENT]


@pytest.mark.parametrize(
    ("case", "error", "told"),
    [
        (b"\xff\xff", Malformed, "expected a fovea.v1.DeliverRequest message"),
        (case_of(jpeg=b"<html>404</html>"), Malformed, "image"),
        (case_of(jpeg=encode_jpeg(scene(200, 200))), TooLarge, "expected at most 20000 pixels, got 200x200"),
        (bytes(60_000), TooLarge, "expected at most 50000 bytes, got 60000"),
    ],
)
def test_what_is_no_case_is_refused_with_a_reason_and_never_reaches_the_desk(
    case: HardCase | bytes, error: type[FoveaError], told: str
) -> None:
    desk = Desk()
    with (
        taking(desk, ServerSettings(ServiceLimits(50_000, 20_000))) as deliver,
        pytest.raises(error, match=told),
    ):
        deliver(case)
    assert desk.cases == {}


def test_a_desk_that_fails_fails_one_delivery_and_the_next_one_is_taken() -> None:
    desk, counting = Desk(), CountingDeliveries()
    with taking(desk, observer=counting) as deliver:
        for failure, error in (
            (StoreCorrupt("bad sector"), StoreCorrupt),
            (KeyError("unforeseen"), DetectorFailed),
            (Unavailable("disk away"), Unavailable),
        ):
            desk.fail_with = failure
            with pytest.raises(error):
                deliver(case_of())
        desk.fail_with = None
        assert deliver(case_of()).is_new
        endings = counting.counted(4)
    assert endings[Ending(Outcome.SERVED)] == 1 and endings[Ending(Outcome.FAILED, "store_corrupt")] == 1


def test_more_cases_at_once_than_are_put_away_are_told_to_come_again() -> None:
    desk = Desk()
    desk.let.clear()
    with taking(desk) as deliver, ThreadPoolExecutor(12) as clients:
        calls = [clients.submit(deliver, case_of(seed)) for seed in range(12)]
        ends_s = time.monotonic() + WAIT_S
        while sum(call.done() for call in calls) < 4 and time.monotonic() < ends_s:
            threading.Event().wait(0.01)
        desk.let.set()
        failures = [call.exception(WAIT_S) for call in calls]
    assert CountOf(type(failure) for failure in failures) == {type(None): 8, Overloaded: 4}
    assert len(desk.cases) == 8


def test_the_case_service_is_healthy_and_named_only_where_cases_are_taken() -> None:
    def facts(server: ServingThread) -> tuple[int | None, set[str]]:
        with grpc.insecure_channel(server.address) as channel:
            asks = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
            [listed] = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
                asks, timeout=WAIT_S
            )
            try:
                request = health_pb2.HealthCheckRequest(service=CASE_SERVICE)
                status = health_pb2_grpc.HealthStub(channel).Check(request, timeout=WAIT_S).status
            except grpc.RpcError:
                status = None
        return status, {service.name for service in listed.list_services_response.service}

    with served(FakeDetector(), case_desk=Desk()) as server:
        status, names = facts(server)
        assert status == health_pb2.HealthCheckResponse.SERVING and CASE_SERVICE in names
    with served(FakeDetector()) as server:
        status, names = facts(server)
        assert status is None and CASE_SERVICE not in names


def test_the_timings_of_the_service_replace_those_of_the_answerer() -> None:
    answer = DetectAnswer(Detections.empty(ImageSize(8, 8), FAKE_REF), FAKE_REF, LABELS)
    assert answer_from_bytes(answer_to_bytes(answer)).timings.decode_ms == 0
    with served(FakeDetector(lambda _: []), answerer=Behaving({0: nothing})) as server:
        assert asked(server, DetectQuestion(encode_png(shade(0)))).timings.decode_ms > 0
