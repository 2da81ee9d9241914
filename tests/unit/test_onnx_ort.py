"""ONNX Runtime's one door: quiet, never silently on another device, every error in our words."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from fovea.core.errors import DetectorFailed, FoveaError, Incompatible, Malformed, NotFound
from fovea.core.yolo import Layout
from fovea.runtime import ort
from fovea.runtime.ort import checked_device, load_ort, open_session
from tests.builders import tiny_onnx

ZEROS = {"images": np.zeros((1, 3, 64, 64), np.float32)}
ROOT = Path(__file__).parents[2]

RUN_A_SESSION = """
import numpy, os, sys
from pathlib import Path
from fovea.runtime.ort import open_session
session = open_session(Path(sys.argv[1]), "cpu")
session.run({"images": numpy.zeros((1, 3, 64, 64), numpy.float32)}, ["boxes"])
assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
"""

IMPORT_ALL = """
import importlib, os, pkgutil, sys, threading
import numpy, cv2, pydantic
before = dict(os.environ)
import fovea.runtime
for module in pkgutil.iter_modules(fovea.runtime.__path__):
    importlib.import_module("fovea.runtime." + module.name)
assert "onnxruntime" not in sys.modules, "onnxruntime was imported"
assert not {"torch", "onnx", "ultralytics"} & set(sys.modules), sys.modules.keys()
assert dict(os.environ) == before, "the environment changed"
assert threading.active_count() == 1, threading.enumerate()
"""


def quiet_environment(home: Path) -> dict[str, str]:
    """An environment without CI (in which the library keeps quiet by itself) and without our own switch."""
    return {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def test_a_session_leaves_the_home_folder_clean(tmp_path: Path) -> None:
    home, work, model = tmp_path / "home", tmp_path / "work", tmp_path / "model.onnx"
    home.mkdir()
    work.mkdir()
    model.write_bytes(tiny_onnx())
    command = [sys.executable, "-B", "-c", RUN_A_SESSION, str(model)]
    done = subprocess.run(command, env=quiet_environment(home), cwd=work, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert list(home.rglob("*")) == []
    assert list(work.rglob("*")) == []


def test_importing_the_runtime_modules_loads_no_onnxruntime_and_changes_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-B", "-c", IMPORT_ALL]
    done = subprocess.run(command, env=quiet_environment(tmp_path), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_a_session_knows_its_tensors_and_gives_the_outputs_asked_for() -> None:
    session = open_session(tiny_onnx(), "cpu")
    assert [(info.name, info.shape, info.dtype) for info in session.inputs] == [
        ("images", (None, 3, 64, 64), "float32")
    ]
    assert [info.name for info in session.outputs] == ["boxes", "logits"]
    (logits,) = session.run(ZEROS, ["logits"])
    assert logits.shape == (1, 3, 84)
    assert session.device == "cpu"


@pytest.mark.parametrize(
    ("device", "expected"), [("auto", "auto"), ("cpu", "cpu"), ("cuda", "cuda:0"), ("cuda:3", "cuda:3")]
)
def test_known_devices_are_accepted(device: str, expected: str) -> None:
    assert checked_device(device) == expected


@pytest.mark.parametrize("device", ["", "gpu", "cuda:", "cuda:-1", "CPU", "cuda:0 "])
def test_an_unknown_device_is_refused_and_the_known_ones_are_named(device: str) -> None:
    with pytest.raises(Malformed, match="auto, cpu or cuda:N"):
        open_session(tiny_onnx(), device)


@pytest.fixture
def runtime_that_claims_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """ONNX Runtime as it is with CUDA built in on a machine whose driver is missing: it falls back in silence."""
    real = load_ort()

    class Session(real.InferenceSession):  # type: ignore[name-defined, misc]
        def __init__(self, model: bytes, options: object, providers: list[object]) -> None:
            super().__init__(model, options, providers=["CPUExecutionProvider"])

    fake = SimpleNamespace(
        **{name: getattr(real, name) for name in ("SessionOptions", "ExecutionMode", "capi", "__version__")},
        InferenceSession=Session,
        get_available_providers=lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"],
    )
    monkeypatch.setattr(ort, "load_ort", lambda: fake)
    yield


@pytest.mark.usefixtures("runtime_that_claims_cuda")
def test_a_silent_fall_back_to_the_cpu_is_refused_when_cuda_was_named_and_taken_when_it_was_not() -> None:
    with pytest.raises(Incompatible, match="did not start"):
        open_session(tiny_onnx(), "cuda:0")
    assert open_session(tiny_onnx(), "auto").device == "cpu"


def test_cuda_is_refused_where_the_runtime_has_none() -> None:
    if "CUDAExecutionProvider" in load_ort().get_available_providers():
        pytest.skip("this onnxruntime has CUDA built in")
    with pytest.raises(Incompatible, match="has no CUDA"):
        open_session(tiny_onnx(), "cuda:0")


def test_an_old_runtime_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    load_ort.cache_clear()
    import onnxruntime

    monkeypatch.setattr(onnxruntime, "__version__", "1.26.0")
    with pytest.raises(Incompatible, match=r"expected 1.27 or newer, got 1.26.0"):
        load_ort()
    monkeypatch.undo()
    load_ort.cache_clear()
    assert load_ort() is onnxruntime


def _model_with(**changes: int) -> bytes:
    model = onnx.load_from_string(tiny_onnx())
    if "opset" in changes:
        model.opset_import[0].version = changes["opset"]
    if "ir" in changes:
        model.ir_version = changes["ir"]
    data: bytes = model.SerializeToString()
    return data


def _model_with_unknown_operator() -> bytes:
    model = onnx.load_from_string(tiny_onnx())
    model.graph.node[0].op_type = "Convolve"
    data: bytes = model.SerializeToString()
    return data


def _model_with_loose_end() -> bytes:
    model = onnx.load_from_string(tiny_onnx())
    model.graph.node[0].input[0] = "nothing"
    data: bytes = model.SerializeToString()
    return data


@pytest.mark.parametrize(
    ("data", "kind", "word"),
    [
        (_model_with(opset=99), Incompatible, "pset 99"),
        (_model_with(ir=99), Incompatible, "IR version: 99"),
        (_model_with_unknown_operator(), FoveaError, "Convolve"),
        (_model_with_loose_end(), Malformed, "nothing"),
        (tiny_onnx()[:1000], Malformed, "protobuf"),
        (b"", Malformed, "empty"),
        (b"<html>404</html>", Malformed, "HTML"),
        (b"version https://git-lfs.github.com/spec/v1", Malformed, "git-LFS"),
        (b"hello", Malformed, "protobuf"),
        (b"\x80\x04\x95", Malformed, "pickle"),
    ],
    ids=["opset", "ir", "operator", "loose end", "partial", "empty", "html", "lfs", "text", "pickle"],
)
def test_a_wrong_model_file_is_refused_in_a_plain_sentence(
    data: bytes, kind: type[FoveaError], word: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    with pytest.raises(kind, match=word) as caught:
        open_session(path, "cpu")
    assert len(str(caught.value)) < 400
    assert "std::" not in str(caught.value)


def test_a_missing_model_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        open_session(tmp_path / "none.onnx", "cpu")


def test_a_failing_run_and_a_closed_session_are_detector_failures() -> None:
    session = open_session(tiny_onnx(Layout.YOLOX), "cpu")
    with pytest.raises(DetectorFailed, match="did not run"):
        session.run({"images": np.zeros((1, 3, 32, 64), np.float32)}, ["output"])
    with pytest.raises(DetectorFailed, match="did not run"):
        session.run({"pictures": ZEROS["images"]}, ["output"])
    session.close()
    session.close()
    with pytest.raises(DetectorFailed, match="closed"):
        session.run(ZEROS, ["output"])


def test_zero_threads_are_refused() -> None:
    with pytest.raises(Malformed, match="threads"):
        open_session(tiny_onnx(), "cpu", threads=0)
