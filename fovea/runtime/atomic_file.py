"""Writes a file so that after a power cut there is either the old file or the whole new one."""

from __future__ import annotations

import os
from pathlib import Path

from fovea.core.errors import BrokenError


def write_atomically(path: Path, data: bytes) -> None:
    """Writes `data` next to `path` as `.part`, syncs it, renames it over `path` and syncs the folder.

    Raises BrokenError (disk full, read-only, no such folder) and leaves an existing `path` as it was.
    """
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise BrokenError(f"cannot write {path}: {error.strerror or error}") from error


def sync_folder(folder: Path) -> None:
    """Makes renames in `folder` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
