"""The trial of a model in a real child process, and the thread of the updater."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from fovea.core.errors import Cancelled, Incompatible, RejectedError
from fovea.runtime.bundle import Bundle
from fovea.runtime.golden import EXPECTED, make_golden
from fovea.runtime.onnx_detector import OnnxDetector
from fovea.update.trial import ChildTrial
from fovea.update.update_thread import UpdateThread
from tests.builders import scene, tiny_bundle, tiny_onnx
from tests.fakes import FakeClock


def golden_bundle() -> Bundle:
    plain = tiny_bundle()
    detector = OnnxDetector.open(plain, "cpu", 1)
    try:
        return plain.with_parts(make_golden(detector, [scene(seed=3)], 0.1))
    finally:
        detector.close()


def test_a_model_that_answers_as_it_did_where_it_was_made_passes(tmp_path: Path) -> None:
    ChildTrial().try_model(golden_bundle().write(tmp_path), max_ms=10_000)


def test_a_model_that_answers_its_golden_frames_otherwise_is_refused(tmp_path: Path) -> None:
    other = tiny_bundle(model=tiny_onnx(seed=2))
    golden = {name: data for name, data in golden_bundle().parts.items() if name.startswith("golden/")}
    assert EXPECTED in golden
    with pytest.raises(Incompatible, match=r"this device answers differently: golden frame 00\.png"):
        ChildTrial().try_model(other.with_parts(golden).write(tmp_path), None)


def test_a_model_that_is_too_slow_is_refused_with_both_times(tmp_path: Path) -> None:
    with pytest.raises(Incompatible, match="ms at best, allowed are 1e-06 ms"):
        ChildTrial().try_model(golden_bundle().write(tmp_path), max_ms=1e-6)


def test_a_graph_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RejectedError):
        ChildTrial().try_model(tiny_bundle(model=b"no graph").write(tmp_path), None)


def test_a_trial_that_hangs_is_ended(tmp_path: Path) -> None:
    with pytest.raises(Incompatible, match="no answer from a dry run within"):
        ChildTrial(timeout_s=0.01).try_model(golden_bundle().write(tmp_path), None)


class Stepper:
    """Stands for an updater: counts its steps and wants to sleep for an hour after each."""

    def __init__(self) -> None:
        self.steps, self.hints = 0, 0
        self.stepped = threading.Event()
        self.fail_with: Exception | None = None

    def look(self) -> None:
        self.hints += 1

    def step(self) -> float:
        self.steps += 1
        self.stepped.set()
        if self.fail_with is not None:
            raise self.fail_with
        return 3600.0

    def wait(self) -> None:
        assert self.stepped.wait(20)
        self.stepped.clear()


def test_the_thread_steps_sleeps_is_woken_by_a_hint_and_ends_at_once() -> None:
    thread, stepper = UpdateThread(), Stepper()
    thread.start(stepper)
    stepper.wait()
    thread.look()
    stepper.wait()
    assert stepper.hints == 1
    begun = time.monotonic()
    assert thread.stop(20)
    assert time.monotonic() - begun < 10


def test_a_fault_in_a_step_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    thread, stepper = UpdateThread(), Stepper()
    stepper.fail_with = ValueError("a bug")
    thread.start(stepper)
    stepper.wait()
    thread.look()
    stepper.wait()
    assert thread.stop(20)
    assert "updates broke" in caplog.text


def test_a_pause_in_a_download_is_cancelled_by_the_end_of_the_thread() -> None:
    thread = UpdateThread()
    pause = thread.surroundings(FakeClock(), lambda: 0.5).pause
    stepper = Stepper()
    ended = []

    def step() -> float:
        stepper.stepped.set()
        try:
            pause(3600)
        except Cancelled:
            ended.append(True)
            raise
        return 0.0

    stepper.step = step  # type: ignore[method-assign]
    thread.start(stepper)
    stepper.wait()
    assert thread.stop(20)
    assert ended == [True]


def test_a_thread_that_never_began_ends_too() -> None:
    assert UpdateThread().stop(1)
