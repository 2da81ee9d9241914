"""What comes to the cloud is answered at once and kept in the end, or counted as what it was."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from cloud.cases.metrics import CaseMetrics
from cloud.cases.stored_case import Receipt
from cloud.cases.writer import AskedFrame, CaseWriter, Fate, Way, WriterLimits
from cloud.ingest import ASKED, KeepingAnswerer, StoreDesk
from fovea.core.errors import DeadlineExceeded, Malformed, StoreCorrupt, Unavailable
from fovea.core.frame import FrameId, ImageSize
from fovea.core.hard_case import HardCase
from fovea.core.merging import MergeSettings, merge_answers
from fovea.core.routing import Tier
from fovea.runtime.images import decode_image
from fovea.serving.worker import Looked
from protos.calls import DetectAnswer, DetectQuestion
from tests.builders import scene
from tests.fakes import FakeDetector
from tests.unit.hard_cases import CAPTURED_AT, SIZE, hard_case, picture, tier_answer

WAIT_S = 30.0


class FakeKeeper:
    """Keeps cases in memory; waits while it is `held`, and raises what it is told to."""

    def __init__(self) -> None:
        self.kept: list[tuple[HardCase, ImageSize | None]] = []
        self.fail_with: list[BaseException] = []
        self.free = threading.Event()
        self.free.set()
        self.calls = 0

    def add(self, case: HardCase, size: ImageSize | None = None) -> Receipt:
        self.calls += 1
        assert self.free.wait(WAIT_S)
        if self.fail_with:
            raise self.fail_with.pop(0)
        is_new = case.id not in {known.id for known, _ in self.kept}
        self.kept.append((case, size))
        return Receipt(case.id, is_new, case.id)


class Counted:
    """A CaseCounter."""

    def __init__(self) -> None:
        self.fates: Counter[tuple[Way, Fate]] = Counter()

    def count(self, way: Way, fate: Fate) -> None:
        self.fates[way, fate] += 1


def until(is_so: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < ends_s, "it did not become so"
        time.sleep(0.005)


def asked_frame(seed: int = 0, picture_of: Any = None) -> AskedFrame:
    return AskedFrame(
        picture=picture(seed) if picture_of is None else picture_of,
        size=SIZE,
        frame_id=FrameId("gate", "boot-1", seed),
        captured_at=CAPTURED_AT,
        answers=(tier_answer(Tier.CLOUD),),
        reasons=("weak_boxes",),
        send_probability=0.5,
    )


@pytest.fixture
def keeper() -> FakeKeeper:
    return FakeKeeper()


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def writer(keeper: FakeKeeper, counted: Counted) -> Iterator[CaseWriter]:
    made = CaseWriter(keeper, counted, WriterLimits(max_frames=3, max_bytes=10_000_000))
    made.start()
    yield made
    keeper.free.set()
    made.stop(WAIT_S)


def test_frames_are_kept_in_order_and_counted(
    writer: CaseWriter, keeper: FakeKeeper, counted: Counted
) -> None:
    for seed in (1, 2, 2):
        assert writer.offer(asked_frame(seed))
        until(lambda: writer.waiting == 0)
    assert [case.frame_id.sequence for case, _ in keeper.kept] == [1, 2, 2]
    case, size = keeper.kept[0]
    assert (case.jpeg, case.captured_at, case.reasons, case.send_probability, size) == (
        picture(1),
        CAPTURED_AT,
        ("weak_boxes",),
        0.5,
        SIZE,
    )
    until(lambda: counted.fates.total() == 3)
    assert counted.fates == {(Way.LIVE, Fate.NEW): 2, (Way.LIVE, Fate.KNOWN): 1}


def test_a_full_line_refuses_at_once_and_what_waits_is_kept(
    writer: CaseWriter, keeper: FakeKeeper, counted: Counted
) -> None:
    keeper.free.clear()
    taken = [writer.offer(asked_frame(seed)) for seed in range(5)]
    assert taken == [True, True, True, False, False]
    assert counted.fates == {(Way.LIVE, Fate.REFUSED): 2}
    keeper.free.set()
    until(lambda: len(keeper.kept) == 3)
    until(lambda: writer.waiting == 0)
    assert writer.offer(asked_frame(9))


def test_the_line_is_bounded_in_bytes_but_takes_one_frame_of_any_size(
    keeper: FakeKeeper, counted: Counted
) -> None:
    writer = CaseWriter(keeper, counted, WriterLimits(max_frames=10, max_bytes=30_000))
    keeper.free.clear()
    writer.start()
    huge = asked_frame(1, scene(200, 200))
    assert huge.size_bytes == 120_000
    assert [writer.offer(frame) for frame in (huge, asked_frame(2), huge)] == [True, False, False]
    keeper.free.set()
    assert writer.stop(WAIT_S) == 0
    assert len(keeper.kept) == 1


def test_bare_pixels_become_a_jpeg_of_the_same_picture(writer: CaseWriter, keeper: FakeKeeper) -> None:
    pixels = scene(SIZE.height, SIZE.width)
    writer.offer(asked_frame(0, pixels))
    until(lambda: len(keeper.kept) == 1)
    kept = decode_image(keeper.kept[0][0].jpeg)
    assert kept.shape == pixels.shape
    assert np.abs(kept.astype(int) - pixels).mean() < 4


def test_a_clean_stop_keeps_what_waits_and_takes_nothing_more(
    writer: CaseWriter, keeper: FakeKeeper, counted: Counted
) -> None:
    keeper.free.clear()
    for seed in range(3):
        writer.offer(asked_frame(seed))
    threading.Timer(0.05, keeper.free.set).start()
    assert writer.stop(WAIT_S) == 0
    assert len(keeper.kept) == 3
    assert not writer.offer(asked_frame(9))
    assert counted.fates == {(Way.LIVE, Fate.NEW): 3, (Way.LIVE, Fate.REFUSED): 1}


def test_a_store_without_room_is_tried_again_until_it_has_some(
    writer: CaseWriter, keeper: FakeKeeper, counted: Counted, caplog: pytest.LogCaptureFixture
) -> None:
    keeper.fail_with = [Unavailable("no room left"), DeadlineExceeded("slow")]
    writer.offer(asked_frame(1))
    until(lambda: writer.trouble is not None)
    until(lambda: len(keeper.kept) == 1 and writer.trouble is None)
    until(lambda: counted.fates.total() == 1)
    assert counted.fates == {(Way.LIVE, Fate.NEW): 1}
    said = [record.getMessage() for record in caplog.records]
    assert said == ["cases cannot be kept for now: no room left", "cases are kept again"]


def test_a_stop_while_the_store_has_no_room_ends_in_time_and_tells_what_is_lost(
    keeper: FakeKeeper, counted: Counted
) -> None:
    keeper.fail_with = [Unavailable("no room left")] * 1000
    writer = CaseWriter(keeper, counted)
    writer.start()
    for seed in range(4):
        writer.offer(asked_frame(seed))
    until(lambda: writer.trouble is not None)
    assert writer.stop(0.3) == 4
    assert counted.fates == {(Way.LIVE, Fate.FAILED): 4}
    assert keeper.kept == []


@pytest.mark.parametrize(
    "error",
    [Malformed("no picture"), StoreCorrupt("rows make no sense"), OverflowError("nobody thought of it")],
)
def test_a_frame_that_cannot_be_kept_does_not_hold_up_the_next(
    writer: CaseWriter, keeper: FakeKeeper, counted: Counted, error: Exception
) -> None:
    keeper.fail_with = [error]
    writer.offer(asked_frame(1))
    writer.offer(asked_frame(2))
    until(lambda: len(keeper.kept) == 1)
    until(lambda: counted.fates.total() == 2)
    assert counted.fates == {(Way.LIVE, Fate.FAILED): 1, (Way.LIVE, Fate.NEW): 1}


def test_a_writer_that_breaks_says_so_and_refuses_from_then_on(
    writer: CaseWriter, keeper: FakeKeeper, counted: Counted, caplog: pytest.LogCaptureFixture
) -> None:
    keeper.fail_with = [SystemExit("a bug")]
    writer.offer(asked_frame(1))
    until(lambda: not writer.offer(asked_frame(2)))
    assert writer.trouble == "the writer broke, see the log"
    assert "a bug" in caplog.text
    writer.stop(WAIT_S)


def test_a_writer_that_never_started_stops_too(keeper: FakeKeeper, counted: Counted) -> None:
    writer = CaseWriter(keeper, counted)
    assert not writer.offer(asked_frame())
    assert writer.stop(1) == 0


def looked() -> Looked:
    detector = FakeDetector()
    [inference] = detector.detect([scene(SIZE.height, SIZE.width)])
    return Looked(inference, detector.ref, detector.labels, 1.0, 2.0)


def asked(answerer: KeepingAnswerer, **known: Any) -> DetectAnswer:
    question = DetectQuestion(**({"image": picture()} | known))
    return asyncio.run(answerer.answer(question, scene(SIZE.height, SIZE.width), looked(), 0.0))


def test_an_answer_merges_all_tiers_and_its_frame_is_kept_with_what_each_saw_alone(
    writer: CaseWriter, keeper: FakeKeeper, counted: Counted
) -> None:
    answerer = KeepingAnswerer(writer, counted, MergeSettings(cloud=2.0))
    agent, edge = tier_answer(Tier.AGENT), tier_answer(Tier.EDGE, [[1, 2, 30, 40]])
    answer = asked(
        answerer,
        frame_id=FrameId("gate", "boot-1", 7),
        captured_at=CAPTURED_AT,
        answers=(edge, agent),
        reasons=("weak_boxes", "audit"),
        send_probability=0.02,
    )
    assert answer.revision == Tier.CLOUD
    assert [one.tier for one in answer.answers] == [Tier.AGENT, Tier.EDGE, Tier.CLOUD]
    own = looked().inference.detections
    np.testing.assert_array_equal(answer.answers[2].detections.boxes_xyxy, own.boxes_xyxy)
    expected = merge_answers(answer.answers, answer.detections.model, MergeSettings(cloud=2.0))
    np.testing.assert_array_equal(answer.detections.boxes_xyxy, expected.boxes_xyxy)
    np.testing.assert_array_equal(answer.detections.scores, expected.scores)

    until(lambda: len(keeper.kept) == 1)
    [(case, size)] = keeper.kept
    assert (case.jpeg, size, case.frame_id.sequence, case.captured_at) == (picture(), SIZE, 7, CAPTURED_AT)
    assert (case.reasons, case.send_probability) == (("weak_boxes", "audit"), 0.02)
    assert [one.tier for one in case.answers] == [Tier.AGENT, Tier.EDGE, Tier.CLOUD]
    assert case.answers[1] is agent or case.answers[0] is agent


def test_an_answer_of_the_cloud_that_comes_with_the_question_gives_way_to_the_new_one(
    writer: CaseWriter, counted: Counted
) -> None:
    answer = asked(KeepingAnswerer(writer, counted), answers=(tier_answer(Tier.CLOUD),))
    [own] = answer.answers
    assert own.detections.model == FakeDetector().ref


def test_a_question_without_a_frame_is_answered_and_not_kept(
    writer: CaseWriter, keeper: FakeKeeper, counted: Counted
) -> None:
    assert asked(KeepingAnswerer(writer, counted)).revision == Tier.CLOUD
    assert counted.fates == {(Way.LIVE, Fate.UNNAMED): 1}
    writer.stop(WAIT_S)
    assert keeper.calls == 0


def test_what_a_question_leaves_out_is_filled_in(
    writer: CaseWriter, keeper: FakeKeeper, counted: Counted
) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    asked(KeepingAnswerer(writer, counted, now=lambda: now), frame_id=FrameId("a", "b", 1))
    until(lambda: len(keeper.kept) == 1)
    case = keeper.kept[0][0]
    assert (case.captured_at, case.reasons, case.send_probability) == (now, (ASKED,), 1.0)


def test_an_answer_does_not_wait_for_a_store_that_stands_still(
    writer: CaseWriter, keeper: FakeKeeper, counted: Counted
) -> None:
    keeper.free.clear()
    answerer = KeepingAnswerer(writer, counted)
    for number in range(6):
        assert asked(answerer, frame_id=FrameId("a", "b", number)).revision == Tier.CLOUD
    assert counted.fates == {(Way.LIVE, Fate.REFUSED): 3}
    assert keeper.kept == []


def test_a_receipt_says_whether_the_case_is_new(keeper: FakeKeeper, counted: Counted) -> None:
    with ThreadPoolExecutor(1) as threads:
        desk = StoreDesk(keeper, threads, counted)
        receipts = [asyncio.run(desk.deliver(hard_case(seed))) for seed in (1, 1, 2)]
    assert [receipt.is_new for receipt in receipts] == [True, False, True]
    assert receipts[0].id == hard_case(1).id
    assert counted.fates == {(Way.DELIVERED, Fate.NEW): 2, (Way.DELIVERED, Fate.KNOWN): 1}


def test_what_the_store_says_the_sender_hears(keeper: FakeKeeper, counted: Counted) -> None:
    keeper.fail_with = [Unavailable("no room left")]
    with ThreadPoolExecutor(1) as threads:
        desk = StoreDesk(keeper, threads, counted)
        with pytest.raises(Unavailable, match="no room left"):
            asyncio.run(desk.deliver(hard_case()))
    assert counted.fates == {(Way.DELIVERED, Fate.FAILED): 1}


def test_a_delivery_whose_sender_leaves_is_kept_all_the_same(keeper: FakeKeeper, counted: Counted) -> None:
    keeper.free.clear()

    async def leave(desk: StoreDesk) -> None:
        delivery = asyncio.create_task(desk.deliver(hard_case()))
        while not keeper.calls:
            await asyncio.sleep(0.005)
        delivery.cancel()
        with pytest.raises(asyncio.CancelledError):
            await delivery
        keeper.free.set()

    with ThreadPoolExecutor(1) as threads:
        asyncio.run(leave(StoreDesk(keeper, threads, counted)))
    assert len(keeper.kept) == 1
    assert counted.fates == {(Way.DELIVERED, Fate.NEW): 1}


def test_the_metrics_count_every_fate_by_its_way() -> None:
    registry = CollectorRegistry()
    metrics = CaseMetrics(registry)
    metrics.watch_waiting(lambda: 5)
    metrics.count(Way.LIVE, Fate.NEW)
    metrics.count(Way.DELIVERED, Fate.NEW)
    metrics.count(Way.DELIVERED, Fate.KNOWN)
    text = generate_latest(registry).decode()
    assert 'fovea_cases_total{fate="new",way="live"} 1.0' in text
    assert 'fovea_cases_total{fate="refused",way="live"} 0.0' in text
    assert "fovea_cases_waiting 5.0" in text
    assert metrics.totals() == {
        "cases_new": 2,
        "cases_known": 1,
        "cases_near": 0,
        "cases_unnamed": 0,
        "cases_refused": 0,
        "cases_failed": 0,
    }
