"""The pictures of the case store: files named by their digest, on disk or in a bucket (through fsspec)."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
import uuid
from pathlib import Path
from typing import Any

import fsspec

from fovea.core.errors import Incompatible, StoreCorrupt, Unavailable
from fovea.runtime.atomic_file import sync_folder

_NEW = ".new"
"""Files that are being written, of the same file system as the rest."""
_LEFT_BEHIND_S = 3600.0
_ENDINGS = {"JPEG": "jpg", "PNG": "png", "WebP": "webp", "BMP": "bmp", "GIF": "gif"}


class CaseImages:
    """Used from any thread and by several processes at once: what is written is whole, or not there."""

    def __init__(self, url: str) -> None:
        """`url` is a folder, or what fsspec knows (s3://BUCKET/PREFIX). Raises Incompatible for an unknown kind."""
        try:
            self._files, root = fsspec.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise Incompatible(f"images: {without_password(url)}: {error}") from error
        self._root = str(root).rstrip("/")
        self._folder = Path(self._root) if _is_local(self._files) else None

    def path_of(self, digest: str, image_format: str) -> str:
        """Where a picture belongs, below the root: `ab/abcd....jpg`."""
        return f"{digest[:2]}/{digest}.{_ENDINGS.get(image_format, 'img')}"

    def put(self, path: str, data: bytes) -> None:
        """Keeps `data` at `path`. Raises Unavailable (no room, not to be written) and leaves nothing then."""
        try:
            if self._folder is None:
                self._files.pipe_file(f"{self._root}/{path}", data)
            else:
                _write(self._folder, path, data)
        except OSError as error:
            said = "no room left" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or error
            raise Unavailable(f"images: cannot keep {path}: {said}") from error

    def mend(self, path: str, digest: str, data: bytes) -> None:
        """Puts `data` where it is missing or damaged. Raises Unavailable."""
        try:
            self.get(path, digest)
        except StoreCorrupt:
            self.put(path, data)

    def get(self, path: str, digest: str) -> bytes:
        """The picture at `path`. Raises StoreCorrupt, naming it, when it is missing or not what was written, and
        Unavailable when it cannot be read now."""
        try:
            data: bytes = self._files.cat_file(f"{self._root}/{path}")
        except FileNotFoundError as error:
            raise StoreCorrupt(f"case {digest[:12]}: its picture images/{path} is missing") from error
        except OSError as error:
            raise Unavailable(f"images: cannot read {path}: {error.strerror or error}") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise StoreCorrupt(
                f"case {digest[:12]}: its picture images/{path} is damaged ({len(data)} bytes of another digest)"
            )
        return data

    def remove(self, path: str) -> None:
        """Whether or not it is there."""
        try:
            self._files.rm_file(f"{self._root}/{path}")
        except OSError:
            return

    def sweep(self) -> int:
        """Removes what a process that was killed left half-written, and says how many files that were."""
        if self._folder is None:
            return 0
        before_s, removed = time.time() - _LEFT_BEHIND_S, 0
        for part in (self._folder / _NEW).glob("*.part"):
            try:
                if part.stat().st_mtime < before_s:
                    part.unlink()
                    removed += 1
            except OSError:  # gone already
                continue
        return removed


def without_password(url: str) -> str:
    """`url` with what stands between `//` and `@` left out."""
    return re.sub(r"//[^/@]*@", "//***@", url)


def _is_local(files: Any) -> bool:
    protocol = files.protocol
    return "file" in (protocol if isinstance(protocol, tuple | list) else (protocol,))


def _write(folder: Path, path: str, data: bytes) -> None:
    """As `fovea.runtime.atomic_file`, but several may write the same file at once."""
    target = folder / path
    part = folder / _NEW / f"{target.name}.{uuid.uuid4().hex}.part"
    for parent in (part.parent, target.parent):
        parent.mkdir(parents=True, exist_ok=True)
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
        sync_folder(target.parent)
    except OSError:
        part.unlink(missing_ok=True)
        raise
