"""What is signed: TUF metadata, checked by python-tuf, given as desired states and signed targets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from tuf.api._payload import TargetFile
from tuf.api.exceptions import DownloadError, RepositoryError
from tuf.ngclient.config import UpdaterConfig
from tuf.ngclient.updater import Updater

from fovea.core.errors import BrokenError, Malformed, NotFound, UntrustedRelease
from fovea.core.ports import Clock
from fovea.core.release import DesiredState, ModelPin, TargetFacts, channel_target
from fovea.runtime.atomic_file import write_atomically
from fovea.update.download import Wanted
from fovea.update.metadata_fetcher import METADATA_PACE, MetadataFetcher
from fovea.update.pace import Pace
from fovea.update.ports import Web
from fovea.update.refusals import refusal
from fovea.update.time_floor import TimeFloor

_LARGEST_DESIRED_BYTES: Final = 64 << 10
_LARGEST_MODEL_BYTES: Final = 1 << 30
_LIMITS: Final = UpdaterConfig(
    max_root_rotations=64,
    max_delegations=32,
    root_max_length=256_000,
    timestamp_max_length=16_000,
    snapshot_max_length=500_000,
    targets_max_length=2_000_000,
)


@dataclass(frozen=True, slots=True)
class SignedTarget:
    """A bundle that may be fetched, and what its signer says of it."""

    facts: TargetFacts
    wanted: Wanted


class Trust:
    """`folder` keeps the metadata from one time to the next: it belongs where nothing is wiped. `pinned_root` is the
    root of trust that came with the software."""

    def __init__(
        self,
        folder: Path,
        pinned_root: bytes,
        base_url: str,
        web: Web,
        clock: Clock,
        time_floor: TimeFloor,
        pace: Pace = METADATA_PACE,
    ) -> None:
        self._folder = folder
        self._pinned_root = pinned_root
        self._base_url = base_url.rstrip("/")
        self._web = web
        self._clock = clock
        self._time_floor = time_floor
        self._pace = pace

    def refresh(self) -> SignedRelease:
        """The newest signed state. Raises UntrustedRelease, which names the attack, the RetryableErrors of the web,
        and BrokenError when the folder cannot be written."""
        fetcher = MetadataFetcher(self._web, self._clock, self._pace)
        with _named(fetcher):
            self._folder.mkdir(parents=True, exist_ok=True)
            updater = Updater(
                str(self._folder),
                f"{self._base_url}/metadata/",
                fetcher=fetcher,
                config=_LIMITS,
                bootstrap=self._pinned_root,
            )
            # The library takes the wall clock, which on a board without one stands in 1970: nothing would expire.
            updater._trusted_set.reference_time = self._time_floor.now()
            updater.refresh()
        return SignedRelease(updater, fetcher, self._folder, self._base_url)


class SignedRelease:
    """One consistent signed state; every question may fetch the metadata of the role that answers it. Raises as
    `Trust.refresh` does, and NotFound for what is not listed."""

    def __init__(self, updater: Updater, fetcher: MetadataFetcher, folder: Path, base_url: str) -> None:
        self._updater = updater
        self._fetcher = fetcher
        self._folder = folder
        self._base_url = base_url

    @property
    def good_until(self) -> datetime:
        """When the timestamp expires; whatever was signed for this state was signed before."""
        expires: datetime = self._updater._trusted_set.timestamp.expires
        return expires

    def desired(self, group: str) -> DesiredState:
        """The order for a group; fetched only when it is another one than last time."""
        path = channel_target(group)
        info, digest = self._listed(path)
        if info.length > _LARGEST_DESIRED_BYTES:
            raise UntrustedRelease(
                f"{path}: a desired state of {info.length} bytes, at most {_LARGEST_DESIRED_BYTES}"
            )
        cached = self._folder / f"desired.{group}.json"
        data = _read(cached)
        if data is None or hashlib.sha256(data).hexdigest() != digest:
            with _named(self._fetcher):
                data = self._fetcher.fetch_small(self._url(path, digest), info.length)
                info.verify_length_and_hashes(data)
            write_atomically(cached, data)
        return _desired_in(data, path)

    def target(self, pin: ModelPin) -> SignedTarget:
        """The signed target of a model."""
        info, digest = self._listed(pin.target)
        if info.length > _LARGEST_MODEL_BYTES:
            raise UntrustedRelease(
                f"{pin.target}: a model of {info.length} bytes, at most {_LARGEST_MODEL_BYTES}"
            )
        try:
            facts = TargetFacts.from_json(info.custom)
        except Malformed as error:
            raise UntrustedRelease(
                f"{pin.target}: what its signer says of it cannot be read: {error}"
            ) from error
        return SignedTarget(facts, Wanted(self._url(pin.target, digest), info.length, digest))

    def _listed(self, path: str) -> tuple[TargetFile, str]:
        with _named(self._fetcher):
            info = self._updater.get_targetinfo(path)
        if info is None:
            raise NotFound(f"{path} is not signed by the role that may sign it")
        digest = info.hashes.get("sha256")
        if digest is None:
            raise UntrustedRelease(f"{path}: expected a sha256 in the metadata, got {', '.join(info.hashes)}")
        return info, digest

    def _url(self, path: str, digest: str) -> str:
        folder, _, name = path.rpartition("/")
        return f"{self._base_url}/targets/{folder}/{digest}.{name}"


def _desired_in(data: bytes, path: str) -> DesiredState:
    try:
        return DesiredState.from_json(json.loads(data))
    except (ValueError, RecursionError, Malformed) as error:
        raise UntrustedRelease(f"{path}: a desired state that this version cannot read: {error}") from error


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


@contextmanager
def _named(fetcher: MetadataFetcher) -> Iterator[None]:
    try:
        yield
    except (RepositoryError, DownloadError) as error:
        raise refusal(error, fetcher.last_url) from error
    except OSError as error:
        raise BrokenError(f"metadata of releases cannot be kept: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        # What the library trips over in metadata whose signature holds, or before it looks at one.
        raise UntrustedRelease(f"{fetcher.last_url}: metadata that make no sense: {error!r:.200}") from error
