"""HTTP with urllib3, as `fovea.update.ports.Web`: one request, one answer, no retries of its own."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import urllib3
from urllib3.exceptions import HTTPError

from fovea.core.errors import Malformed, Unavailable

_CHUNK_BYTES: Final = 1 << 16
_MOST_REDIRECTS: Final = 3


@dataclass(frozen=True, slots=True)
class WebSettings:
    """ca_file: whom to trust as a server (None: what the system trusts); the other two: how this device shows who it
    is, where the server wants to know. read_timeout_s: the longest pause in an answer."""

    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 20.0
    agent_name: str = "fovea"


class UrllibWeb:
    """A small pool of connections; for one thread."""

    def __init__(self, settings: WebSettings = WebSettings()) -> None:
        """Raises Malformed when a certificate or key cannot be read."""
        try:
            context = ssl.create_default_context(cafile=settings.ca_file)
            if settings.certificate_file is not None:
                context.load_cert_chain(settings.certificate_file, settings.key_file)
        except (OSError, ssl.SSLError) as error:
            raise Malformed(f"certificates for updates: {error}") from error
        self._pool = urllib3.PoolManager(
            num_pools=2,
            maxsize=1,
            ssl_context=context,
            headers={"User-Agent": settings.agent_name, "Accept-Encoding": "identity"},
            timeout=urllib3.Timeout(connect=settings.connect_timeout_s, read=settings.read_timeout_s),
            retries=urllib3.Retry(
                total=_MOST_REDIRECTS,
                connect=0,
                read=0,
                status=0,
                other=0,
                redirect=_MOST_REDIRECTS,
                respect_retry_after_header=False,
            ),
        )

    def get(self, url: str, start_byte: int = 0) -> UrllibAnswer:
        headers = dict(self._pool.headers)
        if start_byte:
            headers["Range"] = f"bytes={start_byte}-"
        try:
            response = self._pool.request(
                "GET", url, headers=headers, preload_content=False, decode_content=False
            )
        except (HTTPError, OSError, ValueError) as error:
            raise Unavailable(f"{url}: {_told(error)}") from error
        return UrllibAnswer(url, response)


class UrllibAnswer:
    """An answer whose body is still on its way."""

    def __init__(self, url: str, response: urllib3.BaseHTTPResponse) -> None:
        self._url = url
        self._response = response
        self.status: int = response.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}

    def chunks(self) -> Iterator[bytes]:
        try:
            # read1 gives what one packet brought; `stream` would wait, however slowly, until a piece is full.
            while chunk := self._response.read1(_CHUNK_BYTES, decode_content=False):
                yield chunk
        except (HTTPError, OSError, ValueError) as error:
            raise Unavailable(f"{self._url}: {_told(error)}") from error

    def close(self) -> None:
        """The connection is closed, not kept: what is left of a body is nobody's."""
        self._response.close()
        self._response.release_conn()


def _told(error: Exception) -> str:
    cause = getattr(error, "reason", None) or error
    return f"{type(cause).__name__}: {cause}"[:300]
