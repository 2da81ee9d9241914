"""A release server without a network: the files of a repository in memory, as `fovea.update.ports.Web`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from fovea.core.errors import Unavailable

_PIECE_BYTES: Final = 1 << 16


class MemoryWeb:
    """`files` by path below `base_url`; what changes in them is served from then on. asked: the paths of all
    requests; bytes_sent: of all bodies."""

    def __init__(self, files: Mapping[str, bytes], base_url: str = "memory://releases") -> None:
        self.files = files
        self.base_url = base_url
        self.is_away = False
        self.asked: list[str] = []
        self.bytes_sent = 0

    def get(self, url: str, start_byte: int = 0) -> MemoryAnswer:
        if self.is_away:
            raise Unavailable(f"{url}: nobody answers")
        path = url.removeprefix(f"{self.base_url}/")
        self.asked.append(path)
        data = self.files.get(path)
        if data is None:
            return MemoryAnswer(self, 404, {}, b"")
        if start_byte >= len(data) > 0:
            return MemoryAnswer(self, 416, {}, b"")
        rest = data[start_byte:]
        headers = {"content-length": str(len(rest))}
        if start_byte:
            headers["content-range"] = f"bytes {start_byte}-{len(data) - 1}/{len(data)}"
        return MemoryAnswer(self, 206 if start_byte else 200, headers, rest)


class MemoryAnswer:
    """Its body comes in pieces, as from a network."""

    def __init__(self, web: MemoryWeb, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self._web = web
        self.status = status
        self.headers = headers
        self._body = body

    def chunks(self) -> Iterator[bytes]:
        for begin in range(0, len(self._body), _PIECE_BYTES):
            piece = self._body[begin : begin + _PIECE_BYTES]
            self._web.bytes_sent += len(piece)
            yield piece

    def close(self) -> None:
        """Nothing is held."""
