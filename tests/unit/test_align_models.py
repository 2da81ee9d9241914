"""Aligning real bundles: from frames to report and corrected bundle, and what the command refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from calibration.align import AlignSettings, align, corrected
from calibration.align_models import align_bundles, corrected_bundle, see_both
from calibration.align_report import Verdict
from fovea.cli.calibrate import app
from fovea.core.arrays import ImageArray
from fovea.core.errors import FoveaError, Malformed, NotFound
from fovea.core.scores import PlattCurve, ScoreCalibration
from fovea.runtime.bundle import Bundle
from fovea.runtime.images import encode_png
from tests.builders import scene, tiny_bundle
from tests.fakes import FakeDetector

FEW = AlignSettings(min_pairs=20, min_score=0.02)
SHY = ScoreCalibration(PlattCurve(1.6, -1.2))


def pictures(count: int) -> list[tuple[str, ImageArray]]:
    return [(f"clip-{index}", scene(96, 128, seed=index)) for index in range(count)]


def test_a_bundle_is_like_itself_and_unlike_its_shy_twin_until_it_is_corrected() -> None:
    plain = tiny_bundle(name="plain")
    shy = plain.with_calibration(SHY, name="shy")
    same = align_bundles(plain, plain, pictures(12), FEW)
    assert same.verdict is Verdict.ALIKE
    report = align_bundles(shy, plain, pictures(12), FEW)
    assert report.verdict is Verdict.CORRECTED
    assert report.weak == str(shy.ref)
    better = corrected_bundle(shy, report, "2")
    assert (better.manifest.name, better.manifest.version) == ("shy", "2")
    assert better.manifest.parent is not None and better.manifest.parent.sha256 == shy.ref.sha256
    assert better.manifest.report["align.strong"] == str(plain.ref)
    again = align_bundles(better, plain, pictures(12), FEW)
    assert again.score_kl < 0.2 * report.score_kl


def test_a_report_without_a_correction_makes_no_bundle() -> None:
    plain = tiny_bundle()
    report = align_bundles(plain, plain, pictures(12), FEW)
    with pytest.raises(Malformed, match="expected a report with a correction"):
        corrected_bundle(plain, report, "2")


def test_both_models_see_every_frame_once_and_in_order() -> None:
    a, b, told = FakeDetector(), FakeDetector(), list[int]()
    identity = ScoreCalibration.identity()
    weak, strong = see_both((a, b), (identity, corrected(identity, SHY)), pictures(5), 0.001, told.append)
    assert told == [1, 2, 3, 4, 5]
    assert a.batch_sizes == b.batch_sizes == [1] * 5
    assert weak.groups == tuple(f"clip-{index}" for index in range(5))
    assert all(
        (x.scores >= y.scores).all() and np.array_equal(x.boxes_xyxy, y.boxes_xyxy)
        for x, y in zip(weak.frames, strong.frames, strict=True)
    )
    with pytest.raises(Malformed, match="expected at least one frame"):
        see_both((a, b), (identity, identity), [], 0.05)
    with pytest.raises(Malformed, match="boxes that both models see, got 5 in 5 frames"):
        align(weak, weak)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    images = tmp_path / "images"
    images.mkdir()
    for name, pixels in pictures(20):
        (images / f"{name}.png").write_bytes(encode_png(pixels))
    plain = tiny_bundle(name="plain")
    return plain.with_calibration(SHY, name="shy").write(tmp_path), plain.write(tmp_path), images


def test_the_command_compares_two_bundles_on_a_folder_and_writes_what_was_found(
    files: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    shy, plain, images = files
    report, out = tmp_path / "found" / "report.json", tmp_path / "out"
    text = run("align", shy, plain, "--images", images, "--json", report, "--out", out, "--version", "3")
    said = json.loads(report.read_text())
    assert said["verdict"] == "corrected"
    assert said["frames"] == 20
    assert "corrected:" in text
    assert Bundle.open(out / "shy-3.fovea").manifest.report["align.score_kl"] == said["score_kl"]


def test_two_like_models_write_no_bundle(files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    _, plain, images = files
    text = run("align", plain, plain, "--images", images, "--out", tmp_path / "out", "--version", "3")
    assert "alike:" in text
    assert "no bundle was written" in text
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        ([], Malformed, "either --images FOLDER or --suite"),
        (["--images", "x", "--suite", "street-v1"], Malformed, "either --images FOLDER or --suite"),
        (["--suite", "street-v9"], Malformed, "--suite: expected street-v1, got 'street-v9'"),
        (["--suite", "street-v1", "--split", "all"], Malformed, "--split: expected train, val or test"),
        (["--suite", "street-v1", "--split", "train"], Malformed, "--split train: expected --clips"),
        (["--images", "nowhere"], NotFound, "no JPEG or PNG image in nowhere"),
        (["--images", "x", "--out", "y"], Malformed, "expected a --version"),
    ],
)
def test_the_command_refuses_what_it_cannot_use(
    files: tuple[Path, Path, Path], options: list[str], error: type[FoveaError], word: str
) -> None:
    with pytest.raises(error, match=word):
        run("align", files[0], files[1], *options)


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output
