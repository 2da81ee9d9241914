"""Bundles on the disk of a device or server: stored by digest, switched atomically, checked at every load."""

from __future__ import annotations

import json
from pathlib import Path

from fovea.core.detections import ModelRef
from fovea.core.errors import Malformed, NotFound, RejectedError, StoreCorrupt
from fovea.runtime.atomic_file import sync_folder, write_atomically
from fovea.runtime.bundle import Bundle
from fovea.runtime.manifest import canonical_json

_CURRENT = "current.json"
_LAST_GOOD = "last_good.json"


class BundleStore:
    """A folder of bundles named by the sha256 of their manifest, and two pointers: current and last good.

    A power cut at any moment leaves the old pointer or the new one, and never a half-written bundle under its name.
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

    def roll_back(self) -> Bundle:
        """Activates the last good model again. Raises NotFound when there is none, StoreCorrupt when it is broken."""
        ref = self.last_good()
        if ref is None:
            raise NotFound("no model was confirmed yet, so there is none to go back to")
        return self.activate(ref)

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

    def prune(self) -> list[str]:
        """Deletes every bundle that is neither current nor last good; gives the digests that went."""
        kept = {ref.sha256 for ref in (self.current(), self.last_good()) if ref is not None}
        gone = [path for path in sorted(self._bundles.glob("*.fovea")) if path.stem not in kept]
        for path in gone:
            path.unlink()
        sync_folder(self._bundles)
        return [path.stem for path in gone]

    def _path(self, ref: ModelRef) -> Path:
        return self._bundles / f"{ref.sha256}.fovea"

    def _known(self) -> str:
        return ", ".join(path.stem[:12] for path in sorted(self._bundles.glob("*.fovea"))) or "none"

    def _read_pointer(self, name: str) -> ModelRef | None:
        try:
            fields = json.loads((self._root / name).read_bytes())
            return ModelRef(fields["name"], fields["version"], fields["sha256"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, OSError, Malformed) as error:
            raise StoreCorrupt(f"{self._root / name} is not a pointer to a model: {error}") from error

    def _write_pointer(self, name: str, ref: ModelRef) -> None:
        fields = {"name": ref.name, "version": ref.version, "sha256": ref.sha256}
        write_atomically(self._root / name, canonical_json(fields))
