"""What the agent adds to a bare loop over the same frames, and what it costs: processes side by side on two cores.

All stacks run the same weights on one thread of one core, the others on the other core, and take turns in several
rounds; ratios are of one round, the figure is their median. The agent is the `fovea agent` process: it reads a file
as fast as it goes, senses motion, detects, tracks, decides, publishes each result and asks a running edge about one
frame in ten. The bare loop is letterbox, network, decode and NMS over frames that lie in memory already; what it
does when it has to read them, too, stands among the settings. Where the difference goes is told as CPU time of a
frame: `agent_cpu_ms.capture`, `.walk` and `.ask` against `bare_cpu_ms.letterbox`, `.run` and `.decode`, and
`.reading`, which the bare loop does not do. Ultralytics is its own predict loop over the same file
with its own ONNX export, in FP32 against the agent in FP32.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fovea import zoo
from fovea.bench.bare_loop import read_video
from fovea.bench.children import child, free_ports, two_cores
from fovea.bench.measured_tiers import (
    HOST,
    READY_WITHIN_S,
    AgentRun,
    measure_agent,
    serving,
)
from fovea.bench.result import BenchResult, Setting
from fovea.bench.result_lines import escalation_overheads_ms
from fovea.bench.same_weights import check_same, ultralytics_onnx, why_not
from fovea.bench.street_videos import Coding, StreetVideo, street_videos
from fovea.core.errors import BrokenError
from fovea.link.remote_detector import RemoteDetector, RemoteSettings
from fovea.runtime.bundle import Bundle

VIDEO = StreetVideo((("day", 0), ("night", 0)), frames=60, coding=Coding.RAW)
_QUESTIONS_TO_THE_CLOUD = 5


def student_architecture() -> Path | None:
    """What the student was built from; None where the cloud's side is not installed."""
    spec = find_spec("cloud")
    folders = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or []]
    files = [folder / "architectures" / "street-student.yaml" for folder in folders]
    return next((file for file in files if file.is_file()), None)


@dataclass(frozen=True, slots=True)
class FramePathSettings:
    """seconds: each stack runs in each round, the agent after `warm_up_frames`. int8, fp32: the student twice, of
    the same weights, as bundles; edge, cloud: who is asked, and whose memory is told. architecture: what Ultralytics
    builds the student from; None leaves it out."""

    rounds: int = 5
    seconds: float = 8.0
    asked_share: float = 0.1
    warm_up_frames: int = 30
    video: StreetVideo = VIDEO
    int8: Path = field(default_factory=lambda: zoo.path_of("street-student-int8"))
    fp32: Path = field(default_factory=lambda: zoo.path_of("street-student-fp32"))
    edge: Path = field(default_factory=lambda: zoo.path_of("street-edge"))
    cloud: Path = field(default_factory=lambda: zoo.path_of("street-cloud"))
    architecture: Path | None = field(default_factory=student_architecture)


@dataclass(slots=True, eq=False)
class _Round:
    """What each stack came to, filled in as they take their turns."""

    bare: dict[str, Any] = field(init=False)
    agent: AgentRun = field(init=False)
    agent_fp32_fps: float = 0.0
    ultralytics_fps: float = 0.0


def run(
    settings: FramePathSettings, cache: Path, work: Path, note: Callable[[str], None] = lambda text: None
) -> BenchResult:
    """Measures on this machine. `cache` keeps the video for the next run, `work` takes configurations and logs.

    Raises BrokenError and DeadlineExceeded, with the last lines of the process in question, when one does not run.
    """
    work.mkdir(parents=True, exist_ok=True)
    note("drawing the video")
    [video] = street_videos(cache, [settings.video], 1, lambda done, every: None)
    reason = why_not() if settings.architecture is not None else "not wanted, or nothing to build it from"
    theirs = None
    if reason is None and settings.architecture is not None:
        note("exporting the same weights by Ultralytics")
        fp32 = Bundle.open(settings.fp32)
        theirs = ultralytics_onnx(fp32, settings.architecture, work / "ultralytics").absolute()
        check_same(fp32, theirs, next(read_video(video)))
    else:
        note(f"agent_fps_over_ultralytics is left out: {reason}")
    return _FramePath(settings, video.absolute(), work, note).measure(theirs, reason)


class _FramePath:
    def __init__(
        self, settings: FramePathSettings, video: Path, work: Path, note: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._video = video
        self._work = work
        self._note = note
        self._core, self._other_core = two_cores()
        self._edge_address = _free_address()

    def measure(self, theirs: Path | None, reason: str | None) -> BenchResult:
        settings = self._settings
        with serving("edge", settings.edge, self._edge_address, self._work, {self._other_core}) as edge:
            rounds = [self._round(number, theirs) for number in range(settings.rounds)]
            edge_mb = edge.rss_mb()
        figures = {"agent_fps_over_bare": _median([each.agent.fps / each.bare["fps"] for each in rounds])}
        if theirs is not None:
            ratios = [each.agent_fp32_fps / each.ultralytics_fps for each in rounds]
            figures["agent_fps_over_ultralytics"] = _median(ratios)
        figures |= _agent_figures([each.agent for each in rounds])
        figures |= _parts([_named("agent_cpu_ms.", each.agent.cpu_parts_ms) for each in rounds])
        figures |= _parts([_named("bare_cpu_ms.", each.bare["cpu_ms"]) for each in rounds])
        self._note("memory of the cloud")
        figures |= {
            "rss_mb.agent": max(each.agent.rss_mb for each in rounds),
            "rss_mb.edge": edge_mb,
            "rss_mb.cloud": self._cloud_mb(),
        }
        told = self._settings_told(rounds, reason)
        return BenchResult.now("frame-path", told, {name: round(v, 4) for name, v in figures.items()})

    def _round(self, number: int, theirs: Path | None) -> _Round:
        """All stacks once. Every other round runs the other way: what the machine does meanwhile hits all alike."""
        done = _Round()

        def bare() -> None:
            done.bare = self._loop("bare_loop", str(self._settings.int8))

        def agent() -> None:
            done.agent = self._agent(self._settings.int8)

        def agent_fp32() -> None:
            done.agent_fp32_fps = self._agent(self._settings.fp32).fps

        def ultralytics() -> None:
            spec = Bundle.open(self._settings.fp32).manifest.input
            told = self._loop("ultralytics_loop", str(theirs), str(spec.height), str(spec.width))
            done.ultralytics_fps = told["fps"]

        turns: list[tuple[str, Callable[[], None]]] = [("bare loop", bare), ("agent", agent)]
        if theirs is not None:
            turns += [("agent in FP32", agent_fp32), ("Ultralytics", ultralytics)]
        for name, turn in turns if number % 2 == 0 else turns[::-1]:
            self._note(f"round {number + 1} of {self._settings.rounds}: {name}")
            turn()
        return done

    def _loop(self, module: str, *words: str) -> dict[str, Any]:
        """What a loop that is a script of this package says at its end."""
        log, seconds = self._work / f"{module}.log", self._settings.seconds
        argv = ("-m", f"fovea.bench.{module}", str(self._video), *words, str(seconds))
        with child(module, argv, log, {self._core}) as loop:
            loop.wait(READY_WITHIN_S + 3 * seconds)
        said = log.read_text(encoding="utf-8", errors="replace").splitlines()
        objects = [line for line in said if line.startswith("{")]
        if not objects:
            raise BrokenError(f"{module}: expected a line of JSON, got {said[-1:]}")
        told: dict[str, Any] = json.loads(objects[-1])
        return told

    def _agent(self, bundle: Path) -> AgentRun:
        settings = self._settings
        config: dict[str, object] = {
            "device": "bench",
            "bundle": str(bundle.absolute()),
            "threads": 1,
            "cameras": [
                {
                    "name": "file",
                    "url": str(self._video),
                    "fps": None,
                    "realtime": False,
                    "loop": True,
                    # Motion is sensed in every frame, and every frame is looked at all the same.
                    "motion": {"force_every_s": 1e-6},
                }
            ],
            # As if the edge was another machine: pictures travel as JPEG.
            "edge": {
                "address": self._edge_address,
                "encoding": "jpeg",
                "timeout_ms": 5000,
                "max_in_flight": 8,
            },
            # The gate asks about nothing, so that the share asked is the one that is wanted.
            "gate": {"ask_from": 1.0},
            "audit_share": settings.asked_share,
        }
        return measure_agent(config, self._work, {self._core}, settings.warm_up_frames, settings.seconds)

    def _cloud_mb(self) -> float:
        """Memory of the cloud after a few questions, each of which it keeps."""
        address, frame = _free_address(), next(read_video(self._video))
        store = {"folder": str((self._work / "cases").absolute())}
        cores = {self._other_core}
        with serving("cloud", self._settings.cloud, address, self._work, cores, store=store) as cloud:
            remote = RemoteDetector.connect(address, RemoteSettings(timeout_s=READY_WITHIN_S))
            try:
                for _ in range(_QUESTIONS_TO_THE_CLOUD):
                    remote.detect([frame])
            finally:
                remote.close()
            return cloud.rss_mb()

    def _settings_told(self, rounds: list[_Round], reason: str | None) -> dict[str, Setting]:
        settings = self._settings
        told: dict[str, Setting] = {
            "rounds": settings.rounds,
            "seconds": settings.seconds,
            "cores": "one each" if self._core != self._other_core else "one for all",
            "video": settings.video.file_name,
            "asked_share_wanted": settings.asked_share,
            "asked_share_measured": round(_median([each.agent.asked_share for each in rounds]), 4),
            "bare_fps": round(_median([each.bare["fps"] for each in rounds]), 2),
            "bare_fps_reading_the_file": round(_median([each.bare["fps_reading"] for each in rounds]), 2),
            "bare_cpu_ms_per_frame": round(_median([each.bare["cpu_ms_per_frame"] for each in rounds]), 3),
            "agent_fps": round(_median([each.agent.fps for each in rounds]), 2),
            "agent_fps_over_bare_reading_the_file": round(
                _median([each.agent.fps / each.bare["fps_reading"] for each in rounds]), 4
            ),
            "int8": str(Bundle.open(settings.int8).ref),
            "published_to": "a file of JSON lines",
            "ultralytics": "measured" if reason is None else f"left out: {reason}",
        }
        if reason is None:
            told["agent_fp32_fps"] = round(_median([each.agent_fp32_fps for each in rounds]), 2)
            told["ultralytics_fps"] = round(_median([each.ultralytics_fps for each in rounds]), 2)
        return told


def _agent_figures(runs: list[AgentRun]) -> dict[str, float]:
    cameras = [camera for each in runs for camera in each.stats["cameras"]]
    sent = sum(
        count for camera in cameras for ending, count in camera["errands"].items() if ending != "expired"
    )
    overheads_ms = [ms for each in runs for ms in escalation_overheads_ms(each.answers)]
    if not sent or not overheads_ms:
        raise BrokenError("frame path: no question was answered; the edge is too slow or did not run")
    return {
        "agent_cpu_ms_per_frame": _median([each.cpu_ms_per_frame for each in runs]),
        "decide_cpu_ms_p50": _median([each.stats["decide_cpu_ms"]["p50"] for each in runs]),
        "decide_cpu_ms_p99": _median([each.stats["decide_cpu_ms"]["p99"] for each in runs]),
        "decide_wall_ms_p99": _median([each.stats["decide_wall_ms"]["p99"] for each in runs]),
        "escalation_overhead_ms_p50": _median(overheads_ms),
        "bytes_per_escalation": sum(camera["sent_bytes"] for camera in cameras) / sent,
    }


def _named(prefix: str, parts: Mapping[str, float]) -> dict[str, float]:
    return {f"{prefix}{name}": value for name, value in parts.items()}


def _parts(rounds: list[dict[str, float]]) -> dict[str, float]:
    """The median of each name that every round has."""
    names = [name for name in rounds[0] if all(name in each for each in rounds)]
    return {name: _median([each[name] for each in rounds]) for name in names}


def _free_address() -> str:
    return f"{HOST}:{free_ports(1)[0]}"


def _median(values: list[float]) -> float:
    return float(np.median(values))
