"""Finds the bundled models by name."""

from __future__ import annotations

import re
from pathlib import Path

from fovea.core.errors import NotFound

MODELS_DIR = Path(__file__).parent / "models"

_FILE = re.compile(r"(?P<name>.+)-(?P<version>\d+\.\d+\.\d+)\.fovea")


def names() -> tuple[str, ...]:
    """The names of all bundled models, sorted."""
    return tuple(sorted(_newest()))


def path_of(name: str) -> Path:
    """The bundle file of a model. Raises NotFound with the names that exist."""
    files = _newest()
    if name not in files:
        known = ", ".join(sorted(files)) or "none: this installation came without models"
        raise NotFound(f"bundled model {name!r}: not found; there are {known}")
    return files[name]


def _newest() -> dict[str, Path]:
    """One file for each name, the highest version where there are several."""
    newest: dict[str, tuple[tuple[int, ...], Path]] = {}
    for path in MODELS_DIR.glob("*.fovea"):
        match = _FILE.fullmatch(path.name)
        if match is None:
            continue
        version = tuple(int(part) for part in match["version"].split("."))
        if match["name"] not in newest or version > newest[match["name"]][0]:
            newest[match["name"]] = (version, path)
    return {name: path for name, (_, path) in newest.items()}
