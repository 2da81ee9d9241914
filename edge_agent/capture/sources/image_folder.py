"""A folder of pictures, or one picture, as a source with an end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from edge_agent.capture.source import PICTURES, Captured, SourceFacts
from edge_agent.capture.sources.url import SourceKind
from fovea.core.arrays import ImageArray
from fovea.core.errors import Malformed, NotFound, RejectedError, TooLarge
from fovea.core.frame import size_of
from fovea.core.ports import Clock
from fovea.runtime.images import ImageLimits, decode_image

PICTURE_SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".webp", ".bmp")
"""What is taken for a picture in a folder; a GIF is a video, and opened as one when named."""

_LIMITS = ImageLimits()


class ImageFolder:
    """Pictures one after the other, each decoded when it is read, upright and as BGR."""

    def __init__(self, root: Path, names: Sequence[str], clock: Clock, fps: float | None) -> None:
        self._root, self._names, self._clock = root, list(names), clock
        self._next = 0
        self._facts = SourceFacts(SourceKind.FILE, PICTURES, None, fps, is_live=False)

    @property
    def facts(self) -> SourceFacts:
        return self._facts

    def advance(self) -> bool:
        self._next += 1
        return self._next <= len(self._names)

    def picture(self) -> Captured:
        name = self._names[self._next - 1]
        pixels = _decoded(self._root / name, name)
        if self._facts.size is None:
            self._facts = replace(self._facts, size=size_of(pixels))
        return Captured(pixels, self._clock.now(), self._clock.monotonic_s(), name)

    def close(self) -> None:
        self._next = len(self._names)


def open_folder(folder: Path, clock: Clock, fps: float | None) -> ImageFolder:
    """Every picture in `folder` and the folders in it, by name and number (2 before 10). NotFound: there is none."""
    found = [
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in PICTURE_SUFFIXES and not path.name.startswith(".") and path.is_file()
    ]
    if not found:
        raise NotFound(
            f"{folder}: no pictures in this folder; expected some of {', '.join(PICTURE_SUFFIXES)}"
        )
    names = sorted((str(path.relative_to(folder)) for path in found), key=_by_number)
    return ImageFolder(folder, names, clock, fps)


def open_picture(path: Path, clock: Clock, fps: float | None) -> ImageFolder:
    """One picture. It is decoded once here, so that what is none is refused before anybody waits for it."""
    _decoded(path, str(path))
    return ImageFolder(path.parent, [path.name], clock, fps)


def _decoded(path: Path, name: str) -> ImageArray:
    try:
        return decode_image(_bytes_of(path))
    except RejectedError as error:
        raise type(error)(f"{name}: {error}") from error


def _bytes_of(path: Path) -> bytes:
    try:
        if path.stat().st_size > _LIMITS.max_bytes:
            raise TooLarge(f"image: expected at most {_LIMITS.max_bytes} bytes, got {path.stat().st_size}")
        return path.read_bytes()
    except OSError as error:
        raise Malformed(f"image: cannot be read ({error.strerror or error})") from error


def _by_number(name: str) -> list[tuple[int, int, str]]:
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part
    ]
