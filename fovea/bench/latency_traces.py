"""Records how long a real edge server takes to answer one client while others ask it, too, at changing rates.

The server is a process of its own (`fovea edge`), asked over a socket. One client is watched: it knows, as a camera
does, what it has in flight itself, and nothing of the others. Questions are asked when they are due (open loop), not
when the answer before is there, so that a slow server is not spared.
"""

from __future__ import annotations

import queue
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from fovea.core.arrays import ImageArray
from fovea.core.errors import BrokenError, DeadlineExceeded, FoveaError, Malformed, RetryableError
from fovea.core.latency import AskContext, LatencySample
from fovea.core.routing import Tier
from fovea.link.remote_detector import RemoteDetector, RemoteSettings
from fovea.runtime.images import encode_jpeg
from protos.calls import DetectQuestion

_READY_WITHIN_S = 120.0
_STOP_WITHIN_S = 10.0
_ASK_TIMEOUT_S = 5.0
_POLL_S = 0.1
_WARM_UP = 10


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """answers: of the watched client, wanted. longest_s: the recording ends by then, whatever has come. phase_s: how
    long a rate holds, drawn between the two. watched_per_s: rates of the watched client, drawn between the two.
    others: load of all other clients as a share of what the server was measured to manage, drawn between the two.
    max_in_flight: questions of one client under way at most; what is due beyond that is left out."""

    answers: int = 1500
    longest_s: float = 110.0
    phase_s: tuple[float, float] = (2.0, 7.0)
    watched_per_s: tuple[float, float] = (10.0, 25.0)
    others: tuple[float, float] = (0.0, 0.8)
    max_in_flight: int = 6
    seed: int = 0

    def __post_init__(self) -> None:
        if self.answers < 1 or self.max_in_flight < 1 or not self.longest_s > 0:
            raise Malformed(f"load plan: expected counts and a time above 0, got {self}")
        for name in ("phase_s", "watched_per_s", "others"):
            low, high = getattr(self, name)
            if not 0 <= low <= high or (name != "others" and low <= 0):
                raise Malformed(f"load plan {name}: expected a range of rising numbers, got {low} to {high}")


@dataclass(frozen=True, slots=True)
class Recording:
    """The answers of the watched client in the order of asking; what the server can do alone (answers per second);
    questions of all clients that were due and not asked, and that were asked and not answered."""

    samples: tuple[LatencySample, ...]
    alone_per_s: float
    took_s: float
    left_out: int
    unanswered: int


Ask = Callable[[bytes], None]


def record(
    ask: Ask,
    images: Sequence[bytes],
    plan: LoadPlan,
    progress: Callable[[int, int], None] = lambda done, every: None,
) -> Recording:
    """Asks with `ask` (blocking, several threads, raises FoveaErrors) until the plan is fulfilled.

    Raises Malformed without images, BrokenError when the server answers nothing.
    """
    if not images:
        raise Malformed("latency traces: expected images to ask about, got none")
    alone_per_s = _alone_per_s(ask, images)
    rng = np.random.default_rng(plan.seed)
    with ExitStack() as running:
        clients = [running.enter_context(_client(ask, plan.max_in_flight)) for _ in range(2)]
        watched, others = clients
        begun_s = time.monotonic()
        while len(watched.samples) < plan.answers and time.monotonic() - begun_s < plan.longest_s:
            rates = (rng.uniform(*plan.watched_per_s), rng.uniform(*plan.others) * alone_per_s)
            left_s = begun_s + plan.longest_s - time.monotonic()
            _run_phase(
                (watched, others), rates, min(rng.uniform(*plan.phase_s), left_s), images, rng, plan.answers
            )
            progress(min(len(watched.samples), plan.answers), plan.answers)
        took_s = time.monotonic() - begun_s
    samples = sorted(watched.samples, key=lambda sample: sample.context.at_mono_s)
    return Recording(
        tuple(samples[: plan.answers]),
        alone_per_s,
        took_s,
        sum(client.left_out for client in clients),
        sum(client.unanswered for client in clients),
    )


def jpegs_of(frames: Sequence[ImageArray]) -> list[bytes]:
    """The pictures as cameras send them: each at full, half and a third of its size, at two qualities."""
    return [
        encode_jpeg(np.ascontiguousarray(pixels[::step, ::step]), quality)
        for pixels in frames
        for step, quality in ((1, 90), (1, 70), (2, 90), (3, 80))
    ]


@contextmanager
def edge_process(bundle: str) -> Iterator[Ask]:
    """A `fovea edge` with this bundle (a path, or zoo:NAME) as a process, ready, and a way to ask it.

    Raises BrokenError with its last lines when it ends, DeadlineExceeded when it does not get ready.
    """
    with tempfile.TemporaryDirectory(prefix="fovea-latency-") as name, ExitStack() as running:
        folder, address = Path(name), f"127.0.0.1:{_free_port()}"
        config, said = folder / "edge.yaml", folder / "said.txt"
        given = {"listen": address, "bundle": bundle, "device": "cpu", "log": {"format": "json"}}
        config.write_text(yaml.safe_dump(given), encoding="utf-8")
        log = running.enter_context(said.open("wb"))
        argv = [sys.executable, "-m", "fovea.cli.main", "edge", "--config", str(config)]
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        running.callback(_end, process)
        server = _connected(address, process, said)
        running.callback(server.close)
        yield lambda jpeg: _asked(server, jpeg)


class _Client:
    """Questions that are due go in; a few threads ask them and keep how long each took."""

    def __init__(self, ask: Ask, max_in_flight: int) -> None:
        self._ask = ask
        self._max_in_flight = max_in_flight
        self._due: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._in_flight = 0
        self.samples: list[LatencySample] = []
        self.left_out = self.unanswered = 0
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(max_in_flight)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        for _ in self._threads:
            self._due.put(None)
        for thread in self._threads:
            thread.join(_ASK_TIMEOUT_S + _STOP_WITHIN_S)

    def offer(self, jpeg: bytes) -> None:
        with self._lock:
            if self._in_flight >= self._max_in_flight:
                self.left_out += 1
                return
            self._in_flight += 1
        self._due.put(jpeg)

    def _work(self) -> None:
        while (jpeg := self._due.get()) is not None:
            with self._lock:
                context = AskContext(time.monotonic(), self._in_flight - 1, len(jpeg))
            try:
                self._ask(jpeg)
                took_ms = 1000 * (time.monotonic() - context.at_mono_s)
            except FoveaError:
                took_ms = None
            with self._lock:
                self._in_flight -= 1
                if took_ms is None:
                    self.unanswered += 1
                else:
                    self.samples.append(LatencySample(Tier.EDGE, took_ms, context))


@contextmanager
def _client(ask: Ask, max_in_flight: int) -> Iterator[_Client]:
    client = _Client(ask, max_in_flight)
    client.start()
    try:
        yield client
    finally:
        client.stop()


def _run_phase(
    clients: Sequence[_Client],
    rates_per_s: Sequence[float],
    phase_s: float,
    images: Sequence[bytes],
    rng: np.random.Generator,
    answers: int,
) -> None:
    """Offers each client questions at its rate, at random moments (Poisson), for `phase_s`."""
    ends_s = time.monotonic() + phase_s
    due_s = [_next_s(time.monotonic(), rate, rng) for rate in rates_per_s]
    while (first_s := min(due_s)) < ends_s and len(clients[0].samples) < answers:
        time.sleep(max(first_s - time.monotonic(), 0))
        index = due_s.index(first_s)
        clients[index].offer(images[int(rng.integers(len(images)))])
        # A server that held this process up is not to be hit by all that came due meanwhile.
        due_s[index] = _next_s(max(first_s, time.monotonic() - 0.1), rates_per_s[index], rng)
    if len(clients[0].samples) < answers:
        time.sleep(max(ends_s - time.monotonic(), 0))


def _next_s(now_s: float, rate_per_s: float, rng: np.random.Generator) -> float:
    return now_s + (float(rng.exponential(1 / rate_per_s)) if rate_per_s > 0 else np.inf)


def _alone_per_s(ask: Ask, images: Sequence[bytes]) -> float:
    """Answers per second, one question after another."""
    took_s = []
    try:
        for index in range(3 * _WARM_UP):
            begun_s = time.monotonic()
            ask(images[index % len(images)])
            took_s.append(time.monotonic() - begun_s)
    except FoveaError as error:
        raise BrokenError(
            f"latency traces: the server does not answer a single question ({error})"
        ) from error
    kept_s = took_s[_WARM_UP:]
    return len(kept_s) / max(sum(kept_s), 1e-3)


def _asked(server: RemoteDetector, jpeg: bytes) -> None:
    server.ask(DetectQuestion(jpeg), _ASK_TIMEOUT_S)


def _connected(address: str, process: subprocess.Popen[bytes], said: Path) -> RemoteDetector:
    ends_s = time.monotonic() + _READY_WITHIN_S
    while True:
        try:
            return RemoteDetector.connect(address, RemoteSettings(timeout_s=_ASK_TIMEOUT_S))
        except RetryableError as error:
            if process.poll() is not None:
                last = said.read_text(encoding="utf-8", errors="replace").splitlines()[-3:]
                raise BrokenError(
                    f"the edge server ended with {process.returncode}: {' '.join(last)}"
                ) from error
            if time.monotonic() > ends_s:
                raise DeadlineExceeded(
                    f"the edge server was not ready after {_READY_WITHIN_S:.0f} s: {error}"
                ) from error
            time.sleep(_POLL_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
