"""The part `updates` of agent and edge: strict, with paths of its own, and at odds with what it cannot be beside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edge_agent.config import AgentConfig
from edge_server.config import EdgeConfig
from fovea.core.errors import Malformed, NotFound
from fovea.process.update_config import UpdatesConfig
from fovea.runtime.config_file import parse_config
from fovea.update.device import DeviceDisk, DeviceUpdates

UPDATES = "{url: 'https://edge/releases', root: 1.root.json, folder: models, group: north, family: street%s}"
AGENT = "device: porch\nbundle: m.fovea\ncameras:\n  - {name: front, url: clip.mp4}\nupdates: "
EDGE = "bundle: m.fovea\nupdates: "


def agent(more: str = "") -> AgentConfig:
    return parse_config(AGENT + UPDATES % more, AgentConfig, "agent.yaml")


def test_what_is_left_out_has_its_usual_value(tmp_path: Path) -> None:
    updates = agent().resolved(tmp_path).updates
    assert updates is not None
    assert (updates.root, updates.folder) == (str(tmp_path / "1.root.json"), str(tmp_path / "models"))
    assert (updates.poll_every_s, updates.poll_jitter, updates.device_class) == (300.0, 0.2, "")
    assert (updates.shadow.most_share, updates.shadow.busy_share, updates.shadow.waiting) == (1.0, 0.5, 4)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (", url: 'ftp://edge'", "url"),
        (", url: 'https://me:hush@edge/'", "url"),
        (", group: North", "group"),
        (", poll_every_s: 0", "poll_every_s"),
        (", poll_jitter: 0.9", "poll_jitter"),
        (", cert: porch.pem", "expected both cert and key"),
        (", shadow: {busy_share: 0}", "busy_share"),
        (", shadow: {share: 0.1}", "no such key"),
        (", channel: north", "no such key"),
    ],
)
def test_a_mistake_is_told_with_its_key(more: str, told: str) -> None:
    with pytest.raises(Malformed, match=told):
        parse_config(
            (AGENT + UPDATES % more).replace("url: 'https://edge/releases', ", "")
            if "url" in more
            else AGENT + UPDATES % more,
            AgentConfig,
            "agent.yaml",
        )


def test_two_policies_are_not_compared_while_the_model_may_change() -> None:
    text = AGENT + UPDATES % "" + "\nedge: {address: 'box:1'}\nab: {a: x, b: y}\n"
    with pytest.raises(Malformed, match="expected ab or updates"):
        parse_config(text, AgentConfig, "agent.yaml")


def test_an_edge_has_a_name_and_may_have_a_broker(tmp_path: Path) -> None:
    more = ", device: edge-1, mqtt: {username: edge-1, password_file: secret}"
    updates = parse_config(EDGE + UPDATES % more, EdgeConfig, "edge.yaml").resolved(tmp_path).updates
    assert updates is not None and updates.mqtt is not None
    assert updates.mqtt.password_file == str(tmp_path / "secret")
    assert updates.folder == str(tmp_path / "models")
    with pytest.raises(Malformed, match="device"):
        parse_config(EDGE + UPDATES % "", EdgeConfig, "edge.yaml")


def test_a_root_of_trust_that_is_not_there_is_said_before_anything_is_asked(tmp_path: Path) -> None:
    wishes = UpdatesConfig(
        url="http://127.0.0.1:1", root=str(tmp_path / "no.json"), folder=str(tmp_path), group="g", family="f"
    )
    nobody: Any = None
    with pytest.raises(NotFound, match=r"updates\.root: no file"):
        DeviceUpdates(wishes, DeviceDisk(wishes), "porch", "boot", nobody, nobody, nobody)


def test_an_agent_and_an_edge_without_updates_do_not_even_load_what_these_need() -> None:
    script = (
        "import sys, edge_agent.bootstrap, edge_agent.run, edge_server.bootstrap\n"
        "print([name for name in ('tuf', 'securesystemslib', 'urllib3') if name in sys.modules])"
    )
    asked = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert asked.stdout.strip() == "[]"
