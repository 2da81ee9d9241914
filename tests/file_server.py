"""A real HTTP server on this machine for files in memory, with ranges, and with whatever bad manners a test wants."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Manners = Callable[[BaseHTTPRequestHandler, bytes], None]
"""Answers one request for the given bytes by writing to the handler."""


class FileServer:
    """`files` by path without a leading slash; `manners` by path replace the usual answer; `asked` came in."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.manners: dict[str, Manners] = {}
        self.asked: list[tuple[str, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = self.path.lstrip("/")
                outer.asked.append((path, self.headers.get("Range")))
                data = outer.files.get(path)
                try:
                    if path in outer.manners:
                        outer.manners[path](self, data or b"")
                    elif data is None:
                        answer(self, 404, b"no such file")
                    else:
                        answer_range(self, data)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def asked_for(self, part: str) -> int:
        return sum(part in path for path, _ in self.asked)


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[FileServer]:
    server = FileServer(files)
    try:
        yield server
    finally:
        server.close()


def answer(handler: BaseHTTPRequestHandler, status: int, data: bytes, **headers: str) -> None:
    handler.send_response(status)
    told = {"Content-Length": str(len(data))} | {
        name.replace("_", "-"): each for name, each in headers.items()
    }
    for name, value in told.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(data)


def start_of(handler: BaseHTTPRequestHandler) -> int:
    """The first byte that was asked for."""
    wanted = handler.headers.get("Range")
    return 0 if wanted is None else int(wanted.removeprefix("bytes=").partition("-")[0])


def answer_range(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    start = start_of(handler)
    if handler.headers.get("Range") is None:
        answer(handler, 200, data)
    elif start >= len(data):
        answer(handler, 416, b"", Content_Range=f"bytes */{len(data)}")
    else:
        answer(handler, 206, data[start:], Content_Range=f"bytes {start}-{len(data) - 1}/{len(data)}")


def ignoring_range(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    answer(handler, 200, data)


def with_wrong_range(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    """Right at first; a resumed part is given another one than it says."""
    start = start_of(handler)
    if not start:
        cut_short(handler, data)
    else:
        answer(handler, 206, data[:-start], Content_Range=f"bytes 0-{len(data) - start - 1}/{len(data)}")


def cut_short(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    """Breaks off half-way through what was asked for, and goes on from there the next time."""
    start = start_of(handler)
    rest = data[start:]
    if start:
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
    else:
        handler.send_response(200)
    handler.send_header("Content-Length", str(len(rest)))
    handler.end_headers()
    handler.wfile.write(rest[: (len(rest) + 1) // 2])
    handler.close_connection = True


def endless(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    """Without a length, and without an end."""
    handler.send_response(200)
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.wfile.write(data)
    while True:
        handler.wfile.write(b" " * 65536)


def trickling(stop: threading.Event, pause_s: float = 0.02) -> Manners:
    """One byte at a time."""

    def trickle(handler: BaseHTTPRequestHandler, data: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        for byte in data:
            handler.wfile.write(bytes([byte]))
            handler.wfile.flush()
            if stop.wait(pause_s):
                return

    return trickle


def with_status(status: int) -> Manners:
    return lambda handler, _: answer(handler, status, b"<html>no</html>")
