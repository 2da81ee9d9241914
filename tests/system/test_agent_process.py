"""The camera agent as a real process, with a real edge, a real broker and a model: a day with losses, and its end."""

from __future__ import annotations

import json
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
import yaml
from paho.mqtt.enums import CallbackAPIVersion

from fovea.link.case_spool import CaseSpool
from fovea.runtime.images import encode_jpeg
from fovea.sim.source import SimSource
from tests.broker_process import broker
from tests.system.service_process import FOVEA, ServiceProcess, free_port, metrics_at, running

WAIT_S = 60.0
EXIT_IN_S = 5.0
ASKS_ALWAYS = {"ask_from": 0.0001}


def until(holds: Callable[[], Any], what: str) -> Any:
    """What `holds` gives, as soon as it is true."""
    ends_s = time.monotonic() + WAIT_S
    while not (value := holds()):
        assert time.monotonic() < ends_s, f"it never came: {what}"
        time.sleep(0.05)
    return value


class Listener:
    """Hears everything under fovea/#."""

    def __init__(self, port: int) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2)
        self._client.on_connect = lambda client, *_: client.subscribe("fovea/#", qos=1)
        self._client.on_message = lambda _client, _data, message: self.heard.append(
            (message.topic, bytes(message.payload))
        )
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    def results(self) -> list[dict[str, Any]]:
        return [json.loads(payload) for topic, payload in list(self.heard) if topic.endswith("/detections")]

    def last(self, topic: str) -> bytes | None:
        return next((payload for heard, payload in reversed(self.heard) if heard == topic), None)

    def say(self, topic: str, payload: str) -> None:
        self._client.publish(topic, payload, qos=1)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@contextmanager
def listening(port: int) -> Iterator[Listener]:
    listener = Listener(port)
    try:
        yield listener
    finally:
        listener.close()


@pytest.fixture(scope="module")
def street(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with six pictures of the street, half a second apart."""
    folder = tmp_path_factory.mktemp("street")
    source = SimSource("sim://street-v1/day?fps=2")
    for number in range(6):
        (folder / f"{number:02}.jpg").write_bytes(encode_jpeg(source.read()[0]))
    return folder


def write_config(folder: Path, camera: Mapping[str, Any], **more: Any) -> Path:
    config = {
        "device": "porch",
        "bundle": "zoo:street-student-int8",
        "cameras": [{"name": "front", "fps": 5.0, **camera}],
        "audit_share": 0.0,
        "log": {"format": "json"},
        **more,
    }
    file = folder / "agent.yaml"
    file.write_text(yaml.safe_dump(config))
    return file


def edge_config(folder: Path, port: int) -> Path:
    """An edge that takes cases for a cloud that is not there."""
    config = {
        "bundle": "zoo:street-edge",
        "listen": f"127.0.0.1:{port}",
        "device": "cpu",
        "log": {"format": "json"},
        "cloud": {
            "address": f"127.0.0.1:{free_port()}",
            "spool": {"folder": "edge-spool", "min_free_bytes": 0},
        },
    }
    file = folder / "edge.yaml"
    file.write_text(yaml.safe_dump(config))
    return file


def said(process: ServiceProcess, words: str) -> list[str]:
    """What it logged that begins with these words."""
    events = []
    for line in list(process.said):
        with suppress(ValueError):
            events.append(str(json.loads(line)["event"]))
    return [event for event in events if event.startswith(words)]


def healthz(address: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://{address}/healthz", timeout=WAIT_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_day_with_an_edge_that_dies_and_comes_back_and_a_broker_that_restarts(
    street: Path, tmp_path: Path
) -> None:
    port = free_port()
    edge_command = (FOVEA, "edge", "--config", edge_config(tmp_path, port))
    with broker() as mqtt_broker, listening(mqtt_broker.port) as listener:
        file = write_config(
            tmp_path,
            {"url": str(street), "loop": True},
            edge={"address": f"127.0.0.1:{port}", "timeout_ms": 5000.0},
            mqtt={"port": mqtt_broker.port},
            gate=ASKS_ALWAYS,
            budget={"asks_per_s": 100.0},
            spool={"folder": "spool", "min_free_bytes": 0},
            metrics="127.0.0.1:0",
        )
        with running((FOVEA, "agent", "--config", file)) as agent:
            address = agent.event("running")["metrics"]
            with running(edge_command) as edge:
                first = until(
                    lambda: [each for each in listener.results() if each["revision"] == 1],
                    "an answer of the edge",
                )[0]
                edge.process.kill()
            own = next(each for each in listener.results() if each["sequence"] == first["sequence"])
            assert (own["revision"], own["tier"], own["degraded"]) == (0, "agent", None)
            assert own["decision"]["route"] == "edge"
            assert first["tier"] == "edge" and "street-edge" in first["model"]["name"], "merged of both"
            assert first["detections"] and first["frame"] == {"width": 960, "height": 540}
            assert listener.last("fovea/porch/available") == b"online"
            assert json.loads(listener.last("fovea/porch/cameras/front/status") or b"")["status"] == "online"

            until(
                lambda: [each["degraded"] for each in listener.results()][-5:] == ["edge_lost"] * 5,
                "answers that say that the edge is lost",
            )
            assert len(said(agent, "edge lost, answering locally")) == 1
            assert healthz(address)[0] == 200

            with running(edge_command) as edge:
                lost = listener.results()[-1]["sequence"]
                until(
                    lambda: [
                        each
                        for each in listener.results()
                        if each["revision"] == 1 and each["sequence"] > lost
                    ],
                    "an answer of the edge that is back",
                )
                [back] = until(lambda: said(agent, "edge back after"), "a word about its return")
                assert "frames degraded" in back

                listener.say("fovea/porch/cameras/front/gate/set", "OFF")
                until(
                    lambda: listener.results()[-1]["decision"]["reasons"] == ["switched_off"],
                    "a gate switched off",
                )
                until(
                    lambda: metrics_at(address).get('fovea_uploads{what="delivered"}'),
                    "a case that the edge took",
                )
                edge.process.kill()
            figures = metrics_at(address)
            assert figures['fovea_answers_total{camera="front",tier="edge"}'] >= 2
            assert figures["fovea_healthy"] == 1
            assert figures['fovea_forecasts{what="edge_ms"}'] > 0
            assert figures['fovea_resources{what="process_memory_bytes"}'] > 10_000_000
            assert figures['fovea_idle_level{camera="front"}'] == 0
            assert (
                sum(v for name, v in figures.items() if name.startswith("fovea_frames_total"))
                == figures['fovea_answers_total{camera="front",tier="agent"}']
            )

            mqtt_broker.restart()
            with listening(mqtt_broker.port) as again:
                until(again.results, "results after the broker's restart")
                assert agent.stop() < EXIT_IN_S
                assert agent.process.returncode == 0
                until(lambda: again.last("fovea/porch/available") == b"stopped", "its goodbye")
            agent.event("stopped")
    spool = CaseSpool.open(tmp_path / "spool")
    assert spool.counts.waiting + spool.counts.delivered == 6, "each of the six pictures is kept once"
    assert spool.counts.delivered >= 1 and spool.counts.damaged == 0
    spool.close()


def test_a_file_is_answered_frame_by_frame_and_the_process_ends_by_itself(
    street: Path, tmp_path: Path
) -> None:
    file = write_config(
        tmp_path,
        {"url": str(street), "realtime": False, "motion": {"enabled": False}},
        exit_when_finished=True,
        results_file="results.jsonl",
        stats_file="stats.json",
    )
    with running((FOVEA, "agent", "--config", file)) as agent:
        assert agent.end() == 0
    results = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [each["sequence"] for each in results] == list(range(6))
    assert all(each["detections"] for each in results)
    stats = json.loads((tmp_path / "stats.json").read_text())
    [camera] = stats["cameras"]
    assert (camera["frames"], camera["answers"]["agent"], camera["condition"]) == (6, 6, "finished")
    assert stats["decide_cpu_ms"]["count"] == 6


def test_a_camera_that_never_answers_is_no_hang_and_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        file = write_config(
            tmp_path,
            {"url": f"rtsp://127.0.0.1:{silent.getsockname()[1]}/stream"},
            metrics="127.0.0.1:0",
            stuck_after_s=0.2,
        )
        with running((FOVEA, "agent", "--config", file)) as agent:
            address = agent.event("running")["metrics"]
            time.sleep(0.5)  # longer than a frame may take
            status, facts = healthz(address)
            assert (status, facts["cameras"]) == (200, {"front": "connecting"})
            assert agent.stop() < EXIT_IN_S
            assert agent.process.returncode == 0


def test_systemd_hears_that_it_is_ready_alive_and_stopping(street: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(WAIT_S)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "400000"}
        file = write_config(tmp_path, {"url": str(street), "loop": True})
        with running((FOVEA, "agent", "--config", file), environment) as agent:
            heard = [systemd.recv(1000).decode() for _ in range(4)]
            agent.stop()
            systemd.settimeout(0.1)
            with suppress(TimeoutError):
                while True:
                    heard.append(systemd.recv(1000).decode())
    assert heard[0].startswith("READY=1\nSTATUS=running street-student-int8")
    assert heard[1:4] == ["WATCHDOG=1"] * 3
    assert "STOPPING=1" in heard


HANGS = """
import sys, threading
from pathlib import Path
from edge_agent.bootstrap import build
from edge_agent.config import load_config
from edge_agent.run import run_built
from fovea.process.logs import configure_logs
from tests.fakes import FakeDetector

class Hanging(FakeDetector):
    def detect(self, frames):
        threading.Event().wait()

config = load_config(Path(sys.argv[1]))
configure_logs(config.log)
run_built(config, build(config, Hanging()))
"""


def test_a_model_that_hangs_starves_the_watchdog_and_does_not_keep_the_process_alive(
    street: Path, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        environment = {
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "400000",
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        }
        file = write_config(
            tmp_path, {"url": str(street), "loop": True}, stuck_after_s=0.5, metrics="127.0.0.1:0"
        )
        with running((sys.executable, "-c", HANGS, file), environment) as agent:
            address = agent.event("running")["metrics"]
            agent.event("a frame hangs")
            assert healthz(address)[0] == 503
            systemd.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    systemd.recv(1000)  # what was sent before it hung
            systemd.settimeout(0.7)
            with pytest.raises(TimeoutError):
                systemd.recv(1000)
            assert agent.stop() < EXIT_IN_S
            assert agent.process.returncode == 70


def test_mistakes_in_its_configuration_are_told_at_once_without_a_secret(tmp_path: Path) -> None:
    file = write_config(tmp_path, {"url": "rtsp://me:hush@camera/1", "password": 12345, "fpz": 3})
    with running((FOVEA, "agent", "--config", file)) as agent:
        assert agent.end() == 2
    told = "\n".join(agent.said)
    assert "cameras.0.fpz: no such key" in told and "cameras.0.url: expected no credentials" in told
    assert "hush" not in told and "12345" not in told and "Traceback" not in told
