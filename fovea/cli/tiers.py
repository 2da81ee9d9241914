"""Several tiers on one machine as processes of their own: started in order, watched, stopped in reverse order.

None outlives its starter: each child is tied to it by the kernel (`fovea.process.tied_process`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fovea.core.errors import BrokenError, Cancelled, DeadlineExceeded, Malformed, NotFound, Unavailable
from fovea.process.tied_process import tied

_POLL_S = 0.1
_LAST_LINES = 12
_KEPT_LINES = 200

LineSink = Callable[[str, str], None]
"""Takes the name of a tier and one line that it wrote; called from a thread of that tier."""


@dataclass(frozen=True, slots=True)
class TierCommand:
    """One process to run.

    argv            program and arguments; the program is an absolute path
    is_ready        None when the process is ready to serve, else why not; called about ten times a second until then
    ready_within_s  liveness limit for that: a slow machine needs long, a hung one for ever
    """

    name: str
    argv: tuple[str, ...]
    is_ready: Callable[[], str | None]
    ready_within_s: float = 60.0

    def __post_init__(self) -> None:
        if not self.argv or not Path(self.argv[0]).is_absolute():
            raise Malformed(f"tier {self.name}: expected the absolute path of a program, got {self.argv[:1]}")


def fovea_command(*words: str) -> tuple[str, ...]:
    """The argv of a `fovea` command under this very interpreter."""
    return (sys.executable, "-u", "-m", "fovea.cli.main", *words)


class TierProcesses:
    """Processes that run together. Start and stop from one thread, and from one that lives as long as they shall:
    the kernel's tie is to the thread that started them.

        with TierProcesses(commands, on_line) as tiers:
            tiers.start()
            while not stop.wait(0.2):
                tiers.check()
    """

    def __init__(
        self,
        commands: Sequence[TierCommand],
        on_line: LineSink = lambda name, line: None,
        stop_within_s: float = 8.0,
    ) -> None:
        """Starts nothing. `stop_within_s`: how long each may take to end after SIGTERM before it is killed."""
        names = [command.name for command in commands]
        if len(set(names)) != len(names):
            raise Malformed(f"tiers: expected each name once, got {names}")
        self._commands = tuple(commands)
        self._on_line = on_line
        self._stop_within_s = stop_within_s
        self._running: list[_Running] = []

    def start(
        self, told_to_stop: threading.Event | None = None, note: Callable[[str], None] = lambda text: None
    ) -> None:
        """Starts one after another, each when those before it are ready; `note` hears of each step.

        Raises BrokenError with its last lines when one ends or cannot be run, DeadlineExceeded when one does not get
        ready in time, Cancelled when `told_to_stop` is set meanwhile. What runs by then is left for `stop`.
        """
        for command in self._commands:
            self._start_one(command, told_to_stop, note)

    def restart_one(self, name: str, note: Callable[[str], None] = lambda text: None) -> None:
        """Ends one of them and starts it again, by the same command. Raises NotFound when it does not run, else as
        `start` does."""
        self.stop_one(name)
        self._start_one(next(each for each in self._commands if each.name == name), None, note)

    def _start_one(
        self, command: TierCommand, told_to_stop: threading.Event | None, note: Callable[[str], None]
    ) -> None:
        note(f"{command.name}: starting")
        begun_s = time.monotonic()
        self._running.append(_Running(command, self._on_line))
        while (reason := command.is_ready()) is not None:
            self.check()
            if told_to_stop is not None and told_to_stop.is_set():
                raise Cancelled(f"told to stop while {command.name} was starting")
            if time.monotonic() - begun_s > command.ready_within_s:
                raise DeadlineExceeded(
                    f"{command.name} was not ready after {command.ready_within_s:.0f} s: {reason}"
                    + self._last_lines(self._running[-1])
                )
            time.sleep(_POLL_S)
        self.check()
        note(f"{command.name}: ready after {time.monotonic() - begun_s:.1f} s")

    def check(self) -> None:
        """Raises BrokenError naming the first process that ended by itself, with its last lines."""
        for running in self._running:
            code = running.process.poll()
            if code is not None:
                running.reader.join(1)
                raise BrokenError(f"{running.command.name} ended {_ending(code)}{self._last_lines(running)}")

    def stop(self, note: Callable[[str], None] = lambda text: None) -> dict[str, int]:
        """Ends all, the last started first, each by SIGTERM and, when that takes too long, SIGKILL for all that it
        started. Safe to call at any time, also twice. Gives the exit codes."""
        codes: dict[str, int] = {}
        while self._running:
            running = self._running.pop()
            is_late = running.stop(self._stop_within_s)
            if is_late:
                note(
                    f"{running.command.name}: did not stop within {self._stop_within_s:.0f} s and was killed"
                )
            codes[running.command.name] = running.process.returncode
        return codes

    def stop_one(self, name: str) -> int:
        """Ends one of them and leaves the others; gives its exit code. Raises NotFound when it does not run."""
        for running in self._running:
            if running.command.name == name:
                self._running.remove(running)
                running.stop(self._stop_within_s)
                return int(running.process.returncode)
        raise NotFound(f"tier {name!r}: there run {', '.join(self.pids()) or 'none'}")

    def pids(self) -> dict[str, int]:
        """The process id of each that was started."""
        return {running.command.name: running.process.pid for running in self._running}

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds, user and system, that each process has used so far; 0 where this is not told."""
        return {running.command.name: _cpu_s(running.process.pid) for running in self._running}

    def rss_bytes(self) -> dict[str, int]:
        """Resident memory of each process; 0 where this is not told."""
        return {running.command.name: _rss_bytes(running.process.pid) for running in self._running}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @staticmethod
    def _last_lines(running: _Running) -> str:
        lines = list(running.lines)[-_LAST_LINES:]
        return (
            "; its last lines:\n" + "\n".join(f"  {line}" for line in lines) if lines else "; it said nothing"
        )


class _Running:
    """One started process and the thread that reads what it writes."""

    def __init__(self, command: TierCommand, on_line: LineSink) -> None:
        self.command = command
        self.lines: deque[str] = deque(maxlen=_KEPT_LINES)
        try:
            self.process = subprocess.Popen(
                tied(command.argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches the starter alone, which then stops all in order
            )
        except OSError as error:
            raise Unavailable(f"{command.name} cannot be started: {error.strerror}") from error
        self.reader = threading.Thread(
            target=self._read, args=(on_line,), name=f"log of {command.name}", daemon=True
        )
        self.reader.start()

    def _read(self, on_line: LineSink) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            for data in stream:
                line = data.decode("utf-8", "replace").rstrip()
                self.lines.append(line)
                on_line(self.command.name, line)

    def stop(self, within_s: float) -> bool:
        """True when it had to be killed."""
        is_late = False
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                self.process.terminate()
            try:
                self.process.wait(within_s)
            except subprocess.TimeoutExpired:
                is_late = True
        # Its children share its process group: none of them stays behind.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.reader.join(1)
        return is_late


def _ending(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


def _cpu_s(pid: int) -> float:
    try:
        fields = (
            Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        )
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def _rss_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf(
            "SC_PAGE_SIZE"
        )
    except (OSError, IndexError, ValueError):
        return 0
