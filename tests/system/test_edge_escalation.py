"""An edge and the tier above it as real processes: asked, lost, slow, stopped, back; and cases on their way up."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from fovea.core.errors import FoveaError, RetryableError
from fovea.core.frame import FrameId
from fovea.core.hard_case import HardCase
from fovea.core.routing import Tier
from fovea.link.case_spool import CaseSpool
from fovea.runtime.images import encode_jpeg
from protos.calls import Delivery, DeliveryReceipt, DetectAnswer, DetectQuestion
from protos.codec import (
    answer_from_bytes,
    delivery_to_bytes,
    question_to_bytes,
    receipt_from_bytes,
)
from protos.rpc import CaseStub, DetectStub, error_of
from tests.builders import scene, tiny_bundle
from tests.system.service_process import FOVEA, WAIT_S, ServiceProcess, free_port, metrics_at, running

DEADLINE_S = 3.0
"""What a camera gives the edge here; a busy machine answers within it."""
JPEG = encode_jpeg(scene(120, 160, 3))
HARD = ", gate: {uncertain_boxes: 1000, weak_mass: 1000}"
"""Every frame in which the edge has any doubt is hard."""


class Site:
    """The files of two tiers: `cloud` is a second edge server, which is a cloud to the first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.edge_bundle = tiny_bundle(name="small").write(folder)
        self.cloud_bundle = tiny_bundle(name="large").write(folder)
        self.cloud_port = free_port()

    def cloud(self, *more: str) -> tuple[str | Path, ...]:
        return self._command("cloud.yaml", self.cloud_bundle, self.cloud_port, *more)

    def edge(self, *more: str, of_cloud: str = "", port: int = 0) -> tuple[str | Path, ...]:
        """Asks the cloud about every frame."""
        cloud = (
            f"cloud: {{address: '127.0.0.1:{self.cloud_port}', audit_share: 1.0, "
            f"budget: {{asks_per_s: 1000, bytes_per_s: 1000000000}}{of_cloud}}}"
        )
        return self._command("edge.yaml", self.edge_bundle, port, "metrics: 127.0.0.1:0", cloud, *more)

    def _command(self, name: str, bundle: Path, port: int, *more: str) -> tuple[str | Path, ...]:
        usual = (
            f"bundle: {bundle}",
            f"listen: 127.0.0.1:{port}",
            "device: cpu",
            "max_batch: 1",
            "log: {format: json}",
        )
        (self.folder / name).write_text("\n".join([*usual, *more, ""]))
        return FOVEA, "edge", "--config", self.folder / name


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def asked(address: str) -> tuple[DetectAnswer, float]:
    """The answer to one frame, and the seconds that it took."""
    begun_s = time.monotonic()
    with grpc.insecure_channel(address) as channel:
        reply = DetectStub(channel).detect(question_to_bytes(DetectQuestion(JPEG)), timeout=DEADLINE_S)
    return answer_from_bytes(reply), time.monotonic() - begun_s


def asked_until(address: str, revision: int) -> DetectAnswer:
    """The first answer with `revision`; none of those before may be missing or late."""
    ends_s = time.monotonic() + WAIT_S
    while True:
        answer, took_s = asked(address)
        assert took_s < DEADLINE_S
        assert answer.is_degraded == (answer.revision < Tier.CLOUD)
        if answer.revision == revision:
            return answer
        assert time.monotonic() < ends_s, f"no answer {revision} in {WAIT_S} s"
        time.sleep(0.05)


def escalations_at(address: str) -> dict[str, int]:
    """Frames by outcome."""
    counts: dict[str, int] = {}
    for name, value in metrics_at(address).items():
        if name.startswith("fovea_escalations_total{"):
            outcome = re.findall(r'outcome="(\w+)"', name)[0]
            counts[outcome] = counts.get(outcome, 0) + int(value)
    return counts


def said(process: ServiceProcess, text: str) -> int:
    return sum(text in line for line in process.said)


def test_an_edge_whose_cloud_was_never_there_answers_alone(site: Site) -> None:
    easy = ", gate: {uncertain_boxes: 0, weak_mass: 0}"
    with running(site.edge(of_cloud=easy)) as edge:
        serving = edge.event("serving")
        alone, _ = asked(serving["address"])
        assert (alone.revision, [each.tier for each in alone.answers]) == (1, [Tier.EDGE])
        assert not alone.is_degraded, "an audit that cannot be sent takes nothing from the answer"
        assert escalations_at(serving["metrics"]) == {"hindered": 1}


@contextmanager
def hard_frames(site: Site) -> Iterator[tuple[ServiceProcess, str, str]]:
    """An edge to which every frame is hard, its address and that of its metrics."""
    with running(site.edge(of_cloud=", timeout_ms: 1000" + HARD)) as edge:
        serving = edge.event("serving")
        yield edge, serving["address"], serving["metrics"]


def test_a_cloud_that_comes_late_dies_and_comes_back_is_used_whenever_it_is_there(site: Site) -> None:
    with hard_frames(site) as (edge, address, metrics):
        answer = asked_until(address, Tier.EDGE)
        assert [each.tier for each in answer.answers] == [Tier.EDGE]
        with running(site.cloud()) as cloud:
            cloud.event("serving")
            answer = asked_until(address, Tier.CLOUD)
            assert [(each.tier, each.detections.model.name) for each in answer.answers] == [
                (Tier.EDGE, "small"),
                (Tier.CLOUD, "large"),
            ]
            assert (answer.model.name, answer.detections.model.name) == ("small", "small+large")
            cloud.process.kill()
            cloud.end()
            asked_until(address, Tier.EDGE)
        with running(site.cloud()) as cloud:
            cloud.event("serving")
            asked_until(address, Tier.CLOUD)
        counts = escalations_at(metrics)
        assert counts["answered"] >= 2 and counts["hindered"] >= 1
        assert sum(counts.values()) == metrics_at(metrics)['fovea_stage_seconds_count{stage="infer"}']
        assert edge.stop() < 5.0 and edge.process.returncode == 0
    assert said(edge, "the cloud is down, answering without it") in (1, 2), "once for each time it went"
    assert said(edge, "the cloud is back") == 1
    assert said(edge, "Traceback") == 0


def test_a_cloud_that_stands_still_costs_nobody_an_answer(site: Site) -> None:
    with running(site.cloud()) as cloud, hard_frames(site) as (edge, address, _):
        cloud.event("serving")
        asked_until(address, Tier.CLOUD)
        cloud.process.send_signal(signal.SIGSTOP)
        try:
            for _ in range(5):
                answer, took_s = asked(address)
                assert answer.is_degraded and answer.revision == Tier.EDGE and took_s < DEADLINE_S
        finally:
            cloud.process.send_signal(signal.SIGCONT)
        asked_until(address, Tier.CLOUD)
        assert edge.stop() < 5.0 and edge.process.returncode == 0


# Cases


def case_of(seed: int) -> HardCase:
    jpeg = encode_jpeg(scene(120, 160, seed))
    return HardCase(
        jpeg, FrameId("gate", "boot", seed), datetime(2030, 1, 1, tzinfo=UTC), (), ("audit",), 0.02
    )


def delivered(address: str, case: HardCase) -> DeliveryReceipt:
    """The receipt for `case`, from a server that may have to come first."""
    ends_s = time.monotonic() + WAIT_S
    while True:
        try:
            with grpc.insecure_channel(address) as channel:
                reply = CaseStub(channel).deliver(delivery_to_bytes(Delivery(case)), timeout=DEADLINE_S)
            return receipt_from_bytes(reply)
        except grpc.RpcError as error:
            meant: FoveaError = error_of(error)  # type: ignore[arg-type]
            assert isinstance(meant, RetryableError) and time.monotonic() < ends_s, meant
            time.sleep(0.05)


def waiting_in(folder: Path) -> list[str]:
    """Ids of the cases that wait in the spool of a server that has ended."""
    spool = CaseSpool.open(folder)
    try:
        return [case.id for case in spool.oldest(100)]
    finally:
        spool.close()


def wait_for(holds: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < ends_s
        time.sleep(0.05)


def test_cases_survive_a_kill_of_the_edge_and_reach_the_cloud_when_it_comes(site: Site) -> None:
    of_cloud = ", spool: {folder: edge-spool, min_free_bytes: 0, upload_bytes_per_s: 10000000}"
    # The cloud here is an edge with a desk of its own: it has a spool, and nobody above to send on to.
    above = (
        f"cloud: {{address: '127.0.0.1:{free_port()}', spool: {{folder: cloud-spool, min_free_bytes: 0}}}}"
    )
    cases = [case_of(seed) for seed in range(4)]
    command = site.edge(of_cloud=of_cloud, port=free_port())
    with running(command) as edge:
        address = edge.event("serving")["address"]
        for case in cases[:3]:
            assert delivered(address, case).id == case.id
        edge.process.kill()
        edge.end()
    with running(command) as edge, running(site.cloud(above)) as cloud:
        serving = edge.event("serving")
        cloud.event("serving")
        for case in (cases[0], cases[3]):
            assert delivered(serving["address"], case).id == case.id
        wait_for(lambda: metrics_at(serving["metrics"])["fovea_spool_waiting"] == 0)
        uploads = metrics_at(serving["metrics"])
        assert uploads['fovea_case_uploads_total{outcome="delivered"}'] == 4
        assert edge.stop() < 5.0 and cloud.stop() < 5.0
        assert (edge.process.returncode, cloud.process.returncode) == (0, 0)
    assert sorted(waiting_in(site.folder / "cloud-spool")) == sorted(case.id for case in cases)
    assert waiting_in(site.folder / "edge-spool") == []


def test_an_edge_without_a_spool_takes_none(site: Site) -> None:
    with running(site.edge()) as edge:
        address = edge.event("serving")["address"]
        with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as refused:
            CaseStub(channel).deliver(delivery_to_bytes(Delivery(case_of(1))), timeout=DEADLINE_S)
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_the_cloud_of_the_product_answers_the_edge_and_keeps_what_comes(site: Site) -> None:
    config = site.folder / "cloud.yaml"
    usual = (f"bundle: {site.cloud_bundle}", f"listen: 127.0.0.1:{site.cloud_port}", "device: cpu")
    config.write_text("\n".join([*usual, "views: one", "store: {folder: cases}", "log: {format: json}", ""]))
    question = DetectQuestion(
        JPEG, FrameId("gate", "boot", 7), datetime(2030, 1, 1, tzinfo=UTC), reasons=("vanished_track",)
    )
    spooling = ", spool: {folder: edge-spool, min_free_bytes: 0, upload_bytes_per_s: 10000000}"
    with (
        running((FOVEA, "cloud", "--config", config)) as cloud,
        running(site.edge(of_cloud=spooling + HARD)) as edge,
    ):
        cloud.event("serving")
        serving = edge.event("serving")
        asked_until(serving["address"], Tier.CLOUD)
        with grpc.insecure_channel(serving["address"]) as channel:
            reply = DetectStub(channel).detect(question_to_bytes(question), timeout=DEADLINE_S)
        assert [each.tier for each in answer_from_bytes(reply).answers] == [Tier.EDGE, Tier.CLOUD]
        delivered(serving["address"], case_of(1))
        wait_for(lambda: metrics_at(serving["metrics"])["fovea_spool_waiting"] == 0)
        assert edge.stop() < 5.0 and cloud.stop() < 5.0
    listed = subprocess.run(
        [FOVEA, "cases", "list", "--store", site.folder / "cases"],
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_S,
        env=os.environ | {"COLUMNS": "200"},
    )
    ids = [hashlib.sha256(JPEG).hexdigest(), case_of(1).id]
    assert all(case_id[:8] in listed.stdout for case_id in ids), listed.stdout
