"""The port and its plain values, settings and secrets, what Home Assistant is told, how the broker is called."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.publish.home_assistant import AnnouncedCamera, announcements
from edge_agent.publish.label_names import LabelNames
from edge_agent.publish.mqtt_publisher import MqttPublisher
from edge_agent.publish.publishing import (
    CameraCondition,
    CameraStatus,
    FanOut,
    Feature,
    NullPublisher,
    ObjectCounts,
    ObjectEvent,
    OnCommand,
    Publisher,
    Setting,
)
from edge_agent.publish.topics import Topics
from edge_agent.publish.webhook import Webhook, WebhookSettings
from edge_agent.track.tracking import Tracking
from fovea.core.errors import Malformed, NotFound
from fovea.core.result import FrameResult
from fovea.mqtt.settings import MqttSettings, MqttTls
from fovea.process.embedded_broker import main, run_broker
from fovea.process.secret_file import read_secret
from tests.published_values import NOON, some_event, some_result, some_sighting, some_tracking


class Noting(NullPublisher):
    """Notes what it is told."""

    def __init__(self, name: str, is_connected: bool = True) -> None:
        self.name = name
        self.told: list[object] = []
        self._is_connected = is_connected

    def start(self) -> None:
        self.told.append("start")

    def publish_result(self, camera: str, result: FrameResult, tracking: Tracking) -> None:
        self.told.append((camera, result))

    def publish_events(self, camera: str, events: object) -> None:
        self.told.append((camera, events))

    def publish_counts(self, camera: str, counts: ObjectCounts) -> None:
        self.told.append((camera, counts))

    def publish_status(self, camera: str, status: CameraStatus) -> None:
        self.told.append((camera, status))

    def publish_state(self, camera: str, feature: Feature, value: Setting) -> None:
        self.told.append((camera, feature, value))

    def publish_health(self, facts: Mapping[str, object]) -> None:
        self.told.append(facts)

    def on_command(self, callback: OnCommand) -> None:
        self.told.append(callback)

    @property
    def counts(self) -> Mapping[str, int]:
        return {f"{self.name}_told": len(self.told)}

    @property
    def is_connected(self) -> bool:
        return self._is_connected

    def stop(self, timeout_s: float) -> None:
        self.told.append(("stop", timeout_s))


def use_all(publisher: Publisher) -> None:
    publisher.on_command(print)
    publisher.start()
    publisher.publish_result("gate", some_result(), some_tracking())
    publisher.publish_events("gate", [some_event()])
    publisher.publish_counts("gate", ObjectCounts({"car": 1}))
    publisher.publish_status("gate", CameraStatus(CameraCondition.ONLINE, NOON))
    publisher.publish_state("gate", Feature.DETECT, True)
    publisher.publish_health({"x": 1})


def test_several_publishers_are_told_the_same() -> None:
    one, other = Noting("one"), Noting("other", is_connected=False)
    both = FanOut([one, other])
    use_all(both)
    assert len(one.told) == 8
    assert [type(told) for told in one.told] == [type(told) for told in other.told]
    assert both.counts == {"one_told": 8, "other_told": 8}
    assert not both.is_connected
    both.stop(3.0)
    assert one.told[-1][0] == other.told[-1][0] == "stop"  # type: ignore[index]
    assert FanOut([]).is_connected


def test_nobody_and_the_unstarted_take_everything_in_silence() -> None:
    for publisher in (
        NullPublisher(),
        FanOut([]),
    ):
        use_all(publisher)
        publisher.stop(0.1)
        assert publisher.counts == {}


def test_nothing_is_sent_or_started_by_making_a_publisher() -> None:
    made: list[Publisher] = [
        MqttPublisher(MqttSettings("127.0.0.1", 1), "box", ["gate"], LabelNames()),
        Webhook(WebhookSettings("http://127.0.0.1:1/"), "box"),
    ]
    for publisher in made:
        publisher.publish_events("gate", [some_event()])
        publisher.publish_health({"x": 1})
        publisher.stop(0.1)
    assert made[0].counts["mqtt_waiting"] == 2
    assert made[1].counts["webhook_waiting"] == 1


def test_values_are_checked_when_they_are_made() -> None:
    with pytest.raises(Malformed, match="zone"):
        CameraStatus(CameraCondition.ONLINE, datetime(2025, 1, 1))
    with pytest.raises(Malformed, match="finite"):
        some_sighting(box_xyxy=(0.0, 0.0, float("nan"), 1.0))
    with pytest.raises(Malformed, match="top_score"):
        some_sighting(top_score=float("nan"))
    with pytest.raises(Malformed, match="camera"):
        some_sighting(camera="")
    counts = {"car": 1}
    kept = ObjectCounts(counts)
    counts["car"] = 2
    assert kept.by_label == {"car": 1}
    assert ObjectEvent  # the type is part of the port


@pytest.mark.parametrize(
    ("content", "secret"), [(b"hush\n", "hush"), (b"hush", "hush"), (b"\xef\xbb\xbfhu sh\r\nmore\n", "hu sh")]
)
def test_a_secret_is_the_first_line_of_its_file(tmp_path: Path, content: bytes, secret: str) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    assert read_secret("mqtt.password_file", file) == secret


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfehush", b"hush" * 10_000])
def test_a_file_without_a_secret_is_refused_without_showing_it(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    with pytest.raises(Malformed, match=r"mqtt\.password_file") as refused:
        read_secret("mqtt.password_file", file)
    assert "hush" not in str(refused.value)
    with pytest.raises(NotFound, match="no file"):
        read_secret("mqtt.password_file", tmp_path / "none")
    with pytest.raises(Malformed, match="cannot read"):
        read_secret("mqtt.password_file", tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"host": ""},
        {"port": 0},
        {"port": 70_000},
        {"password": "s3cret"},
        {"max_events": 0},
        {"max_results": 0},
        {"keepalive_s": 0},
        {"connect_timeout_s": 0},
    ],
)
def test_settings_of_the_broker_are_checked(changes: dict[str, object]) -> None:
    with pytest.raises(Malformed, match="mqtt") as refused:
        MqttSettings(**({"host": "h"} | changes))  # type: ignore[arg-type]
    assert "s3cret" not in str(refused.value)


def test_tls_files_are_checked_when_the_publisher_is_made(tmp_path: Path) -> None:
    assert MqttTls().context().verify_mode is ssl.CERT_REQUIRED
    assert MqttTls().context().check_hostname
    with pytest.raises(Malformed, match="both cert and key"):
        MqttTls(cert=tmp_path / "c")
    with pytest.raises(NotFound, match="no file"):
        MqttPublisher(MqttSettings("h", tls=MqttTls(tmp_path / "ca")), "box", [], LabelNames())
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("<html>not a certificate</html>")
    with pytest.raises(Malformed, match="mqtt tls ca"):
        MqttTls(wrong).context()
    with pytest.raises(Malformed, match="cert and key"):
        MqttTls(None, wrong, wrong).context()


def test_home_assistant_is_told_where_the_agent_speaks_and_listens() -> None:
    topics = Topics("box")
    found = announcements("box", [AnnouncedCamera("Küche 1", ["person"], [("sofa", ["cat"])])], "1.0")
    configs = [json.loads(payload) for payload in found.values()]
    assert {topic.split("/")[1] for topic in found} == {"binary_sensor", "switch", "number", "sensor"}
    assert len(found) == 6
    told = {config[key] for config in configs for key in ("state_topic", "command_topic") if key in config}
    camera = "Küche 1"
    assert told == {
        topics.status(camera),
        topics.count(camera, "person"),
        topics.zone_count(camera, "sofa", "cat"),
        *(topics.state(camera, feature) for feature in Feature),
        *(topics.command(camera, feature) for feature in Feature),
    }
    assert {config["availability_topic"] for config in configs} == {topics.available}
    assert {config["device"]["name"] for config in configs} == {"box Küche 1"}


@given(st.lists(st.text(min_size=1, max_size=300), min_size=1, max_size=3, unique=True))
def test_home_assistant_ids_are_legal_and_unique_for_any_names(names: list[str]) -> None:
    cameras = [AnnouncedCamera(name, names, [(zone, names) for zone in names]) for name in names]
    found = announcements(names[0], cameras, "1.0")
    assert len(found) == len(names) * (4 + len(names) + len(names) ** 2)
    assert all(re.fullmatch(r"homeassistant/[a-z_]+/[A-Za-z0-9_-]+/config", topic) for topic in found)
    ids = [json.loads(payload)["unique_id"] for payload in found.values()]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("address", ["", "host", "host:", ":1883", "host:0", "host:99999", "host:x"])
def test_the_embedded_broker_refuses_what_is_no_address(address: str) -> None:
    with pytest.raises(Malformed, match="host:port"):
        run_broker(address)


def test_the_embedded_broker_says_how_it_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "HOST:PORT" in capsys.readouterr().err
    assert main(["nowhere"]) == 1
    assert "expected host:port" in capsys.readouterr().err
