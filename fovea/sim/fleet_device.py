"""One simulated device: the shipped updater on a disk of its own, around it a host that draws what models show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from fovea.core.errors import Incompatible
from fovea.core.release import ReportedState
from fovea.runtime.bundle import Bundle
from fovea.runtime.store import BundleStore
from fovea.sim.fleet_host import SimulatedHost, World
from fovea.sim.fleet_truth import CameraTruth
from fovea.update.download import DownloadLimits
from fovea.update.judging import Machine
from fovea.update.ports import Surroundings, Trial, Web
from fovea.update.telling import Identity
from fovea.update.updater import Updater, UpdateSettings

_MACHINE: Final = Machine("aarch64", "1.32.0", "99", "camera")
_PLENTY: Final = 1 << 40
_RESTART_S: Final = 10.0
_LIMITS: Final = DownloadLimits(tries=3, first_pause_s=1.0, spare_bytes=0)


class QuickTrial:
    """Stands in for the child process, which takes seconds: opens the bundle, and looks up what that would find."""

    def __init__(self, world: World, camera: CameraTruth) -> None:
        self._world, self._camera = world, camera

    def try_model(self, path: Path, max_ms: float | None) -> None:
        bundle = Bundle.open(path)
        needed_ms = self._world.model(bundle.ref).ms_p95 * self._camera.slowness
        if max_ms is not None and needed_ms > 2 * max_ms:
            raise Incompatible(f"{bundle.ref}: too slow, {needed_ms:.1f} ms, allowed are {max_ms:g} ms")


@dataclass(frozen=True, slots=True)
class Site:
    """Where the devices of a fleet get their releases, and what they came with."""

    base_url: str
    pinned_root: bytes = field(repr=False)
    group: str
    family: str
    built_in: Bundle
    interval_s: float = 300.0
    reboots_per_h: float = 0.0


class SimulatedDevice:
    """`step` does what is due; a crash of its process is a restart with everything in memory gone."""

    def __init__(
        self,
        name: str,
        folder: Path,
        site: Site,
        world: World,
        camera: CameraTruth,
        web: Web,
        report: Callable[[ReportedState], None],
        rng: np.random.Generator,
        trial: Trial | None = None,
        pause: Callable[[float], None] = lambda _: None,
        restarts: int = 0,
    ) -> None:
        """`pause` waits in a download; by default a try follows the other at once."""
        self.name = name
        self.restarts = restarts
        self.answered: Counter[str] = Counter()
        self.dropped = 0
        self.is_down = False
        self._folder, self._site, self._world, self._camera = folder, site, world, camera
        self._web, self._report, self._rng = web, report, rng
        self._trial = trial or QuickTrial(world, camera)
        self._pause = pause
        self._boot()

    @property
    def running(self) -> str:
        """The version that answers its frames."""
        return self.host.running.version

    @property
    def all_answered(self) -> Counter[str]:
        """Frames by the version that answered them, since the device was made."""
        return self.answered + self.host.answered

    @property
    def all_dropped(self) -> int:
        return self.dropped + self.host.dropped

    def look(self) -> None:
        self.updater.look()

    def step(self) -> float:
        """Gives the seconds until something may be due again."""
        if self.is_down:
            self._boot()
        wait_s = self.updater.step()
        if self.host.has_crashed:
            self._end(self.restarts + 1)
            return _RESTART_S
        if self._rng.random() < self._site.reboots_per_h * wait_s / 3600.0:
            self._end(0)
            return _RESTART_S
        return wait_s

    def pull_the_plug(self) -> None:
        """Its power goes; it boots at the next step."""
        self._end(0)

    def _end(self, restarts: int) -> None:
        self.answered += self.host.answered
        self.dropped += self.host.dropped
        self.host.answered, self.host.dropped = Counter(), 0
        self.restarts, self.is_down = restarts, True

    def _boot(self) -> None:
        self.is_down = False
        store = BundleStore.open(self._folder / "models")
        running = store.open_at_boot(self._site.built_in).ref
        self.host = SimulatedHost(running, self._camera, self._world, self._rng, self.restarts)
        self.updater = Updater(
            Identity(
                self.name, self._site.group, self._site.family, f"{self._rng.integers(1 << 60):x}", _MACHINE
            ),
            UpdateSettings(
                self._site.base_url,
                self._folder / "updates",
                self._site.pinned_root,
                interval_s=self._site.interval_s,
                check_every_s=10.0,
                download=_LIMITS,
            ),
            store,
            self._web,
            self._trial,
            self.host,
            self._report,
            Surroundings(
                self._world.clock, lambda: float(self._rng.random()), self._pause, lambda _: _PLENTY
            ),
        )
