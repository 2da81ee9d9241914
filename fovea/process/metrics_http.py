"""One small HTTP server beside a process: /metrics for Prometheus, /healthz for whoever watches it."""

from __future__ import annotations

import json
import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from fovea.core.errors import Unavailable

_log = logging.getLogger(__name__)

_LONGEST_REQUEST_S = 10.0


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a process does what it is there for, and the facts behind it (values that JSON can hold)."""

    is_healthy: bool
    facts: Mapping[str, object] = field(default_factory=dict)


@contextmanager
def exposed(
    registry: CollectorRegistry, address: str | None, health: Callable[[], Health] | None = None
) -> Iterator[str | None]:
    """Answers at `address` (host:port, port 0: any free one) until the block ends, and says where; None: nowhere.

    /metrics is `registry`; /healthz is 200 or 503 with the facts of `health` (asked on a thread of its own) as JSON,
    200 when there is none. Raises Unavailable when the address is taken.
    """
    if address is None:
        yield None
        return
    host, _, port = address.rpartition(":")
    try:
        server = _Server(host.strip("[]"), int(port), registry, health)
    except OSError as error:
        raise Unavailable(f"cannot listen on {address} for metrics: {error.strerror}") from error
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="metrics", daemon=True)
    thread.start()
    try:
        yield f"{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(1)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self, host: str, port: int, registry: CollectorRegistry, health: Callable[[], Health] | None
    ) -> None:
        self.registry = registry
        self.health = health
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        # Not that of HTTPServer, which asks the name service who we are: that may take half a minute.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _LONGEST_REQUEST_S

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/metrics" | "/":
                encode, kind = choose_encoder(self.headers.get("Accept") or "")
                self._reply(200, kind, encode(self.server.registry))
            case "/healthz":
                health = self._health()
                body = json.dumps({"healthy": health.is_healthy, **health.facts}, default=str)
                self._reply(200 if health.is_healthy else 503, "application/json", body.encode())
            case _:
                self._reply(404, "text/plain", b"expected /metrics or /healthz\n")

    def log_message(self, format: str, *args: object) -> None:
        _log.debug(format, *args)

    def _health(self) -> Health:
        if self.server.health is None:
            return Health(True)
        try:
            return self.server.health()
        except Exception as error:  # the top of this thread: who asks has to hear something
            _log.exception("the health could not be told")
            return Health(False, {"error": repr(error)})

    def _reply(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
