"""Many cameras on one agent: twenty file streams through one process and one model, published to a real broker."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from edge_agent.publish.topics import Topics
from fovea import zoo
from fovea.bench.children import all_cores, child, free_ports, is_listening
from fovea.bench.measured_tiers import HOST, READY_WITHIN_S, write_config
from fovea.bench.result import BenchResult, Setting
from fovea.bench.result_lines import Published, published
from fovea.bench.street_videos import StreetVideo, street_videos
from fovea.core.errors import BrokenError, Incompatible
from fovea.runtime.bundle import Bundle
from fovea.sim.conditions import CONDITIONS

DEVICE = "bench"
_WARM_UP_S = 5.0
_STRAGGLERS_S = 2.0
"""What was captured within the measured time may arrive so much later."""
_STEP = 2
"""Every other frame of a clip, which has 10 a second: as a camera of 5 a second sees the street."""


@dataclass(frozen=True, slots=True)
class CamerasSettings:
    """cameras: how many, each at `fps`. seconds: measured, after all are there and some to get warm. Each video has
    `frames` frames and begins again at its end; there are as many videos as conditions times `clips`, and cameras
    share them, each beginning somewhere else."""

    cameras: int = 20
    fps: float = 5.0
    seconds: float = 40.0
    frames: int = 60
    clips: int = 2
    conditions: tuple[str, ...] = CONDITIONS
    workers: int = 2
    bundle: Path = field(default_factory=lambda: zoo.path_of("street-student-int8"))


@dataclass(frozen=True, slots=True)
class Arrived:
    """One result as a subscriber of the broker has it; `at_mono_s` is on the clock of the capture."""

    answer: Published
    at_mono_s: float


def run(
    settings: CamerasSettings,
    cache: Path,
    work: Path,
    note: Callable[[str], None] = lambda text: None,
) -> BenchResult:
    """Measures on this machine. `cache` keeps the videos for the next run, `work` takes configurations and logs.

    Raises Incompatible where the broker or its client is not installed, BrokenError and DeadlineExceeded, with the
    last lines of the process in question, when one does not run.
    """
    work.mkdir(parents=True, exist_ok=True)
    videos = street_videos(
        cache,
        _videos(settings),
        settings.workers,
        lambda done, every: note(f"videos drawn: {done} of {every}"),
    )
    [port] = free_ports(1)
    names = [f"camera-{number:02d}" for number in range(1, settings.cameras + 1)]
    config = write_config(work / "agent.yaml", _agent_config(settings, names, videos, port))
    broker_argv = ("-m", "fovea.process.embedded_broker", f"{HOST}:{port}")
    agent_argv = ("-m", "fovea.cli.main", "agent", "--config", str(config))
    everywhere = all_cores()
    with child("broker", broker_argv, work / "broker.log", everywhere) as broker:
        broker.wait_for(lambda: is_listening(HOST, port), "open port", READY_WITHIN_S)
        with (
            Subscriber(port) as subscriber,
            child("agent", agent_argv, work / "agent.log", everywhere) as agent,
        ):
            note("waiting for every camera")
            agent.wait_for(
                lambda: len(subscriber.cameras) == len(names), "result of each camera", READY_WITHIN_S
            )
            time.sleep(min(_WARM_UP_S, settings.seconds))
            note(f"measuring for {settings.seconds:g} s")
            begin_s, cpu_s = time.monotonic(), agent.cpu_s()
            time.sleep(settings.seconds)
            end_s, cpu_s = time.monotonic(), agent.cpu_s() - cpu_s
            rss_mb = agent.rss_mb()
            time.sleep(_STRAGGLERS_S)
            agent.check()
            arrived = subscriber.arrived()
    figures = {
        "cpu_cores": cpu_s / (end_s - begin_s),
        "rss_mb": rss_mb,
        **stream_figures(arrived, names, settings.fps, begin_s, end_s),
    }
    looked = [each.answer for each in arrived if each.answer.revision == 0]
    told: dict[str, Setting] = {
        "cameras": settings.cameras,
        "fps": settings.fps,
        "seconds": settings.seconds,
        "videos": len(videos),
        "conditions": ", ".join(settings.conditions),
        "video_size": "960x540, MPEG-4",
        "looked_at_share": round(sum(each.is_looked_at for each in looked) / max(len(looked), 1), 3),
        "publish": "from the capture to the arrival at a subscriber of the broker",
        "bundle": str(Bundle.open(settings.bundle).ref),
    }
    return BenchResult.now("cameras", told, {name: round(value, 3) for name, value in figures.items()})


def stream_figures(
    arrived: Sequence[Arrived], cameras: Sequence[str], fps: float, begin_s: float, end_s: float
) -> dict[str, float]:
    """What came of the frames captured between two moments: how many of those due, and how late.

    A camera owes `fps` frames a second, whether it captured them or not; none makes up for another. Raises
    BrokenError when there is none at all.
    """
    firsts: dict[tuple[str, int], Arrived] = {}
    for each in arrived:
        if each.answer.revision == 0 and begin_s <= each.answer.captured_mono_s < end_s:
            firsts.setdefault((each.answer.camera, each.answer.sequence), each)
    if not firsts:
        raise BrokenError("cameras: no result arrived while it was measured")
    counts = Counter(camera for camera, _ in firsts)
    due = fps * (end_s - begin_s)
    processed = sum(min(counts[camera], due) for camera in cameras)
    late_ms = [1000 * (each.at_mono_s - each.answer.captured_mono_s) for each in firsts.values()]
    return {
        "due_frames_processed_pct": 100 * processed / (due * len(cameras)),
        "publish_p99_ms": float(np.percentile(late_ms, 99)),
    }


class Subscriber:
    """Takes every result of the agent from a broker, with the moment at which it came; reads them later, so that
    being measured costs little."""

    def __init__(self, port: int, device: str = DEVICE) -> None:
        try:
            import paho.mqtt.client as mqtt
            from paho.mqtt.enums import CallbackAPIVersion
        except ImportError as error:
            raise Incompatible("the cameras benchmark needs paho-mqtt: pip install fovea") from error
        self._port = port
        self._filter = f"{Topics(device).prefix}/cameras/+/detections"
        self._messages: list[tuple[float, bytes]] = []
        self.cameras: set[str] = set()
        """topics of those that had a result"""
        self._is_subscribed = threading.Event()
        self._client: Any = mqtt.Client(CallbackAPIVersion.VERSION2)
        self._client.on_connect = lambda client, *_: client.subscribe(self._filter, qos=0)
        self._client.on_subscribe = lambda *_: self._is_subscribed.set()
        self._client.on_message = self._take

    def __enter__(self) -> Self:
        self._client.connect(HOST, self._port)
        self._client.loop_start()
        if not self._is_subscribed.wait(READY_WITHIN_S):
            raise BrokenError("cameras: the broker took no subscription")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def arrived(self) -> list[Arrived]:
        """All results so far, in the order in which they came."""
        return [Arrived(published(payload), at_mono_s) for at_mono_s, payload in list(self._messages)]

    def _take(self, client: object, told: object, message: Any) -> None:
        self._messages.append((time.monotonic(), message.payload))
        self.cameras.add(message.topic)


def _videos(settings: CamerasSettings) -> list[StreetVideo]:
    wanted = [
        StreetVideo(((condition, number),), settings.frames, _STEP, settings.fps)
        for number in range(settings.clips)
        for condition in settings.conditions
    ]
    return wanted[: settings.cameras]


def _agent_config(
    settings: CamerasSettings, names: Sequence[str], videos: Sequence[Path], port: int
) -> dict[str, object]:
    return {
        "device": DEVICE,
        "bundle": str(settings.bundle.absolute()),
        "threads": 1,
        "cameras": [
            {
                "name": name,
                "url": str(videos[number % len(videos)].absolute()),
                "fps": settings.fps,
                "loop": True,
            }
            for number, name in enumerate(names)
        ],
        "mqtt": {"host": HOST, "port": port},
    }
