"""All tiers from models and cameras: configurations that are right, names that are safe, secrets that stay secret."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml

from edge_agent.capture.source import SourceSpec
from fovea.cli.demo_frames import own_frames
from fovea.cli.demo_wiring import model_facts
from fovea.cli.tier_plan import (
    BUNDLED,
    CameraPlan,
    TierPlan,
    find_bundles,
    named_cameras,
    street_cameras,
    write_plan,
)
from fovea.cli.up import plain_log
from fovea.cli.up_files import commands_of
from fovea.core.errors import Malformed, NotFound
from fovea.core.routing import Tier
from fovea.runtime.images import encode_jpeg
from tests.builders import scene


def test_every_generated_configuration_is_sound_and_they_know_each_other(tmp_path: Path) -> None:
    from cloud.config import load_config as load_cloud
    from edge_agent.config import load_config as load_agent
    from edge_server.config import load_config as load_edge

    planned = write_plan(TierPlan(tmp_path, street_cameras()))
    cloud, edge = load_cloud(planned.configs["cloud"]), load_edge(planned.configs["edge"])
    agent, alone = load_agent(planned.configs["agent"]), load_edge(planned.configs["edge-alone"])
    assert edge.cloud is not None
    assert agent.edge is not None
    assert agent.mqtt is not None
    assert edge.cloud.address == cloud.listen == planned.cloud_address
    assert agent.edge.address == edge.listen == planned.edge_address
    assert agent.mqtt.port == planned.mqtt_port
    assert alone.cloud is None
    assert [camera.name for camera in agent.cameras] == ["day", "night"]
    assert agent.budget.asks_per_s == pytest.approx(0.3 * 10)
    assert [command.name for command in planned.commands] == ["broker", "cloud", "edge", "agent"]
    assert len({cloud.listen, edge.listen, alone.listen}) == 3


def test_a_password_goes_into_a_file_of_its_own_and_not_into_the_configuration(tmp_path: Path) -> None:
    spec = SourceSpec("rtsp://viewer:s3cret@10.0.0.9/stream1")
    planned = write_plan(TierPlan(tmp_path, [CameraPlan("yard", spec)]))
    assert "s3cret" not in planned.configs["agent"].read_text()
    secret = tmp_path / "yard.password"
    assert secret.read_text() == "s3cret\n"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    write_plan(TierPlan(tmp_path, [CameraPlan("yard", spec)]))  # again, over what lies there


def test_cameras_are_named_after_their_source_safely_and_apart(tmp_path: Path) -> None:
    for name in ("my yard (1).mp4", "x"):
        (tmp_path / name).touch()
    first, second, third, fourth = named_cameras(
        [str(tmp_path / "my yard (1).mp4"), str(tmp_path / "my yard (1).mp4"), str(tmp_path / "x"),
         "rtsp://u:p@10.0.0.9/live/main?x=1"]
    )  # fmt: skip
    assert (first.name, second.name, third.name, fourth.name) == ("my-yard-1", "my-yard-1-2", "x", "main")
    with pytest.raises(NotFound, match=r"gone\.mp4"):
        named_cameras([str(tmp_path / "gone.mp4")])


def test_bundles_are_found_by_tier_or_by_what_their_names_say(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no \.fovea file"):
        find_bundles(tmp_path)
    for name in ("street-student-int8-1.fovea", "my-edge.fovea", "cloud.fovea", "old-cloud.fovea"):
        (tmp_path / name).touch()
    found = {tier: Path(path).name for tier, path in find_bundles(tmp_path).items()}
    assert found == {
        Tier.AGENT: "street-student-int8-1.fovea",
        Tier.EDGE: "my-edge.fovea",
        Tier.CLOUD: "cloud.fovea",
    }
    (tmp_path / "cloud.fovea").rename(tmp_path / "new-cloud.fovea")
    with pytest.raises(Malformed, match=r"new-cloud\.fovea, old-cloud\.fovea"):
        find_bundles(tmp_path)
    (tmp_path / "my-edge.fovea").unlink()
    with pytest.raises(NotFound, match="no model for the edge"):
        find_bundles(tmp_path)


def test_the_models_of_the_tiers_are_told_with_their_licence_and_all_labels() -> None:
    facts, labels = model_facts(BUNDLED)
    assert [each.tier for each in facts] == list(Tier)
    assert all(each.licence and each.megabytes > 0 for each in facts)
    assert set(labels.names) == {"person", "bicycle", "car", "bus", "truck"}


def test_own_pictures_become_frames_without_truth(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.jpg").write_bytes(encode_jpeg(scene(seed=number), 90))
    seen: list[tuple[int, int]] = []
    frames = own_frames(
        [CameraPlan("yard", SourceSpec(str(tmp_path)))], 4, lambda done, every: seen.append((done, every))
    )
    assert len(frames) == 4
    assert all(frame.truth is None and frame.condition == "" for frame in frames)
    assert seen[-1] == (4, 4)


def test_footage_without_a_frame_is_refused(tmp_path: Path) -> None:
    with pytest.raises((NotFound, Malformed)):
        own_frames([CameraPlan("yard", SourceSpec(str(tmp_path)))], 4, lambda done, every: None)


def test_own_configurations_start_in_the_order_of_who_needs_whom(tmp_path: Path) -> None:
    planned = write_plan(TierPlan(tmp_path, street_cameras()))
    planned.configs["edge-alone"].unlink()
    names = [command.name for command in commands_of([tmp_path])]
    assert names == ["broker", "cloud", "edge", "agent"]
    commands = commands_of([planned.configs["agent"], planned.configs["edge"]])
    assert [command.name for command in commands] == ["broker", "edge", "agent"]
    assert commands[-1].argv[-3:] == ("agent", "--config", str(planned.configs["agent"]))


def test_two_agents_on_one_machine_are_told_apart(tmp_path: Path) -> None:
    agent = write_plan(TierPlan(tmp_path, street_cameras())).configs["agent"]
    other = agent.with_name("agent-yard.yaml")
    other.write_text(agent.read_text())
    names = [command.name for command in commands_of([agent, other])]
    assert names == ["broker", "agent", "agent-yard"]


def test_mistakes_in_own_configurations_are_found_before_anything_starts(tmp_path: Path) -> None:
    edge = write_plan(TierPlan(tmp_path, street_cameras())).configs["edge"]
    config = yaml.safe_load(edge.read_text())
    edge.write_text(yaml.safe_dump(config | {"lissen": "here"}))
    with pytest.raises(Malformed, match="lissen"):
        commands_of([edge])
    edge.write_text(yaml.safe_dump(config | {"listen": "127.0.0.1:0"}))
    with pytest.raises(Malformed, match="port"):
        commands_of([edge])
    with pytest.raises(Malformed, match="says the tier"):
        commands_of([edge.rename(tmp_path / "server.yaml")])
    with pytest.raises(NotFound, match=r"no configuration .*gone\.yaml"):
        commands_of([tmp_path / "gone.yaml"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match=r"agent\.yaml"):
        commands_of([tmp_path / "empty"])


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            '{"event": "serving", "level": "info", "at": "x", "logger": "e", "port": 5}',
            "info    serving port=5",
        ),
        ("Traceback (most recent call last):", "Traceback (most recent call last):"),
        ("[1, 2]", "[1, 2]"),
        ('{"no": "event"}', '{"no": "event"}'),
    ],
)
def test_logs_of_tiers_are_shown_for_people(line: str, shown: str) -> None:
    assert plain_log(line) == shown


def test_a_demo_clears_what_an_earlier_one_left_and_nothing_else(tmp_path: Path) -> None:
    from fovea.cli.demo_run import clear_earlier_run

    clear_earlier_run(tmp_path / "new")
    write_plan(TierPlan(tmp_path / "run", street_cameras()))
    clear_earlier_run(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    (tmp_path / "somebodys").mkdir()
    (tmp_path / "somebodys" / "thesis.txt").write_text("years")
    for folder in (tmp_path / "somebodys", tmp_path / "somebodys" / "thesis.txt"):
        with pytest.raises(Malformed, match="give another --out"):
            clear_earlier_run(folder)
    assert (tmp_path / "somebodys" / "thesis.txt").read_text() == "years"
