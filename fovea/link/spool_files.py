"""What the spool needs of a disk: the seam at which it can fail."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import Protocol

from fovea.core.errors import Unavailable
from fovea.runtime.atomic_file import sync_folder


class SpoolFiles(Protocol):
    """Every method may raise OSError, whatever the disk is in the mood for."""

    def write(self, path: Path, data: bytes) -> None:
        """When it returns, `data` is under `path` for good; when it does not, `path` is not there."""
        ...

    def read(self, path: Path) -> bytes: ...

    def move(self, source: Path, target: Path) -> None:
        """Either is there at any time, and never a part."""
        ...

    def remove(self, path: Path) -> None:
        """A file that is not there is fine."""
        ...

    def free_bytes(self, folder: Path) -> int:
        """What may still be written to the disk of `folder`."""
        ...


PART = ".part"
"""The end of the name of a file that is being written; what has it after a start is a leftover."""


class DiskFiles:
    """The disk itself."""

    def write(self, path: Path, data: bytes) -> None:
        part = path.with_name(path.name + PART)
        try:
            with part.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
            sync_folder(path.parent)
        except OSError:
            part.unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            raise

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def move(self, source: Path, target: Path) -> None:
        source.replace(target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def free_bytes(self, folder: Path) -> int:
        return shutil.disk_usage(folder).free


class FolderLock:
    """Keeps a folder to one process; the kernel lets it go when the process ends, however that is."""

    def __init__(self, folder: Path) -> None:
        """Raises Unavailable when another one has it, OSError when it cannot be made."""
        self._handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._handle)
            if isinstance(error, BlockingIOError):
                raise Unavailable(f"{folder}: in use by another process") from error
            raise

    def release(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
