"""`fovea loop run` as a process of its own, beside the cloud: what becomes of it leaves the serving alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fovea.core.errors import BrokenError
from fovea.process.tied_process import tied

_NICENESS = 10
"""Answers go first: a round has time."""
_STOP_S = 3.0
_LAST_BYTES = 4000


class LoopRun:
    """A `cloud.learn.supervisor.RoundProcess`; what it says goes to a file, which the next one begins anew."""

    def __init__(self, arguments: Sequence[str], log_file: Path) -> None:
        """Begins `fovea ARGUMENTS`. Raises BrokenError where the file or the process cannot be made."""
        self._log_file = log_file
        command = tied([sys.executable, "-m", "fovea.cli.main", *arguments])
        try:
            log_file.parent.mkdir(parents=True, exist_ok=True)
            with log_file.open("wb") as out:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
                )
            os.setpriority(os.PRIO_PROCESS, self._process.pid, _NICENESS)
        except ProcessLookupError:
            pass  # it has ended already, and its exit code says how
        except OSError as error:
            raise BrokenError(f"a round of learning cannot begin: {error}") from error

    def find_code(self) -> int | None:
        return self._process.poll()

    def last_words(self) -> str:
        try:
            said = self._log_file.read_bytes()[-_LAST_BYTES:].decode("utf-8", "replace")
        except OSError:
            said = ""
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        return f"{lines[-1][:300] if lines else 'it said nothing'} ({self._log_file})"

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def loop_arguments(config: Path, site: str, why: str) -> tuple[str, ...]:
    """Of `fovea` for one round."""
    return ("loop", "run", "--config", str(config), "--site", site, "--why", why)
