"""`fovea calibrate all` on own images: from three bundles to calibrated ones with policies, and a report."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

from fovea.bench.own_images import LEAST_IMAGES
from fovea.cli.calibrate import app
from fovea.core.errors import Malformed, NotFound
from fovea.runtime.bundle import Bundle
from fovea.runtime.onnx_detector import OnnxDetector
from tests.builders import scene, tiny_bundle, tiny_onnx

SEEDS = {"camera": 1, "edge": 2, "cloud": 3}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images whose truth is what the cloud's model answers, with a box now and then of the edge's: so the cloud is
    the best, and the edge better than the camera."""
    folder = tmp_path_factory.mktemp("site")
    bundles = {
        name: tiny_bundle(model=tiny_onnx(seed=seed), name=name, version="1") for name, seed in SEEDS.items()
    }
    for bundle in bundles.values():
        bundle.write(folder)
    (folder / "images").mkdir()
    (folder / "labels").mkdir()
    eyes = [OnnxDetector.open(bundles[name], "cpu", 1) for name in ("camera", "edge", "cloud")]
    for number in range(LEAST_IMAGES):
        pixels = scene(seed=number)
        cv2.imwrite(str(folder / "images" / f"{number:04d}.png"), pixels)
        height, width = pixels.shape[:2]
        lines = []
        for eye, share in zip(eyes, (2, 4, 8), strict=True):
            seen = eye.detect([pixels])[0].candidates
            best = np.argsort(-seen.class_scores.max(axis=1))[:share]
            for box, channel in zip(
                seen.boxes_xyxy[best], seen.class_scores[best].argmax(axis=1), strict=True
            ):
                x1, y1, x2, y2 = (float(each) for each in box)
                middle = ((x1 + x2) / 2 / width, (y1 + y2) / 2 / height)
                lines.append(f"{channel} {middle[0]} {middle[1]} {(x2 - x1) / width} {(y2 - y1) / height}")
        (folder / "labels" / f"{number:04d}.txt").write_text("\n".join(lines))
    for eye in eyes:
        eye.close()
    return folder


def calibrate(site: Path, out: Path, *more: str) -> str:
    bundles = [str(site / f"{name}-1.fovea") for name in SEEDS]
    told = CliRunner(env={"COLUMNS": "160"}).invoke(
        app,
        ["all", bundles[0], "--edge", bundles[1], "--cloud", bundles[2], "--out", str(out), *more],
        catch_exceptions=False,
    )
    assert told.exit_code == 0, told.output
    return told.output


def test_bundles_and_images_become_calibrated_bundles_and_one_report(site: Path, tmp_path: Path) -> None:
    told = calibrate(
        site, tmp_path, "--data", str(site / "images"), "--folder", str(tmp_path / "kept"), "--version", "2",
        "--json", str(tmp_path / "grid.json"), "--resamples", "20", "--most-points", "40",
    )  # fmt: skip
    camera, edge = (Bundle.open(tmp_path / f"{name}-2.fovea") for name in ("camera", "edge"))
    assert [policy.name for policy in camera.policies()] == ["frugal", "balanced", "sharp"]
    assert camera.find_gate() is not None and edge.find_gate() is not None
    assert camera.manifest.parent is not None and camera.manifest.parent.version == "1"
    assert "d_ece_after" in camera.manifest.report
    page = (tmp_path / "calibration.html").read_text()
    for title in (
        "Scores of camera",
        "Scores of cloud",
        "Alignment of camera and edge",
        "Gate: the edge asks",
        "Policies",
    ):
        assert title in page
    assert "http" not in page.replace("http-equiv", "")
    assert json.loads((tmp_path / "grid.json").read_text())["front"]
    assert "sharp" in told


def test_images_without_labels_and_odd_label_names_are_refused(site: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="labels"):
        calibrate(site, tmp_path, "--data", str(site / "labels"))
    with pytest.raises(Malformed, match="model or coco"):
        calibrate(site, tmp_path, "--data", str(site / "images"), "--label-names", "mine")
