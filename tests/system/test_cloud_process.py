"""The cloud as a real process on a real model: asked, told cases, killed, started again, and looked into."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from cloud.cases.store import CaseStore, StoreAddress
from fovea import zoo
from fovea.core.arrays import ImageArray
from fovea.core.errors import Malformed, NotFound, TooLarge
from fovea.core.frame import FrameId, ImageSize
from fovea.core.hard_case import HardCase, TierAnswer
from fovea.core.merging import merge_answers
from fovea.core.routing import Tier
from fovea.runtime.images import encode_jpeg
from fovea.runtime.onnx_detector import OnnxDetector
from protos.calls import Delivery, DeliveryReceipt, DetectAnswer, DetectQuestion
from protos.codec import answer_from_bytes, delivery_to_bytes, question_to_bytes, receipt_from_bytes
from protos.rpc import CaseStub, DetectStub, error_of
from tests.builders import scene, tiny_bundle
from tests.system.service_process import (
    FOVEA,
    WAIT_S,
    ServiceProcess,
    free_port,
    health_at,
    metrics_at,
    running,
    until,
)
from tests.unit.hard_cases import assert_same_answer, hard_case, tier_answer

EXIT_IN_S = 5.0
WIDTH, HEIGHT = 320, 180
CAPTURED_AT = datetime(2025, 4, 1, 8, 30, tzinfo=UTC)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The smallest bundled model; a tiny one in a checkout that has no models yet."""
    try:
        return zoo.path_of("street-student-int8")
    except NotFound:
        return tiny_bundle().write(tmp_path_factory.mktemp("bundle"))


@dataclass(frozen=True, slots=True)
class Site:
    """A folder for one cloud: its configuration, and where it keeps cases."""

    config: Path
    store_folder: Path

    @contextmanager
    def store(self) -> Iterator[CaseStore]:
        """Its store, seen from another process than its own."""
        opened = CaseStore.open_existing(StoreAddress.in_folder(self.store_folder))
        try:
            yield opened
        finally:
            opened.close()

    @contextmanager
    def cloud(self) -> Iterator[tuple[ServiceProcess, Client, str]]:
        """A running cloud, somebody to ask it, and where it tells its metrics."""
        with running((FOVEA, "cloud", "--config", self.config)) as process:
            serving = process.event("serving")
            with grpc.insecure_channel(serving["address"]) as channel:
                yield process, Client(channel), serving["metrics"]

    def fovea(self, *words: object) -> str:
        """What `fovea ...` says."""
        done = subprocess.run(
            [str(FOVEA), *map(str, words)], capture_output=True, text=True, timeout=WAIT_S, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


class Client:
    """Asks and delivers over a channel; raises errors of the product."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._detect, self._cases = DetectStub(channel), CaseStub(channel)

    def ask(self, question: DetectQuestion) -> DetectAnswer:
        return answer_from_bytes(self._call(self._detect.detect, question_to_bytes(question)))

    def deliver(self, case: HardCase) -> DeliveryReceipt:
        return receipt_from_bytes(self._call(self._cases.deliver, delivery_to_bytes(Delivery(case))))

    def _call(self, method: Callable[..., bytes], request: bytes) -> bytes:
        try:
            return method(request, timeout=WAIT_S)
        except grpc.RpcError as error:
            raise error_of(error) from error  # type: ignore[arg-type]


@pytest.fixture
def site(bundle: Path, tmp_path: Path) -> Callable[..., Site]:
    def write(*more: str, model: str | None = None) -> Site:
        usual = (
            model or f"bundle: {bundle}",
            f"listen: 127.0.0.1:{free_port()}",
            "log: {format: json}",
            "device: cpu",
            "metrics: 127.0.0.1:0",
            "store: {folder: kept}",
        )
        config = tmp_path / "cloud.yaml"
        config.write_text("\n".join([*usual, *more, ""]))
        return Site(config, tmp_path / "kept")

    return write


def pixels_of(sequence: int) -> ImageArray:
    return scene(HEIGHT, WIDTH, sequence)


def question(sequence: int, **known: Any) -> DetectQuestion:
    usual: dict[str, Any] = {
        "image": encode_jpeg(pixels_of(sequence), 85),
        "frame_id": FrameId("gate", "boot-7", sequence),
        "captured_at": CAPTURED_AT + timedelta(seconds=sequence),
        "reasons": ("uncertain_boxes",),
        "send_probability": 0.25,
    }
    return DetectQuestion(**(usual | known))


def made_up(tier: Tier) -> TierAnswer:
    return tier_answer(tier, [[40, 50, 120, 150], [200, 20, 300, 160]], size=ImageSize(WIDTH, HEIGHT))


def test_a_day_in_the_life_of_a_cloud(site: Callable[..., Site], tmp_path: Path) -> None:
    """Asked live, told from a spool, counted, stopped; then its cases are listed, shown and exported."""
    here = site()
    agent, edge = made_up(Tier.AGENT), made_up(Tier.EDGE)
    with here.cloud() as (process, client, metrics):
        first = question(1, answers=(agent,), reasons=("weak_boxes", "audit"), send_probability=0.02)
        answer = client.ask(first)
        assert answer.revision == Tier.CLOUD
        assert [one.tier for one in answer.answers] == [Tier.AGENT, Tier.CLOUD]
        assert_same_answer(answer.answers[0], agent)
        merged = merge_answers(answer.answers, answer.detections.model)
        np.testing.assert_array_equal(merged.boxes_xyxy, answer.detections.boxes_xyxy)
        np.testing.assert_array_equal(merged.scores, answer.detections.scores)
        assert client.ask(DetectQuestion(encode_jpeg(pixels_of(9)))).revision == Tier.CLOUD

        assert isinstance(first.image, bytes)
        spooled = HardCase(
            first.image, FrameId("gate", "boot-7", 1), CAPTURED_AT, (agent, edge), ("vanished_track",), 0.5
        )
        until(lambda: metrics_at(metrics)['fovea_cases_total{fate="new",way="live"}'] == 1, "kept")
        assert client.deliver(spooled) == DeliveryReceipt(spooled.id, is_new=False)
        other = hard_case(2, camera="yard")
        assert client.deliver(other) == DeliveryReceipt(other.id, is_new=True)
        assert client.deliver(other) == DeliveryReceipt(other.id, is_new=False)

        counts = metrics_at(metrics)
        assert counts['fovea_cases_total{fate="unnamed",way="live"}'] == 1
        assert counts['fovea_cases_total{fate="new",way="delivered"}'] == 1
        assert counts['fovea_cases_total{fate="known",way="delivered"}'] == 2
        facts = health_at(metrics)
        assert (facts["healthy"], facts["cases_new"], facts["trouble"]) == (True, 2, None)
        assert process.stop() < EXIT_IN_S
        assert process.process.returncode == 0

    with here.store() as store:
        assert store.count() == 2
        case = store.find(spooled.id)
        assert case is not None
        assert store.load_image(case) == first.image
        assert (case.frame_id, case.captured_at) == (first.frame_id, first.captured_at)
        assert (case.reasons, case.is_audit) == (("weak_boxes", "audit", "vanished_track"), True)
        assert case.send_probability == 0.02
        for kept, given in zip(case.answers, (agent, edge, answer.answers[1]), strict=True):
            assert_same_answer(kept, given)

    lines = here.fovea("cases", "list", "--config", here.config, "--json").splitlines()
    assert [json.loads(line)["camera"] for line in lines] == ["gate", "yard"]
    shown = json.loads(here.fovea("cases", "show", spooled.id[:10], "-c", here.config, "--json"))
    assert [one["tier"] for one in shown["answers"]] == ["agent", "edge", "cloud"]
    out = tmp_path / "out"
    here.fovea("cases", "export", "-c", here.config, "--to", out, "--answers", "cloud")
    coco = json.loads((out / "annotations.json").read_text())
    assert [image["case_id"] for image in coco["images"]] == [spooled.id]
    assert len(coco["annotations"]) == len(answer.answers[1].detections)


def test_what_has_a_receipt_survives_a_kill_and_is_not_new_again(site: Callable[..., Site]) -> None:
    here = site()
    cases = [hard_case(seed, camera=f"camera-{seed % 3}") for seed in range(60)]
    receipts: dict[str, bool] = {}

    with here.cloud() as (process, client, _), ThreadPoolExecutor(4) as senders:

        def deliver(case: HardCase) -> None:
            receipt = client.deliver(case)
            receipts[receipt.id] = receipt.is_new
            if len(receipts) >= 15:
                process.process.kill()

        sending = [senders.submit(deliver, case) for case in cases]
        failed = sum(one.exception(WAIT_S) is not None for one in sending)
        process.kill()
    assert 0 < failed < len(cases)
    assert len(receipts) == len(cases) - failed
    safe = set(receipts)

    with here.store() as store:
        kept = {case.id for case in store.walk()}
        assert safe <= kept
        assert all(store.load_image(case) for case in store.walk())
    with here.cloud() as (process, client, _):
        again = {case.id: client.deliver(case).is_new for case in cases}
        assert {digest for digest, is_new in again.items() if not is_new} == kept
        process.stop()
    with here.store() as store:
        assert store.count() == len(cases)


def test_a_clean_stop_keeps_every_frame_that_was_answered(site: Callable[..., Site]) -> None:
    here = site()
    with here.cloud() as (process, client, _), ThreadPoolExecutor(4) as askers:
        answers = list(askers.map(lambda sequence: client.ask(question(sequence)), range(24)))
        assert process.stop() < EXIT_IN_S
        assert process.event("stopped")["served"] == 24
    assert {answer.revision for answer in answers} == {2}
    with here.store() as store:
        assert sorted(case.frame_id.sequence for case in store.walk()) == list(range(24))
        assert all(case.find_answer(Tier.CLOUD) for case in store.walk())


def test_a_frame_that_comes_as_pixels_and_as_a_file_is_one_case(site: Callable[..., Site]) -> None:
    here = site()
    with here.cloud() as (process, client, metrics):
        asked = question(5, image=pixels_of(5))
        client.ask(asked)
        until(lambda: metrics_at(metrics)['fovea_cases_total{fate="new",way="live"}'] == 1, "kept")
        assert asked.frame_id is not None and asked.captured_at is not None
        spooled = HardCase(
            encode_jpeg(pixels_of(5), 80),
            asked.frame_id,
            asked.captured_at,
            (made_up(Tier.AGENT),),
            ("audit",),
        )
        assert client.deliver(spooled) == DeliveryReceipt(spooled.id, is_new=False)
        process.stop()
    with here.store() as store:
        [case] = store.walk()
        assert [answer.tier for answer in case.answers] == [Tier.AGENT, Tier.CLOUD]
        found = store.find(spooled.id)
        assert found is not None and found.id == case.id


def test_what_is_no_picture_is_refused_and_nothing_of_it_is_kept(site: Callable[..., Site]) -> None:
    here = site("limits: {max_pixels: 100000}")
    with here.cloud() as (process, client, metrics):
        whole = encode_jpeg(pixels_of(1))
        for jpeg, error in (
            (b"<html>nothing here</html>", Malformed),
            (whole[: len(whole) // 2], Malformed),
            (encode_jpeg(scene(400, 400)), TooLarge),
        ):
            with pytest.raises(error):
                client.deliver(hard_case(jpeg=jpeg))
            with pytest.raises(error):
                client.ask(question(1, image=jpeg))
        assert health_at(metrics)["cases_new"] == 0
        assert client.ask(question(1)).revision == Tier.CLOUD
        process.stop()
    with here.store() as store:
        assert store.count() == 1


def test_a_disk_that_takes_nothing_stops_no_answer_and_is_made_up_for_when_it_does(
    site: Callable[..., Site],
) -> None:
    here = site()
    with here.cloud() as (process, client, metrics):
        images = here.store_folder / "images"
        images.write_text("in the way")
        answers = [client.ask(question(sequence)) for sequence in range(3)]
        assert {answer.revision for answer in answers} == {2}
        assert "cannot keep" in process.event("cases cannot be kept for now")["event"]
        until(lambda: not health_at(metrics)["healthy"], "unhealthy while nothing can be kept")
        facts = health_at(metrics)
        assert facts["state"] == "troubled" and facts["trouble"]
        images.unlink()
        process.event("cases are kept again")
        until(lambda: metrics_at(metrics)['fovea_cases_total{fate="new",way="live"}'] == 3, "kept")
        until(lambda: health_at(metrics)["healthy"], "healthy again")
        assert health_at(metrics)["trouble"] is None
        process.stop()
    with here.store() as store:
        assert store.count() == 3


def test_several_models_answer_as_one(site: Callable[..., Site], tmp_path: Path) -> None:
    paths = [tiny_bundle(name=name).write(tmp_path) for name in ("one", "other")]
    with site(model=f"bundles: [{paths[0]}, {paths[1]}]").cloud() as (process, client, _):
        answer = client.ask(question(1))
        assert answer.model.name == "one+other"
        assert process.stop() < EXIT_IN_S


def test_the_large_bundled_model_answers_with_both_its_views(site: Callable[..., Site]) -> None:
    try:
        path = zoo.path_of("street-cloud")
    except NotFound:
        pytest.skip("the models are not in this checkout")
    local = OnnxDetector.open(path, device="cpu")
    [expected] = local.detect([pixels_of(3)])
    local.close()
    with site(model="bundle: zoo:street-cloud").cloud() as (process, client, _):
        answer = client.ask(question(3, image=pixels_of(3), wants_candidates=True))
        assert answer.model == expected.detections.model
        assert answer.candidates is not None
        np.testing.assert_allclose(
            answer.candidates.class_scores, expected.candidates.class_scores, atol=1e-4
        )
        process.stop()


def test_a_store_that_is_broken_is_an_error_in_one_sentence(site: Callable[..., Site]) -> None:
    here = site()
    here.store_folder.mkdir()
    (here.store_folder / "cases.sqlite").write_bytes(b"no database at all" * 100)
    with running((FOVEA, "cloud", "--config", here.config)) as process:
        assert process.end() == 70
        assert "fovea: store sqlite:///" in "\n".join(process.said)
        assert "Traceback" not in "\n".join(process.said)
