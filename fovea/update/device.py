"""The updates of one real device: store, updater and thread put together from what its configuration wishes."""

from __future__ import annotations

import logging
import platform
import random
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from fovea import __version__
from fovea.core.errors import DetectorFailed, Malformed, NotFound, RejectedError, StoreCorrupt
from fovea.core.ports import Clock
from fovea.core.release import ReportedState
from fovea.runtime.bundle import Bundle
from fovea.runtime.ort import load_ort
from fovea.runtime.store import BundleStore
from fovea.update.judging import Machine
from fovea.update.ports import Host
from fovea.update.starts import Starts
from fovea.update.telling import Identity
from fovea.update.trial import ChildTrial
from fovea.update.update_thread import UpdateThread
from fovea.update.updater import Updater, UpdateSettings
from fovea.update.web import UrllibWeb, WebSettings

_log = logging.getLogger(__name__)
_Ready = TypeVar("_Ready")


class Wishes(Protocol):
    """What a configuration says; `fovea.process.update_config.UpdatesConfig` is one."""

    @property
    def url(self) -> str: ...
    @property
    def root(self) -> str: ...
    @property
    def folder(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def device_class(self) -> str: ...
    @property
    def poll_every_s(self) -> float: ...
    @property
    def poll_jitter(self) -> float: ...
    @property
    def hint_spread_s(self) -> float: ...
    @property
    def ca(self) -> str | None: ...
    @property
    def cert(self) -> str | None: ...
    @property
    def key(self) -> str | None: ...


class DeviceDisk:
    """What a device keeps: models, and how its starts went. Opened before anything runs, once for each start."""

    def __init__(self, wishes: Wishes) -> None:
        """Raises BrokenError when the folder cannot be written."""
        folder = Path(wishes.folder)
        self.store = BundleStore.open(folder / "models")
        self.updates = folder / "updates"
        self.starts = Starts(self.updates / "starts.json")

    def start_from(self, factory: Bundle, make_ready: Callable[[Bundle], _Ready]) -> tuple[Bundle, _Ready]:
        """The model to run now, made ready: the current one; where that cannot be read or does not run here, the last
        good one; where that does not either, `factory`. Raises what `make_ready` raises for `factory`."""
        bundle = self.store.open_at_boot(factory)
        for way_back in (self.store.step_back, lambda: self._reset_to(factory)):
            try:
                return bundle, make_ready(bundle)
            except (RejectedError, DetectorFailed) as error:
                _log.error("%s cannot run here: %s", bundle.ref, error)
            try:
                bundle = way_back()
            except (RejectedError, StoreCorrupt) as error:
                _log.error("there is no way back: %s", error)
        return bundle, make_ready(bundle)

    def _reset_to(self, factory: Bundle) -> Bundle:
        bundle = self.store.activate(self.store.put_bundle(factory))
        self.store.commit()
        return bundle


class DeviceUpdates:
    """A thread that follows the desired state of a group. `look` may be called from any thread."""

    def __init__(
        self,
        wishes: Wishes,
        disk: DeviceDisk,
        device: str,
        boot_id: str,
        host: Host,
        report: Callable[[ReportedState], None],
        clock: Clock,
        threads: int = 1,
    ) -> None:
        """`report` is told on the updater's thread; `threads` are those of a model on trial. Raises NotFound and
        Malformed for files that `wishes` names."""
        self._disk = disk
        self._thread = UpdateThread()
        machine = Machine(platform.machine(), load_ort().__version__, __version__, wishes.device_class)
        settings = UpdateSettings(
            base_url=wishes.url,
            folder=disk.updates,
            pinned_root=_read_root(Path(wishes.root)),
            interval_s=wishes.poll_every_s,
            jitter=wishes.poll_jitter,
            hint_spread_s=wishes.hint_spread_s,
        )
        web = WebSettings(_path(wishes.ca), _path(wishes.cert), _path(wishes.key))
        self._updater = Updater(
            Identity(device, wishes.group, wishes.family, boot_id, machine),
            settings,
            disk.store,
            UrllibWeb(web),
            ChildTrial(threads),
            host,
            report,
            self._thread.surroundings(clock, random.Random().random),
        )

    def start(self) -> None:
        self._thread.start(self._updater)

    def look(self) -> None:
        """A hint: there may be news."""
        self._thread.look()

    def stop(self, timeout_s: float) -> bool:
        """False when it did not end in time: a model is being opened or tried, and the next start goes on with it."""
        self._disk.starts.end()
        return self._thread.stop(timeout_s)


def _read_root(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise NotFound(f"updates.root: no file {path}") from error
    except OSError as error:
        raise Malformed(f"updates.root: cannot read {path}: {error.strerror}") from error


def _path(path: str | None) -> Path | None:
    return None if path is None else Path(path)
