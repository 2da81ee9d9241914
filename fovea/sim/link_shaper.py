"""A network between two processes of one machine that can be made slow, narrow, or cut: a small TCP proxy."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from fovea.core.errors import Malformed

_CHUNK_BYTES = 65_536
_READY_S = 30.0


@dataclass(frozen=True, slots=True)
class Shape:
    """delay_s: on the way, in each direction. bytes_per_s: of each connection in each direction; None: unlimited.
    is_hole: connections are taken and stay open, and nothing gets through."""

    delay_s: float = 0.0
    bytes_per_s: float | None = None
    is_hole: bool = False

    def __post_init__(self) -> None:
        if not self.delay_s >= 0 or (self.bytes_per_s is not None and not self.bytes_per_s > 0):
            raise Malformed(f"link shape: expected a delay of 0 or more and a rate above 0, got {self}")


OPEN = Shape()
HOLE = Shape(is_hole=True)


class ShapedLink:
    """Listens on 127.0.0.1:`port` and passes everything on to `to_port`, as `shape` says at that moment.

    What a hole has swallowed is lost: connections of that time are dead for good, as after a router that has
    forgotten them, while new ones get through as soon as the shape allows it.
    """

    def __init__(self, to_port: int, shape: Shape = OPEN) -> None:
        self._to_port = to_port
        self._shape = shape
        self._pumps: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="link shaper", daemon=True)
        self._thread.start()
        starting = asyncio.start_server(self._connected, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(_READY_S)
        self.port: int = self._server.sockets[0].getsockname()[1]

    def becomes(self, shape: Shape) -> None:
        """From now on, for connections of before as well."""
        self._shape = shape

    def cut(self) -> None:
        """Every connection breaks at once, as when a cable is pulled out of the machine itself; new ones may come."""
        self._loop.call_soon_threadsafe(self._cancel_all)

    def close(self) -> None:
        """Ends every connection and the thread."""

        async def end() -> None:
            self._server.close()
            self._cancel_all()
            await asyncio.gather(*self._pumps, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(_READY_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_READY_S)
        self._loop.close()

    def _cancel_all(self) -> None:
        for pump in self._pumps:
            pump.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pumps.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                await self._carry(reader, writer)
        finally:
            self._pumps.discard(task)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._shape.is_hole:
            await _swallow(reader)
        there, to_there = await asyncio.open_connection("127.0.0.1", self._to_port)
        ways = [
            asyncio.ensure_future(way) for way in (self._pump(reader, to_there), self._pump(there, writer))
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            to_there.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One direction, until it ends. Reading goes on while what was read is on its way."""
        on_its_way: deque[tuple[float, bytes]] = deque()
        has_news = asyncio.Event()
        loop = asyncio.get_running_loop()

        async def read() -> None:
            while data := await reader.read(_CHUNK_BYTES):
                on_its_way.append((loop.time(), data))
                has_news.set()

        reading = asyncio.ensure_future(read())
        reading.add_done_callback(lambda _: has_news.set())
        free_at = 0.0
        try:
            while on_its_way or not reading.done():
                if not on_its_way:
                    has_news.clear()
                    await has_news.wait()
                    continue
                read_at, data = on_its_way.popleft()
                free_at = await self._deliver(read_at, free_at, data, writer)
        finally:
            reading.cancel()

    async def _deliver(
        self, read_at: float, free_at: float, data: bytes, writer: asyncio.StreamWriter
    ) -> float:
        """Passes `data` on when a wire that is busy until `free_at` would have; until when it is busy then."""
        loop, shape = asyncio.get_running_loop(), self._shape
        sent_at = max(read_at, free_at)
        if shape.bytes_per_s is not None:
            # By the clock, not by sleeping so long: what a sleep is late must not add up over chunks.
            sent_at += len(data) / shape.bytes_per_s
        await asyncio.sleep(max(sent_at + shape.delay_s - loop.time(), 0))
        if self._shape.is_hole:
            await asyncio.Event().wait()  # until the connection ends
        writer.write(data)
        await writer.drain()
        return sent_at


async def _swallow(reader: asyncio.StreamReader) -> None:
    """Takes everything and gives nothing, until whoever sends gives up."""
    while await reader.read(_CHUNK_BYTES):
        pass
    raise ConnectionAbortedError("it has given up")


@contextmanager
def shaped_link(to_port: int, shape: Shape = OPEN) -> Iterator[ShapedLink]:
    """A link to 127.0.0.1:`to_port` for as long as the block lasts."""
    link = ShapedLink(to_port, shape)
    try:
        yield link
    finally:
        link.close()
