"""A fleet of simulated devices in one process: who is due is next, and time goes on when nobody is."""

from __future__ import annotations

import heapq
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fovea.core.release import ReportedState
from fovea.sim.fleet_clock import VirtualClock
from fovea.sim.fleet_device import SimulatedDevice, Site
from fovea.sim.fleet_host import World
from fovea.sim.fleet_web import BadLine
from fovea.update.ports import Web

_LONGEST_REAL_STEP_S = 0.25


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """away: how many devices have no network until `call_back`. broken: share of answers that break off."""

    devices: int
    seed: int = 0
    away: int = 0
    broken: float = 0.01


class Fleet:
    """For one thread; `look` may be called from any. Devices are called `camera-0000` and so on; the last ones are
    away."""

    def __init__(
        self,
        folder: Path,
        settings: FleetSettings,
        site: Site,
        world: World,
        clock: VirtualClock,
        web: Web,
        report: Callable[[ReportedState], None],
    ) -> None:
        self._clock = clock
        self._looks: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._web, self._report = web, report
        self._rng = np.random.default_rng(settings.seed)
        names = [f"camera-{number:04d}" for number in range(settings.devices)]
        self.away = set(names[len(names) - settings.away :])
        self.devices: dict[str, SimulatedDevice] = {}
        self._due: list[tuple[float, str]] = []
        self._due_of: dict[str, float] = {}
        self._real_s = time.monotonic()
        for name in names:
            self._add(name, folder / name, settings, site, world)

    def _add(self, name: str, folder: Path, settings: FleetSettings, site: Site, world: World) -> None:
        rng = np.random.default_rng(self._rng.integers(1 << 60))
        line = BadLine(self._web, settings.broken, lambda: float(rng.random()), lambda: name in self.away)
        self.devices[name] = SimulatedDevice(
            name, folder, site, world, world.fleet.camera(rng), line, self._tell, rng
        )
        # They were not all switched on at the same moment.
        self._plan(name, self._clock.monotonic_s() + float(rng.random()) * site.interval_s)

    def look(self, device: str) -> None:
        """A hint for one device. From any thread."""
        self._looks.put(device)

    def call_back(self) -> None:
        """Those that are away have a network again."""
        self.away.clear()

    def run(self, until: Callable[[], bool], longest_s: float, speed: float) -> bool:
        """Lets time pass until it is so, or for `longest_s` of virtual time: then False. `speed`: virtual seconds in
        one real second, at most; less where the devices that are due take longer."""
        end_s = self._clock.monotonic_s() + longest_s
        looked_s = 0.0
        while self._clock.monotonic_s() < end_s:
            if time.monotonic() - looked_s > _LONGEST_REAL_STEP_S:
                if until():
                    return True
                looked_s = time.monotonic()
            self._move(speed)
        return until()

    def running(self) -> Counter[str]:
        """How many devices run which version; those that are away are left out."""
        return Counter(each.running for name, each in self.devices.items() if name not in self.away)

    def answered(self) -> Counter[str]:
        """Frames by the version that answered them."""
        return _sum(each.all_answered for each in self.devices.values())

    def dropped(self) -> int:
        return sum(each.all_dropped for each in self.devices.values())

    def _move(self, speed: float) -> None:
        self._take_looks()
        now_s = self._clock.monotonic_s()
        if self._due and self._due[0][0] <= now_s:
            due_s, name = heapq.heappop(self._due)
            if due_s == self._due_of[name]:
                self._plan(name, now_s + self.devices[name].step())
            return
        real_s = time.monotonic()
        leap_s = min(real_s - self._real_s, _LONGEST_REAL_STEP_S) * speed
        self._real_s = real_s
        next_s = self._due[0][0] if self._due else now_s + leap_s
        self._clock.advance_to(min(next_s, now_s + leap_s))
        if next_s > now_s + leap_s:
            time.sleep(min((next_s - now_s - leap_s) / speed, 0.02))

    def _plan(self, name: str, due_s: float) -> None:
        self._due_of[name] = due_s
        heapq.heappush(self._due, (due_s, name))

    def _take_looks(self) -> None:
        while not self._looks.empty():
            name = self._looks.get()
            if name in self.devices and name not in self.away:
                self.devices[name].look()
                self._plan(name, self._clock.monotonic_s())

    def _tell(self, state: ReportedState) -> None:
        if state.device not in self.away:
            self._report(state)


def _sum(counts: Iterable[Counter[str]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return total
