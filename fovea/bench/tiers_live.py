"""The same frames once for real: an agent, an edge and a cloud as processes, over links that are shaped."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2

from fovea.bench.children import all_cores, child
from fovea.bench.measured_tiers import HOST, READY_WITHIN_S, write_config
from fovea.bench.result_lines import Published, lines_between
from fovea.bench.tiers_link import LAN, LinkSpec
from fovea.bench.tiers_outcome import Outcome
from fovea.core.arrays import ImageArray
from fovea.core.errors import BrokenError
from fovea.sim.link_shaper import HOLE, Shape, ShapedLink

WARM_UP_FRAMES = 4
"""The first frames of each camera: the first question pays for connecting."""
_SETTLED_S = 1.5
"""Frames captured less than that before a link changes may be answered after it."""
_STOPS_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class LiveFrame:
    """One frame of the run. `first_s` and `latency_s` from the capture to the first and to the best answer, as the
    agent published them."""

    camera: str
    sequence: int
    captured_mono_s: float
    first_s: float
    latency_s: float
    is_asked: bool
    revision: int


@dataclass(frozen=True, slots=True)
class LiveRun:
    """Frames while all links are as they are modelled, on a LAN, and with every link cut."""

    modelled: tuple[LiveFrame, ...]
    lan: tuple[LiveFrame, ...]
    cut: tuple[LiveFrame, ...]


@dataclass(frozen=True, slots=True)
class LivePlan:
    """fps: of every camera. wide: the link to the cloud. modelled, lan: shares of the run that the links are as
    modelled and as a LAN; for the rest they are cut."""

    fps: float
    wide: LinkSpec
    modelled: float = 0.6
    lan: float = 0.2


def shape_of(spec: LinkSpec) -> Shape:
    """The link as a proxy makes it; it loses nothing, since TCP would hide that anyway."""
    return Shape(spec.round_trip_s / 2, spec.bytes_per_s)


def run_agent(
    bundle: Path,
    pictures: Sequence[Sequence[ImageArray]],
    site: ShapedLink,
    wide: ShapedLink,
    plan: LivePlan,
    work: Path,
    note: Callable[[str], None],
) -> LiveRun:
    """Runs an agent with one camera for each sequence of `pictures` u8[H, W, 3], once through. Raises BrokenError
    and DeadlineExceeded when a process does not run, or too little came of it."""
    results = work / "results.jsonl"
    results.unlink(missing_ok=True)
    names = [f"camera-{number}" for number in range(len(pictures))]
    folders = [_write(work / name, each) for name, each in zip(names, pictures, strict=True)]
    config = agent_config(bundle, dict(zip(names, folders, strict=True)), site.port, plan.fps, results)
    path = write_config(work / "agent.yaml", config)
    count = max(map(len, pictures))
    seconds = count / plan.fps
    with child(
        "agent",
        ("-m", "fovea.cli.main", "agent", "--config", str(path)),
        work / "agent.log",
        all_cores(),
    ) as agent:
        agent.wait_for(lambda: results.exists() and results.stat().st_size > 0, "results", READY_WITHIN_S)
        note(f"a real agent over shaped links, for {seconds:.0f} s")
        begun_s = time.monotonic()
        time.sleep(plan.modelled * seconds)
        wan_ends_s = time.monotonic()
        for link in (site, wide):
            link.becomes(shape_of(LAN))
        time.sleep(plan.lan * seconds)
        lan_ends_s = time.monotonic()
        for link in (site, wide):
            link.becomes(HOLE)
        agent.wait((1 - plan.modelled - plan.lan) * seconds + _STOPS_WITHIN_S)
    frames = frames_of(lines_between(results, 0, results.stat().st_size))
    return parted(frames, begun_s, wan_ends_s, lan_ends_s)


def agent_config(
    bundle: Path, cameras: Mapping[str, Path], port: int, fps: float, results: Path
) -> dict[str, object]:
    """As an agent is configured usually, but for audits, which are drawn at random."""
    return {
        "device": "bench",
        "bundle": str(bundle.absolute()),
        "threads": 1,
        "cameras": [
            {"name": name, "url": str(folder.absolute()), "fps": fps} for name, folder in cameras.items()
        ],
        "edge": {"address": f"{HOST}:{port}", "encoding": "jpeg"},
        "audit_share": 0.0,
        "exit_when_finished": True,
        "results_file": str(results.absolute()),
    }


def frames_of(published: Sequence[Published]) -> list[LiveFrame]:
    """Each frame with its first and its best answer, by camera and number."""
    first: dict[tuple[str, int], Published] = {}
    best: dict[tuple[str, int], Published] = {}
    for each in published:
        key = each.camera, each.sequence
        if each.revision == 0:
            first[key] = each
        elif key not in best or each.revision > best[key].revision:
            best[key] = each
    frames = []
    for key, own in sorted(first.items()):
        own_s = sum(own.stage_ms.values()) / 1000
        better = best.get(key)
        frames.append(
            LiveFrame(
                own.camera,
                own.sequence,
                own.captured_mono_s,
                own_s,
                own_s if better is None else better.stage_ms["since_capture"] / 1000,
                own.is_asked,
                0 if better is None else better.revision,
            )
        )
    return frames


def parted(frames: Sequence[LiveFrame], begun_s: float, wan_ends_s: float, lan_ends_s: float) -> LiveRun:
    """The frames by what the links were like, without those in the midst of a change. Raises BrokenError where one
    part has none."""
    warm = [frame for frame in frames if frame.sequence >= WARM_UP_FRAMES]
    bounds = ((begun_s - 60.0, wan_ends_s), (wan_ends_s, lan_ends_s), (lan_ends_s, float("inf")))
    parts = [
        tuple(
            frame
            for frame in warm
            if begin_s <= frame.captured_mono_s and frame.captured_mono_s + _SETTLED_S < end_s
        )
        for begin_s, end_s in bounds
    ]
    if not all(parts):
        raise BrokenError(f"live run: expected frames in each part, got {[len(part) for part in parts]}")
    return LiveRun(*parts)


def live_figures(live: LiveRun, replayed: Mapping[tuple[str, int], Outcome]) -> dict[str, float]:
    """What the real run measured, and how far the replay of the same frames is from it: `replayed` by camera and
    sequence. Frames that are in one of the two alone do not count."""
    pairs = [
        (frame, replayed[frame.camera, frame.sequence])
        for frame in live.modelled
        if (frame.camera, frame.sequence) in replayed
    ]
    if not pairs:
        raise BrokenError("live run: expected frames that were replayed, too, got none")
    real_ms = 1000 * statistics.fmean(frame.latency_s for frame, _ in pairs)
    model_ms = 1000 * statistics.fmean(each.latency_s or 0.0 for _, each in pairs)
    real_asked = 100 * statistics.fmean(frame.is_asked for frame, _ in pairs)
    model_asked = 100 * statistics.fmean(each.is_asked for _, each in pairs)
    real_better = [frame.latency_s for frame, _ in pairs if frame.revision > 0]
    model_better = [each.latency_s or 0.0 for _, each in pairs if len(each.answers) > 1]
    figures = {
        "live.frames": float(len(pairs)),
        "live.latency_ms_mean": real_ms,
        "live.asked_pct": real_asked,
        "live.first_ms_mean.lan": _first_ms(live.lan),
        "live.first_ms_mean.cut": _first_ms(live.cut),
        "live.first_ms_p95.lan": _first_ms(live.lan, 95),
        "live.first_ms_p95.cut": _first_ms(live.cut, 95),
        "replay.latency_ms_mean": model_ms,
        "replay.asked_pct": model_asked,
        "replay.latency_error_pct": 100 * (model_ms - real_ms) / real_ms,
        "replay.asked_error_points": model_asked - real_asked,
        "replay.same_decision_pct": 100
        * statistics.fmean(frame.is_asked == each.is_asked for frame, each in pairs),
    }
    if real_better and model_better:
        real_s, model_s = statistics.fmean(real_better), statistics.fmean(model_better)
        figures["live.better_answer_ms_mean"] = 1000 * real_s
        figures["replay.better_answer_ms_mean"] = 1000 * model_s
        figures["replay.better_answer_error_pct"] = 100 * (model_s - real_s) / real_s
    return figures


def _first_ms(frames: Sequence[LiveFrame], percentile: int | None = None) -> float:
    waits_ms = sorted(1000 * frame.first_s for frame in frames)
    if percentile is None:
        return statistics.fmean(waits_ms)
    return waits_ms[min(len(waits_ms) * percentile // 100, len(waits_ms) - 1)]


def _write(folder: Path, pictures: Sequence[ImageArray]) -> Path:
    """As a camera: nothing of the pixels is lost, and reading one costs next to nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for number, pixels in enumerate(pictures):
        if not cv2.imwrite(str(folder / f"{number:04}.bmp"), pixels):
            raise BrokenError(f"cannot write pictures into {folder}")
    return folder
