"""The files of a release repository by their paths: whoever serves or copies one touches nothing else."""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,219}"
_METADATA: Final = re.compile(rf"metadata/{_NAME}\.json")
_TARGET: Final = re.compile(
    rf"targets/(channels/[0-9a-f]{{64}}\.{_NAME}\.json|models/{_NAME}/[0-9a-f]{{64}}\.{_NAME}\.fovea)"
)


def is_metadata(path: str) -> bool:
    """Whether `path` (no slash before it) is one of a metadata file: small, and read as a whole."""
    return _METADATA.fullmatch(path) is not None


def is_target(path: str) -> bool:
    """Whether `path` is one of a bundle or a desired state: named by its digest, so it never changes."""
    return _TARGET.fullmatch(path) is not None


def changes_in_place(path: str) -> bool:
    """Whether another file may stand at the same path tomorrow; all others can be kept for ever."""
    return path == "metadata/timestamp.json"
