"""How busy the GPU is, where there is one: files of the kernel, or NVIDIA's management library; never a process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

_NVML = "libnvidia-ml.so.1"
_NVML_TEMPERATURE_GPU = 0
_TEGRA_LOADS = ("sys/devices/gpu.0/load", "sys/devices/platform/gpu.0/load")


@dataclass(frozen=True, slots=True)
class GpuState:
    """busy_share and memory_used_share 0..1, temperature_c; None where it does not say."""

    busy_share: float | None = None
    memory_used_share: float | None = None
    temperature_c: float | None = None


class GpuReader(Protocol):
    """The first GPU of a machine."""

    def read(self) -> GpuState | None:
        """Well under a millisecond; None when it does not answer (any more)."""
        ...


class FileGpu:
    """A GPU whose driver says in files how busy it is: `busy` counts to `full`, `used` and `total` are bytes."""

    def __init__(self, busy: Path, full: float, used: Path | None = None, total: Path | None = None) -> None:
        self._busy, self._full, self._used, self._total = busy, full, used, total

    def read(self) -> GpuState | None:
        busy = _number(self._busy)
        if busy is None:
            return None
        used = None if self._used is None else _number(self._used)
        total = None if self._total is None else _number(self._total)
        memory = None if used is None or not total else _unit(used / total)
        return GpuState(_unit(busy / self._full), memory)


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class NvmlGpu:
    """The first NVIDIA GPU by its management library (nvml.h): calls that ask the driver and take microseconds."""

    def __init__(self, library: Any, device: ctypes.c_void_p) -> None:
        self._library = library
        self._device = device

    @classmethod
    def find(cls, load: Callable[[str], Any] = ctypes.CDLL) -> NvmlGpu | None:
        """None where there is no such library, driver or GPU."""
        try:
            library = load(_NVML)
            device = ctypes.c_void_p()
            if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)):
                return None
        except (OSError, AttributeError):
            return None
        return cls(library, device)

    def read(self) -> GpuState | None:
        busy, memory, degrees = _Utilization(), _Memory(), ctypes.c_uint()
        library, device = self._library, self._device
        has_busy = not library.nvmlDeviceGetUtilizationRates(device, ctypes.byref(busy))
        has_memory = not library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) and memory.total
        has_heat = not library.nvmlDeviceGetTemperature(device, _NVML_TEMPERATURE_GPU, ctypes.byref(degrees))
        if not (has_busy or has_memory or has_heat):
            return None
        return GpuState(
            _unit(busy.gpu / 100) if has_busy else None,
            _unit(memory.used / memory.total) if has_memory else None,
            float(degrees.value) if has_heat else None,
        )


def find_gpu(root: Path, load: Callable[[str], Any] = ctypes.CDLL) -> GpuReader | None:
    """The first GPU that says how busy it is: by files of its driver under `root`, else by NVIDIA's library, which is
    loaded only where their driver is."""
    for card in sorted((root / "sys/class/drm").glob("card[0-9]*/device")):
        busy = card / "gpu_busy_percent"
        if busy.exists():
            return FileGpu(busy, 100.0, card / "mem_info_vram_used", card / "mem_info_vram_total")
    for name in _TEGRA_LOADS:
        if (root / name).exists():
            return FileGpu(root / name, 1000.0)
    return NvmlGpu.find(load) if (root / "proc/driver/nvidia/version").exists() else None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="utf-8").strip())
    except (OSError, ValueError):
        return None


def _unit(share: float) -> float:
    return min(max(share, 0.0), 1.0)
