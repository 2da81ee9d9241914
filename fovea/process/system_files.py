"""CPU, memory and heat of a machine as its kernel tells them in /proc and /sys: no process, no library."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_PROCESS_TIMES = (11, 12)
"""utime and stime, counted from the field after the name in parentheses."""
_THROTTLED_NOW = 0b1110
"""Of the firmware's bits: frequency capped (1), throttled (2), soft temperature limit (3), all as of now; bit 0 says
that the voltage is low, the high half of the word what ever was."""
_THROTTLED = Path("sys/devices/platform/soc/soc:firmware/get_throttled")
_THERMAL = Path("sys/class/thermal")


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Clock ticks of all cores since boot: all, those that were not idle, and those of this process."""

    total: int
    busy: int
    process: int


class Memory(NamedTuple):
    """Of the machine, in bytes: all of it, and what is available to new work."""

    total: int
    available: int


class Heat(NamedTuple):
    """The hottest zone in degrees Celsius, and whether the machine holds itself back; None where it does not say."""

    temperature_c: float | None
    is_throttled: bool | None


class SystemFiles:
    """The files under `root`. What is missing or reads like nothing known is None, never an error."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._zones = sorted((root / _THERMAL).glob("thermal_zone*"))
        self._coolers = [
            cooler
            for cooler in sorted((root / _THERMAL).glob("cooling_device*"))
            if (_text(cooler / "type") or "").startswith(
                ("Processor", "cpufreq", "thermal-cpufreq", "thermal-devfreq")
            )
        ]

    def cpu_times(self) -> CpuTimes | None:
        """From /proc/stat and /proc/self/stat; waiting for a disk counts as idle."""
        machine = _text(self._root / "proc/stat")
        process = _text(self._root / "proc/self/stat")
        if machine is None or process is None:
            return None
        try:
            # Time of guests is contained in that of users already.
            spent = [int(word) for word in machine.splitlines()[0].split()[1:9]]
            fields = process.rpartition(")")[2].split()
            own = sum(int(fields[place]) for place in _PROCESS_TIMES)
            return CpuTimes(sum(spent), sum(spent) - spent[3] - spent[4], own)
        except (ValueError, IndexError):
            return None

    def memory(self) -> Memory | None:
        """MemTotal and MemAvailable of /proc/meminfo."""
        facts = _fields(_text(self._root / "proc/meminfo"))
        total, available = facts.get("MemTotal"), facts.get("MemAvailable")
        if not total or available is None:
            return None
        return Memory(1024 * total, 1024 * min(available, total))

    def process_memory_bytes(self) -> int | None:
        """Resident memory of this process, from /proc/self/status."""
        kilobytes = _fields(_text(self._root / "proc/self/status")).get("VmRSS")
        return None if kilobytes is None else 1024 * kilobytes

    def heat(self) -> Heat:
        """From /sys/class/thermal, and the bits of the board's firmware where it has some."""
        degrees = [value for zone in self._zones if (value := _degrees(_text(zone / "temp"))) is not None]
        return Heat(max(degrees, default=None), self._is_throttled())

    def _is_throttled(self) -> bool | None:
        bits = _text(self._root / _THROTTLED)
        if bits is not None:
            try:
                return bool(int(bits, 16) & _THROTTLED_NOW)
            except ValueError:
                pass
        states = [
            state for cooler in self._coolers if (state := _number(_text(cooler / "cur_state"))) is not None
        ]
        return any(state > 0 for state in states) if states else None


def _degrees(text: str | None) -> float | None:
    """Zones speak in thousandths; some that are off say something absurd."""
    value = _number(text)
    if value is None:
        return None
    degrees = value / 1000
    return degrees if -50 < degrees < 200 else None


def _fields(text: str | None) -> dict[str, int]:
    """The `name: number kB` lines of a file of /proc."""
    facts: dict[str, int] = {}
    for line in (text or "").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdecimal():
            facts[name.strip()] = int(words[0])
    return facts


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
