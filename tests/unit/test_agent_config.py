"""The agent's configuration: strict, complete, told about in one go, and silent about secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from edge_agent import settings_from_config as settings
from edge_agent.camera_config import CameraConfig
from edge_agent.capture.motion import MotionSettings
from edge_agent.config import AgentConfig, BestWithin, GateConfig, load_config
from edge_agent.idle import IdleSettings, IdleStep
from edge_agent.tier_choice import QoeSettings
from edge_agent.track.tracker_settings import TrackerSettings
from fovea.cli.agent import app as agent_app
from fovea.cli.config import app
from fovea.core.errors import Malformed, NotFound
from fovea.core.features import FeatureSettings
from fovea.core.gate import RuleGateSettings
from fovea.core.qoe import Priorities, QoeWeights
from fovea.core.routing import Route
from fovea.link.encoding import PixelEncoding
from fovea.runtime.config_file import parse_config

SHIPPED = Path(__file__).resolve().parents[2] / "deploy" / "config" / "agent.yaml"

SMALL = "device: porch\nbundle: m.fovea\ncameras:\n  - {name: front, url: clip.mp4"

MANY_MISTAKES = """\
bundle: zoo:street-student-int8
cameras:
  - {name: front, url: 'rtsp://me:hush@camera/1', fpz: 3}
  - {name: back, url: ftp://camera, fps: 0, masks: [[[0, 0], [1, 2]]]}
  - {name: front, url: [], password: 12345}
  - name: side
    url: clip.mp4
    zones: [{name: door}]
edge: {adress: box:1, timeout_ms: 5}
answer: last
mqtt: {port: 0, tls: {ca: c, cret: d}}
spool: {max_bytes: 1}
"""

TOLD = """\
agent.yaml: 17 mistakes
  line 1, device: missing; expected the name of this device, in topics and cases
  line 3, cameras.0.fpz: no such key; expected one of decoding, filters, fps, idle, limit, loop, masks, motion, \
name, open_timeout_s, password, password_file, qoe, read_timeout_s, realtime, start, stream, sub_url, url, \
username, zones (meant fps?)
  line 3, cameras.0.url: expected no credentials in an address: they have fields of their own
  line 4, cameras.1.fps: Input should be greater than or equal to 0.01, got 0
  line 4, cameras.1.masks.0.1.1: Input should be less than or equal to 1, got 2
  line 4, cameras.1.url: expected a path, a device number or one of rtsp://, rtsps://, \
http://, https://, v4l2://, file://, sim://, got 'ftp://camera'
  line 5, cameras.2.password: Input should be a valid string
  line 5, cameras.2.url: Input should be a valid string
  line 8, cameras.3.zones.0.corners: missing; expected at least 3 corners [x, y], each 0 to 1 of the picture
  line 9, edge.address: missing; expected host:port, or unix:PATH on the same machine
  line 9, edge.adress: no such key; expected one of address, encoding, fallbacks, jpeg_quality, \
max_in_flight, regions, tier, timeout_ms, tls (meant address?)
  line 9, edge.timeout_ms: Input should be greater than or equal to 10, got 5
  line 10, answer.first: Input should be 'first', got 'last'
  line 11, mqtt.port: Input should be greater than or equal to 1, got 0
  line 11, mqtt.tls.cret: no such key; expected one of ca, cert, key (meant cert?)
  line 12, spool.folder: missing; expected where they lie; nobody else uses this folder
  line 12, spool.max_bytes: Input should be greater than or equal to 1000000, got 1"""


def parsed(text: str) -> AgentConfig:
    return parse_config(text, AgentConfig, "agent.yaml")


def camera(**more: Any) -> CameraConfig:
    return CameraConfig(name="front", url="clip.mp4", **more)


def config(**more: Any) -> AgentConfig:
    return AgentConfig.model_validate(
        {"device": "porch", "bundle": "m", "cameras": [{"name": "front", "url": "clip.mp4"}], **more}
    )


def test_all_mistakes_are_told_together_with_line_and_key_and_no_secret() -> None:
    with pytest.raises(Malformed) as caught:
        parsed(MANY_MISTAKES)
    assert str(caught.value) == TOLD
    assert "hush" not in str(caught.value) and "12345" not in str(caught.value)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("username: me, password: a, password_file: b", "expected password or password_file, got both"),
        ("password: a", "expected a username with the password"),
        ("stream: sub", "expected a sub_url for stream sub"),
        ("filters: {min_area: 0.5, max_area: 0.1}", "expected filters.min_area up to filters.max_area"),
        ("masks: [[[0, 0], [1, 1]]]", "expected at least 3 corners"),
        ("masks: [[[0, 0], [1, 1], [1]]]", "expected at least 3 corners"),
        ("loop: 1", "Input should be a valid boolean"),
    ],
)
def test_what_does_not_go_together_in_a_camera_is_told(more: str, told: str) -> None:
    with pytest.raises(Malformed, match=r"line 4, cameras\.0") as caught:
        parsed(f"{SMALL}, {more}}}")
    assert told in str(caught.value)


@pytest.mark.parametrize("more", [{"limit": 4}, {"start": 1}, {"loop": True}])
def test_a_part_of_a_camera_without_an_end_is_a_mistake(more: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="for files and folders only; this camera has no end"):
        CameraConfig(name="street", url="sim://street-v1/day", **more)  # type: ignore[arg-type]


def test_two_cameras_of_one_name_are_a_mistake() -> None:
    with pytest.raises(Malformed, match="cameras: expected each name once, got front more often"):
        parsed(f"{SMALL}}}\n  - {{name: front, url: 1.mp4}}")


def test_an_agent_without_a_camera_is_a_mistake() -> None:
    with pytest.raises(Malformed, match="cameras"):
        parsed("device: porch\nbundle: m\ncameras: []")


@pytest.mark.parametrize("name", ["Süd/Hof + #1 $", "person", "a" * 100])
def test_names_may_be_anything_that_can_be_read(name: str) -> None:
    assert (
        camera().model_copy(update={"name": name}).name
        == parsed(
            f"device: d\nbundle: m\ncameras: [{{name: {json.dumps(name, ensure_ascii=False)}, url: x}}]"
        )
        .cameras[0]
        .name
    )


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a" * 101])
def test_names_that_nobody_can_read_are_refused(name: str) -> None:
    with pytest.raises(Malformed, match="1 to 100 printable characters"):
        parsed(f"device: {json.dumps(name)}\nbundle: m\ncameras: [{{name: a, url: x}}]")


def test_a_secret_never_shows() -> None:
    made = parsed(f"{SMALL}, username: me, password: hush}}\nmqtt: {{username: me, password: hush}}")
    assert "hush" not in repr(made) and "hush" not in str(made)
    assert settings.source_spec(made.cameras[0]).password == "hush"
    assert made.mqtt is not None
    assert made.mqtt.settings().password == "hush"


def test_the_shipped_configuration_says_the_usual_values() -> None:
    usual = AgentConfig(
        device="porch",
        bundle="zoo:street-student-int8",
        cameras=[CameraConfig(name="street", url="sim://street-v1/day")],
        metrics="127.0.0.1:9463",
    )
    assert load_config(SHIPPED) == usual


def test_the_shipped_configuration_has_every_key_also_those_that_are_commented_out() -> None:
    text = SHIPPED.read_text()
    missing = [key for key in AgentConfig.model_fields if f"{key}:" not in text]
    missing += [key for key in CameraConfig.model_fields if key not in text]
    assert missing == []


def test_what_is_commented_out_in_the_shipped_configuration_is_sound_too() -> None:
    lines = []
    for line in SHIPPED.read_text().splitlines():
        is_key = line.startswith("# ") and (
            line[2:].split("#")[0].rstrip().endswith(":") or line.startswith("#   ")
        )
        lines.append(line[2:] if is_key and not line.startswith("#   fovea") else line)
    assert parsed(without("updates", lines)).ab is not None
    made = parsed(without("ab", lines))
    assert made.edge is not None and made.edge.tls is not None
    assert made.mqtt is not None and made.webhook is not None and made.spool is not None
    assert made.updates is not None and made.updates.cert is not None


def without(key: str, lines: list[str]) -> str:
    """The text without this key of the first level and what stands below it."""
    begin = next(index for index, line in enumerate(lines) if line.startswith(f"{key}:"))
    end = next(index for index in range(begin + 1, len(lines)) if not lines[index].startswith(" "))
    return "\n".join(lines[:begin] + lines[end:])


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(
        "device: d\nbundle: m.fovea\ncameras:\n"
        "  - {name: a, url: clips/a.mp4, username: me, password_file: a.secret}\n"
        "  - {name: b, url: rtsp://camera/1, sub_url: 'rtsp://camera/2'}\n"
        "  - {name: c, url: 0}\n"
        "edge: {address: box:1, tls: {ca: ca.pem, cert: /etc/c.pem, key: k.pem}}\n"
        "mqtt: {username: me, password_file: mqtt.secret, tls: {ca: ca.pem}}\n"
        "webhook: {url: 'https://example.org', token_file: t}\n"
        "spool: {folder: spool}\nresults_file: r.jsonl\nstats_file: s.json\n"
    )
    made = load_config(file)
    assert made.bundle == str(tmp_path / "m.fovea")
    assert [each.url for each in made.cameras] == [str(tmp_path / "clips/a.mp4"), "rtsp://camera/1", "0"]
    assert made.cameras[0].password_file == str(tmp_path / "a.secret")
    assert made.cameras[1].sub_url == "rtsp://camera/2"
    assert made.edge is not None and made.edge.tls is not None
    assert (made.edge.tls.ca, made.edge.tls.cert) == (str(tmp_path / "ca.pem"), "/etc/c.pem")
    assert made.mqtt is not None and made.mqtt.tls is not None
    assert (made.mqtt.tls.ca, made.mqtt.tls.key) == (str(tmp_path / "ca.pem"), None)
    assert made.mqtt.password_file == str(tmp_path / "mqtt.secret")
    assert made.webhook is not None and made.webhook.token_file == str(tmp_path / "t")
    assert made.spool is not None and made.spool.folder == str(tmp_path / "spool")
    assert (made.results_file, made.stats_file) == (str(tmp_path / "r.jsonl"), str(tmp_path / "s.json"))


def test_an_answer_is_published_first_or_held_back_for_a_time() -> None:
    assert settings.agent_settings(config()).hold_s is None
    held = parsed(f"{SMALL}}}\nanswer: {{best_within_ms: 250}}")
    assert held.answer == BestWithin(best_within_ms=250.0)
    assert settings.agent_settings(held).hold_s == 0.25


# What the parts are told


def test_the_usual_values_are_those_of_the_parts() -> None:
    gate = GateConfig()
    assert settings.rule_gate_settings(gate) == RuleGateSettings()
    assert settings.feature_settings(gate) == FeatureSettings()
    assert settings.motion_settings(camera()) == MotionSettings()
    made = settings.decide_settings(config())
    assert (made.ask_from, made.audit_share) == (gate.ask_from, 0.015)


def test_the_usual_weights_are_those_of_the_product_and_those_of_a_camera_or_label_go_first() -> None:
    usual = settings.qoe_settings(config(), own_quality=0.2)
    assert usual == QoeSettings(own_quality=0.2)
    own = {"latency": 0.1, "quality": 0.7, "memory": 0.1, "priority": 0.1, "half_ms": 100.0}
    made = settings.qoe_settings(
        config(
            qoe={
                "weights": {"latency": 0.25, "quality": 0.25, "memory": 0.25, "priority": 0.25},
                "usual_priority": 0.1,
                "labels": {"person": {"priority": 1.0}, "car": {"weights": own}},
            },
            cameras=[{"name": "front", "url": "a.mp4", "qoe": {"weights": own, "priority": 0.9}}],
            answer={"best_within_ms": 250},
        ),
        own_quality=0.2,
    )
    assert made is not None
    assert made.weights == QoeWeights(0.25, 0.25, 0.25, 0.25)
    assert made.by_camera == {"front": QoeWeights(0.1, 0.7, 0.1, 0.1, 100.0)}
    assert made.by_label == {2: QoeWeights(0.1, 0.7, 0.1, 0.1, 100.0)}
    assert made.priorities == Priorities(0.1, {"front": 0.9}, {0: 1.0})
    assert made.hold_s == 0.25
    assert settings.qoe_settings(config(qoe={"enabled": False}), 0.2) is None


def test_a_camera_that_asks_the_cloud_itself_says_so_in_its_decisions() -> None:
    alone, edge, cloud = (
        config(**({"edge": {"address": "box:1", "tier": tier}} if tier else {}))
        for tier in ("", "edge", "cloud")
    )
    for made, route in ((alone, Route.EDGE), (edge, Route.EDGE), (cloud, Route.CLOUD)):
        assert settings.decide_settings(made).route is settings.agent_settings(made).route is route


def test_weights_that_do_not_add_up_are_told() -> None:
    with pytest.raises(Malformed, match="add up to 1"):
        parsed(f"{SMALL}}}\nqoe: {{weights: {{latency: 0.9}}}}")


def test_a_camera_is_never_idle_unless_it_is_told_to_be() -> None:
    assert settings.idle_settings(camera(), models=2) is None
    made = settings.idle_settings(camera(idle={"after_s": 5, "least_fps": 2.0}), models=2)
    assert made == IdleSettings((IdleStep(5.0, 0.5), IdleStep(60.0, 0.25, 1)), 2.0, 2)
    alone = settings.idle_settings(camera(idle={}), models=1)
    assert alone == IdleSettings((IdleStep(10.0, 0.5), IdleStep(60.0, 0.25)), 1.0, 1)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("idle: {}, motion: {enabled: false}", "expected idle only with motion"),
        ("idle: {}, realtime: false", "expected idle only with motion"),
        ("idle: {}, fps: null", "expected idle only with motion"),
        ("idle: {deep_after_s: 5}", "expected deep_after_s later"),
        ("idle: {deep_fps_share: 0.9}", "expected deep_after_s later"),
    ],
)
def test_a_camera_that_cannot_idle_as_it_is_told_says_why(more: str, told: str) -> None:
    with pytest.raises(Malformed, match=told):
        parsed(f"{SMALL}, {more}}}")


def test_a_tracker_is_as_patient_as_the_idle_pace_needs() -> None:
    idle = settings.tracker_settings(camera(fps=2.0, idle={"least_fps": 0.1}))
    assert idle.lost_after_s == 10 and idle.coast_s == 4


def test_without_motion_detection_every_frame_is_looked_at() -> None:
    assert settings.motion_settings(camera(motion={"enabled": False})) is None


def test_a_slow_camera_has_a_patient_tracker() -> None:
    usual = TrackerSettings()
    assert settings.tracker_settings(camera(fps=5.0)).lost_after_s == usual.lost_after_s
    slow = settings.tracker_settings(camera(fps=0.5))
    assert slow.lost_after_s == 10 and slow.history_s == 10
    assert settings.tracker_settings(camera(fps=None)) == usual


def test_a_file_that_is_not_played_in_real_time_gives_all_its_frames() -> None:
    made = settings.camera_settings(camera(fps=5.0, realtime=False))
    assert (made.fps, made.is_realtime) == (None, False)
    assert settings.camera_settings(camera(fps=5.0)).fps == 5.0


def test_masks_zones_and_filters_reach_the_parts() -> None:
    corners = [[0.0, 0.0], [1.0, 0.0], [1.0, 0.5]]
    made = camera(
        masks=[corners],
        zones=[{"name": "door", "corners": corners, "labels": ["person"]}],
        filters={"labels": ["person", "car"], "min_score": 0.4, "min_area": 0.01, "max_area": 0.9},
    )
    assert settings.camera_settings(made).masks[0].points == ((0.0, 0.0), (1.0, 0.0), (1.0, 0.5))
    objects = settings.object_settings(made)
    assert objects.zones[0].name == "door" and objects.zones[0].labels == frozenset({"person"})
    assert (objects.filter.labels, objects.filter.min_score) == (frozenset({"person", "car"}), 0.4)
    assert (objects.filter.min_area, objects.filter.max_area) == (0.01, 0.9)


def test_passwords_and_tokens_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hush\n")
    file = str(tmp_path / "secret")
    assert settings.source_spec(camera(username="me", password_file=file)).password == "hush"
    made = config(webhook={"url": "https://example.org/hook", "token_file": file})
    assert made.webhook is not None
    assert settings.webhook_settings(made.webhook).token == "hush"
    with pytest.raises(NotFound, match="password_file of camera front: no file"):
        settings.source_spec(camera(username="me", password_file=file + "s"))


def test_the_link_is_told_how_pictures_travel_and_who_proves_itself(tmp_path: Path) -> None:
    made = config(edge={"address": "box:1", "encoding": "png", "jpeg_quality": 70})
    assert made.edge is not None
    upstream = settings.upstream_settings(made.edge)
    assert (upstream.encoding, upstream.jpeg_quality, upstream.tls) == (PixelEncoding.PNG, 70, None)
    missing = {name: str(tmp_path / name) for name in ("ca", "cert", "key")}
    secured = config(edge={"address": "box:1", "tls": missing})
    assert secured.edge is not None
    with pytest.raises(NotFound, match=r"edge\.tls\.ca: no file"):
        settings.upstream_settings(secured.edge)


# The commands


def test_the_command_says_that_the_shipped_configuration_is_good() -> None:
    result = CliRunner().invoke(app, ["check", str(SHIPPED)])
    assert result.exit_code == 0 and "is a sound agent configuration" in result.stdout


def test_the_schema_says_what_every_key_means() -> None:
    schema = json.loads(CliRunner().invoke(app, ["schema", "agent"]).stdout)
    assert set(schema["properties"]) == set(AgentConfig.model_fields)
    assert sorted(schema["required"]) == ["bundle", "cameras", "device"]
    parts = [schema, *schema["$defs"].values()]
    assert all(each["additionalProperties"] is False for each in parts)
    assert all(key.get("description") for each in parts for key in each["properties"].values())


def test_the_agent_without_a_configuration_says_what_it_needs() -> None:
    result = CliRunner().invoke(agent_app, [])
    assert isinstance(result.exception, Malformed)
    assert "expected --config FILE" in str(result.exception)
