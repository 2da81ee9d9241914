"""Passwords and tokens from files of their own."""

from __future__ import annotations

from pathlib import Path

from fovea.core.errors import Malformed, NotFound

_LONGEST_BYTES = 10_000


def read_secret(name: str, path: Path) -> str:
    """The first line of a file, as the secret that the configuration calls `name`. It is never in a message.

    Raises NotFound, and Malformed for a file that is empty, too long or not UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_LONGEST_BYTES + 1)
    except FileNotFoundError as error:
        raise NotFound(f"{name}: no file {path}") from error
    except OSError as error:
        raise Malformed(f"{name}: cannot read {path}: {error.strerror}") from error
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise Malformed(f"{name}: expected UTF-8 text in {path}, got other bytes") from None
    if not lines or not lines[0] or len(data) > _LONGEST_BYTES:
        raise Malformed(f"{name}: expected one line with the secret in {path}, got {len(data)} bytes")
    return lines[0]
