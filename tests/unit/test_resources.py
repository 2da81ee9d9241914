"""The machine as its kernel tells of it: read from a made-up root, and watched by one thread."""

from __future__ import annotations

import ctypes
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fovea.core.errors import Malformed
from fovea.process.gpu_reading import GpuState, NvmlGpu, find_gpu
from fovea.process.resources import ResourceMonitor, ResourceSampler, ResourceState, machine_monitor
from fovea.process.system_files import SystemFiles
from tests.fakes import FakeClock

LIMIT_S = 30.0


class FakeMachine:
    """A root of files as a board has them; times are clock ticks."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.say("proc/meminfo", "MemTotal:  4000000 kB\nMemFree:  100 kB\nMemAvailable:  1000000 kB\n")
        self.say("proc/self/status", "Name:\tfovea\nVmRSS:\t  51200 kB\nThreads:\t9\n")
        self.spend(busy=1000, idle=3000, own=200)

    def say(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def spend(self, busy: int, idle: int, own: int) -> None:
        """Of `idle`, 100 wait for a disk; guests are counted within the users' time, as the kernel does."""
        self.say(
            "proc/stat", f"cpu  {busy - 30} 10 15 {idle - 100} 100 5 0 0 77 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
        )
        half = own // 2
        self.say(
            "proc/self/stat", f"4242 (a (b) c) S 1 1 1 0 -1 4 9 9 9 9 {half} {own - half} 3 3 20 0 9 0 77\n"
        )

    def sampler(self, clock: FakeClock | None = None, **parts: Any) -> ResourceSampler:
        return ResourceSampler((clock or FakeClock()).monotonic_s, SystemFiles(self.root), **parts)


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def test_cpu_shares_are_those_since_the_look_before(machine: FakeMachine) -> None:
    sampler = machine.sampler()
    first = sampler.look()
    assert first.process_cpu_share is None
    assert first.machine_cpu_share is None
    machine.spend(busy=1060, idle=3140, own=230)
    second = sampler.look()
    assert second.machine_cpu_share == pytest.approx(60 / 200)
    assert second.process_cpu_share == pytest.approx(30 / 200)


def test_memory_is_what_is_not_available_to_new_work(machine: FakeMachine) -> None:
    state = machine.sampler().look()
    assert state.memory_used_share == pytest.approx(0.75)
    assert state.process_memory_bytes == 51200 * 1024


def test_the_hottest_zone_counts_and_absurd_ones_do_not(machine: FakeMachine) -> None:
    machine.say("sys/class/thermal/thermal_zone0/temp", "48300\n")
    machine.say("sys/class/thermal/thermal_zone1/temp", "61250\n")
    machine.say("sys/class/thermal/thermal_zone2/temp", "-274000\n")
    machine.say("sys/class/thermal/thermal_zone3/temp", "off\n")
    assert machine.sampler().look().temperature_c == pytest.approx(61.25)


@pytest.mark.parametrize(
    ("bits", "is_throttled"),
    [("0", False), ("0x0", False), ("50000", False), ("50005", True), ("2", True), ("8", True), ("1", False)],
)
def test_the_firmware_says_whether_it_is_throttled_now(
    machine: FakeMachine, bits: str, is_throttled: bool
) -> None:
    machine.say("sys/devices/platform/soc/soc:firmware/get_throttled", bits)
    assert machine.sampler().look().is_throttled is is_throttled


def test_without_such_firmware_a_cooling_processor_is_a_throttled_one(machine: FakeMachine) -> None:
    machine.say("sys/class/thermal/cooling_device0/type", "pwm-fan\n")
    machine.say("sys/class/thermal/cooling_device0/cur_state", "3\n")
    assert machine.sampler().look().is_throttled is None
    machine.say("sys/class/thermal/cooling_device1/type", "cpufreq-cpu0\n")
    machine.say("sys/class/thermal/cooling_device1/cur_state", "0\n")
    sampler = machine.sampler()
    assert sampler.look().is_throttled is False
    machine.say("sys/class/thermal/cooling_device1/cur_state", "2\n")
    assert sampler.look().is_throttled is True


def test_a_machine_that_says_nothing_gives_a_state_without_figures(tmp_path: Path) -> None:
    clock = FakeClock(monotonic_s=7.0)
    state = ResourceSampler(clock.monotonic_s, SystemFiles(tmp_path)).look()
    assert state == ResourceState(7.0)


@pytest.mark.parametrize("text", ["", "cpu", "cpu  a b c d e f g h", "\0\0"])
def test_files_that_make_no_sense_are_no_figures(machine: FakeMachine, text: str) -> None:
    for path in ("proc/stat", "proc/self/stat", "proc/meminfo", "proc/self/status"):
        machine.say(path, text)
    machine.say("sys/class/thermal/thermal_zone0/temp", text)
    machine.say("sys/devices/platform/soc/soc:firmware/get_throttled", text)
    sampler = machine.sampler()
    sampler.look()
    state = sampler.look()
    assert state == ResourceState(state.at_mono_s)


def test_times_that_step_back_give_no_share(machine: FakeMachine) -> None:
    sampler = machine.sampler()
    sampler.look()
    machine.spend(busy=100, idle=300, own=2)
    assert sampler.look().machine_cpu_share is None


def test_what_is_left_of_the_memory_is_told_in_bytes_too(machine: FakeMachine) -> None:
    state = machine.sampler().look()
    assert state.memory_total_bytes is not None and state.memory_available_bytes is not None
    assert state.memory_available_bytes == pytest.approx(0.25 * state.memory_total_bytes)


def test_a_look_is_told_by_name_without_what_the_machine_does_not_say() -> None:
    assert ResourceState(7.0).facts() == {}
    state = ResourceState(
        7.0, memory_used_share=0.123456, is_throttled=True, gpu=GpuState(0.5, None, 61.0), queue_length=0
    )
    assert state.facts() == {
        "memory_used_share": 0.1235,
        "is_throttled": 1.0,
        "queue_length": 0.0,
        "gpu_busy_share": 0.5,
        "gpu_temperature_c": 61.0,
    }


def test_the_queue_is_asked_by_callback(machine: FakeMachine) -> None:
    assert machine.sampler(queue_length=lambda: 7).look().queue_length == 7


def test_a_gpu_that_tells_in_files_is_read_from_them(machine: FakeMachine) -> None:
    card = "sys/class/drm/card1/device"
    machine.say(f"{card}/gpu_busy_percent", "37\n")
    machine.say(f"{card}/mem_info_vram_used", "250\n")
    machine.say(f"{card}/mem_info_vram_total", "1000\n")
    gpu = find_gpu(machine.root)
    assert gpu is not None
    assert machine.sampler(gpu=gpu).look().gpu == GpuState(0.37, 0.25)
    (machine.root / card / "gpu_busy_percent").unlink()
    assert gpu.read() is None


def test_the_gpu_of_a_tegra_board_counts_to_a_thousand(machine: FakeMachine) -> None:
    machine.say("sys/devices/gpu.0/load", "425\n")
    gpu = find_gpu(machine.root)
    assert gpu is not None
    assert gpu.read() == GpuState(0.425)


class FakeNvml:
    """Answers as nvml.h says: 0 is well, results go through pointers."""

    def __init__(self, init: int = 0, works: bool = True) -> None:
        self._init, self._code = init, 0 if works else 999

    def nvmlInit_v2(self) -> int:  # noqa: N802  the library's own names
        return self._init

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, device: Any) -> int:  # noqa: N802
        return 0 if index == 0 else 2

    def nvmlDeviceGetUtilizationRates(self, device: Any, rates: Any) -> int:  # noqa: N802
        rates._obj.gpu = 64
        return self._code

    def nvmlDeviceGetMemoryInfo(self, device: Any, memory: Any) -> int:  # noqa: N802
        memory._obj.total, memory._obj.used = 1 << 36, 1 << 35
        return self._code

    def nvmlDeviceGetTemperature(self, device: Any, sensor: int, degrees: Any) -> int:  # noqa: N802
        degrees._obj.value = 71
        return self._code


def test_a_gpu_of_nvidia_is_asked_through_its_library(machine: FakeMachine) -> None:
    machine.say("proc/driver/nvidia/version", "NVRM version\n")
    gpu = find_gpu(machine.root, lambda name: FakeNvml())
    assert isinstance(gpu, NvmlGpu)
    assert gpu.read() == GpuState(0.64, 0.5, 71.0)


def test_a_gpu_that_fell_off_the_bus_is_none(machine: FakeMachine) -> None:
    gpu = NvmlGpu(FakeNvml(works=False), ctypes.c_void_p())
    assert machine.sampler(gpu=gpu).look().gpu is None


def test_nothing_is_loaded_where_there_is_no_driver(machine: FakeMachine) -> None:
    def refuse(name: str) -> Any:
        raise AssertionError(f"loaded {name}")

    assert find_gpu(machine.root, refuse) is None


def test_a_library_that_is_missing_too_old_or_unwilling_is_no_gpu() -> None:
    def missing(name: str) -> Any:
        raise OSError(name)

    assert NvmlGpu.find(missing) is None
    assert NvmlGpu.find(lambda name: object()) is None
    assert NvmlGpu.find(lambda name: FakeNvml(init=9)) is None


def test_the_monitor_looks_again_and_again_on_one_daemon_thread(machine: FakeMachine) -> None:
    lengths = iter(range(10**6))
    monitor = ResourceMonitor(machine.sampler(queue_length=lambda: next(lengths)), every_s=0.01)
    assert monitor.state is None
    threads = threading.active_count()
    monitor.start()
    try:
        assert monitor.state is not None
        assert threading.active_count() == threads + 1
        assert all(thread.daemon for thread in threading.enumerate() if thread.name == "resources")
        _until(lambda: monitor.state is not None and (monitor.state.queue_length or 0) >= 3)
    finally:
        assert monitor.stop(LIMIT_S)
    assert threading.active_count() == threads


def test_a_look_that_breaks_leaves_the_last_state_and_the_next_one_goes_on(
    machine: FakeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    answers = iter([1, None, None, 4])

    def length() -> int:
        answer = next(answers, 4)
        if answer is None:
            raise RuntimeError("no queue yet")
        return answer

    monitor = ResourceMonitor(machine.sampler(queue_length=length), every_s=0.01)
    monitor.start()
    try:
        _until(lambda: monitor.state is not None and monitor.state.queue_length == 4)
    finally:
        assert monitor.stop(LIMIT_S)
    assert [record.message for record in caplog.records] == [
        "cannot look at this machine's resources; the last look stays"
    ]


def test_a_monitor_that_was_never_started_can_be_stopped(machine: FakeMachine) -> None:
    assert ResourceMonitor(machine.sampler()).stop(1.0)


@pytest.mark.parametrize("every_s", [0.0, -1.0, float("nan"), 61.0])
def test_a_pace_that_makes_no_sense_is_refused(machine: FakeMachine, every_s: float) -> None:
    with pytest.raises(Malformed, match="every_s"):
        ResourceMonitor(machine.sampler(), every_s)


def test_this_machine_is_looked_at() -> None:
    monitor = machine_monitor(lambda: 0, every_s=0.02)
    monitor.start()
    try:
        _until(lambda: monitor.state is not None and monitor.state.machine_cpu_share is not None)
        state = monitor.state
    finally:
        assert monitor.stop(LIMIT_S)
    assert state is not None
    assert state.memory_used_share is not None and 0 < state.memory_used_share < 1
    assert state.process_memory_bytes is not None and state.process_memory_bytes > 1_000_000


def _until(is_so: Any) -> None:
    ends_s = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < ends_s, "it did not become so"
        time.sleep(0.005)
