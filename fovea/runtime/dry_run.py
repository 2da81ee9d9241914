"""Tries a model in a child process first: a graph or a runtime that crashes takes the child down, not the service.

`python -m fovea.runtime.dry_run MODEL` is the child; it prints one JSON object. `dry_run` is the parent's side.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

import fovea
from fovea.core import errors
from fovea.core.errors import FoveaError, Incompatible, RejectedError
from fovea.runtime.bundle import Bundle
from fovea.runtime.manifest import explain_validation
from fovea.runtime.ort import OrtSession, TensorInfo, load_ort, open_session

EXIT_REFUSED: Final = 3
_PASSED_ON: Final = ("PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LANG")
_LONGEST_METADATA: Final = 20_000
_CRASHES: Final = {
    signal.SIGILL: "it uses an instruction that this processor does not have (SIGILL)",
    signal.SIGSEGV: "it crashed (SIGSEGV)",
    signal.SIGBUS: "it crashed (SIGBUS)",
    signal.SIGABRT: "it gave up (SIGABRT)",
    signal.SIGFPE: "it crashed on a division (SIGFPE)",
    signal.SIGKILL: "it was killed, most likely for want of memory (SIGKILL)",
}


class TensorReport(BaseModel):
    """A tensor as the graph declares it (None: free) and as it was in the run."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    name: str
    dtype: str
    declared: tuple[int | None, ...]
    shape: tuple[int, ...]


class DryRunReport(BaseModel):
    """What a model did with zeros and noise. `is_batch_independent`: frames of a batch of two were answered as they
    were alone; None when the graph takes one frame only."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    onnxruntime: str
    device: str
    inputs: tuple[TensorReport, ...]
    outputs: tuple[TensorReport, ...]
    load_ms: float
    first_run_ms: float
    run_ms: float
    is_deterministic: bool
    is_finite: bool
    is_batch_independent: bool | None
    metadata: dict[str, str]


def dry_run(
    path: Path,
    timeout_s: float = 120.0,
    device: str = "cpu",
    side_px: int = 640,
    interpreter: Sequence[str] = (sys.executable,),
) -> DryRunReport:
    """Loads and runs an ONNX graph or a bundle in a child process with an environment of its own.

    `side_px` is used for a free height or width. Raises the RejectedError that the child met, and Incompatible when
    the child crashed, was killed, took longer than `timeout_s` or answered nonsense.
    """
    arguments = ("--device", device, "--side", str(side_px))
    answer = ask_child("fovea.runtime.dry_run", path, arguments, timeout_s, interpreter)
    try:
        return DryRunReport.model_validate_json(json.dumps(answer))
    except ValidationError as error:
        raise Incompatible(
            f"{path.name}: the dry run gave an unknown report: {explain_validation(error)}"
        ) from error


def ask_child(
    module: str,
    path: Path,
    arguments: Sequence[str],
    timeout_s: float,
    interpreter: Sequence[str] = (sys.executable,),
) -> dict[str, Any]:
    """The JSON object that `python -m module PATH ARGUMENTS` printed, run with an environment of its own; a child
    that refuses prints `refusal_line` and ends with EXIT_REFUSED. Raises as `dry_run` does."""
    command = [*interpreter, "-m", module, str(path.absolute()), *arguments]
    with tempfile.TemporaryDirectory(prefix="fovea-dry-run-") as home:
        try:
            child = subprocess.run(
                command,
                env=_child_environment(home),
                cwd=home,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Incompatible(f"{path.name}: no answer from a dry run within {timeout_s:g} s") from error
    return _judge(path.name, child.returncode, child.stdout, child.stderr)


def _judge(name: str, return_code: int, stdout: bytes, stderr: bytes) -> dict[str, Any]:
    """The answer of a child that ended, or the error that its end means."""
    if return_code < 0:
        try:
            number = signal.Signals(-return_code)
        except ValueError:
            raise Incompatible(f"{name}: the dry run ended by signal {-return_code}") from None
        raise Incompatible(
            f"{name}: the dry run failed: {_CRASHES.get(number, f'it ended by {number.name}')}"
        )
    answer = _last_json_object(stdout)
    if return_code == EXIT_REFUSED and answer is not None:
        raise _refusal(str(answer.get("kind")))(f"{name}: {answer.get('message')}")
    if return_code != 0:
        last_line = stderr.decode(errors="replace").strip().rpartition("\n")[2][:300]
        raise Incompatible(f"{name}: the dry run ended with code {return_code}: {last_line or 'no message'}")
    if answer is None:
        raise Incompatible(f"{name}: the dry run gave no report, got {stdout[-80:]!r}")
    return answer


def refusal_line(error: FoveaError) -> str:
    """What a child prints for the parent to raise."""
    return json.dumps({"kind": type(error).__name__, "message": str(error)})


def _refusal(kind: str) -> type[RejectedError]:
    """The error of that name if it is a refusal. A model that loads and does not run (DetectorFailed) is a defect of
    the process only once it serves; before that it is a file to refuse."""
    named = getattr(errors, kind, None)
    return named if isinstance(named, type) and issubclass(named, RejectedError) else Incompatible


def _last_json_object(stdout: bytes) -> dict[str, Any] | None:
    for line in reversed(stdout.splitlines()):
        if line.startswith(b"{"):
            try:
                value = json.loads(line)
            except ValueError:
                return None
            return value if isinstance(value, dict) else None
    return None


def _child_environment(home: str) -> dict[str, str]:
    """Little more than the search paths; telemetry off, and a home that is thrown away afterwards."""
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    source = str(Path(fovea.__path__[0]).parent)
    quiet = {"ORT_DISABLE_TELEMETRY": "1", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return {**passed_on, **quiet, "HOME": home, "TMPDIR": home, "PYTHONPATH": source}


def main(arguments: Sequence[str]) -> int:
    """The child: prints a report, or the error that the model met."""
    parser = argparse.ArgumentParser(prog="fovea.runtime.dry_run")
    parser.add_argument("model", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--side", type=int, default=640)
    options = parser.parse_args(arguments)
    try:
        report = try_model(options.model, options.device, options.side)
    except FoveaError as error:
        print(refusal_line(error))
        return EXIT_REFUSED
    print(report.model_dump_json())
    return 0


def try_model(path: Path, device: str = "cpu", side_px: int = 640) -> DryRunReport:
    """What the child does, in this process: only for a model that cannot crash it. Raises as `dry_run` does, and
    DetectorFailed when the model does not run."""
    model = Bundle.open(path).model if path.suffix == ".fovea" else path
    begun = perf_counter()
    session = open_session(model, device)
    load_ms = 1000 * (perf_counter() - begun)
    noises = [_feeds(session.inputs, side_px, seed) for seed in range(2)]
    zeros = {name: np.zeros_like(tensor) for name, tensor in noises[0].items()}
    first_ms, _ = _timed_run(session, zeros)
    times_ms, answers = zip(*(_timed_run(session, noise) for noise in noises), strict=True)
    _, again = _timed_run(session, noises[0])
    return DryRunReport(
        onnxruntime=load_ort().__version__,
        device=session.device,
        inputs=tuple(_report(info, noises[0][info.name]) for info in session.inputs),
        outputs=tuple(_report(info, got) for info, got in zip(session.outputs, answers[0], strict=True)),
        load_ms=load_ms,
        first_run_ms=first_ms,
        run_ms=min(times_ms),
        is_deterministic=all(np.array_equal(a, b) for a, b in zip(answers[0], again, strict=True)),
        is_finite=all(_is_finite(output) for answer in answers for output in answer),
        is_batch_independent=_is_batch_independent(session, noises, answers),
        metadata={key: value[:_LONGEST_METADATA] for key, value in session.metadata.items()},
    )


def _feeds(inputs: Sequence[TensorInfo], side_px: int, seed: int) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(seed)
    feeds = {}
    for info in inputs:
        shape = [side_px if dim is None else dim for dim in info.shape]
        if info.shape and info.shape[0] is None:
            shape[0] = 1
        if info.dtype == "uint8":
            feeds[info.name] = rng.integers(0, 256, shape, np.uint8)
        elif info.dtype in ("float16", "float32", "float64"):
            feeds[info.name] = rng.random(shape, np.float32).astype(info.dtype)
        else:
            raise Incompatible(f"model input: expected float32, float16 or uint8, got {info}")
    return feeds


def _timed_run(session: OrtSession, feeds: dict[str, NDArray[Any]]) -> tuple[float, list[NDArray[Any]]]:
    begun = perf_counter()
    outputs = session.run(feeds, [info.name for info in session.outputs])
    return 1000 * (perf_counter() - begun), outputs


def _is_finite(output: NDArray[Any]) -> bool:
    return output.dtype.kind != "f" or bool(np.isfinite(output).all())


def _is_batch_independent(
    session: OrtSession, noises: Sequence[dict[str, NDArray[Any]]], alone: Sequence[list[NDArray[Any]]]
) -> bool | None:
    """Graphs that scale activations by the largest value of the whole batch answer a frame by its neighbours."""
    if not session.inputs or any(not info.shape or info.shape[0] is not None for info in session.inputs):
        return None
    both = {name: np.concatenate([noise[name] for noise in noises]) for name in noises[0]}
    _, together = _timed_run(session, both)
    return all(
        output.shape[:1] == (2,) and np.allclose(output, np.concatenate(parts), rtol=1e-3, atol=1e-3)
        for output, parts in zip(together, zip(*alone, strict=True), strict=True)
    )


def _report(info: TensorInfo, tensor: NDArray[Any]) -> TensorReport:
    return TensorReport(name=info.name, dtype=info.dtype, declared=info.shape, shape=tensor.shape)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
