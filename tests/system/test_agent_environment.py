"""The agent as a new user installs it: the wheel and the agent's lock in an empty environment, without a compiler."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import pytest

from fovea import __version__
from fovea.sim.suite import load_suite
from tests.agent_package import (
    AGENT_LOCK,
    COMPILERS,
    ROOT,
    WITHOUT_BUILDING,
    arm64_wheels,
    build_wheel,
    pip_environment,
    run,
    skip_without_package_index,
)

pytestmark = pytest.mark.timeout(900)

ABSENT = ("matplotlib", "onnx", "torch", "torchvision", "ultralytics")
ON_DEVICES = (
    "edge_agent",
    "fovea.core",
    "fovea.link",
    "fovea.process",
    "fovea.runtime",
    "fovea.sim",
    "fovea.zoo",
    "protos",
)

IMPORT_DEVICE_MODULES = f"""
import importlib, json, pkgutil, sys
names = {list(ON_DEVICES)!r}
for name in names:
    module = importlib.import_module(name)
    names += [found.name for found in pkgutil.iter_modules(getattr(module, "__path__", ()), name + ".")]
print(json.dumps([names, [name for name in {list(ABSENT)!r} if name in sys.modules], module.__file__]))
"""


@dataclass(frozen=True, slots=True)
class Board:
    """An installed agent: its environment's `bin` folder is all that is on PATH, and $HOME is new."""

    bin: Path
    home: Path

    @property
    def env(self) -> dict[str, str]:
        """No CI, no telemetry switch, no thread settings: what a user's first shell has."""
        return {"PATH": str(self.bin), "HOME": str(self.home), "LANG": "C.UTF-8", "COLUMNS": "100"}

    def run(self, *command: str) -> str:
        """The output of a command that must succeed and leave nothing in $HOME."""
        said = run([self.bin / command[0], *command[1:]], self.env, self.home)
        assert list(self.home.rglob("*")) == []
        return said


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    skip_without_package_index(folder)
    return build_wheel(folder)


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Iterator[Board]:
    folder = tmp_path_factory.mktemp("board")
    board = Board(folder / "environment" / "bin", folder / "home")
    board.home.mkdir()
    run([sys.executable, "-m", "venv", board.bin.parent], {**board.env, "PATH": "/usr/bin:/bin"}, folder)
    pip = [str(board.bin / "python"), "-m", "pip", "install", "--quiet", "--no-compile"]
    run([*pip, *WITHOUT_BUILDING, "-r", AGENT_LOCK], pip_environment(board.bin), folder)
    run([*pip, "--no-deps", "--no-index", wheel], pip_environment(board.bin), folder)
    yield board
    shutil.rmtree(folder)


def test_the_wheel_is_pure_and_carries_the_models_and_the_messages_but_no_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert wheel.name == f"fovea-{__version__}-py3-none-any.whl"
    data = [
        *ROOT.glob("fovea/zoo/models/*.fovea"),
        *ROOT.glob("protos/*.proto"),
        *ROOT.glob("cloud/architectures/*.yaml"),
    ]
    assert {str(path.relative_to(ROOT)) for path in data} - names == set()
    assert {name.split("/")[0] for name in names} & {"tests", "deploy", "docs"} == set()


def test_the_agent_set_installs_without_a_compiler_and_its_parts_agree(board: Board) -> None:
    assert [name for name in COMPILERS if shutil.which(name, path=str(board.bin))] == []
    assert "No broken requirements" in board.run("python", "-m", "pip", "--no-cache-dir", "check")


def test_the_commands_answer(board: Board) -> None:
    assert board.run("fovea", "--version").strip() == f"fovea {__version__}"
    assert "agent" in board.run("fovea", "--help")
    assert "check" in board.run("fovea", "agent", "--help")


def test_the_training_side_is_not_there(board: Board) -> None:
    code = f"import importlib.util as i; print([n for n in {list(ABSENT)!r} if i.find_spec(n)])"
    assert board.run("python", "-c", code).strip() == "[]"
    code = "import cv2; print(*cv2.getBuildInformation().split('GUI:')[1].split()[:1])"
    assert board.run("python", "-c", code).strip() == "NONE"


def test_every_module_of_a_device_can_be_imported(board: Board) -> None:
    modules, loaded, where = json.loads(board.run("python", "-c", IMPORT_DEVICE_MODULES))
    assert {*ON_DEVICES, "fovea.runtime.onnx_detector"} <= set(modules)
    assert where.startswith(str(board.bin.parent))
    assert loaded == []


def test_a_bundled_model_runs_and_answers_as_it_did_when_it_was_made(board: Board) -> None:
    if not list(ROOT.glob("fovea/zoo/models/street-student-int8-*.fovea")):
        pytest.skip("this tree has no bundled models")
    code = "import fovea.zoo; print(fovea.zoo.path_of('street-student-int8'))"
    bundle = board.run("python", "-c", code).strip()
    assert bundle.startswith(str(board.bin.parent))

    said = board.run("fovea", "agent", "check", bundle, "--frames", "5")

    assert "answered as expected" in said


def test_the_agent_itself_runs_to_the_end_of_its_camera(board: Board, tmp_path: Path) -> None:
    (tmp_path / "frames").mkdir()
    clip = load_suite("street-v1").clip("val", "day", 0)
    for number in range(4):
        cv2.imwrite(str(tmp_path / "frames" / f"{number}.png"), clip.frame(number * 10).pixels)
    config = tmp_path / "agent.yaml"
    config.write_text(
        "device: board\nbundle: zoo:street-student-int8\nexit_when_finished: true\nresults_file: seen.jsonl\n"
        "cameras: [{name: street, url: frames, realtime: false}]\n",
        encoding="utf-8",
    )
    board.run("fovea", "agent", "--config", str(config))
    results = [json.loads(line) for line in (tmp_path / "seen.jsonl").read_text("utf-8").splitlines()]
    assert [result["sequence"] for result in results] == [0, 1, 2, 3]
    assert any(result["detections"] for result in results)


def test_a_bundle_that_is_not_there_is_refused_in_one_sentence(board: Board) -> None:
    refused = subprocess.run(
        [board.bin / "fovea", "agent", "check", "/nowhere/street-1.0.0.fovea"],
        env=board.env,
        cwd=board.home,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert refused.returncode == 2
    assert refused.stderr.startswith("fovea: ")
    assert "Traceback" not in refused.stderr
    assert list(board.home.rglob("*")) == []


@pytest.mark.parametrize("python", ["3.11", "3.13"])
def test_every_package_of_the_agents_lock_has_a_wheel_for_an_arm64_board(python: str, tmp_path: Path) -> None:
    skip_without_package_index(tmp_path)
    report = tmp_path / "report.json"
    no_tools = tmp_path / "no-tools"
    no_tools.mkdir()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    target = ["--target", str(tmp_path / "nothing"), "--report", str(report)]

    run([*pip, *target, *arm64_wheels(python), "-r", AGENT_LOCK], pip_environment(no_tools), tmp_path)

    urls = [each["download_info"]["url"] for each in json.loads(report.read_text())["install"]]
    wheels = [url.rsplit("/", 1)[-1] for url in urls]
    assert {"numpy", "onnxruntime", "opencv_python_headless", "grpcio"} <= {
        name.split("-")[0] for name in wheels
    }
    assert [name for name in wheels if not name.endswith(("-none-any.whl", "aarch64.whl"))] == []
