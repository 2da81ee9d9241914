"""What the machine has left: CPU, memory, heat, GPU and queue, looked at twice a second on a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

from fovea.core.errors import Malformed
from fovea.process.gpu_reading import GpuReader, GpuState, find_gpu
from fovea.process.system_files import CpuTimes, SystemFiles

_log = logging.getLogger(__name__)

QueueLength = Callable[[], int]


@dataclass(frozen=True, slots=True)
class ResourceState:
    """One look at the machine; None where it does not say.

    process_cpu_share   0..1 of the time of all cores that this process took since the look before
    machine_cpu_share   0..1 of it that was not idle
    memory_used_share   0..1 of the machine's memory that is not available to new work
    memory_total_bytes, memory_available_bytes  all of the machine's memory, and what is available to new work
    process_memory_bytes  resident memory of this process
    temperature_c       of the hottest part
    is_throttled        it runs slower than it could, for heat or weak power
    gpu                 of the first GPU
    queue_length        frames or questions that wait, as the callback says
    """

    at_mono_s: float
    process_cpu_share: float | None = None
    machine_cpu_share: float | None = None
    memory_used_share: float | None = None
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    process_memory_bytes: int | None = None
    temperature_c: float | None = None
    is_throttled: bool | None = None
    gpu: GpuState | None = None
    queue_length: int | None = None

    def facts(self) -> dict[str, float]:
        """What the machine says, by name, as health, figures and metrics show it; what it does not say is left out.
        Of the GPU as gpu_busy_share and so on."""
        facts: dict[str, float] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool | int | float) and each.name != "at_mono_s":
                facts[each.name] = round(float(value), 4)
        for each in fields(GpuState) if self.gpu is not None else ():
            value = getattr(self.gpu, each.name)
            if value is not None:
                facts[f"gpu_{each.name}"] = round(value, 4)
        return facts


class ResourceSampler:
    """Takes one look at a time, for one thread; shares of CPU time are those since the look before."""

    def __init__(
        self,
        monotonic_s: Callable[[], float],
        files: SystemFiles,
        gpu: GpuReader | None = None,
        queue_length: QueueLength | None = None,
    ) -> None:
        self._monotonic_s = monotonic_s
        self._files = files
        self._gpu = gpu
        self._queue_length = queue_length
        self._before: CpuTimes | None = None

    def look(self) -> ResourceState:
        """Never raises for what a machine does not have; what the callback raises goes through."""
        times, heat, memory = self._files.cpu_times(), self._files.heat(), self._files.memory()
        before, self._before = self._before, times
        process_share, machine_share = _shares(before, times)
        return ResourceState(
            at_mono_s=self._monotonic_s(),
            process_cpu_share=process_share,
            machine_cpu_share=machine_share,
            memory_used_share=None if memory is None else 1 - memory.available / memory.total,
            memory_total_bytes=None if memory is None else memory.total,
            memory_available_bytes=None if memory is None else memory.available,
            process_memory_bytes=self._files.process_memory_bytes(),
            temperature_c=heat.temperature_c,
            is_throttled=heat.is_throttled,
            gpu=None if self._gpu is None else self._gpu.read(),
            queue_length=None if self._queue_length is None else self._queue_length(),
        )


class ResourceMonitor:
    """Looks every `every_s` on a daemon thread; `state` is the newest look, for any thread, at no cost."""

    def __init__(self, sampler: ResourceSampler, every_s: float = 0.5) -> None:
        if not 0 < every_s <= 60:
            raise Malformed(f"resource monitor every_s: expected above 0 up to 60, got {every_s}")
        self._sampler = sampler
        self._every_s = every_s
        self._state: ResourceState | None = None
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="resources", daemon=True)
        self._has_failed = False

    @property
    def state(self) -> ResourceState | None:
        """None before the first look."""
        return self._state

    def facts(self) -> dict[str, float]:
        """Of the newest look, see `ResourceState.facts`; empty before the first one."""
        state = self._state
        return {} if state is None else state.facts()

    def start(self) -> None:
        """The first look is taken here, so that there is a state from now on."""
        self._look()
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """False when the thread did not end in time."""
        self._is_stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._is_stopping.wait(self._every_s):
            self._look()

    def _look(self) -> None:
        try:
            self._state = self._sampler.look()
            self._has_failed = False
        except Exception:  # the top of this thread: an odd machine must not end the look at it
            if not self._has_failed:
                _log.exception("cannot look at this machine's resources; the last look stays")
            self._has_failed = True


def machine_monitor(
    queue_length: QueueLength | None = None,
    every_s: float = 0.5,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> ResourceMonitor:
    """A monitor of this machine, not started."""
    files = SystemFiles(Path("/"))
    return ResourceMonitor(ResourceSampler(monotonic_s, files, find_gpu(Path("/")), queue_length), every_s)


def _shares(before: CpuTimes | None, now: CpuTimes | None) -> tuple[float | None, float | None]:
    if before is None or now is None or now.total <= before.total:
        return None, None
    passed = now.total - before.total
    return _unit((now.process - before.process) / passed), _unit((now.busy - before.busy) / passed)


def _unit(share: float) -> float:
    return min(max(share, 0.0), 1.0)
