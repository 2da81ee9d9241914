"""A process of the product for tests: started, listened to, stopped, killed."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

WAIT_S = 60.0
FOVEA = Path(sys.executable).with_name("fovea")


class ServiceProcess:
    """A running process that logs JSON, and what it has said so far."""

    def __init__(self, command: Sequence[str | Path], environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [str(part) for part in command],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ
            | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "COLUMNS": "200"}
            | (environment or {}),
        )
        self.said: list[str] = []
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def event(self, name: str) -> dict[str, Any]:
        """Waits until it says `name`."""
        ends_s = time.monotonic() + WAIT_S
        while (line := self._lines.get(timeout=max(ends_s - time.monotonic(), 0.1))) is not None:
            with suppress(ValueError):
                said: dict[str, Any] = json.loads(line)
                if said["event"].startswith(name):
                    return said
        raise AssertionError(f"it ended without {name!r}: {self.said}")

    def stop(self) -> float:
        """Seconds from SIGTERM to its end."""
        begun_s = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.end()
        return time.monotonic() - begun_s

    def kill(self) -> None:
        """As a power cut would end it."""
        self.process.kill()
        self.end()

    def end(self) -> int:
        """Its exit code, when it ends by itself."""
        code = self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        return code

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.rstrip())
            self._lines.put(line)
        self._lines.put(None)


@contextmanager
def running(
    command: Sequence[str | Path], environment: dict[str, str] | None = None
) -> Iterator[ServiceProcess]:
    """Runs `command` until the block ends."""
    service = ServiceProcess(command, environment)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.process.kill()
        service.end()
        assert service.process.stderr is not None
        service.process.stderr.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def metrics_at(address: str) -> dict[str, float]:
    """What it tells Prometheus."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=WAIT_S) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def health_at(address: str) -> dict[str, Any]:
    """What it says of itself, well or not."""
    try:
        with urllib.request.urlopen(f"http://{address}/healthz", timeout=WAIT_S) as answer:
            status, said = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, said = error.code, error.read()
    facts: dict[str, Any] = json.loads(said)
    assert status == (200 if facts["healthy"] else 503)
    return facts


def until(is_so: Callable[[], bool], what: str) -> None:
    """Waits, within the limit of liveness, until `is_so`."""
    ends_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < ends_s, f"{what}: it did not become so"
        time.sleep(0.02)
