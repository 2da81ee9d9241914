"""`fovea camera` and `fovea detect` as a person uses them."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from edge_agent.capture.source import SourceSpec, open_source, read_next
from edge_agent.config import load_config
from edge_agent.settings_from_config import source_spec
from fovea.cli import camera, detect
from fovea.cli.main import GROUPS
from fovea.core.errors import FoveaError, Malformed, NotFound
from fovea.process.clock import SystemClock
from tests.builders import tiny_bundle
from tests.unit.test_agent_sources import write_picture, write_video

SECRET = "hunter2hunter2"
CONFIG = """\
device: box
bundle: zoo:street-student-int8
cameras:
  - name: door  # the front door
    url: rtsp://door/main
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "etc" / "agent.yaml"
    path.parent.mkdir()
    path.write_text(CONFIG)
    return path


def run_camera(*words: str, typed: str = "") -> str:
    """The output of a command that has to succeed; its FoveaErrors come through."""
    result = CliRunner().invoke(camera.app, words, input=typed)
    if isinstance(result.exception, FoveaError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def run_detect(*words: str) -> str:
    result = CliRunner().invoke(detect.app, words)
    if isinstance(result.exception, FoveaError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def test_both_groups_are_in_the_overview() -> None:
    assert {"camera", "detect"} <= set(GROUPS)


def test_a_source_is_tried_and_its_first_frame_saved(tmp_path: Path) -> None:
    video = write_video(tmp_path / "clip.mp4", 3, size=(64, 48), fps=12.5)
    for name in ("first.jpg", "deep/first.png"):
        output = run_camera("test", str(video), "--save", str(tmp_path / name))
        assert "64x48, 12.5 frames/s" in output and "first frame after" in output
        captured = read_next(open_source(SourceSpec(str(tmp_path / name)), SystemClock()))
        assert captured is not None and captured.pixels.shape == (48, 64, 3)
    with pytest.raises(Malformed, match=r"\.jpg or \.png"):
        run_camera("test", str(video), "--save", "first.tiff")
    with pytest.raises(NotFound):
        run_camera("test", str(tmp_path / "gone.mp4"))


def test_a_camera_is_added_and_listed(config: Path) -> None:
    run_camera("add", "yard", "rtsp://yard/main", "--config", str(config), "--fps", "2")
    assert "# the front door" in config.read_text()
    added = load_config(config).cameras[1]
    assert (added.name, added.url, added.fps, added.username) == ("yard", "rtsp://yard/main", 2.0, None)
    listed = run_camera("list", "--config", str(config))
    assert "door" in listed and "yard" in listed and "rtsp://yard/main" in listed
    with pytest.raises(Malformed, match="yard"):
        run_camera("add", "yard", "rtsp://other/main", "--config", str(config))


@pytest.mark.parametrize("way", ["typed", "file", "address"])
def test_a_password_goes_to_a_file_of_its_own_and_never_to_the_configuration(
    config: Path, tmp_path: Path, way: str
) -> None:
    given = tmp_path / "given.txt"
    given.write_text(SECRET + "\n")
    url, more, typed = "rtsp://yard/main", ["--username", "admin"], ""
    if way == "typed":
        typed = SECRET + "\n"
    if way == "file":
        more += ["--password-file", str(given)]
    if way == "address":
        url, more = f"rtsp://admin:{SECRET}@yard/main", []
    output = run_camera("add", "the yard/2", url, "--config", str(config), *more, typed=typed)
    assert SECRET not in output and SECRET not in config.read_text()
    added = load_config(config).cameras[1]
    spec = source_spec(added)
    assert (spec.username, spec.password, spec.url) == ("admin", SECRET, "rtsp://yard/main")
    own = config.parent / "the-yard-2.password"
    assert own.exists() == (way != "file")
    if own.exists():
        assert stat.S_IMODE(own.stat().st_mode) == 0o600
    assert "admin" in run_camera("list", "--config", str(config))


def test_a_camera_that_cannot_be_added_leaves_no_password_behind(config: Path) -> None:
    with pytest.raises(Malformed):
        run_camera("add", "door", f"rtsp://admin:{SECRET}@yard/main", "--config", str(config))
    assert config.read_text() == CONFIG
    assert [path.name for path in config.parent.iterdir()] == ["agent.yaml"]


def test_the_path_of_a_file_is_that_of_the_command_line(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_video(tmp_path / "clip.mp4", 2)
    monkeypatch.chdir(tmp_path)
    run_camera("add", "film", "clip.mp4", "--config", str(config))
    assert yaml.safe_load(config.read_text())["cameras"][1]["url"] == str(tmp_path / "clip.mp4")


def test_a_password_needs_a_username(tmp_path: Path) -> None:
    with pytest.raises(Malformed, match="--username"):
        run_camera("test", "rtsp://cam/s", "--password-file", str(tmp_path / "x"))


def test_detect_writes_what_it_found_and_says_it_in_one_line(tmp_path: Path) -> None:
    bundle = tiny_bundle().write(tmp_path)
    for name in ("1.png", "2.png"):
        write_picture(tmp_path / "in" / name, 120)
    save = tmp_path / "out"
    output = run_detect(str(tmp_path / "in"), "--bundle", str(bundle), "--save", str(save))
    assert "in 2 frames at" in output and "frames/s" in output
    found = json.loads((save / "detections.json").read_text())
    assert [image["file_name"] for image in found["images"]] == ["1.png", "2.png"]
    assert found["info"]["model"].startswith("tiny@1.0#")
    assert (save / "1.jpg").is_file()


def test_detect_looks_at_a_hundred_frames_of_a_source_without_an_end(tmp_path: Path) -> None:
    bundle = tiny_bundle().write(tmp_path)
    words = ["sim://street-v1/day?size=96x54", "--bundle", str(bundle), "--save", str(tmp_path / "out")]
    assert "in 4 frames at" in run_detect(*words, "--limit", "4", "--every", "2")
    found = json.loads((tmp_path / "out" / "detections.json").read_text())
    assert [image["frame_index"] for image in found["images"]] == [0, 2, 4, 6]


def test_detect_never_writes_over_the_pictures_that_it_looks_at(tmp_path: Path) -> None:
    picture = write_picture(tmp_path / "in" / "a.jpg", 50)
    before = picture.read_bytes()
    for source in (picture, picture.parent):
        with pytest.raises(Malformed, match="another folder"):
            run_detect(str(source), "--bundle", "zoo:street-student-int8", "--save", str(picture.parent))
    assert picture.read_bytes() == before
