"""Processes that a benchmark measures: started on chosen cores, watched from outside, always ended."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fovea.core.errors import BrokenError, DeadlineExceeded, Unavailable
from fovea.process.tied_process import tied

_POLL_S = 0.05
_STOP_WITHIN_S = 10.0
_LAST_LINES = 8

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_NUM_THREADS": "1"}
"""Libraries of other stacks take as many threads as the machine has cores unless they are told."""


class Child:
    """A running process and the file that takes what it says."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_s(self) -> float:
        """CPU seconds, user and system, of all its threads so far. Raises BrokenError when it has ended."""
        fields = self._proc("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self) -> float:
        """Memory that it holds now, in 1e6 bytes. Raises BrokenError when it has ended."""
        return int(self._proc("statm").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def wait_for(self, is_true: Callable[[], bool], what: str, within_s: float) -> None:
        """Waits until it is so. Raises BrokenError with its last lines when it ends before, DeadlineExceeded."""
        until_s = time.monotonic() + within_s
        while not is_true():
            self.check()
            if time.monotonic() > until_s:
                raise DeadlineExceeded(f"{self.name}: no {what} within {within_s:.0f} s{self._last_lines()}")
            time.sleep(_POLL_S)

    def check(self) -> None:
        """Raises BrokenError with its last lines when it has ended."""
        if self._process.poll() is not None:
            raise BrokenError(
                f"{self.name} ended with exit code {self._process.returncode}{self._last_lines()}"
            )

    def wait(self, within_s: float) -> None:
        """Waits for its end. Raises BrokenError when that is not exit code 0, DeadlineExceeded."""
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired as error:
            raise DeadlineExceeded(
                f"{self.name}: not finished after {within_s:.0f} s{self._last_lines()}"
            ) from error
        if self._process.returncode != 0:
            self.check()

    def stop(self) -> None:
        """Ends it by SIGTERM and, when that takes too long, by SIGKILL; twice is fine."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()

    def _proc(self, file: str) -> str:
        self.check()
        try:
            return Path(f"/proc/{self.pid}/{file}").read_text(encoding="ascii", errors="replace")
        except OSError as error:
            raise BrokenError(f"{self.name}: /proc/{self.pid}/{file} cannot be read") from error

    def _last_lines(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
        return "; its last lines:\n" + "\n".join(f"  {line}" for line in lines) if lines else ""


@contextmanager
def child(
    name: str,
    argv: Sequence[str],
    log: Path,
    cores: Collection[int],
    environment: Mapping[str, str] = ONE_THREAD,
) -> Iterator[Child]:
    """Runs `python ARGV` on `cores` alone until the block ends. Its output goes to `log`."""
    with log.open("wb") as out, pinned(cores):
        try:
            process = subprocess.Popen(
                tied([sys.executable, "-u", *argv]),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
            )
        except OSError as error:
            raise Unavailable(f"{name} cannot be started: {error.strerror}") from error
    running = Child(name, process, log)
    try:
        yield running
    finally:
        running.stop()


@contextmanager
def pinned(cores: Collection[int]) -> Iterator[None]:
    """This thread, and what it starts meanwhile, runs on `cores` alone. Where a system knows no such thing, nothing
    happens."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def all_cores() -> set[int]:
    """Those that this thread may run on."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}


def two_cores() -> tuple[int, int]:
    """The core of what is measured and the core of all others; twice the same where there is only one."""
    cores = sorted(all_cores())
    return cores[-1], cores[0]


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """So many different TCP ports that nobody listens on now."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((host, 0))
        return [int(each.getsockname()[1]) for each in sockets]


def is_listening(host: str, port: int) -> bool:
    """Whether somebody takes connections there."""
    try:
        socket.create_connection((host, port), 1.0).close()
        return True
    except OSError:
        return False
