"""CPU time is told by what threads are for, and asking for it breaks nothing anywhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from edge_agent.thread_cpu import OTHERS, thread_cpu_s

LIMIT_S = 30.0


@contextmanager
def busy(name: str, cpu_s: float) -> Iterator[int]:
    """A thread that has used so much CPU and waits; gives its id of the system."""
    is_done, may_end, ids = threading.Event(), threading.Event(), []

    def work() -> None:
        ids.append(threading.get_native_id())
        while time.thread_time() < cpu_s:
            sum(range(1000))
        is_done.set()
        may_end.wait(LIMIT_S)

    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    try:
        assert is_done.wait(LIMIT_S)
        yield ids[0]
    finally:
        may_end.set()
        thread.join(LIMIT_S)


def task(folder: Path, native_id: int, spent_ns: str) -> None:
    (folder / str(native_id)).mkdir(parents=True)
    (folder / str(native_id) / "schedstat").write_text(spent_ns)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells by thread")
def test_a_thread_that_worked_shows_and_those_of_one_kind_are_taken_together() -> None:
    with busy("camera-front", 0.05), busy("camera-back", 0.1), busy("agent", 0.02):
        spent_s = thread_cpu_s()
    assert spent_s["camera"] >= 0.149
    assert 0.019 <= spent_s["agent"] < spent_s["camera"]
    assert spent_s["MainThread"] > 0


def test_threads_that_python_did_not_start_are_the_others(tmp_path: Path) -> None:
    with busy("escalation-3", 0.0) as known:
        task(tmp_path, known, "2500000000 17 3")
        task(tmp_path, 10**9, "500000000 1 1")
        task(tmp_path, 10**9 + 1, "250000000 1 1")
        assert thread_cpu_s(tmp_path) == {"escalation": 2.5, OTHERS: 0.75}


@pytest.mark.parametrize("text", ["", "no number", "\n"])
def test_what_a_kernel_does_not_count_is_0(tmp_path: Path, text: str) -> None:
    task(tmp_path, 10**9, text)
    assert thread_cpu_s(tmp_path) == {OTHERS: 0.0}


def test_a_system_that_tells_nothing_gives_nothing(tmp_path: Path) -> None:
    assert thread_cpu_s(tmp_path / "missing") == {}


def test_a_thread_that_ended_meanwhile_costs_nothing(tmp_path: Path) -> None:
    with ExitStack() as stack:
        (tmp_path / "77").mkdir()
        stack.enter_context(busy("agent", 0.0))
        assert thread_cpu_s(tmp_path) == {OTHERS: 0.0}
