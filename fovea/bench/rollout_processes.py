"""The devices of a rollout benchmark that are real processes, looked after as an init system would."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from fovea.bench.children import ONE_THREAD
from fovea.core.errors import BrokenError
from fovea.process.tied_process import tied
from fovea.sim.fleet_process import CRASHED, ProcessPlan, Status

_STOP_WITHIN_S: Final = 15.0


class DeviceProcesses:
    """A context. `tend` is to be called again and again, as an init system would look after its services."""

    def __init__(self, plans: Sequence[ProcessPlan], folder: Path) -> None:
        self._plans = {plan.name: plan for plan in plans}
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        for name, plan in self._plans.items():
            Path(plan.folder).mkdir(parents=True, exist_ok=True)
            plan.write(self._folder / f"{name}.json")
            self._start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(_STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def tend(self) -> None:
        """Starts again what its model took down. Raises BrokenError for a process that ended otherwise."""
        for name, process in self._processes.items():
            code = process.poll()
            if code == CRASHED:
                self._start(name)
            elif code is not None:
                last = (self._folder / f"{name}.log").read_text(errors="replace").splitlines()[-8:]
                raise BrokenError(f"{name} ended with exit code {code}; its last lines:\n" + "\n".join(last))

    def kill(self, name: str) -> None:
        """Its power goes and comes back."""
        self._processes[name].kill()
        self._processes[name].wait()
        self._start(name)

    def running(self) -> Counter[str]:
        """By version; a process that has not said so yet is under the empty one."""
        return Counter(status.running if status else "" for status in self._statuses())

    def answered(self) -> Counter[str]:
        """Frames by the version that answered them."""
        total: Counter[str] = Counter()
        for status in self._statuses():
            total.update(status.answered if status else {})
        return total

    def dropped(self) -> int:
        return sum(status.dropped for status in self._statuses() if status)

    def _statuses(self) -> list[Status | None]:
        return [Status.read(Path(plan.folder)) for plan in self._plans.values()]

    def _start(self, name: str) -> None:
        argv = [sys.executable, "-u", "-m", "fovea.sim.fleet_process", str(self._folder / f"{name}.json")]
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                tied(argv), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **ONE_THREAD}
            )
