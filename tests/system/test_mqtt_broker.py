"""The MQTT publisher against real brokers: who is there, what stays, what comes back after a failure."""

from __future__ import annotations

import logging
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edge_agent.publish.label_names import LabelNames
from edge_agent.publish.messages import status_message
from edge_agent.publish.mqtt_publisher import MqttPublisher
from edge_agent.publish.publishing import CameraCondition, CameraStatus, Feature, ObjectCounts
from fovea.mqtt.names import client_id_of
from fovea.mqtt.settings import MqttSettings, MqttTls
from tests.broker_process import BrokerProcess, broker, free_port, running
from tests.mqtt_listener import Listener, listening, wait_until
from tests.published_values import NOON, some_event, some_result, some_track, some_tracking

PREFIX = "fovea/box"
ONLINE = CameraStatus(CameraCondition.ONLINE, NOON)
MOSQUITTO = shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
needs_mosquitto = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")


@pytest.fixture
def amqtt() -> Iterator[BrokerProcess]:
    pytest.importorskip("amqtt", reason="the embedded broker is not installed")
    with broker() as process:
        yield process


@contextmanager
def mosquitto(folder: Path, *lines: str, port: int = 0) -> Iterator[BrokerProcess]:
    port = port or free_port()
    config = folder / "mosquitto.conf"
    config.write_text("\n".join([f"listener {port} 127.0.0.1", "persistence false", "user root", *lines]))
    assert MOSQUITTO is not None
    with running(BrokerProcess([MOSQUITTO, "-c", str(config)], port)) as process:
        yield process


def made(
    at: BrokerProcess, device: str = "box", cameras: tuple[str, ...] = ("gate",), **changes: Any
) -> MqttPublisher:
    return MqttPublisher(MqttSettings(at.host, at.port, **changes), device, cameras, LabelNames())


@contextmanager
def publishing(publisher: MqttPublisher) -> Iterator[MqttPublisher]:
    publisher.start()
    try:
        yield publisher
    finally:
        publisher.stop(5.0)


@contextmanager
def heard_and_published(at: BrokerProcess, **changes: Any) -> Iterator[tuple[Listener, MqttPublisher]]:
    with listening(at.host, at.port) as listener, publishing(made(at, **changes)) as publisher:
        wait_until(lambda: publisher.is_connected)
        yield listener, publisher


def retained(at: BrokerProcess) -> dict[str, bytes]:
    """What a newcomer is told at once; the embedded broker sends it beside the rest, so there may be more to come."""
    with listening(at.host, at.port) as newcomer:
        newcomer.say("marker", "end")
        newcomer.wait_for("marker")
        return {heard.topic: heard.payload for heard in newcomer.heard if heard.is_retained}


def wait_retained(at: BrokerProcess, expected: dict[str, bytes]) -> dict[str, bytes]:
    """Until a newcomer is told at least this; all that it is told."""
    told: dict[str, bytes] = {}

    def look() -> bool:
        told.clear()
        told.update(retained(at))
        return expected.items() <= told.items()

    wait_until(look, lambda: f"expected {expected} among {told}")
    return told


def test_everything_arrives_where_the_documentation_says(amqtt: BrokerProcess) -> None:
    with heard_and_published(amqtt) as (listener, publisher):
        publisher.publish_status("gate", ONLINE)
        publisher.publish_result("gate", some_result(), some_tracking(some_track()))
        publisher.publish_events("gate", [some_event()])
        publisher.publish_counts("gate", ObjectCounts({"person": 1}, {("porch", "person"): 1}))
        publisher.publish_state("gate", Feature.DETECT, True)
        publisher.publish_state("gate", Feature.FPS, 7.5)
        publisher.publish_health({"temperature_c": 48.5})
        camera = f"{PREFIX}/cameras/gate"
        assert listener.wait_for(f"{camera}/status").json["status"] == "online"
        assert listener.wait_for(f"{camera}/detections").json["sequence"] == 7
        assert listener.wait_for(f"{camera}/events").json["type"] == "new"
        assert listener.wait_for(f"{camera}/counts/person").payload == b"1"
        assert listener.wait_for(f"{camera}/zones/porch/counts/person").payload == b"1"
        assert listener.wait_for(f"{camera}/detect/state").payload == b"ON"
        assert listener.wait_for(f"{camera}/fps/state").payload == b"7.5"
        assert listener.wait_for(f"{PREFIX}/health").json["temperature_c"] == 48.5
        assert listener.wait_for(f"{PREFIX}/available").payload == b"online"
        assert publisher.counts["mqtt_sent"] == 8
        stays = {
            f"{PREFIX}/available",
            f"{PREFIX}/health",
            f"{camera}/status",
            f"{camera}/counts/person",
            f"{camera}/zones/porch/counts/person",
            f"{camera}/detect/state",
            f"{camera}/fps/state",
        }
        wait_until(lambda: set(retained(amqtt)) == stays)


def test_a_clean_end_sends_what_waits_then_zero_counts_then_stopped(amqtt: BrokerProcess) -> None:
    with listening(amqtt.host, amqtt.port) as listener:
        publisher = made(amqtt)
        publisher.start()
        wait_until(lambda: publisher.is_connected)
        publisher.publish_counts("gate", ObjectCounts({"car": 3}))
        for sequence in range(50):
            publisher.publish_result("gate", some_result(sequence=sequence), some_tracking())
        publisher.publish_events("gate", [some_event()])
        publisher.stop(5.0)
        listener.wait_for(f"{PREFIX}/available", b"stopped")
        assert [
            heard.json["sequence"] for heard in listener.heard if heard.topic.endswith("/detections")
        ] == list(range(50))
        assert len(listener.all_on(f"{PREFIX}/cameras/gate/events")) == 1
        assert listener.all_on(f"{PREFIX}/cameras/gate/counts/car")[-1] == b"0"
        assert listener.all_on(f"{PREFIX}/available") == [b"online", b"stopped"]
        assert listener.heard[-1].payload == b"stopped"
        publisher.stop(5.0)
        publisher.start()
        assert not publisher.is_connected


def test_a_device_that_dies_is_offline_by_its_last_will(amqtt: BrokerProcess) -> None:
    with listening(amqtt.host, amqtt.port) as listener:
        program = (
            "import sys, time\n"
            "from edge_agent.publish.mqtt_publisher import MqttPublisher\n"
            "from fovea.mqtt.settings import MqttSettings\n"
            "from edge_agent.publish.label_names import LabelNames\n"
            "publisher = MqttPublisher(MqttSettings('127.0.0.1', int(sys.argv[1])), 'box', ['gate'], LabelNames())\n"
            "publisher.start()\n"
            "time.sleep(60)\n"
        )
        root = Path(__file__).resolve().parents[2]
        child = subprocess.Popen([sys.executable, "-c", program, str(amqtt.port)], cwd=root)
        try:
            listener.wait_for(f"{PREFIX}/available", b"online")
        finally:
            child.kill()
            child.wait()
        listener.wait_for(f"{PREFIX}/available", b"offline")
        wait_retained(amqtt, {f"{PREFIX}/available": b"offline"})


def test_after_a_broker_restart_what_is_retained_is_said_again_and_commands_work(
    amqtt: BrokerProcess,
) -> None:
    commands: list[tuple[Feature, str, object]] = []
    with heard_and_published(amqtt) as (listener, publisher):
        publisher.on_command(lambda feature, camera, value: commands.append((feature, camera, value)))
        publisher.publish_status("gate", ONLINE)
        publisher.publish_counts("gate", ObjectCounts({"person": 2}))
        publisher.publish_state("gate", Feature.GATE, False)
        listener.wait_for(f"{PREFIX}/cameras/gate/gate/state", b"OFF")
        amqtt.stop()
        wait_until(lambda: not publisher.is_connected)
        publisher.publish_counts("gate", ObjectCounts({"person": 1}))
        publisher.publish_events("gate", [some_event(label="dog")])
        listener.heard.clear()
        amqtt.start()
        listener.wait_subscribed()
        wait_until(lambda: publisher.is_connected)
        wait_until(lambda: publisher.counts["mqtt_waiting"] == 0)
        camera = f"{PREFIX}/cameras/gate"
        again = {
            f"{PREFIX}/available": b"online",
            f"{camera}/counts/person": b"1",
            f"{camera}/gate/state": b"OFF",
            f"{camera}/status": status_message("gate", ONLINE),
        }
        wait_retained(amqtt, again)
        listener.say(f"{PREFIX}/cameras/gate/detect/set", "OFF")
        wait_until(lambda: commands == [(Feature.DETECT, "gate", False)], lambda: str(commands))
        publisher.publish_result("gate", some_result(sequence=99), some_tracking())
        assert listener.wait_for(f"{PREFIX}/cameras/gate/detections").json["sequence"] == 99
        assert publisher.counts["mqtt_connections"] == 2


def test_events_that_wait_for_a_broker_arrive_and_the_oldest_give_way(amqtt: BrokerProcess) -> None:
    amqtt.stop()
    with publishing(made(amqtt, max_events=3, max_results=2)) as publisher:
        for number in range(5):
            publisher.publish_events("gate", [some_event(id=f"b00t-{number}")])
            publisher.publish_result("gate", some_result(sequence=number), some_tracking())
        counts = publisher.counts
        assert (counts["mqtt_dropped_events"], counts["mqtt_dropped_results"]) == (2, 3)
        amqtt.start()
        with listening(amqtt.host, amqtt.port):
            pass
        wait_until(lambda: publisher.counts["mqtt_waiting"] == 0)
        assert publisher.counts["mqtt_sent"] == 5


def test_commands_reach_the_camera_they_name_and_nonsense_harms_nothing(amqtt: BrokerProcess) -> None:
    commands: list[tuple[Feature, str, object]] = []
    names = ("gate", "back yard/+#$", "détect")
    with listening(amqtt.host, amqtt.port) as listener:
        publisher = made(amqtt, cameras=names)

        def take(feature: Feature, camera: str, value: object) -> None:
            commands.append((feature, camera, value))
            if value == 13:
                raise RuntimeError("whoever is called may break, too")

        publisher.on_command(take)
        with publishing(publisher):
            wait_until(lambda: publisher.is_connected)
            for topic, payload in (
                ("gate/detect/set", b"\xff\xfe\x00"),
                ("gate/detect/set", b""),
                ("gate/detect/set", b"x" * 100_000),
                ("gate/fps/set", b"nan"),
                ("gate/fps/set", b"0"),
                ("gate/zoom/set", b"ON"),
                ("cellar/detect/set", b"ON"),
                ("gate/fps/set", b"13"),
                ("back%20yard%2F%2B%23%24/gate/set", b"off"),
                ("d%C3%A9tect/fps/set", b" 2.5 "),
            ):
                listener.say(f"{PREFIX}/cameras/{topic}", payload)
            wait_until(lambda: len(commands) == 3, lambda: str(commands))
            assert commands == [
                (Feature.FPS, "gate", 13.0),
                (Feature.GATE, "back yard/+#$", False),
                (Feature.FPS, "détect", 2.5),
            ]
            assert publisher.counts["mqtt_commands"] == 3
            assert publisher.counts["mqtt_ignored_commands"] == 7


def test_a_retained_command_is_not_obeyed(amqtt: BrokerProcess) -> None:
    commands: list[object] = []
    with listening(amqtt.host, amqtt.port) as listener:
        listener.say(f"{PREFIX}/cameras/gate/detect/set", "OFF", retain=True)
        publisher = made(amqtt)
        publisher.on_command(lambda *command: commands.append(command))
        with publishing(publisher):
            wait_until(lambda: publisher.counts["mqtt_ignored_commands"] >= 1)
            listener.say(f"{PREFIX}/cameras/gate/detect/set", "ON")
            wait_until(lambda: len(commands) == 1)
            assert commands == [(Feature.DETECT, "gate", True)]


def test_counts_become_0_when_a_camera_stops_and_late_frames_bring_no_ghost(amqtt: BrokerProcess) -> None:
    topic = f"{PREFIX}/cameras/gate/counts/person"
    with heard_and_published(amqtt, cameras=("gate", "gate2")) as (listener, publisher):
        publisher.publish_status("gate", ONLINE)
        publisher.publish_counts("gate", ObjectCounts({"person": 2}))
        publisher.publish_counts("gate2", ObjectCounts({"person": 5}))
        listener.wait_for(topic, b"2")
        publisher.publish_status("gate", CameraStatus(CameraCondition.LOST, NOON, "timeout"))
        listener.wait_for(topic, b"0")
        publisher.publish_counts("gate", ObjectCounts({"person": 1}))
        publisher.publish_health({"n": 1})
        listener.wait_for(f"{PREFIX}/health")
        assert listener.all_on(topic) == [b"2", b"0"]
        publisher.publish_status("gate", ONLINE)
        publisher.publish_counts("gate", ObjectCounts({"person": 1}))
        listener.wait_for(topic, b"1")
        assert listener.all_on(f"{PREFIX}/cameras/gate2/counts/person") == [b"5"]


def test_what_an_earlier_run_left_retained_does_not_stay(amqtt: BrokerProcess) -> None:
    ghosts = f"{PREFIX}/cameras/gate/counts/dog", f"{PREFIX}/cameras/gate/zones/porch/counts/dog"
    gone = f"{PREFIX}/cameras/sold/status", f"{PREFIX}/cameras/sold/counts/car"
    foreign = "fovea/other/cameras/gate/counts/dog"
    with listening(amqtt.host, amqtt.port) as listener:
        for topic in (*ghosts, *gone, foreign):
            listener.say(topic, b"4", retain=True)
        listener.say(f"{PREFIX}/cameras/gate/detect/state", b"OFF", retain=True)
        with publishing(made(amqtt)):
            for topic in ghosts:
                listener.wait_for(topic, b"0")
            for topic in gone:
                listener.wait_for(topic, b"")
            expected = {
                ghosts[0]: b"0",
                ghosts[1]: b"0",
                foreign: b"4",
                f"{PREFIX}/cameras/gate/detect/state": b"OFF",
            }
            told = wait_retained(amqtt, expected)
            assert not set(gone) & set(told)


def test_offline_said_late_by_a_dead_connection_is_corrected(amqtt: BrokerProcess) -> None:
    with heard_and_published(amqtt) as (listener, _):
        listener.wait_for(f"{PREFIX}/available", b"online")
        listener.heard.clear()
        listener.say(f"{PREFIX}/available", b"offline", retain=True)
        listener.wait_for(f"{PREFIX}/available", b"online")
        wait_retained(amqtt, {f"{PREFIX}/available": b"online"})


def test_a_broker_that_hangs_costs_the_oldest_results_and_never_the_caller(amqtt: BrokerProcess) -> None:
    with heard_and_published(amqtt, max_results=10) as (listener, publisher):
        amqtt.freeze()
        big = some_tracking(*(some_track(number) for number in range(100)))
        started_s = time.monotonic()
        while not publisher.counts["mqtt_dropped_results"]:
            for sequence in range(20):
                publisher.publish_result("gate", some_result(sequence=sequence), big)
            assert time.monotonic() - started_s < 30
            time.sleep(0.01)
        assert publisher.counts["mqtt_waiting"] <= 10
        amqtt.thaw()
        wait_until(lambda: publisher.counts["mqtt_waiting"] == 0)
        publisher.publish_health({"n": 2})
        listener.wait_for(f"{PREFIX}/health")


def test_stopping_takes_no_longer_than_allowed_whatever_the_broker_does(amqtt: BrokerProcess) -> None:
    with listening(amqtt.host, amqtt.port):
        frozen, nobody = (
            made(amqtt),
            MqttPublisher(MqttSettings("127.0.0.1", free_port()), "box2", ["gate"], LabelNames()),
        )
        never = made(amqtt, device="box3")
        frozen.start()
        nobody.start()
        wait_until(lambda: frozen.is_connected)
        amqtt.freeze()
        for publisher in (frozen, nobody, never):
            publisher.publish_events("gate", [some_event()])
            started_s = time.monotonic()
            publisher.stop(2.0)
            assert time.monotonic() - started_s < 4
        amqtt.thaw()


def test_publishing_from_many_threads_loses_nothing(amqtt: BrokerProcess) -> None:
    with heard_and_published(amqtt) as (listener, publisher):

        def publish(part: int) -> None:
            for number in range(50):
                publisher.publish_events("gate", [some_event(id=f"{part}-{number}")])

        threads = [threading.Thread(target=publish, args=(part,)) for part in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        topic = f"{PREFIX}/cameras/gate/events"
        wait_until(lambda: len(listener.all_on(topic)) == 200)
        ids = [heard.json["after"]["id"] for heard in listener.heard if heard.topic == topic]
        for part in range(4):
            assert [name for name in ids if name.startswith(f"{part}-")] == [f"{part}-{n}" for n in range(50)]


def test_two_devices_share_a_broker_under_any_names(amqtt: BrokerProcess) -> None:
    odd = "a/b +#$ é" + "x" * 300
    with (
        heard_and_published(amqtt) as (listener, one),
        publishing(made(amqtt, device=odd, cameras=(odd,))) as two,
    ):
        wait_until(lambda: two.is_connected)
        two.publish_result(odd, some_result(odd), some_tracking())
        wait_until(lambda: any(heard.topic.endswith("/detections") for heard in listener.heard))
        heard = next(heard for heard in listener.heard if heard.topic.endswith("/detections"))
        assert heard.topic.count("/") == 4 and heard.topic.isascii()
        assert (heard.json["device"], heard.json["camera"]) == (odd, odd)
        assert one.is_connected
        assert client_id_of(odd) != client_id_of("box")


def test_the_embedded_broker_ends_on_sigterm_with_clients_connected(amqtt: BrokerProcess) -> None:
    with heard_and_published(amqtt):
        started_s = time.monotonic()
        assert amqtt.stop(signal.SIGTERM) == 0
        assert time.monotonic() - started_s < 10


@needs_mosquitto
def test_mosquitto_too_publishing_and_commands_resume_after_a_restart(tmp_path: Path) -> None:
    commands: list[object] = []
    with mosquitto(tmp_path, "allow_anonymous true") as at, heard_and_published(at) as (listener, publisher):
        publisher.on_command(lambda *command: commands.append(command))
        publisher.publish_counts("gate", ObjectCounts({"person": 2}))
        listener.wait_for(f"{PREFIX}/cameras/gate/counts/person", b"2")
        at.restart()
        listener.wait_subscribed()
        wait_until(lambda: publisher.counts["mqtt_connections"] == 2)
        wait_until(lambda: publisher.counts["mqtt_waiting"] == 0)
        wait_retained(at, {f"{PREFIX}/cameras/gate/counts/person": b"2"})
        listener.say(f"{PREFIX}/cameras/gate/fps/set", "3")
        wait_until(lambda: commands == [(Feature.FPS, "gate", 3.0)])


@needs_mosquitto
def test_a_refused_login_is_not_connected_is_said_once_and_heals(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    passwords = tmp_path / "passwords"
    _add_password(passwords, "box", "right horse")
    port = free_port()
    rules = ("allow_anonymous false", f"password_file {passwords}")
    caplog.set_level(logging.DEBUG)
    with mosquitto(tmp_path, *rules, port=port) as at:
        publisher = made(at, username="box", password="wr0ng h0rse")
        with publishing(publisher):
            wait_until(lambda: publisher.counts["mqtt_login_refusals"] >= 2)
            assert not publisher.is_connected
            assert publisher.counts["mqtt_connections"] == 0
            said = [record for record in caplog.records if "refuses" in record.getMessage()]
            assert len(said) == 1
            # The broker learns the password that this device has: nobody restarts the device.
            _add_password(passwords, "box", "wr0ng h0rse")
            at.stop(signal.SIGTERM)
            at.start()
            wait_until(lambda: publisher.is_connected)
        assert "h0rse" not in caplog.text
        assert "h0rse" not in repr(MqttSettings("host", username="box", password="wr0ng h0rse"))


def _add_password(file: Path, user: str, password: str) -> None:
    subprocess.run(
        ["mosquitto_passwd", *(() if file.exists() else ("-c",)), "-b", str(file), user, password],
        check=True,
        capture_output=True,
    )


@needs_mosquitto
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
def test_tls_with_certificates_on_both_sides_and_a_stranger_is_refused(tmp_path: Path) -> None:
    _certificates(tmp_path)
    rules = (
        "allow_anonymous true",
        f"cafile {tmp_path}/ca.pem",
        f"certfile {tmp_path}/server.pem",
        f"keyfile {tmp_path}/server.key",
        "require_certificate true",
    )
    ca, cert, key = (tmp_path / name for name in ("ca.pem", "server.pem", "server.key"))
    with mosquitto(tmp_path, *rules) as at:
        stranger = made(at, device="stranger", tls=MqttTls(ca))
        distrustful = made(at, device="distrustful", tls=MqttTls(None, cert, key))
        with (
            publishing(stranger),
            publishing(distrustful),
            publishing(made(at, tls=MqttTls(ca, cert, key))) as known,
        ):
            wait_until(lambda: known.is_connected)
            assert not stranger.is_connected and stranger.counts["mqtt_connections"] == 0
            assert not distrustful.is_connected and distrustful.counts["mqtt_connections"] == 0


def _certificates(folder: Path) -> None:
    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(
        "req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority", "-days", "2"
    )
    openssl("req", *curve, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=127.0.0.1")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-out", "server.pem", "-days", "2", "-extfile", "names")  # fmt: skip
