"""Serves a release repository as static files: an ASGI application, and a small HTTP(S) server for it."""

from __future__ import annotations

import hashlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike, stat_result
from pathlib import Path

import uvicorn
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from fovea.core.errors import Malformed, NotFound, Unavailable
from fovea.serving.release_paths import changes_in_place, is_metadata, is_target

_ASK_AGAIN = "no-cache"
_GOODBYE_S = 2
"""Downloads that are under way when it ends have so long; they are gone on with elsewhere or later."""
_FOR_EVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class ServerTls:
    """PEM files: the server's certificate and key, and, where only known devices may read, who signs theirs."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


def release_app(public: Path) -> Starlette:
    """GET and HEAD of what lies below `public` (metadata/ and targets/) and has a name of a release repository, with
    Range for bundles; 404 for all else. To be mounted, or served by `serve`. Raises NotFound without that folder."""
    if not public.is_dir():
        raise NotFound(f"no release repository at {public.parent}; `fovea release init` makes one")
    return Starlette(routes=[Mount("/", app=_ReleaseFiles(directory=public))])


def serve(public: Path, address: str, tls: ServerTls | None, started: Callable[[str], None]) -> None:
    """Serves until SIGTERM or Ctrl-C; `started` is told the URL. Raises Malformed (address, certificates),
    Unavailable (the address is taken) and NotFound."""
    config = _configured(public, tls)
    with listening(address) as door:
        started(_url(door, tls))
        uvicorn.Server(config).run(sockets=[door])


@contextmanager
def serving(public: Path, address: str, tls: ServerTls | None) -> Iterator[str]:
    """Serves on a thread until the block ends, and says where (a URL). Raises as `serve` does."""
    config = _configured(public, tls)
    with listening(address) as door:
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([door],), name="releases", daemon=True)
        thread.start()
        try:
            yield _url(door, tls)
        finally:
            server.should_exit = True
            thread.join(_GOODBYE_S + 2)


def _configured(public: Path, tls: ServerTls | None) -> uvicorn.Config:
    config = uvicorn.Config(
        release_app(public),
        access_log=False,
        server_header=False,
        log_level="warning",
        log_config=None,
        lifespan="off",
        timeout_graceful_shutdown=_GOODBYE_S,
        ssl_certfile=tls.certificate if tls else None,
        ssl_keyfile=tls.key if tls else None,
        ssl_ca_certs=str(tls.client_ca) if tls and tls.client_ca else None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if tls and tls.client_ca else ssl.CERT_NONE,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise Malformed(f"certificates of the release server: {error}") from error
    return config


def _url(door: socket.socket, tls: ServerTls | None) -> str:
    host, port = door.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{shown}:{port}/"


def listening(address: str) -> socket.socket:
    """A socket that listens at `host:port` (port 0: any free one). Raises Malformed and Unavailable."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise Malformed(f"--listen: expected HOST:PORT, got {address!r:.80}")
    plain = host.strip("[]")
    family = socket.AF_INET6 if ":" in plain else socket.AF_INET
    try:
        return socket.create_server((plain, int(port)), family=family, backlog=512)
    except OSError as error:
        raise Unavailable(f"cannot listen on {address}: {error.strerror or error}") from error


class _ReleaseFiles(StaticFiles):
    async def get_response(self, path: str, scope: Scope) -> Response:
        if not is_metadata(path) and not is_target(path):
            raise HTTPException(status_code=404)
        if is_metadata(path) and scope["method"] in ("GET", "HEAD"):
            return await run_sync(self._metadata, path, scope)
        return await super().get_response(path, scope)

    def file_response(
        self, full_path: PathLike[str] | str, stat_result: stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers["Cache-Control"] = _FOR_EVER
        return response

    def _metadata(self, path: str, scope: Scope) -> Response:
        """Read as a whole at once: the timestamp is replaced while it is served."""
        full_path, found = self.lookup_path(path)
        if found is None:
            raise HTTPException(status_code=404)
        data = Path(full_path).read_bytes()
        headers = {
            "ETag": f'"{hashlib.sha256(data).hexdigest()[:32]}"',
            "Cache-Control": _ASK_AGAIN if changes_in_place(path) else _FOR_EVER,
        }
        asked = dict(scope["headers"]).get(b"if-none-match", b"").decode("latin-1")
        if headers["ETag"] in [tag.strip() for tag in asked.split(",")]:
            return Response(status_code=304, headers=headers)
        return Response(data, headers=headers, media_type="application/json")
