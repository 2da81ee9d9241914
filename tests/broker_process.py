"""A real MQTT broker in a process of its own, for tests: it can be stopped and started again on the same port."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_LIVENESS_S = 30.0


class BrokerProcess:
    """`command` starts the broker; it listens on `host`:`port`."""

    def __init__(self, command: Sequence[str], port: int, host: str = "127.0.0.1") -> None:
        self._command = tuple(command)
        self.host = host
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when it takes connections."""
        self._process = subprocess.Popen(self._command, cwd=_ROOT, stdout=subprocess.DEVNULL)
        end_s = time.monotonic() + _LIVENESS_S
        while not is_listening(self.host, self.port):
            assert self._process.poll() is None, f"the broker ended with {self._process.returncode}"
            assert time.monotonic() < end_s, "the broker does not listen"
            time.sleep(0.05)

    def stop(self, with_signal: signal.Signals = signal.SIGTERM) -> int:
        """Ends it; its exit status. A broker that was stopped already says 0."""
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGCONT)
        self._process.send_signal(with_signal)
        try:
            status = self._process.wait(_LIVENESS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        self._process = None
        return status

    def restart(self) -> None:
        """What it had retained is gone afterwards."""
        self.stop()
        self.start()

    def freeze(self) -> None:
        """Takes connections no more and answers nothing, as a machine that hangs."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


@contextmanager
def broker(port: int = 0) -> Iterator[BrokerProcess]:
    """The embedded broker, anonymous, on a free port of 127.0.0.1 unless one is given."""
    port = port or free_port()
    command = [sys.executable, "-m", "fovea.process.embedded_broker", f"127.0.0.1:{port}"]
    with running(BrokerProcess(command, port)) as process:
        yield process


@contextmanager
def usual_broker(folder: Path) -> Iterator[BrokerProcess]:
    """mosquitto, anonymous, where it is installed, else the embedded broker; its configuration lies in `folder`."""
    mosquitto = shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if mosquitto is None:
        with broker() as process:
            yield process
        return
    port, config = free_port(), folder / "mosquitto.conf"
    config.write_text(f"listener {port} 127.0.0.1\npersistence false\nuser root\nallow_anonymous true\n")
    with running(BrokerProcess([mosquitto, "-c", str(config)], port)) as process:
        yield process


@contextmanager
def running(process: BrokerProcess) -> Iterator[BrokerProcess]:
    """Any broker for as long as the block lasts."""
    process.start()
    try:
        yield process
    finally:
        process.stop()


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def is_listening(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False
