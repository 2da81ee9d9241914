"""Removes from a release repository, or a copy of one, what no reader is led to any more."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from fovea.core.errors import StoreCorrupt

_ROOT = "root"
"""Every root stays: a device that was away for years follows them one by one."""
_UNLISTED = ("root", "snapshot", "timestamp")


def prune(public: Path, live: Collection[str], before: datetime) -> int:
    """Removes metadata whose successor was written before `before`, and then the targets that no metadata left here
    speaks of: whoever began to read by then finds all that he is led to. `live` names the metadata files of the
    moment, which stay whatever lies beside them. Says how many files went. Raises StoreCorrupt."""
    removed = 0
    for path in _superseded(public / "metadata", live, before):
        path.unlink(missing_ok=True)
        removed += 1
    folder = public / "targets"
    listed = set(_listed(public / "metadata"))
    for path in folder.rglob("*"):
        is_new = path.is_file() and path.stat().st_mtime >= before.timestamp()  # it may be listed in a moment
        if path.is_file() and not is_new and path.relative_to(folder).as_posix() not in listed:
            path.unlink(missing_ok=True)
            removed += 1
    return removed


def _superseded(metadata: Path, live: Collection[str], before: datetime) -> Iterator[Path]:
    versions: dict[str, dict[int, Path]] = defaultdict(dict)
    for path in metadata.glob("*.json"):
        version, _, role = path.stem.partition(".")
        if version.isdigit() and role != _ROOT:
            versions[role][int(version)] = path
    for of_role in versions.values():
        newest = max((number for number, path in of_role.items() if path.name in live), default=0)
        written = {number: path.stat().st_mtime for number, path in of_role.items()}
        for number, path in of_role.items():
            after = [at for other, at in written.items() if number < other <= newest]
            if after and min(after) < before.timestamp():
                yield path


def _listed(metadata: Path) -> Iterator[str]:
    """Where the targets lie that any metadata here speaks of."""
    for path in metadata.glob("*.json"):
        if path.stem.partition(".")[2] in _UNLISTED or path.stem in _UNLISTED:
            continue
        try:
            targets: dict[str, Any] = json.loads(path.read_bytes())["signed"]["targets"]
            for name, entry in targets.items():
                folder, _, last = name.rpartition("/")
                yield f"{folder}/{entry['hashes']['sha256']}.{last}"
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreCorrupt(f"release repository: {path.name} is damaged") from error
