"""What each tier alone, and all together, are worth over a network: accuracy, latency, bytes and modelled energy.

One camera walks through the test clips of the street at a few frames a second. Every answer was recorded, every time
measured on this machine; who is asked is decided by the product's own gates, prices, budgets, deadlines and breakers,
replayed over modelled links. One real run of all processes over shaped links says how far the replay is from it.

The edge stands on the camera's site, a LAN away; the link that gives the figures their name is that between the site
and the cloud. In an outage both are cut, in the middle third of the run: the camera is alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from edge_agent.config import BudgetConfig as AgentBudget
from fovea.bench.cascade_recording import FLOOR, ClipSpan, RecordedFrame, Trio, record_clips
from fovea.bench.children import all_cores, free_ports
from fovea.bench.measured_tiers import HOST, serving
from fovea.bench.result import BenchResult, Setting
from fovea.bench.street_frames import SUITE
from fovea.bench.tiers_figures import LINKS, replayed_figures, times_figures
from fovea.bench.tiers_link import LAN, WAN
from fovea.bench.tiers_live import LivePlan, LiveRun, live_figures, run_agent, shape_of
from fovea.bench.tiers_outcome import Mode, Outcome, TierTimes
from fovea.bench.tiers_policy import Gates
from fovea.bench.tiers_replay import Network, replay
from fovea.bench.tiers_times import measure_times
from fovea.core.arrays import ImageArray
from fovea.core.energy import BAND, EnergyConstants
from fovea.core.errors import Malformed
from fovea.runtime.bundle import Bundle
from fovea.sim.conditions import CONDITIONS
from fovea.sim.link_shaper import shaped_link
from fovea.sim.suite import CLIPS_PER_CONDITION, load_suite

_TIMED_FRAMES = 30


@dataclass(frozen=True, slots=True)
class TiersSettings:
    """Which frames: `count` of each of the first `clips` clips of every condition, at `fps`. live_frames: of each
    camera in the real run (0: none); there is one for each of `live_conditions`. resamples: of intervals."""

    split: str = "test"
    clips: int = 12
    count: int = 8
    fps: float = 2.0
    conditions: tuple[str, ...] = CONDITIONS
    live_frames: int = 48
    live_conditions: tuple[str, ...] = ("day", "night", "rain")
    workers: int = 2
    resamples: int = 1000
    trio: Trio = field(default_factory=Trio.street)

    def __post_init__(self) -> None:
        most = CLIPS_PER_CONDITION.get(self.split)
        if most is None or not 1 <= self.clips <= most:
            raise Malformed(
                f"tiers: expected val or test and 1 to {most or 24} clips, got {self.split!r} and {self.clips}"
            )
        if not (2 <= self.count <= 25 and self.fps > 0 and self.live_frames >= 0):
            raise Malformed(f"tiers: expected 2 to 25 frames of each clip and a rate above 0, got {self}")

    def spans(self) -> list[ClipSpan]:
        """Conditions take turns, so that every part of the run has all of them."""
        return [
            ClipSpan(self.split, condition, index, self.count, self.fps, every=1)
            for index in range(self.clips)
            for condition in self.conditions
        ]

    def live_spans(self) -> list[ClipSpan]:
        return [
            ClipSpan(self.split, condition, 0, self.live_frames, self.fps, every=1)
            for condition in self.live_conditions
        ]


def run(
    settings: TiersSettings,
    recordings: Path,
    work: Path,
    note: Callable[[str], None] = lambda text: None,
) -> BenchResult:
    """Measures on this machine. `recordings` keeps what the models saw for the next run; `work` takes configurations
    and logs of the processes.

    <link>.<mode>.ap .f1 .streaming_ap .latency_ms_mean _p95 _p99 .unanswered_pct .bytes_per_frame .joules_per_frame
    <link>.hybrid.asked_pct .forwarded_pct .first_ms_mean    asked of the edge, of the cloud; the first answer
    hybrid.asked_pct, .forwarded_pct         as configured usually, on the WAN
    hybrid.X.N, X in ap, ap_over_cloud (and _low, _high: 95 %, over clips), latency_over_cloud, energy_over_cloud,
    bytes_over_cloud, streaming_over_cloud, asked_pct, forwarded_pct       when N in 100 frames may be asked
    first_answer_ms.cut, .lan                the camera's own answer to frames of the outage, with it and on a LAN
    live.*, replay.*                         see `tiers_live.live_figures`
    times.*_ms                               what was measured of each step

    Raises BrokenError and DeadlineExceeded, with its last lines, when a process does not run.
    """
    work.mkdir(parents=True, exist_ok=True)
    gates = Gates.of(settings.trio)
    frames = record_clips(
        settings.spans(),
        settings.trio,
        recordings,
        settings.workers,
        lambda done, every: note(f"clips: {done} of {every}") if done % 12 == 0 or done == every else None,
    )
    live_frames = [
        record_clips([span], settings.trio, recordings, 1, lambda done, every: None)
        for span in (settings.live_spans() if settings.live_frames else [])
    ]
    times, live = _measured(settings, gates, work, note)
    if max(times.cloud_s) > 1 / settings.fps:
        note(
            "the cloud takes longer than the time between frames: alone it is behind; is this machine quiet?"
        )
    note("replaying")
    planned = gates.frames(frames, settings.fps)
    figures = replayed_figures(frames, planned, times, gates, settings.fps, settings.resamples)
    if live is not None:
        figures |= live_figures(live, _replayed_live(settings, live_frames, times, gates))
    figures |= times_figures(times)
    told: dict[str, Setting] = {
        "suite": SUITE,
        "split": settings.split,
        "frames": len(frames),
        "fps": settings.fps,
        "links": ", ".join(
            f"{name}: {1000 * link.round_trip_s:g} ms there and back, {link.bits_per_s / 1e6:g} Mbit/s, "
            f"{100 * link.loss:g} % loss"
            for name, link in LINKS.items()
        ),
        "outage": "both links, the middle third of the run",
        "budget_usual": f"{AgentBudget().asks_per_s:g} questions a second",
        "energy": f"modelled, {100 * BAND:g} % either way",
        "energy_constants": ", ".join(f"{each.name} {each.value:g}" for each in EnergyConstants().table()),
        "ap_down_to_score": FLOOR,
        "camera": str(Bundle.open(settings.trio.camera).ref),
        "edge": str(Bundle.open(settings.trio.edge).ref),
        "cloud": str(Bundle.open(settings.trio.cloud).ref),
        "gates": gates.told,
    }
    return BenchResult.now("tiers", told, {name: round(value, 5) for name, value in figures.items()})


def _measured(
    settings: TiersSettings, gates: Gates, work: Path, note: Callable[[str], None]
) -> tuple[TierTimes, LiveRun | None]:
    """The times of this machine, and the real run where one is wanted; the cloud's process serves both."""
    trio, cores = settings.trio, all_cores()
    edge_port, alone_port, cloud_port = free_ports(3)
    pictures = [_pixels(span) for span in settings.live_spans()]
    timed = (
        pictures[0][:_TIMED_FRAMES]
        if settings.live_frames
        else _pixels(replace(settings.spans()[0], count=_TIMED_FRAMES))
    )
    alone_work = work / "alone"
    alone_work.mkdir(exist_ok=True)
    note("starting edge and cloud")
    with ExitStack() as running:
        cloud_address = f"{HOST}:{cloud_port}"
        store = {"folder": str((work / "cases").absolute())}
        cloud = running.enter_context(serving("cloud", trio.cloud, cloud_address, work, cores, store=store))
        with serving("edge", trio.edge, f"{HOST}:{alone_port}", alone_work, cores) as alone:
            times = measure_times(
                timed,
                trio.camera,
                gates.camera,
                (alone, f"{HOST}:{alone_port}"),
                (cloud, cloud_address),
                note,
            )
        if not settings.live_frames:
            return times, None
        wide = running.enter_context(shaped_link(cloud_port, shape_of(WAN)))
        running.enter_context(
            serving(
                "edge",
                trio.edge,
                f"{HOST}:{edge_port}",
                work,
                cores,
                cloud={"address": f"{HOST}:{wide.port}"},
            )
        )
        site = running.enter_context(shaped_link(edge_port, shape_of(LAN)))
        live = run_agent(trio.camera, pictures, site, wide, LivePlan(settings.fps, WAN), work, note)
    return times, live


def _replayed_live(
    settings: TiersSettings, recorded: Sequence[Sequence[RecordedFrame]], times: TierTimes, gates: Gates
) -> dict[tuple[str, int], Outcome]:
    """The frames of the real run replayed, by camera and sequence: all cameras begin at once."""
    by_camera = [gates.frames(frames, settings.fps, camera) for camera, frames in enumerate(recorded)]
    named = sorted(
        (frame.captured_s, frame.camera, sequence)
        for frames in by_camera
        for sequence, frame in enumerate(frames)
    )
    planned = [by_camera[camera][sequence] for _, camera, sequence in named]
    policy = gates.policy(audit_share=0.0)
    outcomes = replay(planned, Mode.HYBRID, Network(WAN), times, policy)
    return {
        (f"camera-{camera}", sequence): outcome
        for (_, camera, sequence), outcome in zip(named, outcomes, strict=True)
    }


def _pixels(span: ClipSpan) -> list[ImageArray]:
    clip = load_suite(SUITE).clip(span.split, span.condition, span.index)
    return [clip.frame(round((0.5 + number / span.fps) * clip.fps)).pixels for number in range(span.count)]
