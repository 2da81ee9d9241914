"""`fovea bundle`: what a person sees, and what is refused before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fovea.cli.bundle import app
from fovea.core.errors import FoveaError, Incompatible, Malformed, NotFound
from fovea.core.yolo import Layout
from fovea.runtime.bundle import MODEL, Bundle
from fovea.runtime.golden import make_golden
from fovea.runtime.manifest import ColorOrder
from fovea.runtime.onnx_detector import OnnxDetector
from tests.builders import scene, tiny_bundle, tiny_onnx


def run(*arguments: object) -> str:
    """The output of a command that went well; an error comes through as it was raised."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "found model.onnx"
    path.write_bytes(tiny_onnx(Layout.ONE_TO_MANY))
    return path


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "labels.txt"
    path.write_text("person\ncar\n\nbicycle\n")
    return path


def test_an_onnx_file_and_a_label_list_become_a_bundle(model: Path, labels: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "bundles"
    text = run("import", model, "--labels", labels, "--licence", "MIT", "--color", "bgr", "--out", out)
    bundle = Bundle.open(out / "found-model-1.fovea")
    assert bundle.manifest.labels == ("person", "car", "bicycle")
    assert bundle.manifest.input.color is ColorOrder.BGR
    assert bundle.manifest.licence == "MIT"
    assert bundle.ref.sha256[:12] in text


@pytest.mark.parametrize(
    ("options", "kind", "word"),
    [
        (["--labels", "coco"], Malformed, "3 class channels, the label list has 80"),
        (["--labels", "nothing.txt"], NotFound, r"nothing.txt"),
        (["--labels", "file"], Malformed, "carries no names"),
        (["--color", "cmyk"], Malformed, "expected rgb, bgr, got 'cmyk'"),
        (["--placement", "left"], Malformed, "center, top_left, stretch"),
    ],
)
def test_a_wrong_option_is_refused_and_nothing_is_written(
    options: list[str], kind: type[FoveaError], word: str, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with pytest.raises(kind, match=word):
        run("import", model, "--licence", "MIT", "--out", out, *options)
    assert not out.exists()


def test_inspect_shows_what_the_manifest_says(tmp_path: Path) -> None:
    bundle = tiny_bundle(description="sees [very] little", report={"ap": 0.41})
    text = run("inspect", bundle.write(tmp_path))
    for word in ("tiny@1.0", "64x64", "sees [very] little", "person, car, bicycle", "ap 0.41", "model.onnx"):
        assert word in text


def test_verify_runs_the_model_and_its_golden_frames(tmp_path: Path) -> None:
    bundle = tiny_bundle()
    golden = make_golden(OnnxDetector.open(bundle, device="cpu"), [scene()], 0.1)
    text = run("verify", bundle.with_parts(golden).write(tmp_path), "--device", "cpu")
    assert "the same answer twice" in text
    assert "1 golden frames were seen as expected" in text
    assert "good" in text


def test_verify_refuses_a_model_that_answers_otherwise_than_it_did(tmp_path: Path) -> None:
    bundle = tiny_bundle()
    golden = make_golden(OnnxDetector.open(bundle, device="cpu"), [scene()], 0.1)
    other = bundle.with_parts({**golden, MODEL: tiny_onnx(seed=5)})
    with pytest.raises(Incompatible, match=r"golden frame 00.png"):
        run("verify", other.write(tmp_path), "--device", "cpu")


def test_verify_refuses_a_flipped_bit_before_it_runs_anything(tmp_path: Path) -> None:
    path = tiny_bundle().write(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    with pytest.raises(Malformed, match="damaged"):
        run("verify", path)


def test_build_refuses_a_size_that_is_no_size_and_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(Malformed, match="HEIGHTxWIDTH, got '64O'"):
        run("build", "model.pt", "--imgsz", "64O")
    with pytest.raises(NotFound, match="no weights file"):
        run("build", tmp_path / "none.pt")
