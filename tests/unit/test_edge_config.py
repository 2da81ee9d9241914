"""The edge server's configuration: strict, complete, and told about in one go."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edge_server.bootstrap import build
from edge_server.config import CloudConfig, EdgeConfig, SpoolConfig, load_config
from fovea.cli.config import app, kind_named
from fovea.core.arrays import ImageArray
from fovea.core.detections import Inference
from fovea.core.errors import Incompatible, Malformed, NotFound, Unavailable
from fovea.process.config_parts import watchdog_every_s
from fovea.runtime.config_file import parse_config
from fovea.runtime.manifest import BatchMode
from fovea.serving.serving_config import largest_batch
from fovea.serving.warm_up import measured_latency
from tests.builders import tiny_bundle, tiny_onnx
from tests.fakes import FakeClock, FakeDetector

SHIPPED = Path(__file__).resolve().parents[2] / "deploy" / "config" / "edge.yaml"

MANY_MISTAKES = """\
lisen: 127.0.0.1:1
listen: localhost
max_batch: 0
queue:
  max_item: 3
  aging_s: .nan
device: gpu
log: {level: loud, format: json}
tls: {ca: ca.pem}
threads: true
open_threads: '2'
max_batch: 400
metrics: 12:30
limits:
"""

TOLD = """\
edge.yaml: 15 mistakes
  line 1, bundle: missing; expected the model: a .fovea file, or zoo:NAME for a bundled one
  line 1, lisen: no such key; expected one of bundle, cloud, device, limits, listen, log, max_batch, max_wait_ms, \
merge, metrics, open_threads, queue, resources_every_ms, stop, stuck_after_s, threads, tls, tuned_file, updates \
(meant listen?)
  line 2, listen: expected host:port with a port of 0 to 65535, got 'localhost'
  line 5, queue.max_item: no such key; expected one of aging_s, margin_ms, max_bytes, max_items (meant max_items?)
  line 6, queue.aging_s: Input should be less than or equal to 60, got nan
  line 7, device: expected auto, cpu or cuda:N, got 'gpu'
  line 8, log.level: Input should be 'debug', 'info', 'warning' or 'error', got 'loud'
  line 9, tls.cert: missing; expected the PEM file of this side's certificate chain
  line 9, tls.key: missing; expected the PEM file of this side's private key
  line 10, threads: Input should be a valid integer, got True
  line 11, open_threads: Input should be a valid integer, got '2'
  line 12, max_batch: Input should be less than or equal to 256, got 400
  line 12, max_batch: given twice, first in line 3
  line 13, metrics: Input should be a valid string, got 750
  line 14, limits: expected keys with values, got None"""


def parsed(text: str) -> EdgeConfig:
    return parse_config(text, EdgeConfig, "edge.yaml")


def test_all_mistakes_are_told_together_with_line_key_and_what_was_allowed() -> None:
    with pytest.raises(Malformed) as caught:
        parsed(MANY_MISTAKES)
    assert str(caught.value) == TOLD


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "line 1, bundle: missing"),
        ("- 1", "line 1, the whole file: expected keys with values"),
        ("5: 3\nbundle: x", "line 1, 5: Keys should be strings"),
        ("x: [", "no sound YAML: while parsing"),
        ("bundle: x\n---\nbundle: y", "no sound YAML: expected a single document"),
        ("bundle: &b x\ndevice: *b", "expected values written out, got the alias *b"),
        ("? [1, 2]\n: 3", "no sound YAML: while constructing"),
        ("bundle: !!python/object:os.system x", "no sound YAML: could not determine a constructor"),
        ("x: " + "[" * 50 + "]" * 50, "expected at most 20 levels"),
        ("bundle: 'zoo:'", "expected a .fovea file or zoo:NAME"),
        ("bundle: x\nlisten: '[::1]:99999'", "expected host:port"),
        ("bundle: x\nlisten: ':50051'", "expected host:port"),
    ],
)
def test_what_is_no_configuration_is_malformed_and_says_why(text: str, told: str) -> None:
    with pytest.raises(Malformed) as caught:
        parsed(text)
    assert told in str(caught.value)


def test_what_is_left_out_has_its_usual_value() -> None:
    assert parsed("bundle: m.fovea") == EdgeConfig(bundle="m.fovea")
    assert parsed("bundle: m.fovea\nmax_wait_ms: 2").max_wait_ms == 2.0


def test_the_shipped_configuration_says_the_usual_values_but_for_the_metrics() -> None:
    assert load_config(SHIPPED) == EdgeConfig(bundle="zoo:street-edge", metrics="127.0.0.1:9464")


def test_relative_paths_are_relative_to_the_file_and_zoo_names_stay(tmp_path: Path) -> None:
    file = tmp_path / "edge.yaml"
    file.write_text("bundle: models/m.fovea\ntls: {ca: ca.pem, cert: /etc/cert.pem, key: k/key.pem}\n")
    config = load_config(file)
    assert config.bundle == str(tmp_path / "models" / "m.fovea")
    assert config.tls is not None
    assert [config.tls.ca, config.tls.cert, config.tls.key] == [
        str(tmp_path / "ca.pem"),
        "/etc/cert.pem",
        str(tmp_path / "k" / "key.pem"),
    ]


def test_a_file_that_is_not_there_or_no_text_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no configuration file"):
        load_config(tmp_path / "nothing.yaml")
    with pytest.raises(Malformed, match="cannot read"):
        load_config(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Malformed, match="expected UTF-8 text"):
        load_config(tmp_path / "binary.yaml")
    (tmp_path / "huge.yaml").write_bytes(b"#" * 1_000_001)
    with pytest.raises(Malformed, match="at most 1000000 bytes"):
        load_config(tmp_path / "huge.yaml")


@pytest.mark.parametrize(
    ("variables", "every_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "20000000"}, 10.0),
        ({"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": str(os.getpid())}, 10.0),
        ({"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_fed_twice_as_often_as_systemd_asks(
    variables: dict[str, str], every_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert watchdog_every_s() == every_s


# What is built from it


def test_a_model_for_one_picture_at_a_time_is_not_given_batches(tmp_path: Path) -> None:
    graph = tiny_onnx(batch=BatchMode.FIXED)
    path = tiny_bundle(model=graph, input={"batch": BatchMode.FIXED}).write(tmp_path)
    parts = build(EdgeConfig(bundle=str(path), device="cpu", max_batch=3))
    assert parts.settings.batching.max_batch == 1
    assert parts.latency.batch_s(1) > 0, "it was measured before anybody asks"
    assert parts.device == "cpu"
    parts.detector.close()


@pytest.mark.parametrize(
    ("one_ms", "eight_ms", "largest"), [(25, 210, 1), (25, 198, 1), (25, 150, 8), (5, 9, 8)]
)
def test_batches_are_made_where_they_were_measured_to_save_time(
    one_ms: int, eight_ms: int, largest: int
) -> None:
    clock = FakeClock()

    class Timed(FakeDetector):
        def detect(self, frames: Sequence[ImageArray]) -> list[Inference]:
            clock.advance((one_ms if len(frames) == 1 else eight_ms) / 1000)
            return super().detect(frames)

    latency = measured_latency(Timed(), 8, clock.monotonic_s)
    assert largest_batch(latency, 8) == largest


def test_a_first_run_and_a_busy_moment_are_not_taken_for_the_speed_of_the_device() -> None:
    clock, took_s = FakeClock(), iter([30.0, 0.9, 0.1, 0.2, 0.4, 2.0, 0.4])

    class Uneven(FakeDetector):
        def detect(self, frames: Sequence[ImageArray]) -> list[Inference]:
            clock.advance(next(took_s))
            return super().detect(frames)

    latency = measured_latency(Uneven(), 4, clock.monotonic_s)
    assert (latency.batch_s(1), latency.batch_s(4)) == (pytest.approx(0.1), pytest.approx(0.4))


def test_a_slow_model_is_run_once_for_each_size_beside_the_first_run() -> None:
    clock = FakeClock()

    class Slow(FakeDetector):
        def detect(self, frames: Sequence[ImageArray]) -> list[Inference]:
            clock.advance(3.0 * len(frames))
            return super().detect(frames)

    slow = Slow()
    latency = measured_latency(slow, 4, clock.monotonic_s)
    assert slow.batch_sizes == [1, 1, 4]
    assert latency.batch_s(4) == pytest.approx(12.0)


def test_a_bundle_or_device_that_is_not_there_is_told_before_anything_listens(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nothing"):
        build(EdgeConfig(bundle=str(tmp_path / "nothing.fovea")))
    with pytest.raises(NotFound, match="bundled model 'nothing'"):
        build(EdgeConfig(bundle="zoo:nothing"))
    path = tiny_bundle().write(tmp_path)
    with pytest.raises(Incompatible, match="device cuda:7"):
        build(EdgeConfig(bundle=str(path), device="cuda:7"))


def test_certificates_that_are_not_there_or_no_certificates_are_told(tmp_path: Path) -> None:
    path = tiny_bundle().write(tmp_path)
    (tmp_path / "ca.pem").write_text("nothing")
    for ca, error in (("none.pem", NotFound), ("ca.pem", Malformed)):
        text = f"bundle: {path}\ntls: {{ca: {ca}, cert: c, key: k}}\n"
        with pytest.raises(error, match=r"^tls\.ca: "):
            build(parsed(text).resolved(tmp_path))


# With a cloud


WITH_CLOUD = """\
bundle: m.fovea
merge: {agent: 1, edge: 2, cloud: 4}
cloud:
  address: cloud.example:50052
  tls: {ca: ca.pem, cert: edge.pem, key: edge.key}
  gate: {uncertain_boxes: 0.5}
  budget: {asks_per_s: 0.5}
  spool: {folder: spool}
"""


def test_the_cloud_section_is_checked_like_the_rest_and_its_paths_are_relative_to_the_file(
    tmp_path: Path,
) -> None:
    config = parsed(WITH_CLOUD).resolved(tmp_path)
    assert config.cloud is not None and config.cloud.spool is not None and config.cloud.tls is not None
    assert config.cloud.spool.folder == str(tmp_path / "spool")
    assert config.cloud.tls.key == str(tmp_path / "edge.key")
    assert (config.merge.settings().edge, config.cloud.gate.uncertain_boxes) == (2.0, 0.5)
    with pytest.raises(Malformed) as caught:
        parsed(
            "bundle: x\ncloud: {adress: a, timeout_ms: 0, spool: {}, gate: {ask_from: 2}}\nmerge: {edge: 0}"
        )
    told = str(caught.value)
    for key in (
        "cloud.address",
        "cloud.adress",
        "cloud.timeout_ms",
        "cloud.spool.folder",
        "cloud.gate.ask_from",
    ):
        assert f", {key}: " in told
    assert "merge.edge" in told


def test_what_the_shipped_file_says_about_the_cloud_in_comments_is_sound_and_what_is_usual() -> None:
    shipped = SHIPPED.read_text()
    commented = re.findall(r"^# (cloud:\n(?:#   .*\n?)+)", shipped, re.MULTILINE)
    section = re.sub(r"^#(?: |$)", "", commented[0], flags=re.MULTILINE)
    config = parsed(f"bundle: m.fovea\n{section}")
    assert config.cloud is not None and config.cloud.spool is not None
    usual = CloudConfig(address="a:1")
    assert config.cloud.model_copy(update={"address": "a:1", "tls": None, "spool": None}) == usual
    assert config.cloud.spool == SpoolConfig(folder=config.cloud.spool.folder)


def test_an_edge_with_a_cloud_is_built_without_one_being_there_and_tells_so(tmp_path: Path) -> None:
    path = tiny_bundle().write(tmp_path)
    text = f"bundle: {path}\ndevice: cpu\ncloud: {{address: '127.0.0.1:1', spool: {{folder: spool}}}}"
    parts = build(parsed(text).resolved(tmp_path))
    with parts.beside:
        facts = parts.facts()
        assert facts["cloud"] == "down" and facts["spool"] == {
            "waiting": 0,
            "delivered": 0,
            "known_already": 0,
            "failed": 0,
            "set_aside": 0,
            "sent_bytes": 0,
        }
        assert parts.case_desk is not None
        with pytest.raises(Unavailable):
            build(parsed(text).resolved(tmp_path))
    parts.detector.close()
    alone = build(EdgeConfig(bundle=str(path), device="cpu"))
    assert alone.case_desk is None and alone.facts() == {}
    alone.detector.close()


def test_certificates_towards_the_cloud_are_told_by_their_place_in_the_file(tmp_path: Path) -> None:
    path = tiny_bundle().write(tmp_path)
    text = f"bundle: {path}\ncloud: {{address: 'a:1', tls: {{ca: none.pem, cert: c, key: k}}}}"
    with pytest.raises(NotFound, match=r"^cloud\.tls\.ca: no file "):
        build(parsed(text).resolved(tmp_path))


# The command


def test_the_command_says_that_a_configuration_is_good() -> None:
    result = CliRunner().invoke(app, ["check", str(SHIPPED)])
    assert result.exit_code == 0
    assert "is a sound edge configuration" in result.stdout


def test_the_kind_is_what_the_name_of_the_file_says() -> None:
    assert [
        kind_named(Path(name)) for name in ("agent.yaml", "a/my-agent.yaml", "Edge_2.yaml", "cloud.lab.yml")
    ] == [
        "agent",
        "agent",
        "edge",
        "cloud",
    ]
    for name in ("config.yaml", "edge-agent.yaml", "agents.yaml", "agent/x.yaml"):
        with pytest.raises(Malformed, match=r"expected a name that says its kind.*--kind agent\|cloud\|edge"):
            kind_named(Path(name))


def test_a_spool_that_some_cases_would_never_fit_into_is_refused() -> None:
    text = "bundle: b.fovea\ncloud: {address: 'c:1', spool: {folder: s, max_bytes: 1000000}}\n"
    with pytest.raises(Malformed, match=r"cloud\.spool\.max_bytes: expected room for a request"):
        parse_config(text, EdgeConfig, "edge.yaml")
    parse_config(text + "limits: {max_request_bytes: 1000000}\n", EdgeConfig, "edge.yaml")


def test_the_command_passes_mistakes_on(tmp_path: Path) -> None:
    (tmp_path / "edge.yaml").write_text(MANY_MISTAKES)
    result = CliRunner().invoke(app, ["check", str(tmp_path / "edge.yaml")])
    assert isinstance(result.exception, Malformed)
    assert "15 mistakes" in str(result.exception)


def test_the_schema_is_json_with_every_key_and_what_it_means() -> None:
    schema = json.loads(CliRunner().invoke(app, ["schema", "edge"]).stdout)
    assert set(schema["properties"]) == set(EdgeConfig.model_fields)
    assert schema["required"] == ["bundle"]
    assert schema["additionalProperties"] is False
    assert all(part.get("description") for part in schema["properties"].values())


def test_an_unknown_kind_is_told_what_kinds_there_are() -> None:
    result = CliRunner().invoke(app, ["schema", "edgy"])
    assert isinstance(result.exception, NotFound)
    assert re.search("there are .*edge", str(result.exception))
