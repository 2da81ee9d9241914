"""The second act's fleet: configurations that are sound and know each other, and cohorts of one device each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from fovea.cli.demo_loop_plan import DEVICES, GROUP, LoopPlan, plan_loop, small_plan
from fovea.cli.demo_loop_rollout import begin_releases, one_by_one
from fovea.cli.demo_run import clear_earlier_run
from fovea.core.errors import Incompatible, Malformed
from fovea.core.release import Stage, cohort_place
from tests.builders import tiny_bundle


def test_every_configuration_is_sound_and_they_know_each_other(tmp_path: Path) -> None:
    from cloud.config import load_config as load_cloud
    from edge_agent.config import load_config as load_agent
    from edge_server.config import load_config as load_edge

    planned = plan_loop(LoopPlan(tmp_path))
    cloud, edge = load_cloud(planned.cloud_config), load_edge(tmp_path / "edge.yaml")
    assert cloud.releases is not None
    assert cloud.mqtt is not None
    assert edge.cloud is not None
    assert edge.cloud.address == cloud.listen
    cameras = []
    for device in DEVICES:
        agent = load_agent(tmp_path / f"{device}.yaml")
        assert agent.edge is not None
        assert agent.mqtt is not None
        assert agent.updates is not None
        assert (agent.device, agent.edge.address) == (device, edge.listen)
        assert agent.mqtt.port == cloud.mqtt.port
        assert agent.updates.url == f"http://{cloud.releases.listen}"
        assert agent.updates.root == str(planned.releases / "public" / "metadata" / "1.root.json")
        assert agent.updates.family == cloud.learning.family
        assert agent.bundle == cloud.learning.champion
        cameras += [camera.name for camera in agent.cameras]
    assert cameras == list(planned.plan.cameras)
    assert [command.name for command in planned.commands] == ["broker", "cloud", "edge", *DEVICES]


def test_the_budget_never_binds_so_that_the_asked_rate_is_what_the_gate_thinks(tmp_path: Path) -> None:
    from edge_agent.config import load_config as load_agent

    plan_loop(LoopPlan(tmp_path, fps=2.0))
    agent = load_agent(tmp_path / "north.yaml")
    assert agent.budget.asks_per_s > sum(camera.fps or 0 for camera in agent.cameras)
    assert not agent.qoe.enabled


def test_night_falls_for_all_cameras_and_nothing_else_changes(tmp_path: Path) -> None:
    planned = plan_loop(LoopPlan(tmp_path))
    by_day = {device: yaml.safe_load((tmp_path / f"{device}.yaml").read_text()) for device in DEVICES}
    planned.turn_to("night")
    for device, before in by_day.items():
        after = yaml.safe_load((tmp_path / f"{device}.yaml").read_text())
        for old, new in zip(before["cameras"], after["cameras"], strict=True):
            assert new["url"] == old["url"].replace("/day?", "/night?")
            assert "/day?" in old["url"]
            new["url"] = old["url"]
        assert after == before


def test_no_two_cameras_see_the_same_street(tmp_path: Path) -> None:
    plan_loop(LoopPlan(tmp_path, seed=3))
    urls = [
        camera["url"]
        for device in DEVICES
        for camera in yaml.safe_load((tmp_path / f"{device}.yaml").read_text())["cameras"]
    ]
    assert len(set(urls)) == 6


def test_the_small_act_judges_by_fewer_frames_than_it_labels() -> None:
    from cloud.learn.promotion import PromotionSettings

    for plan in (LoopPlan(Path("x")), small_plan(LoopPlan(Path("x")))):
        labelled = 4 * plan.golden_clips
        assert max(plan.golden_clips, 20) < 0.6 * labelled
        assert PromotionSettings(min_golden_frames=plan.golden_clips).min_golden_frames > 0
        assert plan.stage_s < plan.stage_most_s


def test_an_earlier_run_is_known_by_its_cloud_and_anything_else_is_left_alone(tmp_path: Path) -> None:
    plan_loop(LoopPlan(tmp_path / "run"))
    clear_earlier_run(tmp_path / "run", "cloud.yaml")
    assert not (tmp_path / "run").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letters.txt").write_text("dear")
    with pytest.raises(Malformed, match="give another --out"):
        clear_earlier_run(tmp_path / "mine", "cloud.yaml")
    assert (tmp_path / "mine" / "letters.txt").exists()


def test_each_share_takes_in_one_device_more() -> None:
    shares = [0.34, 0.67]
    salt = one_by_one(DEVICES, shares)
    counts = [sum(cohort_place(salt, device) < share for device in DEVICES) for share in shares]
    assert counts == [1, 2]


def test_shares_that_no_salt_can_meet_are_an_error_and_no_endless_search() -> None:
    with pytest.raises(Incompatible, match="no salt takes 3 devices in"):
        one_by_one(DEVICES, [1.0, 1.0], tries=20)


def test_the_fleet_is_told_to_run_what_it_came_with(tmp_path: Path) -> None:
    from cloud.config import load_config
    from cloud.loop_bootstrap import open_repository

    planned = plan_loop(replace(LoopPlan(tmp_path), workers=1))
    first = tiny_bundle()
    begin_releases(planned, first)
    told = load_config(planned.cloud_config)
    assert told.releases is not None
    desired = open_repository(told.releases).desired(GROUP)
    assert desired is not None
    assert (desired.stage, desired.champion.sha256, desired.candidate) == (Stage.IDLE, first.ref.sha256, None)
    assert desired.for_device("north").run.sha256 == first.ref.sha256
