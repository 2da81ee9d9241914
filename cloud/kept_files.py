"""Files that the cloud keeps by their digest, in a folder or in a bucket (through fsspec)."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import fsspec

from fovea.core.errors import Incompatible, StoreCorrupt, Unavailable
from fovea.runtime.atomic_file import sync_folder

_NEW = ".new"
"""Files that are being written, of the same file system as the rest."""
_LEFT_BEHIND_S = 3600.0


class KeptFiles:
    """Used from any thread and by several processes at once: what is written is whole, or not there."""

    def __init__(self, url: str, what: str) -> None:
        """`url` is a folder, or what fsspec knows (s3://BUCKET/PREFIX); `what` they are, for errors. Raises
        Incompatible for an unknown kind."""
        try:
            self._files, root = fsspec.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise Incompatible(f"{what}: {without_password(url)}: {error}") from error
        self._what = what
        self._root = str(root).rstrip("/")
        self._folder = Path(self._root) if _is_local(self._files) else None

    def put(self, path: str, data: bytes) -> None:
        """Keeps `data` at `path`. Raises Unavailable (no room, not to be written) and leaves nothing then."""
        with self._named_errors("keep", path):
            if self._folder is None:
                self._files.pipe_file(f"{self._root}/{path}", data)
            else:
                _write(self._folder, path, data)

    def mend(self, path: str, digest: str, data: bytes) -> None:
        """Puts `data` where it is missing or damaged. Raises Unavailable."""
        try:
            self.get(path, digest)
        except StoreCorrupt:
            self.put(path, data)

    def ensure(self, path: str, data: bytes) -> None:
        """Keeps `data` at `path` unless something is there. Raises Unavailable."""
        with self._named_errors("look for", path):
            is_there = self._files.exists(f"{self._root}/{path}")
        if not is_there:
            self.put(path, data)

    def get(self, path: str, digest: str) -> bytes:
        """What is at `path`. Raises StoreCorrupt, naming it, when it is missing or not what was written, and
        Unavailable when it cannot be read now."""
        try:
            with self._named_errors("read", path):
                data: bytes = self._files.cat_file(f"{self._root}/{path}")
        except FileNotFoundError as error:
            raise StoreCorrupt(f"{self.named(path, digest)} is missing") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise StoreCorrupt(f"{self.named(path, digest)} is damaged ({len(data)} bytes of another digest)")
        return data

    def delete(self, path: str) -> None:
        """Whether or not it is there. Raises Unavailable when it cannot be deleted now."""
        with suppress(FileNotFoundError), self._named_errors("delete", path):
            self._files.rm_file(f"{self._root}/{path}")

    def remove(self, path: str) -> None:
        """`delete`, as far as that can be done now."""
        with suppress(Unavailable):
            self.delete(path)

    @contextmanager
    def _named_errors(self, doing: str, path: str) -> Iterator[None]:
        """What a disk or a bucket says, as Unavailable; that nothing is there, as it was said when reading."""
        try:
            yield
        except FileNotFoundError as error:
            if doing in ("read", "delete"):
                raise
            raise Unavailable(f"{self._what}: cannot {doing} {path}: {error.strerror or error}") from error
        except OSError as error:
            said = "no room left" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or error
            raise Unavailable(f"{self._what}: cannot {doing} {path}: {said}") from error
        except _vendor_errors(self._files) as error:
            raise Unavailable(f"{self._what}: cannot {doing} {path}: {error}") from error

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

    def named(self, path: str, digest: str) -> str:
        """What errors call the file at `path`."""
        return f"{self._what}: {path}"


def without_password(url: str) -> str:
    """`url` with what stands between `//` and `@` left out."""
    return re.sub(r"//[^/@]*@", "//***@", url)


def _is_local(files: Any) -> bool:
    protocol = files.protocol
    return "file" in (protocol if isinstance(protocol, tuple | list) else (protocol,))


def _vendor_errors(files: Any) -> tuple[type[Exception], ...]:
    """What a client raises that is no OSError: that of S3, where there is no connection or no key."""
    if "s3" not in str(files.protocol):
        return ()
    # It came with s3fs, which is there, or this object would not be; the extra is not installed everywhere.
    return (import_module("botocore.exceptions").BotoCoreError,)


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
