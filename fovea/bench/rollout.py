"""Three rollouts to a simulated fleet, and spoilt releases: how fast a good model goes up, and a bad one back."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cloud.rollout.plan import RolloutPlan
from cloud.rollout.rollout import Status
from fovea.bench.result import BenchResult, Setting
from fovea.bench.rollout_site import BEGAN_AT, FAMILY, GROUP, RolloutSite, SiteSettings
from fovea.bench.rollout_switch import frames_dropped
from fovea.core.errors import BrokenError, Malformed
from fovea.core.release import Stage
from fovea.sim.fleet_clock import VirtualClock
from fovea.sim.fleet_truth import ModelTruth
from fovea.sim.fleet_web import FolderFiles
from fovea.sim.release_fuzz import FuzzTally, ReleaseFuzz

Say = Callable[[str], None]

FIRST, GOOD, WORSE, CRASHING = "1.0", "2.0", "3.0", "4.0"
TRUTHS: Final = {
    FIRST: ModelTruth(agreement=0.80),
    GOOD: ModelTruth(agreement=0.84),
    WORSE: ModelTruth(agreement=0.74),
    CRASHING: ModelTruth(agreement=0.84, crashes_per_h=20.0),
}
_MEMORY: Final = Path("/dev/shm")
_LONGEST_S: Final = 12 * 3600.0
_SAY_EVERY_S: Final = 5.0
_FUZZ_CHUNK: Final = 250


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """fuzzed: how many releases are spoilt, side by side in `workers` processes. switches: of a real agent."""

    site: SiteSettings = field(default_factory=SiteSettings)
    fuzzed: int = 10_000
    workers: int = 2
    switches: int = 10

    def __post_init__(self) -> None:
        if not 0 <= self.site.processes < self.site.devices:
            raise Malformed(
                f"rollout: expected fewer processes than devices ({self.site.devices}), got {self.site.processes}"
            )


@dataclass(frozen=True, slots=True)
class Course:
    """How one rollout went, in virtual seconds since its start; None: did not happen. decided_s: when the cloud
    ended it; settled_s: when every device that can be reached runs what it should."""

    status: Status
    stage_s: dict[Stage, float]
    decided_s: float
    settled_s: float
    reasons: tuple[str, ...]


def run(settings: RolloutSettings, say: Say) -> BenchResult:
    """Raises BrokenError when a rollout ends otherwise than it should."""
    memory = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="fovea-rollout-", dir=memory) as name:
        folder = Path(name)
        with RolloutSite(folder, TRUTHS, settings.site) as site:
            _await_first_reports(site, say)
            begun, began_s = time.monotonic(), site.clock.monotonic_s()
            good = _roll_out(site, FIRST, GOOD, Status.DONE, say)
            worse = _roll_out(site, GOOD, WORSE, Status.BACK, say)
            crashing = _roll_out(site, GOOD, CRASHING, Status.BACK, say)
            real_s, virtual_s = time.monotonic() - begun, site.clock.monotonic_s() - began_s
            answered = site.answered()
        lost = frames_dropped(folder / "switch", settings.switches, say)
        tally = _fuzz(folder, settings, say)
    if Stage.ALL in crashing.stage_s:
        raise BrokenError(f"the model that fails in the field reached every device: {crashing}")
    figures = {
        "devices": float(settings.site.devices),
        "t_canary_s": good.stage_s[Stage.CANARY],
        "t_full_s": good.settled_s,
        "t_rollback_s": crashing.settled_s - crashing.decided_s,
        "blast_device_frames": float(answered[WORSE] + answered[CRASHING]),
        "fuzzed_releases": float(tally.tried),
        "fuzzed_accepted": float(tally.accepted),
        "frames_dropped_at_switch": float(lost),
        "processes": float(settings.site.processes),
        "fuzzed_crashed": float(tally.crashed),
        "t_done_s": good.decided_s,
        "worse_decided_s": worse.decided_s,
        "worse_answered_frames": float(answered[WORSE]),
        "crashing_decided_s": crashing.decided_s,
        "crashing_answered_frames": float(answered[CRASHING]),
        "real_s": real_s,
        "virtual_s": virtual_s,
    }
    return BenchResult.now("rollout", _told(settings, virtual_s / real_s, worse, crashing), figures)


def _await_first_reports(site: RolloutSite, say: Say) -> None:
    say(f"{site.settings.devices} devices start, {site.settings.processes} of them as processes")
    expected = site.settings.devices - site.settings.away

    def all_there() -> bool:
        return len(site.store.reports(GROUP)) >= expected

    # At first the processes start, which takes real time and no virtual one.
    if not site.run(all_there, _LONGEST_S):
        raise BrokenError(f"{len(site.store.reports(GROUP))} of {expected} devices have reported")


def _roll_out(site: RolloutSite, champion: str, candidate: str, expected: Status, say: Say) -> Course:
    began_s = site.clock.monotonic_s()
    site.roll_out(champion, candidate, RolloutPlan())
    say(f"model {candidate} begins in shadow")
    stage_s: dict[Stage, float] = {}
    decided_s: list[float] = []
    target = candidate if expected is Status.DONE else champion
    said_s = [0.0]

    def is_over() -> bool:
        now = site.newest()
        since_s = site.clock.monotonic_s() - began_s
        if now.stage not in stage_s:
            stage_s[now.stage] = (now.since - BEGAN_AT).total_seconds() - began_s
        if not now.is_open and not decided_s:
            decided_s.append((now.since - BEGAN_AT).total_seconds() - began_s)
        running = site.running()
        if time.monotonic() - said_s[0] > _SAY_EVERY_S:
            said_s[0] = time.monotonic()
            shown = ", ".join(f"{n} run {version or '?'}" for version, n in sorted(running.items()))
            say(f"{since_s:6.0f} s  {candidate} {now.stage.value}/{now.status.value}: {shown}")
        return not now.is_open and set(running) == {target}

    is_settled = site.run(is_over, _LONGEST_S)
    now = site.newest()
    if not is_settled or now.status is not expected:
        raise BrokenError(
            f"model {candidate}: expected {expected.value}, it is {now.status.value} in {now.stage.value} "
            f"({'; '.join(now.reasons)}); {dict(site.running())}"
        )
    settled_s = site.clock.monotonic_s() - began_s
    say(f"model {candidate} {now.status.value} after {decided_s[0]:.0f} s: {'; '.join(now.reasons)}")
    return Course(now.status, stage_s, decided_s[0], settled_s, now.reasons)


def _fuzz(folder: Path, settings: RolloutSettings, say: Say) -> FuzzTally:
    """The releases of this very repository, as they are after the rollouts."""
    total = FuzzTally()
    counts = [_FUZZ_CHUNK] * (settings.fuzzed // _FUZZ_CHUNK)
    if rest := settings.fuzzed - sum(counts):
        counts.append(rest)
    with ProcessPoolExecutor(settings.workers) as workers:
        jobs = [
            workers.submit(_fuzz_some, folder, settings.site.seed + number, count)
            for number, count in enumerate(counts)
        ]
        for job in jobs:
            _add(total, job.result())
            say(f"{total.tried} of {settings.fuzzed} spoilt releases tried, {total.accepted} accepted")
    return total


def _fuzz_some(folder: Path, seed: int, count: int) -> FuzzTally:
    public = folder / "repository" / "public"
    root = (public / "metadata" / "1.root.json").read_bytes()
    clock = VirtualClock(folder / "clock", BEGAN_AT)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        files = dict(FolderFiles(public))
        return ReleaseFuzz(files, root, GROUP, FAMILY, Path(scratch), clock, BEGAN_AT, seed).run(count)


def _add(total: FuzzTally, part: FuzzTally) -> None:
    for name in ("tried", "refused", "unreachable", "harmless", "accepted", "crashed"):
        setattr(total, name, getattr(total, name) + getattr(part, name))
    total.first_fault = total.first_fault or part.first_fault


def _told(settings: RolloutSettings, scale: float, worse: Course, crashing: Course) -> dict[str, Setting]:
    site = settings.site
    return {
        "devices": site.devices,
        "processes": site.processes,
        "scale_virtual_s_per_real_s": round(scale, 1),
        "speed_at_most": site.speed,
        "virtual_time": "stands still while a simulated device does its work",
        "poll_interval_s": site.interval_s,
        "cloud_looks_every_s": site.tick_s,
        "broker": site.broker_used,
        "seed": site.seed,
        "trial": "child process in real devices; in simulated ones a stand-in that opens the bundle",
        "frames_dropped_at_switch_from": f"{settings.switches} switches of an agent process, 10 frames a second",
        "worse_model": f"agreement {TRUTHS[WORSE].agreement - TRUTHS[GOOD].agreement:+.2f}",
        "worse_went_back_from": _last_stage(worse),
        "worse_reason": "; ".join(worse.reasons),
        "crashing_model": f"takes its process down {TRUTHS[CRASHING].crashes_per_h:g} times an hour, not in shadow",
        "crashing_went_back_from": _last_stage(crashing),
        "crashing_reason": "; ".join(crashing.reasons),
    }


def _last_stage(course: Course) -> str:
    return [stage for stage in course.stage_s if stage is not Stage.BACK][-1].value
