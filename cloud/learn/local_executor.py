"""Tasks in child processes that outlive their parent: a restarted cloud finds them running, or their results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from cloud.learn.executor import JobReport, JobState, Task
from fovea.core.errors import NotFound
from fovea.runtime.atomic_file import write_atomically

TASK: Final = "task.json"
PROCESS: Final = "process.json"
ANSWER: Final = "answer.json"
LOG: Final = "log.txt"
NICENESS: Final = 10
"""Learning yields to answering, which may share the machine."""
_QUOTED_BYTES = 300


class LocalExecutor:
    """One folder for each task under `folder`: what it is, which process does it, its log and its answer.

    `threads` are those of each process's arithmetic. Everything is read from the disk, so a new executor on the same
    folder knows what an earlier one started.
    """

    def __init__(self, folder: Path, threads: int = 1, python: str = sys.executable) -> None:
        self._folder, self._threads, self._python = folder, threads, python
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, task: Task) -> None:
        home = self._folder / task.name
        if (home / TASK).is_file() and self.report(task.name).state in (JobState.RUNNING, JobState.DONE):
            return
        home.mkdir(parents=True, exist_ok=True)
        (home / ANSWER).unlink(missing_ok=True)
        write_atomically(home / TASK, task.to_json().encode())
        with (home / LOG).open("ab") as output:
            child = subprocess.Popen(
                [self._python, "-m", "cloud.learn.run_task", str(home)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                env=child_environment(self._threads),
            )  # fmt: skip
        self._children[task.name] = child
        facts = {"pid": child.pid, "started": started_at(child.pid)}
        write_atomically(home / PROCESS, json.dumps(facts).encode())

    def report(self, name: str) -> JobReport:
        home = self._folder / name
        if not (home / TASK).is_file():
            raise NotFound(f"task {name!r:.80}: was never started here")
        is_alive = (
            self._find_pid(name) is not None
        )  # before the answer is looked for: it is written before the end
        if (home / ANSWER).is_file():
            answer = json.loads((home / ANSWER).read_bytes())
            if "result" in answer:
                return JobReport(JobState.DONE, answer["result"])
            return JobReport(JobState.FAILED, reason=answer["reason"])
        if is_alive:
            return JobReport(JobState.RUNNING)
        return JobReport(
            JobState.LOST, reason=f"its process ended without an answer; {_last_line(home / LOG)}"
        )

    def stop(self, name: str) -> None:
        pid = self._find_pid(name)
        if pid is not None:
            try:
                os.killpg(pid, signal.SIGTERM)
            except ProcessLookupError:
                return

    def close(self) -> None:
        """The processes go on."""
        self._children.clear()

    def _find_pid(self, name: str) -> int | None:
        """The task's process if it lives; a number that another process has got since does not count."""
        child = self._children.get(name)
        if child is not None and child.poll() is not None:
            return None
        try:
            facts = json.loads((self._folder / name / PROCESS).read_bytes())
        except FileNotFoundError:
            return None
        pid = int(facts["pid"])
        return pid if facts["started"] is not None and started_at(pid) == facts["started"] else None


def child_environment(threads: int) -> dict[str, str]:
    """The environment of a child: ours, with so many threads for arithmetic, which sleep while they wait."""
    return {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}


def started_at(pid: int) -> int | None:
    """When a process began, in ticks since boot; None when there is none, or it is only waiting to be collected."""
    try:
        fields = (
            Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        )
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def _last_line(log: Path) -> str:
    tail = log.read_bytes()[-_QUOTED_BYTES:].decode(errors="replace").strip() if log.is_file() else ""
    return f"last said: {tail.splitlines()[-1]}" if tail else "it said nothing"
