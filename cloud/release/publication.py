"""Turns a change into signed files, and writes them so that a reader sees the old state or the new one, never a mix.

Whatever the timestamp does not lead to yet is invisible, so it is written last. A new root is found without the
timestamp; it comes after it, and what devices read until then is signed by the old keys as well as by the new ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from securesystemslib.signer import Key
from tuf.api.metadata import Metadata, MetaFile, Role, Root, Snapshot, Targets, Timestamp

from cloud.release.keys import Keys
from cloud.release.layout import (
    METADATA,
    ROOT,
    SNAPSHOT,
    TARGET_FILES,
    TARGETS,
    TIMESTAMP,
    Lifetimes,
    metadata_name,
)
from cloud.release.live import Live, delegated_names, signers_of
from fovea.core.errors import NotFound
from fovea.runtime.atomic_file import sync_folder, write_atomically

Signers = tuple[Role, dict[str, Key]]
Write = Callable[[Path, bytes], None]
"""Writes a file whole or not at all, and for good."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be different. `root` and `targets` are signed already, by people; `roles` are signed here, by the
    online keys; `files` are bytes by their path below targets/."""

    root: Metadata[Root] | None = None
    targets: Metadata[Targets] | None = None
    roles: Mapping[str, Targets] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Signed:
    """Bytes on their way out; `old_keys_too`: who does not know the new root yet believes them as well."""

    data: bytes
    version: int
    old_keys_too: bool

    def listed(self) -> MetaFile:
        return MetaFile(self.version, len(self.data), {"sha256": hashlib.sha256(self.data).hexdigest()})


class Publisher:
    """Signs with the keys at hand and writes below `public`."""

    def __init__(self, public: Path, keys: Keys, lifetimes: Lifetimes, write: Write) -> None:
        self._public = public
        self._keys = keys
        self._lifetimes = lifetimes
        self._write = write

    def publish(self, live: Live, change: Change, now: datetime) -> None:
        """Makes `change` what devices read. Raises NotFound when a key is missing (nothing was written then), and
        BrokenError when the disk fails (readers see the old state; the same call again is fine)."""
        root = change.root.signed if change.root else live.root.signed
        targets = change.targets.signed if change.targets else live.targets.signed
        out: dict[str, _Signed] = {}
        if change.targets is not None:
            is_old_too = is_signed(TARGETS, change.targets, live.root.signed, live.targets.signed)
            out[TARGETS] = _Signed(change.targets.to_bytes(), targets.version, is_old_too)
        for role, content in self._due(live, targets, change.roles).items():
            out[role] = self._signed(role, content, self._both(role, live, root, targets), now)
        meta = dict(live.snapshot.signed.meta) | {f"{role}.json": each.listed() for role, each in out.items()}
        is_same = not out and is_signed(SNAPSHOT, live.snapshot, root, targets)
        if not is_same or self.is_half_over(SNAPSHOT, live.snapshot.signed, now):
            whole = Snapshot(live.snapshot.signed.version + 1, meta=meta)
            out[SNAPSHOT] = self._signed(SNAPSHOT, whole, self._both(SNAPSHOT, live, root, targets), now)
        listed = out[SNAPSHOT].listed() if SNAPSHOT in out else live.timestamp.signed.snapshot_meta
        newest = Timestamp(live.timestamp.signed.version + 1, snapshot_meta=listed)
        timestamp = self._signed(TIMESTAMP, newest, self._both(TIMESTAMP, live, root, targets), now)
        self._put_all(change, out, timestamp)

    def first(self, root: Metadata[Root], targets: Metadata[Targets], now: datetime) -> None:
        """The first state of a new repository."""
        names = delegated_names(targets.signed)
        out = {TARGETS: _Signed(targets.to_bytes(), 1, True)}
        for role in names:
            signers = signers_of(role, root.signed, targets.signed)
            out[role] = self._signed(role, Targets(1), (None, signers), now)
        meta = {f"{role}.json": each.listed() for role, each in out.items()}
        top = {role: signers_of(role, root.signed, targets.signed) for role in (SNAPSHOT, TIMESTAMP)}
        out[SNAPSHOT] = self._signed(SNAPSHOT, Snapshot(1, meta=meta), (None, top[SNAPSHOT]), now)
        newest = Timestamp(1, snapshot_meta=out[SNAPSHOT].listed())
        self._put(f"{METADATA}/{metadata_name(ROOT, 1)}", root.to_bytes())
        self._put_all(Change(), out, self._signed(TIMESTAMP, newest, (None, top[TIMESTAMP]), now))

    def is_half_over(self, role: str, signed: Any, now: datetime) -> bool:
        """Whether what `role` signed should be signed again."""
        left_s = (signed.expires - now).total_seconds()
        return bool(left_s < self._lifetimes.of(role).total_seconds() / 2)

    def _due(self, live: Live, targets: Targets, changed: Mapping[str, Targets]) -> dict[str, Targets]:
        """The changed roles, those that are new, and those that other keys have to sign from now on."""
        due: dict[str, Targets] = {}
        for role in delegated_names(targets):
            known = live.roles.get(role)
            if known is None:
                due[role] = Targets(1)
                continue
            content = changed.get(role)
            if content is None and not is_signed(role, known, live.root.signed, targets):
                content = deepcopy(known.signed)
            if content is not None:
                content.version = known.signed.version + 1
                due[role] = content
        return due

    def _both(self, role: str, live: Live, root: Root, targets: Targets) -> tuple[Signers | None, Signers]:
        """Who signs until now, where that is somebody else, and who does from now on."""
        new = signers_of(role, root, targets)
        if role not in live.root.signed.roles:
            return None, new  # what a delegated role's keys are is said in the same snapshot
        old = signers_of(role, live.root.signed, live.targets.signed)
        return (None if set(old[1]) == set(new[1]) else old), new

    def _signed(
        self, role: str, content: Any, signers: tuple[Signers | None, Signers], now: datetime
    ) -> _Signed:
        old, new = signers
        content.expires = now + self._lifetimes.of(role)
        metadata: Metadata[Any] = Metadata(content)
        for keyid, key in ((old[1] if old else {}) | new[1]).items():
            signer = self._keys.find(role, key)
            if signer is not None:
                metadata.sign(signer, append=True)
            elif keyid in new[1] and new[0].threshold == len(new[1]):
                raise NotFound(f"the key {keyid[:16]} of {role} is not here")
        signatures = set(metadata.signatures)
        if len(signatures & set(new[1])) < new[0].threshold:
            raise NotFound(f"the keys of {role} that are here are too few: {new[0].threshold} have to sign")
        is_old_too = old is None or len(signatures & set(old[1])) >= old[0].threshold
        return _Signed(metadata.to_bytes(), content.version, is_old_too)

    def _put_all(self, change: Change, out: Mapping[str, _Signed], timestamp: _Signed) -> None:
        for path, data in change.files.items():
            self._put(f"{TARGET_FILES}/{path}", data)
        for role, each in out.items():
            self._put(f"{METADATA}/{metadata_name(role, each.version)}", each.data)
        last = [(metadata_name(TIMESTAMP, None), timestamp.data)]
        if change.root is not None:
            is_smooth = all(each.old_keys_too for each in (*out.values(), timestamp))
            root = (metadata_name(ROOT, change.root.signed.version), change.root.to_bytes())
            # Where the old key is lost nobody can bridge the moment between the two: readers ask again.
            last = [*last, root] if is_smooth else [root, *last]
        for name, data in last:
            self._put(f"{METADATA}/{name}", data)

    def _put(self, path: str, data: bytes) -> None:
        self._write(self._public / path, data)


def write_public(path: Path, data: bytes) -> None:
    """As `write_atomically`; folders that are missing are made, for good too. Raises BrokenError."""
    for folder in missing_folders(path):
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)
    write_atomically(path, data)


def missing_folders(path: Path) -> Iterable[Path]:
    """The folders above `path` that are not there, the outermost first."""
    return [folder for folder in reversed(path.parents) if not folder.is_dir()]


def is_signed(role: str, metadata: Metadata[Any], root: Root, targets: Targets) -> bool:
    """Whether enough of the keys that `root` and `targets` name for `role` have signed (the signatures are our own,
    so they are counted, not verified)."""
    needed, known = signers_of(role, root, targets)
    return len(set(metadata.signatures) & set(known)) >= needed.threshold
