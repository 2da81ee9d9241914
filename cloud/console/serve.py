"""Runs the labelling page until it is told to stop."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn

from cloud.console.access import Access, is_loopback
from cloud.console.app import create_app
from cloud.console.desk import Desk
from fovea.core.errors import Malformed, NotFound, Unavailable


@dataclass(frozen=True, slots=True)
class Listening:
    """address: host:port, port 0 for any free one. cert and key: PEM files, both or none; with them it is HTTPS."""

    address: str = "127.0.0.1:0"
    cert: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise Malformed("listen: expected a certificate and its key, got one of them")
        for file in (self.cert, self.key):
            if file is not None and not file.is_file():
                raise NotFound(f"listen: no file {file}")


@dataclass(frozen=True, slots=True)
class Opened:
    """`url` signs in whoever opens it. `is_private`: nobody beyond this machine can read along. `stop` ends it."""

    url: str = field(repr=False)
    is_private: bool
    stop: Callable[[], None]


def serve(desk: Desk, listening: Listening, opened: Callable[[Opened], None]) -> None:
    """Serves until SIGTERM or Ctrl-C; `opened` is called once it listens. Raises Malformed for no such address and
    Unavailable when it is taken."""
    host, port = _split(listening.address)
    listener = _bound(host, port)
    with listener:
        port = int(listener.getsockname()[1])
        scheme = "http" if listening.cert is None else "https"
        access = Access.to(host, port, scheme)
        config = uvicorn.Config(
            create_app(desk, access),
            log_config=None,
            # A log of requests would hold the token of whoever signs in.
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=2,
            ssl_certfile=listening.cert,
            ssl_keyfile=str(listening.key) if listening.key else None,
        )
        name = "localhost" if host in ("0.0.0.0", "::", "[::]") else host
        url = f"{scheme}://{name}:{port}/?token={access.token}"
        server = uvicorn.Server(config)
        opened(
            Opened(url, is_loopback(host) or scheme == "https", lambda: setattr(server, "should_exit", True))
        )
        server.run(sockets=[listener])


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise Malformed(f"listen: expected host:port with a port of 0 to 65535, got {address!r:.120}")
    return host, int(port)


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host.strip("[]"), port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise Unavailable(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    return listener
