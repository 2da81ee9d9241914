"""A real server in a thread of its own, for tests that ask it as a client does: blocking, over a socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import grpc

from fovea.core.ports import Detector
from fovea.link.remote_detector import PixelEncoding, RemoteDetector, RemoteSettings
from fovea.serving.answerer import Answerer, CaseDesk
from fovea.serving.latency_model import LatencyModel
from fovea.serving.outcomes import NobodyWatches, Observer
from fovea.serving.server import ServerSettings, serve
from protos.rpc import detect_handlers

_LONGEST_S = 30.0


class ServingThread:
    """Runs what `open_server` opens (it gives the port) until `stop`; `begin_stop` does not wait for the end."""

    def __init__(self, open_server: Callable[[], AbstractAsyncContextManager[int]]) -> None:
        self._open_server = open_server
        self._begun = threading.Event()
        self._failure: Exception | None = None
        self._port = 0
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._begun.wait(_LONGEST_S), "the server did not start"
        if self._failure is not None:
            raise self._failure

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def begin_stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)

    def stop(self) -> None:
        if self._thread.is_alive():
            self.begin_stop()
        self._thread.join(_LONGEST_S)
        assert not self._thread.is_alive(), "the server did not stop"

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with self._open_server() as self._port:
                self._begun.set()
                await self._stop.wait()
        except Exception as error:
            self._failure = error
        finally:
            self._begun.set()


@asynccontextmanager
async def _port_of(
    detector: Detector,
    settings: ServerSettings = ServerSettings(),
    port: int = 0,
    observer: Observer = NobodyWatches(),
    latency: LatencyModel | None = None,
    answerer: Answerer | None = None,
    case_desk: CaseDesk | None = None,
) -> AsyncIterator[int]:
    address = f"127.0.0.1:{port}"
    async with serve(detector, address, settings, observer, latency, answerer, case_desk) as running:
        yield running.port


@contextmanager
def served(
    detector: Detector,
    settings: ServerSettings = ServerSettings(),
    port: int = 0,
    observer: Observer = NobodyWatches(),
    latency: LatencyModel | None = None,
    answerer: Answerer | None = None,
    case_desk: CaseDesk | None = None,
) -> Iterator[ServingThread]:
    """The product's own server around `detector`."""
    thread = ServingThread(lambda: _port_of(detector, settings, port, observer, latency, answerer, case_desk))
    try:
        yield thread
    finally:
        thread.stop()


@contextmanager
def answering_with(methods: Any) -> Iterator[ServingThread]:
    """A server that answers with `methods` (see `protos.rpc.DetectMethods`) instead of a detector."""

    @asynccontextmanager
    async def open_server() -> AsyncIterator[int]:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((detect_handlers(methods),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield port
        finally:
            await server.stop(0)

    thread = ServingThread(open_server)
    try:
        yield thread
    finally:
        thread.stop()


class RemoteWithItsServer(RemoteDetector):
    """A remote detector that ends the server of its own with itself, for tests that know only detectors."""

    server: ServingThread

    @classmethod
    def around(cls, detector: Detector) -> RemoteWithItsServer:
        server = ServingThread(lambda: _port_of(detector))
        remote = cls.connect(server.address, RemoteSettings(timeout_s=_LONGEST_S, encoding=PixelEncoding.RAW))
        remote.server = server
        return remote

    def close(self) -> None:
        super().close()
        self.server.stop()
