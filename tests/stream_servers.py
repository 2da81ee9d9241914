"""Small cameras for tests: a server of Motion JPEG over HTTP, and a peer that accepts and never answers."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import cv2
import numpy as np

from fovea.core.arrays import ImageArray

Painter = Callable[[int], ImageArray]
"""From the number of a frame to its pixels."""


def numbered(width: int = 64, height: int = 48) -> Painter:
    """Grey pictures that get brighter with each frame, and begin again at black."""
    return lambda number: np.full((height, width, 3), number * 8 % 256, np.uint8)


class MotionJpegCamera:
    """An HTTP camera. `paint` and `frame_s` may be changed while it runs; `mute` stops the frames and keeps the
    connections; `stop` ends it, `start` begins again on the same port."""

    def __init__(self, paint: Painter, credentials: str | None = None, frame_s: float = 0.02) -> None:
        self.paint, self.credentials, self.frame_s = paint, credentials, frame_s
        self.mute = threading.Event()
        self.paths: list[str] = []
        self.refused = 0
        self.sent = 0
        self.port = 0
        self._server: ThreadingHTTPServer | None = None
        self._stopping = threading.Event()
        self._sockets: list[socket.socket] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/video"

    def start(self) -> None:
        self._stopping.clear()
        self._server = _Server(("127.0.0.1", self.port), self._handler())
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Ends the server and cuts every connection."""
        if self._server is None:
            return
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        for connection in self._sockets:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()
        self._server = None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        camera = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                camera.paths.append(self.path)
                camera._sockets.append(self.connection)
                if not camera._is_let_in(self.headers.get("Authorization")):
                    camera.refused += 1
                    self.send_response(401)
                    self.send_header("WWW-Authenticate", 'Basic realm="camera"')
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(200)
                self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
                self.end_headers()
                with suppress(OSError):
                    camera._send_frames(self.wfile.write)

            def log_message(self, *_: object) -> None:
                return

        return Handler

    def _is_let_in(self, header: str | None) -> bool:
        if self.credentials is None:
            return True
        return header == "Basic " + base64.b64encode(self.credentials.encode()).decode()

    def _send_frames(self, write: Callable[[bytes], object]) -> None:
        while not self._stopping.is_set():
            if self.mute.is_set():
                self._stopping.wait(0.02)
                continue
            data = cv2.imencode(".jpg", self.paint(self.sent))[1].tobytes()
            self.sent += 1
            write(b"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(data))
            write(data + b"\r\n")
            self._stopping.wait(self.frame_s)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, *_: object) -> None:
        return


@contextmanager
def motion_jpeg(paint: Painter, credentials: str | None = None) -> Iterator[MotionJpegCamera]:
    """A running HTTP camera."""
    camera = MotionJpegCamera(paint, credentials)
    camera.start()
    try:
        yield camera
    finally:
        camera.stop()


@contextmanager
def silent_peer() -> Iterator[tuple[int, list[socket.socket]]]:
    """A port that accepts every connection and never says a word, and the connections it has."""
    listener = socket.create_server(("127.0.0.1", 0))
    held: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                held.append(listener.accept()[0])
            except OSError:
                return

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1], held
    finally:
        listener.shutdown(socket.SHUT_RDWR)  # or `accept` goes on holding it
        listener.close()
        for connection in held:
            connection.close()
