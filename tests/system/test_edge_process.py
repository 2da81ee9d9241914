"""The edge server as a real process on a real model: asked, counted, stopped, started again, left by its model."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fovea import zoo
from fovea.core.detections import Inference
from fovea.core.errors import FoveaError, Malformed, NotFound, Unavailable
from fovea.link.remote_detector import PixelEncoding, RemoteDetector, RemoteSettings
from fovea.runtime.images import encode_jpeg
from fovea.runtime.onnx_detector import OnnxDetector
from protos.calls import DetectQuestion
from protos.codec import description_from_bytes, description_request_to_bytes, question_to_bytes
from protos.rpc import DETECT_SERVICE, DetectStub
from tests.builders import scene, tiny_bundle
from tests.system.service_process import FOVEA, WAIT_S, free_port, metrics_at, running

EXIT_IN_S = 5.0
PATIENT = RemoteSettings(timeout_s=30.0, encoding=PixelEncoding.PNG)
FRAMES = [scene(120 + 40 * number, 160 + 90 * number, number) for number in range(4)]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled student; a tiny model in a checkout that has no models yet."""
    try:
        return zoo.path_of("street-student-int8")
    except NotFound:
        return tiny_bundle().write(tmp_path_factory.mktemp("bundle"))


@pytest.fixture
def config(bundle: Path, tmp_path: Path) -> Callable[..., Path]:
    """Writes a configuration for a free port, with `more` in it."""

    def write(*more: str) -> Path:
        file = tmp_path / "edge.yaml"
        usual = (f"bundle: {bundle}", f"listen: 127.0.0.1:{free_port()}", "log: {format: json}")
        file.write_text("\n".join([*usual, *more, ""]))
        return file

    return write


def asked_by_two(remote: RemoteDetector) -> list[list[Inference]]:
    """All frames, three times, by two threads at once."""
    with ThreadPoolExecutor(2) as clients:
        calls = [clients.submit(remote.detect, FRAMES) for _ in range(6)]
        return [call.result(WAIT_S) for call in calls]


def assert_same(far: Inference, near: Inference) -> None:
    """Equal but for the rounding that a batch of another size brings."""
    assert far.detections.model == near.detections.model
    assert far.detections.image_size == near.detections.image_size
    np.testing.assert_array_equal(far.detections.class_ids, near.detections.class_ids)
    np.testing.assert_allclose(far.detections.scores, near.detections.scores, atol=1e-4)
    np.testing.assert_allclose(far.detections.boxes_xyxy, near.detections.boxes_xyxy, atol=0.05)
    assert len(far.candidates) == len(near.candidates)


def outcomes_at(address: str, calls: int) -> dict[str, float]:
    """Calls by outcome, when `calls` are counted: a client knows that a call is over a moment before its server."""
    ends_s = time.monotonic() + WAIT_S
    while True:
        counts: Counter[str] = Counter()
        for name, value in metrics_at(address).items():
            if name.startswith("fovea_requests_total{"):
                counts[re.findall(r'outcome="(\w+)"', name)[0]] += int(value)
        if sum(counts.values()) >= calls or time.monotonic() > ends_s:
            return {outcome: count for outcome, count in counts.items() if count}
        time.sleep(0.05)


def test_a_day_in_the_life_of_an_edge_server(config: Callable[..., Path], bundle: Path) -> None:
    """Asked by two threads, counted, healthy, stopped, and used again by the same client when it is back."""
    local = OnnxDetector.open(bundle, device="cpu")
    expected = local.detect(FRAMES)
    command = (FOVEA, "edge", "--config", config("metrics: 127.0.0.1:0", "device: cpu", "max_batch: 4"))
    with running(command) as edge:
        serving = edge.event("serving")
        assert (serving["model"], serving["device"]) == (str(local.ref), "cpu")
        address = serving["address"]
        remote = RemoteDetector.connect(address, PATIENT)
        for answers in asked_by_two(remote):
            for far, near in zip(answers, expected, strict=True):
                assert_same(far, near)

        with pytest.raises(Malformed):
            remote.ask(DetectQuestion(encode_jpeg(FRAMES[3])[:-800]), WAIT_S)
        with grpc.insecure_channel(address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            status = health.Check(
                health_pb2.HealthCheckRequest(service=DETECT_SERVICE), timeout=WAIT_S
            ).status
            assert status == health_pb2.HealthCheckResponse.SERVING
            huge = question_to_bytes(DetectQuestion(b"\xff" * 17_000_000))
            with pytest.raises(grpc.RpcError) as refused:
                DetectStub(channel).detect(huge, timeout=WAIT_S)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

        calls = 6 * len(FRAMES) + 2
        assert outcomes_at(serving["metrics"], calls) == {"served": calls - 2, "refused": 2}
        metrics = metrics_at(serving["metrics"])
        assert (
            metrics["fovea_batch_size_sum"]
            == metrics['fovea_stage_seconds_count{stage="infer"}']
            == calls - 2
        )

        with urllib.request.urlopen(f"http://{serving['metrics']}/healthz", timeout=WAIT_S) as told:
            facts = json.load(told)
        assert (facts["healthy"], facts["state"], facts["address"]) == (True, "serving", address)

        assert edge.stop() < EXIT_IN_S
        assert edge.process.returncode == 0
        stopped = edge.event("stopped")
        assert {name: stopped[name] for name in ("served", "refused", "failed")} == {
            "served": calls - 2,
            "refused": 2,
            "failed": 0,
        }

    with pytest.raises(Unavailable):
        remote.detect(FRAMES[:1])
    with running(command) as again:
        again.event("serving")
        ends_s = time.monotonic() + WAIT_S
        while True:
            try:
                [far] = remote.detect(FRAMES[:1])
                break
            except Unavailable:
                assert time.monotonic() < ends_s
                time.sleep(0.1)
        assert_same(far, expected[0])
        assert again.stop() < EXIT_IN_S
    remote.close()
    local.close()


def test_a_crowd_is_counted_to_the_last_call_and_a_stop_in_the_midst_of_it_is_quick(
    config: Callable[..., Path],
) -> None:
    jpeg, is_over = encode_jpeg(scene(480, 640)), threading.Event()

    def outcome_of(remote: RemoteDetector, timeout_s: float) -> str:
        try:
            remote.ask(DetectQuestion(jpeg), timeout_s)
        except FoveaError as error:
            return type(error).__name__
        return "served"

    def hurry(remote: RemoteDetector, timeout_s: float) -> None:
        while not is_over.is_set():
            outcome_of(remote, timeout_s)

    file = config("metrics: 127.0.0.1:0", "device: cpu", "queue: {max_items: 2}", "max_batch: 2")
    with running((FOVEA, "edge", "--config", file)) as edge, ThreadPoolExecutor(12) as clients:
        serving = edge.event("serving")
        remote = RemoteDetector.connect(serving["address"], PATIENT)
        calls = [clients.submit(outcome_of, remote, 30.0) for _ in range(300)]
        asked = Counter(call.result(WAIT_S) for call in calls)
        counted = outcomes_at(serving["metrics"], 300)
        assert counted == {"served": asked["served"], "refused": asked["Overloaded"]}
        assert asked["served"] > 0 and asked["Overloaded"] > 0

        late = [clients.submit(hurry, remote, timeout_s) for timeout_s in (0.03, 0.1, 0.5, 5.0) * 3]
        time.sleep(1.0)
        assert edge.stop() < EXIT_IN_S
        assert edge.process.returncode == 0
        assert edge.event("stopped")["failed"] == 0
        is_over.set()
        for call in late:
            call.result(WAIT_S)
        remote.close()


def test_a_cuda_device_that_is_not_there_is_an_error_in_one_sentence(config: Callable[..., Path]) -> None:
    with running((FOVEA, "edge", "--config", config("device: cuda:7"))) as edge:
        assert edge.end() == 2
        assert "fovea: device cuda:7: " in "\n".join(edge.said)
        assert "Traceback" not in "\n".join(edge.said)


def test_a_port_that_is_taken_is_an_error_worth_another_try(config: Callable[..., Path]) -> None:
    file = config("device: cpu")
    port = int(re.findall(r"listen: 127\.0\.0\.1:(\d+)", file.read_text())[0])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with running((FOVEA, "edge", "--config", file)) as edge:
            assert edge.end() == 75
            assert f"cannot listen on 127.0.0.1:{port}" in "\n".join(edge.said)


def test_systemd_hears_that_it_is_ready_alive_and_stopping(
    config: Callable[..., Path], tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(WAIT_S)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        with running((FOVEA, "edge", "--config", config("device: cpu")), environment) as edge:
            heard = [systemd.recv(1000).decode() for _ in range(4)]
            edge.stop()
            systemd.settimeout(0.1)
            with suppress(TimeoutError):
                while True:
                    heard.append(systemd.recv(1000).decode())
    assert heard[0].startswith("READY=1\nSTATUS=serving ")
    assert heard[1:4] == ["WATCHDOG=1"] * 3
    assert "STOPPING=1" in heard


HANGS = """
import sys, threading, time
from pathlib import Path
from edge_server.config import load_config
from fovea.process.logs import configure_logs
from fovea.serving.latency_model import LatencyModel
from fovea.serving.run_server import ServingParts, run_server
from fovea.serving.server import ServerSettings
from fovea.serving.serving_metrics import ServingMetrics
from tests.fakes import FakeDetector

class Hanging(FakeDetector):
    def detect(self, frames):
        threading.Event().wait()

config = load_config(Path(sys.argv[1]))
configure_logs(config.log)
detector = Hanging()
settings = ServerSettings(grace_s=0.5, stop_s=0.5)
metrics = ServingMetrics(detector.ref, "cpu")
run_server(config, ServingParts("edge_server", detector, "cpu", settings, LatencyModel(), metrics))
"""


def test_a_model_that_hangs_starves_the_watchdog_and_does_not_keep_the_process_alive(
    config: Callable[..., Path], tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        environment = {
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "200000",
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        }
        command = (sys.executable, "-c", HANGS, config("stuck_after_s: 0.5"))
        with running(command, environment) as edge, ThreadPoolExecutor(1) as client:
            remote = RemoteDetector.connect(edge.event("serving")["address"], PATIENT)
            call = client.submit(remote.detect, [FRAMES[0]])
            assert edge.event("the model hangs")["busy_s"] >= 0.5
            systemd.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    systemd.recv(1000)  # what was sent before it hung
            systemd.settimeout(0.5)
            with pytest.raises(TimeoutError):
                systemd.recv(1000)
            assert edge.stop() < EXIT_IN_S
            assert edge.process.returncode == 70
            assert type(call.exception(WAIT_S)) is Unavailable
            remote.close()


def make_certificates(folder: Path) -> None:
    """ca.pem, edge.pem/key and camera.pem/key, signed by that authority; stranger.pem/key, by itself."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for name in ("ca", "stranger"):
        out = ("-keyout", f"{name}.key", "-out", f"{name}.pem")
        openssl("req", "-x509", *new_key, *out, "-subj", f"/CN={name}", "-days", "2")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1")
    for name in ("edge", "camera"):
        openssl("req", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signer = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names", "-days", "2")
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signer)


def test_with_certificates_only_who_shows_one_of_the_same_authority_is_answered(
    config: Callable[..., Path], tmp_path: Path
) -> None:
    make_certificates(tmp_path)

    def described(credentials: grpc.ChannelCredentials | None, address: str) -> str:
        channel = (
            grpc.insecure_channel(address)
            if credentials is None
            else grpc.secure_channel(address, credentials)
        )
        with channel:
            answer = DetectStub(channel).describe(description_request_to_bytes(), timeout=5.0)
        return description_from_bytes(answer).model.name

    def credentials_of(name: str) -> grpc.ChannelCredentials:
        parts = [(tmp_path / file).read_bytes() for file in ("ca.pem", f"{name}.key", f"{name}.pem")]
        return grpc.ssl_channel_credentials(*parts)

    file = config("device: cpu", "tls: {ca: ca.pem, cert: edge.pem, key: edge.key}")
    with running((FOVEA, "edge", "--config", file)) as edge:
        address = edge.event("serving")["address"]
        assert described(credentials_of("camera"), address)
        for credentials in (credentials_of("stranger"), None):
            with pytest.raises(grpc.RpcError) as refused:
                described(credentials, address)
            assert refused.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        edge.stop()
