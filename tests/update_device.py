"""A device that updates itself, with everything around it that a test wants to see or to break."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from fovea.core.errors import RejectedError
from fovea.core.release import Asked, Health, Phase, ReportedState
from fovea.runtime.bundle import Bundle
from fovea.runtime.store import BundleStore
from fovea.update.download import DownloadLimits
from fovea.update.judging import Machine
from fovea.update.ports import Evidence, Surroundings, Web
from fovea.update.telling import Identity
from fovea.update.updater import Updater, UpdateSettings
from fovea.update.web import UrllibWeb, WebSettings
from tests.builders import tiny_bundle
from tests.fakes import FakeClock
from tests.signed_repository import BUILT_AT, FAMILY, GROUP, NOW, SignedRepository

MACHINE = Machine("aarch64", "1.32.0", "0.1.0", "camera")


def model(version: str, size: int = 3000) -> Bundle:
    """A bundle that is as good as any where nothing runs it."""
    return tiny_bundle(model=f"graph {version} ".encode() * (size // 12), version=version)


class FakeHost:
    """Runs nothing, but says what it would; every look at its health sees `frames_per_look` more frames."""

    def __init__(self, running: Bundle) -> None:
        self.running = running.ref
        self.switches: list[str] = []
        self.shadowed: tuple[str, float] | None = None
        self.policies: list[Mapping[str, Any] | None] = []
        self.frames_per_look = 10
        self.frames, self.failures, self.restarts = 0, 0, 0
        self.detect_ms_p95: float | None = 20.0
        self.fail_with: RejectedError | None = None

    def switch_to(self, bundle: Bundle) -> None:
        if self.fail_with is not None:
            raise self.fail_with
        self.running = bundle.ref
        self.switches.append(bundle.manifest.version)

    def shadow(self, bundle: Bundle | None, share: float) -> None:
        self.shadowed = None if bundle is None else (bundle.manifest.version, share)

    def apply(self, policy: Mapping[str, Any] | None) -> None:
        self.policies.append(policy)

    def health(self) -> Health:
        self.frames += self.frames_per_look
        return Health(self.frames, self.restarts, self.detect_ms_p95, 100.0, 60.0, self.failures)

    def evidence(self) -> Evidence:
        return Evidence(Asked(self.frames, 0))


class FakeTrial:
    def __init__(self) -> None:
        self.tried: list[str] = []
        self.fail_with: RejectedError | None = None

    def try_model(self, path: Path, max_ms: float | None) -> None:
        self.tried.append(Bundle.open(path).manifest.version)
        if self.fail_with is not None:
            raise self.fail_with


class Device:
    """One device with its disk in `folder`; `restart` is a new process on the same disk."""

    def __init__(
        self,
        folder: Path,
        repository: SignedRepository,
        base_url: str,
        built_in: Bundle,
        web: Web | None = None,
        machine: Machine = MACHINE,
        group: str = GROUP,
        limits: DownloadLimits = DownloadLimits(tries=3, spare_bytes=1000, first_pause_s=0.01),
        now: datetime = NOW,
        name: str = "cam-1",
        after_report: Callable[[ReportedState], None] = lambda _: None,
    ) -> None:
        self.folder, self.built_in, self.name, self.group = folder, built_in, name, group
        self.clock = FakeClock(now)
        self.free_bytes = 1 << 30
        self.reports: list[ReportedState] = []
        self.trial = FakeTrial()
        self._after_report = after_report
        self._machine = machine
        self._web = web or UrllibWeb(WebSettings(connect_timeout_s=5, read_timeout_s=5))
        self.settings = UpdateSettings(
            base_url,
            folder / "updates",
            repository.pinned_root,
            built_at=BUILT_AT,
            jitter=0.0,
            download=limits,
        )
        self.restart()

    def restart(self) -> None:
        self.store = BundleStore.open(self.folder / "models")
        self.host = FakeHost(self.store.open_at_boot(self.built_in))
        self.updater = Updater(
            Identity(self.name, self.group, FAMILY, "boot", self._machine),
            self.settings,
            self.store,
            self._web,
            self.trial,
            self.host,
            self._take_report,
            Surroundings(self.clock, lambda: 0.5, self.clock.advance, lambda _: self.free_bytes),
        )

    def _take_report(self, state: ReportedState) -> None:
        self.reports.append(state)
        self._after_report(state)

    def poll(self) -> ReportedState:
        """One poll, whenever it would have been due."""
        self.clock.advance(self.settings.interval_s + 1)
        self.updater.step()
        return self.reports[-1]

    def settle(self, seconds: float = 60.0) -> ReportedState:
        """So much time with a step every other second."""
        for _ in range(int(seconds / 2)):
            self.clock.advance(2.0)
            self.updater.step()
        return self.reports[-1]

    @property
    def phases(self) -> list[Phase]:
        """Each phase that was reported, repetitions left out."""
        told = [state.phase for state in self.reports]
        return [phase for index, phase in enumerate(told) if index == 0 or told[index - 1] != phase]

    def wipe_metadata(self) -> None:
        for path in sorted((self.folder / "updates" / "metadata").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def later(days: float) -> datetime:
    return NOW + timedelta(days=days)
