"""A process that updates a device and is killed at every write to the disk in turn; prints what was left each time.

`python -m tests.system.update_kills FOLDER` forks: one child runs into SIGKILL at the n-th point, the next one, after
the "reboot", has to find a working model and finish or step back. One JSON object per line.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fovea.core.release import Phase
from fovea.runtime.store import BundleStore
from fovea.sim.release_web import MemoryAnswer, MemoryWeb
from tests.signed_repository import SignedRepository, desired_state
from tests.update_device import Device, model

OLD, NEW = model("1.0", 30_000), model("1.1", 300_000)
_CALLS = ("replace", "unlink", "rename", "fsync")


class KillPoint:
    """Ends this process without a word at the n-th thing that it does to the disk, the network or its reports."""

    def __init__(self, at: int) -> None:
        self.at, self.count = at, 0

    def pass_by(self) -> None:
        self.count += 1
        if self.count == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Before the call: what comes after it comes before the next one."""

        def passing(*arguments: Any, **named: Any) -> Any:
            self.pass_by()
            return call(*arguments, **named)

        return passing

    def install(self) -> None:
        for name in _CALLS:
            setattr(os, name, self.around(getattr(os, name)))
        real = MemoryAnswer.chunks

        def chunks(answer: MemoryAnswer) -> Any:
            for piece in real(answer):
                yield piece
                self.pass_by()

        MemoryAnswer.chunks = chunks  # type: ignore[method-assign]


def in_child(act: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """What `act` gives in a process of its own; None when that was killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            os.write(writer, json.dumps(act()).encode())
        except BaseException as error:
            os.write(writer, json.dumps({"error": repr(error)}).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        said = file.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return None
    value: dict[str, Any] = json.loads(said)
    return value


def update(
    device_folder: Path, repository: SignedRepository, failures: int, point: KillPoint | None
) -> dict[str, Any]:
    """One start of the process: boots, polls and sees the probation through."""
    if point is not None:
        point.install()
    web = MemoryWeb(repository.files)
    reported = (lambda _: point.pass_by()) if point is not None else (lambda _: None)
    device = Device(device_folder, repository, web.base_url, OLD, web=web, after_report=reported)
    booted = device.host.running.version
    told = device.poll()
    device.host.failures += failures
    if told.phase is Phase.PROBATION:
        told = device.settle(20)
    return {
        "booted": booted,
        "phase": told.phase.value,
        "running": device.host.running.version,
        "counter": told.counter_floor,
        "serial": told.serial,
        "points": 0 if point is None else point.count,
    }


def look_at_store(device_folder: Path) -> dict[str, Any]:
    """What the camera finds at its next boot, before any updater runs: a model that opens, and the way back."""
    store = BundleStore.open(device_folder / "models")
    bundle = store.open_at_boot(OLD)
    if (last_good := store.last_good()) is not None:
        store.get(last_good)
    return {"booted": bundle.ref.version}


def main(folder: Path) -> None:
    repository = SignedRepository()
    repository.add_model(OLD, 1)
    repository.add_model(NEW, 2)
    repository.order(desired_state(1, OLD, NEW))
    repository.publish()
    for failures in (0, 1):
        point = 0
        is_over = False
        while not is_over:
            point += 1
            disk, copy = folder / "disk", folder / "copy"
            for each in (disk, copy):
                shutil.rmtree(each, ignore_errors=True)
            ended = in_child(lambda: update(disk, repository, failures, KillPoint(point)))  # noqa: B023
            is_over = ended is not None
            line: dict[str, Any] = {"failures": failures, "point": point, "ended": ended}
            if not is_over and (disk / "models").exists():
                shutil.copytree(disk, copy, symlinks=True)
                line["camera"] = in_child(lambda: look_at_store(copy))  # noqa: B023
                line["after"] = in_child(lambda: update(disk, repository, failures, None))  # noqa: B023
                line["then"] = in_child(lambda: update(disk, repository, failures, None))  # noqa: B023
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
