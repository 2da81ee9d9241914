"""Serves the edge's copy of the releases to its cameras: files, whole or from a byte on, over HTTP or HTTPS."""

from __future__ import annotations

import logging
import re
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO, Final

from fovea.core.errors import Unavailable
from fovea.serving.release_paths import changes_in_place, is_metadata, is_target

_log = logging.getLogger(__name__)

_LONGEST_SILENCE_S: Final = 20.0
_CHUNK_BYTES: Final = 1 << 16
_MOST_AT_ONCE: Final = 64
_RANGE: Final = re.compile(r"bytes=(\d{1,15})-(\d{0,15})")


@contextmanager
def served(folder: Path, address: str, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serves `folder` (metadata/ and targets/) at `address` (host:port, port 0: any free one) until the block ends,
    and says where. Raises Unavailable when the address is taken."""
    host, _, port = address.rpartition(":")
    try:
        server = _Server(host.strip("[]"), int(port), folder, tls)
    except (OSError, ValueError) as error:
        raise Unavailable(f"cannot listen on {address} for releases: {error}") from error
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="mirror-http", daemon=True)
    thread.start()
    try:
        yield f"{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(1)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, folder: Path, tls: ssl.SSLContext | None) -> None:
        self.folder = folder
        self._tls = tls
        self._places = threading.BoundedSemaphore(_MOST_AT_ONCE)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        # Not that of HTTPServer, which asks the name service who we are: that may take half a minute.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def finish_request(self, request: socket.socket | tuple[bytes, socket.socket], client: object) -> None:
        """On the thread of the connection: who is slow to shake hands holds up himself alone."""
        assert isinstance(request, socket.socket)
        request.settimeout(_LONGEST_SILENCE_S)
        if not self._places.acquire(timeout=_LONGEST_SILENCE_S):
            return
        try:
            if self._tls is None:
                _Handler(request, client, self)
            else:
                with self._tls.wrap_socket(request, server_side=True) as safe:
                    _Handler(safe, client, self)
        except OSError as error:  # the other side is gone, or speaks no TLS
            _log.debug("mirror: connection of %s ended: %s", client, error)
        finally:
            self._places.release()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "fovea"
    sys_version = ""
    timeout = _LONGEST_SILENCE_S

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].lstrip("/")
        if not is_metadata(path) and not is_target(path):
            self._refuse(404)
            return
        try:
            with (self.server.folder / path).open("rb") as file:
                self._send(file, path)
        except FileNotFoundError:
            self._refuse(404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        _log.debug(format, *args)

    def _send(self, file: BinaryIO, path: str) -> None:
        # The file that is open stays the same one, also where another takes its place meanwhile.
        size = file.seek(0, 2)
        found = _RANGE.fullmatch(self.headers.get("Range", ""))
        first = int(found[1]) if found else 0
        last = min(int(found[2]), size - 1) if found and found[2] else size - 1
        if found and (first >= size or last < first):
            self._refuse(416, ("Content-Range", f"bytes */{size}"))
            return
        self.send_response(206 if found else 200)
        if found:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header(
            "Content-Type", "application/json" if path.endswith(".json") else "application/octet-stream"
        )
        self.send_header(
            "Cache-Control", "no-cache" if changes_in_place(path) else "max-age=31536000, immutable"
        )
        self._end_headers(last - first + 1)
        if self.command == "GET":
            file.seek(first)
            left = last - first + 1
            while left > 0 and (chunk := file.read(min(left, _CHUNK_BYTES))):
                self.wfile.write(chunk)
                left -= len(chunk)

    def _refuse(self, status: int, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self._end_headers(0)

    def _end_headers(self, length: int) -> None:
        self.send_header("Content-Length", str(length))
        self.end_headers()
