"""How simulated devices reach a repository: its files without a network, a bad line, a whole answer at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from fovea.core.errors import Unavailable
from fovea.update.ports import Answer, Web

_CHANGES_IN_PLACE: Final = "timestamp.json"
_MOST_KEPT: Final = 4096


class FolderFiles(Mapping[str, bytes]):
    """The files below a folder by path, for `MemoryWeb`; all but the timestamp never change, so they are kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: dict[str, bytes] = {}

    def __getitem__(self, path: str) -> bytes:
        kept = self._kept.get(path)
        if kept is not None:
            return kept
        try:
            data = (self._folder / path).read_bytes()
        except OSError as error:
            raise KeyError(path) from error
        if not path.endswith(_CHANGES_IN_PLACE) and len(self._kept) < _MOST_KEPT:
            self._kept[path] = data
        return data

    def __iter__(self) -> Iterator[str]:
        return (str(path.relative_to(self._folder)) for path in self._folder.rglob("*") if path.is_file())

    def __len__(self) -> int:
        return sum(1 for _ in self)


class BadLine:
    """A `Web` that fails: `is_away` while the device has no network; of all answers the share `broken` breaks off,
    half of them before the first byte."""

    def __init__(
        self, web: Web, broken: float, draw: Callable[[], float], is_away: Callable[[], bool]
    ) -> None:
        self._web = web
        self._broken = broken
        self._draw = draw
        self._is_away = is_away

    def get(self, url: str, start_byte: int = 0) -> Answer:
        if self._is_away():
            raise Unavailable(f"{url}: nobody answers")
        luck = self._draw()
        if luck < self._broken / 2:
            raise Unavailable(f"{url}: the connection broke")
        answer = self._web.get(url, start_byte)
        return _CutShort(url, answer) if luck < self._broken else answer


class _CutShort:
    """Half of its body, then nothing."""

    def __init__(self, url: str, answer: Answer) -> None:
        self._url, self._answer = url, answer
        self.status, self.headers = answer.status, answer.headers

    def chunks(self) -> Iterator[bytes]:
        for chunk in self._answer.chunks():
            yield chunk[: len(chunk) // 2]
            raise Unavailable(f"{self._url}: the connection broke")

    def close(self) -> None:
        self._answer.close()


class WholeAnswers:
    """A `Web` that has read a body before it gives it: where hours pass in seconds, every line would look slow."""

    def __init__(self, web: Web) -> None:
        self._web = web

    def get(self, url: str, start_byte: int = 0) -> Answer:
        answer = self._web.get(url, start_byte)
        try:
            return _Whole(answer.status, answer.headers, list(answer.chunks()))
        finally:
            answer.close()


class _Whole:
    def __init__(self, status: int, headers: Mapping[str, str], pieces: list[bytes]) -> None:
        self.status, self.headers, self._pieces = status, headers, pieces

    def chunks(self) -> Iterator[bytes]:
        return iter(self._pieces)

    def close(self) -> None:
        """Nothing is held."""
