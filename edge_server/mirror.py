"""A copy of the release repository for cameras without internet: it believes nothing and changes nothing, the devices
verify. Files appear in the order in which a reader looks for them from behind, so the copy is whole at any moment."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from tuf.api.exceptions import DownloadError, DownloadHTTPError, LengthOrHashMismatchError
from tuf.api.metadata import Metadata, MetaFile, TargetFile
from tuf.api.serialization import DeserializationError

from fovea.core.errors import (
    BrokenError,
    FoveaError,
    Malformed,
    NotFound,
    TooLarge,
    Unavailable,
    UntrustedRelease,
)
from fovea.core.release import DesiredState
from fovea.runtime.atomic_file import write_atomically
from fovea.serving.release_paths import is_metadata, is_target
from fovea.serving.release_pruning import prune
from fovea.update.download import DownloadLimits, Wanted, fetch_file
from fovea.update.metadata_fetcher import MetadataFetcher
from fovea.update.ports import Surroundings, Web

_log = logging.getLogger(__name__)

_LARGEST_METADATA_BYTES: Final = 5_000_000
_LARGEST_ORDER_BYTES: Final = 1_000_000
_MOST_NEW_ROOTS: Final = 256
_TIMESTAMP: Final = "metadata/timestamp.json"


@dataclass(frozen=True, slots=True)
class MirrorLimits:
    """max_bytes: of models that the groups of the moment name, together. keep_s: how long a file stays that nothing
    leads to any more, for who reads it at this moment."""

    max_bytes: int = 4_000_000_000
    keep_s: float = 86_400.0
    download: DownloadLimits = field(default_factory=DownloadLimits)


class Mirror:
    """Copies the metadata, the orders of all groups, and the models that these name: a model that no group runs is
    not fetched, and one that a group goes back to is here before its order is."""

    def __init__(
        self,
        base_url: str,
        folder: Path,
        web: Web,
        surroundings: Surroundings,
        limits: MirrorLimits = MirrorLimits(),
    ) -> None:
        """`folder` gets metadata/ and targets/, to be served as they are. Does nothing yet."""
        self._base_url = base_url.rstrip("/")
        self._folder = folder
        self._web = web
        self._surroundings = surroundings
        self._limits = limits
        self._fetcher = MetadataFetcher(web, surroundings.clock)

    def sync(self) -> bool:
        """Makes the copy what the repository is now; True when anything has changed. Killed or broken off anywhere,
        readers have the state before.

        Raises the RetryableErrors of the web, UntrustedRelease (files that do not fit together), NotFound (a file
        that is listed is not there), TooLarge (more than `max_bytes`, or than the disk holds), BrokenError.
        """
        roots = dict(self._new_roots())
        newest = self._fetch(_TIMESTAMP, _LARGEST_METADATA_BYTES)
        if not roots and newest == self._local(_TIMESTAMP):
            return False
        listed = _parsed(_TIMESTAMP, newest).snapshot_meta
        snapshot_path = f"metadata/{listed.version}.snapshot.json"
        snapshot = self._listed(snapshot_path, listed)
        files, targets = {snapshot_path: snapshot}, dict[str, TargetFile]()
        for name, meta in _parsed(snapshot_path, snapshot).meta.items():
            path = f"metadata/{meta.version}.{name}"
            files[path] = self._listed(path, meta)
            targets |= _parsed(path, files[path]).targets
        self._copy_targets(targets)
        for path, data in (*reversed(files.items()), *roots.items(), (_TIMESTAMP, newest)):
            self._write(path, data)
        live = {Path(path).name for path in files}
        keep = timedelta(seconds=self._limits.keep_s)
        prune(self._folder, live, self._surroundings.clock.now() - keep)
        return True

    def _new_roots(self) -> Iterator[tuple[str, bytes]]:
        """Every root that is not here yet, one after the other."""
        version = 1
        while (self._folder / f"metadata/{version}.root.json").is_file():
            version += 1
        for number in range(version, version + _MOST_NEW_ROOTS):
            path = f"metadata/{number}.root.json"
            try:
                yield path, self._fetch(path, _LARGEST_METADATA_BYTES)
            except NotFound:
                if number == 1:
                    raise
                return

    def _copy_targets(self, targets: dict[str, TargetFile]) -> None:
        """Fetches the orders, and the models that they name."""
        orders = {name: each for name, each in targets.items() if name.startswith("channels/")}
        paths = {self._copy(name, each, _LARGEST_ORDER_BYTES) for name, each in orders.items()}
        named = {pin for path in paths for pin in _named_by(path, self._local(path))}
        models = {name: each for name, each in targets.items() if name in named}
        total_bytes = sum(each.length for each in models.values())
        if total_bytes > self._limits.max_bytes:
            raise TooLarge(
                f"releases: {total_bytes} bytes of models, at most {self._limits.max_bytes} are allowed"
            )
        for name, each in models.items():
            self._copy(name, each, self._limits.max_bytes)

    def _copy(self, name: str, target: TargetFile, most_bytes: int) -> str:
        folder, _, last = name.rpartition("/")
        sha256 = target.hashes.get("sha256", "")
        path = f"targets/{folder}/{sha256}.{last}"
        if not is_target(path) or target.length > most_bytes:
            raise UntrustedRelease(
                f"releases: lists {name!r:.120}, of {target.length} bytes, which is no such file"
            )
        local = self._folder / path
        _make_folder(local.parent)
        wanted = Wanted(f"{self._base_url}/{path}", target.length, sha256)
        fetch_file(self._web, wanted, local, self._limits.download, self._surroundings)
        return path

    def _listed(self, path: str, meta: MetaFile) -> bytes:
        """A metadata file as the one above it lists it; the one that is here where that fits."""
        if not is_metadata(path):
            raise UntrustedRelease(f"releases: lists {path!r:.120}, which is no file of metadata")
        local = self._local(path)
        if local is not None and meta.hashes and _fits(meta, local):
            return local
        data = self._fetch(path, meta.length or _LARGEST_METADATA_BYTES)
        if not _fits(meta, data):
            raise UntrustedRelease(f"{path}: is not the file that is listed (length or digest differs)")
        return data

    def _fetch(self, path: str, most_bytes: int) -> bytes:
        try:
            return self._fetcher.download_bytes(f"{self._base_url}/{path}", most_bytes)
        except DownloadHTTPError as error:
            if error.status_code in (403, 404):
                raise NotFound(f"{self._base_url}/{path}: is not there") from error
            raise Unavailable(f"{self._base_url}/{path}: status {error.status_code}") from error
        except DownloadError as error:
            raise Unavailable(f"{self._base_url}/{path}: {error}") from error

    def _local(self, path: str) -> bytes | None:
        try:
            return (self._folder / path).read_bytes()
        except FileNotFoundError:
            return None

    def _write(self, path: str, data: bytes) -> None:
        if self._local(path) != data:
            _make_folder((self._folder / path).parent)
            write_atomically(self._folder / path, data)


def keep_mirroring(mirror: Mirror, wait: Callable[[float], bool], every_s: float) -> None:
    """Copies every so often until `wait(every_s)` says True. For a thread of its own; trouble is said when it begins
    and when it ends."""
    trouble: str | None = None
    while True:
        try:
            if mirror.sync():
                _log.info("releases: the copy is new")
            if trouble is not None:
                _log.info("releases: copied again")
            trouble = None
        except FoveaError as error:
            if trouble is None:
                _log.warning("releases: cannot be copied, devices keep the state before: %s", error)
            trouble = str(error)
        except Exception:
            _log.exception("releases: copying broke")
        if wait(every_s):
            return


def _parsed(path: str, data: bytes) -> Any:
    try:
        return Metadata.from_bytes(data).signed
    except (DeserializationError, ValueError) as error:
        raise UntrustedRelease(
            f"{path}: expected metadata of a release repository, got something else"
        ) from error


def _named_by(path: str, order: bytes | None) -> set[str]:
    """The targets of the models that an order names."""
    try:
        desired = DesiredState.from_json(json.loads(order or b""))
    except (ValueError, Malformed) as error:
        raise UntrustedRelease(f"{path}: expected an order, got something else") from error
    return {pin.target for pin in (desired.champion, desired.candidate) if pin is not None}


def _fits(meta: MetaFile, data: bytes) -> bool:
    try:
        meta.verify_length_and_hashes(data)
    except LengthOrHashMismatchError:
        return False
    return True


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BrokenError(f"cannot make {folder}: {error.strerror or error}") from error
