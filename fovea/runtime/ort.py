"""The one place that loads ONNX Runtime: telemetry off, devices never guessed, errors in our own words."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fovea.core.errors import DetectorFailed, FoveaError, Incompatible, Malformed, NotFound
from fovea.runtime.wrong_file import explain_wrong_file

Device = str
"""`auto`, `cpu`, or `cuda:N`; see `checked_device`."""

OLDEST_VERSION: Final = (1, 27)
"""1.24 to 1.26 leak memory on some ARM cores when every run brings a fresh input."""

_CUDA = "CUDAExecutionProvider"
_CPU = "CPUExecutionProvider"
_DTYPES: Final[Mapping[str, type[np.generic]]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(uint8)": np.uint8,
    "tensor(int8)": np.int8,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(bool)": np.bool_,
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One input or output of a graph. A free dimension is None; `dtype` is numpy's name, else ONNX's."""

    name: str
    shape: tuple[int | None, ...]
    dtype: str

    def __str__(self) -> str:
        dims = ", ".join("?" if dim is None else str(dim) for dim in self.shape)
        return f"{self.name} {self.dtype}({dims})"


@lru_cache(maxsize=1)
def load_ort() -> ModuleType:
    """The onnxruntime module, with telemetry off before and after the import.

    Its Linux wheels report usage by default and leave an id under $HOME; the variable has to be set before the
    import, which is why this one function writes to the environment. Raises Incompatible when it is missing,
    cannot be loaded on this machine, or is too old.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        import onnxruntime
    except (ImportError, OSError) as error:
        raise Incompatible(f"onnxruntime cannot be loaded on this machine: {error}") from error
    found = tuple(int(number) for number in re.findall(r"\d+", onnxruntime.__version__)[:2])
    if found < OLDEST_VERSION:
        oldest = ".".join(map(str, OLDEST_VERSION))
        raise Incompatible(f"onnxruntime: expected {oldest} or newer, got {onnxruntime.__version__}")
    onnxruntime.disable_telemetry_events()
    module: ModuleType = onnxruntime
    return module


def checked_device(device: str) -> Device:
    """`device` if it is `auto`, `cpu`, `cuda` or `cuda:N` (`cuda` is `cuda:0`), else Malformed."""
    if device in ("auto", "cpu") or re.fullmatch(r"cuda:\d{1,2}", device):
        return device
    if device == "cuda":
        return "cuda:0"
    raise Malformed(f"device: expected auto, cpu or cuda:N, got {device!r}")


class OrtSession:
    """A loaded graph. One caller at a time; `close` frees it."""

    def __init__(self, session: Any, device: Device) -> None:
        self._session = session
        self.device = device
        self.inputs = tuple(_tensor_info(node) for node in session.get_inputs())
        self.outputs = tuple(_tensor_info(node) for node in session.get_outputs())
        self.metadata: dict[str, str] = dict(session.get_modelmeta().custom_metadata_map)

    def run(self, feeds: Mapping[str, NDArray[Any]], outputs: Sequence[str]) -> list[NDArray[Any]]:
        """The named outputs for `feeds`. Raises DetectorFailed when the run fails or the session is closed."""
        if self._session is None:
            raise DetectorFailed("the model was closed")
        try:
            answers: list[NDArray[Any]] = self._session.run(list(outputs), dict(feeds))
        except _ort_errors() as error:
            raise DetectorFailed(f"the model did not run: {_first_sentence(error)}") from error
        return answers

    def close(self) -> None:
        self._session = None


def open_session(model: bytes | Path, device: str = "auto", threads: int = 1) -> OrtSession:
    """Loads an ONNX graph for `device`, with `threads` intra-op threads that sleep, not spin, between runs.

    `auto` takes the first CUDA device where there is one, else the CPU. A named CUDA device that cannot be used
    raises Incompatible: it never falls back in silence. Raises NotFound (no such file), Malformed (not an ONNX
    graph) or Incompatible (a graph this runtime cannot run).
    """
    if threads < 1:
        raise Malformed(f"threads: expected 1 or more, got {threads}")
    wanted = checked_device(device)
    data = _model_bytes(model)
    ort = load_ort()
    available = ort.get_available_providers()
    if wanted.startswith("cuda") and _CUDA not in available:
        raise Incompatible(
            f"device {wanted}: this onnxruntime has no CUDA (it offers {', '.join(available)})"
        )
    use_cuda = wanted.startswith("cuda") or (wanted == "auto" and _CUDA in available)
    index = int(wanted.partition(":")[2] or 0)
    session = _create(ort, data, _providers(ort, index) if use_cuda else [_CPU], _options(ort, threads))
    has_cuda = _CUDA in session.get_providers()
    if wanted.startswith("cuda") and not has_cuda:
        raise Incompatible(
            f"device {wanted}: CUDA is built in but did not start (driver, cuDNN or device missing)"
        )
    return OrtSession(session, f"cuda:{index}" if has_cuda else "cpu")


def _model_bytes(model: bytes | Path) -> bytes:
    data = _read(model) if isinstance(model, Path) else model
    wrong = explain_wrong_file(data)
    if wrong is not None:
        raise Malformed(f"expected an ONNX graph, got {wrong}")
    return data


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise NotFound(f"no model file {path}") from error
    except OSError as error:
        raise Malformed(f"cannot read {path}: {error.strerror}") from error


def _providers(ort: ModuleType, index: int) -> list[Any]:
    if hasattr(ort, "preload_dlls"):
        ort.preload_dlls()
    # Batches of many sizes: the exhaustive search of cuDNN would stall at each new one.
    return [(_CUDA, {"device_id": index, "cudnn_conv_algo_search": "HEURISTIC"}), _CPU]


def _options(ort: ModuleType, threads: int) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    return options


def _create(ort: ModuleType, data: bytes, providers: list[Any], options: Any) -> Any:
    state = ort.capi.onnxruntime_pybind11_state
    try:
        return ort.InferenceSession(data, options, providers=providers)
    except (state.InvalidProtobuf, state.InvalidArgument, state.NoModel) as error:
        raise Malformed(f"not a sound ONNX graph: {_first_sentence(error)}") from error
    except state.InvalidGraph as error:
        raise Malformed(f"an ONNX graph that contradicts itself: {_first_sentence(error)}") from error
    except _ort_errors() as error:
        raise Incompatible(
            f"onnxruntime {ort.__version__} cannot run it: {_first_sentence(error)}"
        ) from error


@lru_cache(maxsize=1)
def _ort_errors() -> tuple[type[Exception], ...]:
    """Everything ONNX Runtime raises: its own classes share no root but Exception."""
    state = load_ort().capi.onnxruntime_pybind11_state
    own = [
        value
        for value in vars(state).values()
        if isinstance(value, type) and issubclass(value, Exception) and not issubclass(value, FoveaError)
    ]
    return (*own, RuntimeError, ValueError, TypeError)


def _first_sentence(error: Exception) -> str:
    """ONNX Runtime's own words without its prefix, source positions and line breaks, 300 characters at most."""
    words = re.sub(r"^\[ONNXRuntimeError\] : \d+ : (\w+) : ", r"", " ".join(str(error).split()))
    words = re.sub(r"^/\S+:\d+ ", "", words)
    words = re.sub(r"^.*?onnxruntime::.*?\) (?=[A-Z])", "", words)
    return words[:300]


def _tensor_info(node: Any) -> TensorInfo:
    shape = tuple(dim if isinstance(dim, int) else None for dim in node.shape)
    numpy_type = _DTYPES.get(node.type)
    return TensorInfo(node.name, shape, np.dtype(numpy_type).name if numpy_type else node.type)
