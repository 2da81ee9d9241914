"""The `fovea sim` commands write what they say."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
from typer.testing import CliRunner

from fovea.cli.sim import app
from fovea.core.errors import Malformed, NotFound


def test_render_writes_a_video_and_its_truth(tmp_path: Path) -> None:
    out, labels = tmp_path / "clip.mp4", tmp_path / "clip.json"
    done = CliRunner().invoke(
        app,
        [
            "render",
            "--split",
            "val",
            "--condition",
            "fog",
            "--index",
            "1",
            "--out",
            str(out),
            "--labels",
            str(labels),
            "--frames",
            "4",
        ],
    )
    assert done.exit_code == 0, done.output
    video = cv2.VideoCapture(str(out))
    frames = []
    while (read := video.read())[0]:
        frames.append(read[1])
    assert len(frames) == 4
    assert frames[0].shape == (540, 960, 3)
    truth = json.loads(labels.read_text())
    assert [image["frame_index"] for image in truth["images"]] == [0, 1, 2, 3]


def test_render_refuses_an_unknown_condition_and_another_container(tmp_path: Path) -> None:
    wrong = CliRunner().invoke(app, ["render", "--condition", "hail", "--out", str(tmp_path / "a.mp4")])
    assert isinstance(wrong.exception, NotFound)
    wrong = CliRunner().invoke(app, ["render", "--out", str(tmp_path / "a.gif")])
    assert isinstance(wrong.exception, Malformed)


def test_sheet_shows_every_condition(tmp_path: Path) -> None:
    out = tmp_path / "sheet.jpg"
    done = CliRunner().invoke(app, ["sheet", "--out", str(out), "--columns", "1", "--width", "320"])
    assert done.exit_code == 0, done.output
    for condition in ("day", "dusk", "night", "rain", "fog", "snow"):
        assert f"{condition} drawn" in done.output
    picture = cv2.imread(str(out))
    assert picture is not None
    assert picture.shape == (6 * 180, 320, 3)
