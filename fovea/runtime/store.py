"""Bundles on the disk of a device or server: stored by digest, switched atomically, checked at every load."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fovea.core.detections import ModelRef
from fovea.core.errors import BrokenError, Malformed, NotFound, RejectedError, StoreCorrupt
from fovea.runtime.atomic_file import sync_folder, write_atomically
from fovea.runtime.bundle import Bundle
from fovea.runtime.manifest import canonical_json

_CURRENT = "current.json"
_LAST_GOOD = "last_good.json"
_PENDING = "pending.json"
_STEPPED_BACK = "stepped_back.json"


@dataclass(frozen=True, slots=True)
class Pending:
    """A model on probation: so many more boots it may be started at before the last good one takes over."""

    ref: ModelRef
    tries: int


class BundleStore:
    """A folder of bundles named by the sha256 of their manifest, and pointers: current, last good, pending.

    A power cut at any moment leaves the old pointer or the new one, and never a half-written bundle under its name.
    A model that has to prove itself is `pending`: that is written before it becomes current, and taken away after it
    became the last good one, so that a boot in between always knows the way back.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._bundles = root / "bundles"

    @classmethod
    def open(cls, root: Path) -> BundleStore:
        """The store in `root`, made if it is not there; leftovers of interrupted writes are removed."""
        store = cls(root)
        store._bundles.mkdir(parents=True, exist_ok=True)
        for leftover in [*root.glob("*.part"), *store._bundles.glob("*.part")]:
            leftover.unlink()
        return store

    def put(self, path: Path) -> ModelRef:
        """Checks the bundle at `path` and keeps it; putting it twice is fine. Raises what `Bundle.open` raises, and
        BrokenError when it cannot be written."""
        return self.put_bundle(Bundle.open(path))

    def put_bundle(self, bundle: Bundle) -> ModelRef:
        """Keeps a bundle that is in memory already."""
        ref = bundle.ref
        write_atomically(self._path(ref), bundle.to_bytes())
        return ref

    def adopt(self, path: Path) -> ModelRef:
        """Checks the bundle at `path`, on the same disk, and moves it in: no room for a second copy is needed."""
        ref = Bundle.open(path).ref
        try:
            path.replace(self._path(ref))
            sync_folder(self._bundles)
        except OSError as error:
            raise BrokenError(f"cannot keep {path} as {ref}: {error.strerror or error}") from error
        return ref

    def has(self, ref: ModelRef) -> bool:
        """Whether it lies there; whether it is whole, `get` finds out."""
        return self._path(ref).exists()

    def get(self, ref: ModelRef) -> Bundle:
        """The bundle, checked part by part. Raises NotFound, or StoreCorrupt when the disk gave other bytes."""
        path = self._path(ref)
        try:
            bundle = Bundle.open(path)
        except NotFound as error:
            raise NotFound(f"model {ref} is not in the store; it has {self._known()}") from error
        except RejectedError as error:
            raise StoreCorrupt(f"model {ref}: {error}") from error
        if bundle.ref != ref:
            raise StoreCorrupt(f"model {ref}: the file holds {bundle.ref}")
        return bundle

    def current(self) -> ModelRef | None:
        """The active model, None before the first `activate`. Raises StoreCorrupt for an unreadable pointer."""
        return self._read_pointer(_CURRENT)

    def last_good(self) -> ModelRef | None:
        """The model that was confirmed last, None before the first `confirm`."""
        return self._read_pointer(_LAST_GOOD)

    def activate(self, ref: ModelRef) -> Bundle:
        """Checks a stored model and makes it the current one. The last good one stays as the way back."""
        bundle = self.get(ref)
        self._write_pointer(_CURRENT, ref)
        return bundle

    def confirm(self) -> ModelRef:
        """The current model has proved itself: it becomes the last good one. Raises NotFound when none is active."""
        ref = self.current()
        if ref is None:
            raise NotFound("no model is active, so none can be confirmed")
        self._write_pointer(_LAST_GOOD, ref)
        return ref

    def open_last_good(self) -> Bundle:
        """The way back. Raises NotFound when there is none, StoreCorrupt when it is broken."""
        ref = self.last_good()
        if ref is None:
            raise NotFound("no model was confirmed yet, so there is none to go back to")
        return self.get(ref)

    def roll_back(self) -> Bundle:
        """Activates the last good model again. Raises as `open_last_good`."""
        return self.activate(self.open_last_good().ref)

    def pending(self) -> Pending | None:
        """The model that is on probation, None when none is (also when a power cut came before it was current)."""
        fields = self._read_object(_PENDING)
        if fields is None:
            return None
        pending = Pending(_ref_in(self._root / _PENDING, fields), int(fields.get("tries", 0)))
        return pending if self.current() == pending.ref != self.last_good() else None

    def stepped_back_from(self) -> ModelRef | None:
        """The model that the last boot gave up on, until another one begins its probation."""
        return self._read_pointer(_STEPPED_BACK)

    def begin_probation(self, ref: ModelRef, tries: int = 1) -> Bundle:
        """Checks a stored model and makes it current, on probation; it may be started at `tries` boots. What was
        current stays as the way back. Raises NotFound when there is no model to go back to."""
        bundle = self.get(ref)
        if self.last_good() is None:
            self.confirm()
        (self._root / _STEPPED_BACK).unlink(missing_ok=True)
        self._write_pointer(_PENDING, ref, tries=tries)
        self._write_pointer(_CURRENT, ref)
        return bundle

    def commit(self) -> ModelRef:
        """The current model has passed its probation. Raises NotFound when none is active."""
        ref = self.confirm()
        self._end_probation()
        return ref

    def step_back(self) -> Bundle:
        """Ends a probation with the last good model. Raises as `roll_back`."""
        bundle = self.roll_back()
        self._end_probation()
        return bundle

    def open_at_boot(self, built_in: Bundle | None = None) -> Bundle:
        """The model to start with, once for each start of the process: counts a try of the one on probation, and
        steps back when it has none left. Where that cannot be read, the last good one; where that cannot either, or
        there never was one, `built_in`. Raises NotFound or StoreCorrupt when there is no `built_in`.
        """
        try:
            return self._open_counting()
        except (NotFound, StoreCorrupt):
            try:
                return self.step_back()
            except (NotFound, StoreCorrupt):
                if built_in is None:
                    raise
        ref = self.put_bundle(built_in)
        self._write_pointer(_CURRENT, ref)
        return self.get(self.commit())

    def _open_counting(self) -> Bundle:
        pending = self.pending()
        if pending is None:
            self._end_probation()
        elif pending.tries < 1:
            self._write_pointer(_STEPPED_BACK, pending.ref)
            return self.step_back()
        else:
            self._write_pointer(_PENDING, pending.ref, tries=pending.tries - 1)
        return self.open_current()

    def open_current(self) -> Bundle:
        """The current model, or the last good one when the current one is damaged on disk (which then is current).

        Raises NotFound when none was activated, StoreCorrupt when neither can be read.
        """
        ref = self.current()
        if ref is None:
            raise NotFound("no model is active")
        try:
            return self.get(ref)
        except (StoreCorrupt, NotFound) as error:
            fallback = self.last_good()
            if fallback is None or fallback == ref:
                raise StoreCorrupt(
                    f"the active model cannot be read and there is no other: {error}"
                ) from error
            return self.activate(fallback)

    def prune(self, also_kept: Collection[ModelRef] = ()) -> list[str]:
        """Deletes every bundle that is neither current nor last good nor among `also_kept`; gives the digests that
        went."""
        kept = {ref.sha256 for ref in (self.current(), self.last_good(), *also_kept) if ref is not None}
        gone = [path for path in sorted(self._bundles.glob("*.fovea")) if path.stem not in kept]
        for path in gone:
            path.unlink()
        sync_folder(self._bundles)
        return [path.stem for path in gone]

    def _path(self, ref: ModelRef) -> Path:
        return self._bundles / f"{ref.sha256}.fovea"

    def _known(self) -> str:
        return ", ".join(path.stem[:12] for path in sorted(self._bundles.glob("*.fovea"))) or "none"

    def _end_probation(self) -> None:
        path = self._root / _PENDING
        if path.exists():
            path.unlink()
            sync_folder(self._root)

    def _read_pointer(self, name: str) -> ModelRef | None:
        fields = self._read_object(name)
        return None if fields is None else _ref_in(self._root / name, fields)

    def _read_object(self, name: str) -> dict[str, Any] | None:
        path = self._root / name
        try:
            fields = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except (ValueError, OSError) as error:
            raise StoreCorrupt(f"{path} is not a pointer to a model: {error}") from error
        if not isinstance(fields, dict):
            raise StoreCorrupt(f"{path} is not a pointer to a model: expected an object")
        return fields

    def _write_pointer(self, name: str, ref: ModelRef, **more: int) -> None:
        fields = {"name": ref.name, "version": ref.version, "sha256": ref.sha256, **more}
        write_atomically(self._root / name, canonical_json(fields))


def _ref_in(path: Path, fields: dict[str, Any]) -> ModelRef:
    try:
        return ModelRef(fields["name"], fields["version"], fields["sha256"])
    except (KeyError, TypeError, Malformed) as error:
        raise StoreCorrupt(f"{path} is not a pointer to a model: {error}") from error
