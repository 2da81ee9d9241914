"""The dry run: a model is tried in a child process, and every way to fail becomes a sentence."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from fovea.core.errors import Incompatible, Malformed, NotFound, RejectedError
from fovea.core.yolo import Layout
from fovea.runtime.dry_run import dry_run, main
from fovea.runtime.manifest import BatchMode, InputDtype, TensorLayout
from tests.builders import tiny_bundle, tiny_onnx


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.onnx"
    path.write_bytes(tiny_onnx())
    return path


def interpreter(tmp_path: Path, body: str) -> list[str]:
    """A stand-in for the child's Python: a script that does `body` instead of the dry run."""
    script = tmp_path / "child.py"
    script.write_text(f"import os, signal, sys, time\n{body}\n")
    return [sys.executable, str(script)]


def small_graph(output: str, *nodes: onnx.NodeProto, shape: list[int | str]) -> bytes:
    graph = helper.make_graph(
        list(nodes),
        "small",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data: bytes = model.SerializeToString()
    return data


def test_a_sound_model_is_reported_with_its_shapes(model: Path) -> None:
    report = dry_run(model)
    assert report.inputs[0].declared == (None, 3, 64, 64)
    assert report.inputs[0].shape == (1, 3, 64, 64)
    assert {output.name: output.shape for output in report.outputs} == {
        "boxes": (1, 16, 84),
        "logits": (1, 3, 84),
    }
    assert report.device == "cpu"
    assert report.is_deterministic
    assert report.is_finite
    assert report.is_batch_independent is True
    assert report.run_ms > 0


def test_a_bundle_is_tried_as_well(tmp_path: Path) -> None:
    assert dry_run(tiny_bundle().write(tmp_path)).outputs[0].name == "boxes"


def test_the_child_has_an_environment_of_its_own_with_telemetry_off(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    seen = tmp_path / "environment.json"
    body = f"import json; json.dump(dict(os.environ), open({str(seen)!r}, 'w'))"
    with pytest.raises(Incompatible, match="no report"):
        dry_run(model, interpreter=interpreter(tmp_path, body))
    environment = json.loads(seen.read_text())
    assert environment["ORT_DISABLE_TELEMETRY"] == "1"
    assert "SECRET_TOKEN" not in environment
    assert environment["HOME"] != os.environ.get("HOME")
    assert not Path(environment["HOME"]).exists()


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("os.kill(os.getpid(), signal.SIGILL)", "instruction that this processor does not have"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "crashed .SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "memory"),
        ("os.kill(os.getpid(), signal.SIGUSR1)", "SIGUSR1"),
        ("os.kill(os.getpid(), 40)", "signal"),
        ("sys.exit(1)", "code 1: no message"),
        ("sys.stderr.write('noise\\nno such library\\n'); sys.exit(9)", "code 9: no such library"),
        ("sys.exit(3)", "code 3"),
        ("print('hello')", "no report, got b'hello"),
        ("print('{not json')", "no report"),
        ('print(\'{"device": "cpu"}\')', "unknown report: .*onnxruntime"),
        ("print('[1]')", "no report"),
    ],
)
def test_each_way_to_fail_is_a_sentence(tmp_path: Path, model: Path, body: str, word: str) -> None:
    with pytest.raises(Incompatible, match=word) as caught:
        dry_run(model, interpreter=interpreter(tmp_path, body))
    assert str(caught.value).startswith("tiny.onnx: ")


def test_a_model_that_never_answers_is_given_up_after_the_timeout(tmp_path: Path, model: Path) -> None:
    with pytest.raises(Incompatible, match=r"within 0.2 s"):
        dry_run(model, timeout_s=0.2, interpreter=interpreter(tmp_path, "time.sleep(60)"))


def test_a_refusal_of_the_child_arrives_as_the_same_kind_of_error(tmp_path: Path) -> None:
    page = tmp_path / "page.onnx"
    page.write_bytes(b"<html>404</html>")
    with pytest.raises(Malformed, match=r"page.onnx: expected an ONNX graph, got an HTML"):
        dry_run(page)
    with pytest.raises(NotFound):
        dry_run(tmp_path / "none.onnx")
    old = onnx.load_from_string(tiny_onnx())
    old.opset_import[0].version = 99
    (tmp_path / "future.onnx").write_bytes(old.SerializeToString())
    with pytest.raises(Incompatible, match="pset 99"):
        dry_run(tmp_path / "future.onnx")


def test_a_model_that_loads_and_does_not_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "split.onnx"
    path.write_bytes(
        small_graph("out", helper.make_node("MatMul", ["images", "images"], ["out"]), shape=["n", 3, "h", 32])
    )
    with pytest.raises(Incompatible, match="did not run"):
        dry_run(path, side_px=48)


def reported(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, object]:
    assert main([str(path), *options]) == 0
    report: dict[str, object] = json.loads(capsys.readouterr().out)
    return report


def test_nan_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "nan.onnx"
    zero = helper.make_node("Sub", ["images", "images"], ["zero"])
    path.write_bytes(
        small_graph("out", zero, helper.make_node("Div", ["zero", "zero"], ["out"]), shape=[1, 3, 8, 8])
    )
    assert reported(path, capsys)["is_finite"] is False


def test_another_answer_each_time_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "random.onnx"
    path.write_bytes(
        small_graph("out", helper.make_node("RandomUniformLike", ["images"], ["out"]), shape=[1, 3, 8, 8])
    )
    assert reported(path, capsys)["is_deterministic"] is False


def test_an_answer_that_depends_on_the_neighbours_in_the_batch_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "neighbours.onnx"
    mean = helper.make_node("ReduceMean", ["images"], ["mean"], axes=[0], keepdims=1)
    path.write_bytes(
        small_graph("out", mean, helper.make_node("Sub", ["images", "mean"], ["out"]), shape=["n", 3, 8, 8])
    )
    assert reported(path, capsys)["is_batch_independent"] is False


def test_free_sides_take_the_size_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "free.onnx"
    path.write_bytes(
        small_graph("out", helper.make_node("Relu", ["images"], ["out"]), shape=["n", 3, "h", "w"])
    )
    report = reported(path, capsys, "--side", "96")
    assert report["inputs"] == [
        {"name": "images", "dtype": "float32", "declared": [None, 3, None, None], "shape": [1, 3, 96, 96]}
    ]


@pytest.mark.parametrize("layout", list(Layout))
def test_all_layouts_and_inputs_of_the_product_pass(
    layout: Layout, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(
        tiny_onnx(layout, dtype=InputDtype.UINT8, tensor_layout=TensorLayout.NHWC, batch=BatchMode.FIXED)
    )
    report = reported(path, capsys)
    assert report["is_batch_independent"] is None
    assert report["is_finite"] is True


def test_an_input_that_is_no_image_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = helper.make_graph(
        [helper.make_node("Identity", ["tokens"], ["out"])],
        "text",
        [helper.make_tensor_value_info("tokens", TensorProto.INT64, [1, 4])],
        [helper.make_tensor_value_info("out", TensorProto.INT64, [1, 4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "text.onnx"
    path.write_bytes(model.SerializeToString())
    assert main([str(path)]) == 3
    answer = json.loads(capsys.readouterr().out)
    assert answer["kind"] == "Incompatible"
    assert "float32, float16 or uint8" in answer["message"]
    with pytest.raises(RejectedError):
        dry_run(path)
