"""The figures of this moment, for a live view: an observer that forgets what is old."""

from __future__ import annotations

import math
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from edge_agent.observing import AnswerSeen, ErrandSeen, FrameSeen
from fovea.core.ab import ArmFigures
from fovea.core.ports import Clock
from fovea.core.routing import Reason, Route, Tier

_WINDOW_S = 5.0
"""Rates are taken over this long."""
_KEPT_TIMES = 2000
"""Percentiles are of this many of the latest times."""


@dataclass(frozen=True, slots=True)
class Quantiles:
    """In milliseconds; all None where nothing was measured."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    mean: float | None = None
    count: int = 0
    """of all that was measured since the start; the rest is of the latest"""

    @classmethod
    def of(cls, times_ms: Sequence[float], count: int) -> Quantiles:
        if not times_ms:
            return cls()
        p50, p95, p99 = np.percentile(np.array(times_ms), (50, 95, 99)).round(4).tolist()
        return cls(p50, p95, p99, round(math.fsum(times_ms) / len(times_ms), 4), count)


@dataclass(frozen=True, slots=True)
class CameraFigures:
    """One camera. Counts are since the start; `fps` is of the last 5 s.

    asked_pct   of the frames that were looked at
    answers     published answers by tier
    upper_ms    from the capture of a frame to the publication of the answer from above
    errands     questions by how they ended
    idle_level, wanted_fps  0 while it is wide awake, and the frames per second it is to give then; None: never idle
    """

    name: str
    fps: float
    frames: int
    skipped: int
    asked: int
    asked_pct: float
    degraded: int
    failed: int
    answers: Mapping[str, int]
    reasons: Mapping[str, int]
    latency_ms: Quantiles
    upper_ms: Quantiles
    errands: Mapping[str, int]
    sent_bytes: int
    condition: str = "connecting"
    condition_reason: str | None = None
    drops: Mapping[str, int] = field(default_factory=dict)
    idle_level: int = 0
    wanted_fps: float | None = None


@dataclass(frozen=True, slots=True)
class AgentFigures:
    """All of it, as `asdict` and JSON take it. `link`, `spool`, `uploads`, `published`, `resources` (of
    the machine) and `forecasts` (ms until an answer from above) are as their owners tell; `threads_cpu_s` as
    `edge_agent.thread_cpu` does."""

    device: str
    model: str
    up_s: float
    is_healthy: bool
    cameras: tuple[CameraFigures, ...]
    fps: float
    in_flight: int
    decide_cpu_ms: Quantiles
    decide_wall_ms: Quantiles
    stages_ms: Mapping[str, Quantiles]
    link: Mapping[str, object]
    spool: Mapping[str, object]
    uploads: Mapping[str, object]
    published: Mapping[str, int]
    resources: Mapping[str, float] = field(default_factory=dict)
    forecasts: Mapping[str, float] = field(default_factory=dict)
    ab: Mapping[str, ArmFigures] = field(default_factory=dict)
    """of two policies that are compared, by arm; empty where none are"""
    threads_cpu_s: Mapping[str, float] = field(default_factory=dict)
    updates: Mapping[str, Any] = field(default_factory=dict)
    """the ReportedState of the device as JSON; empty where no updates are configured"""

    def as_json(self) -> dict[str, object]:
        return asdict(self)


class _Times:
    """The latest times, and how many there were."""

    def __init__(self) -> None:
        self._latest_ms: deque[float] = deque(maxlen=_KEPT_TIMES)
        self._count = 0

    def add(self, ms: float) -> None:
        self._latest_ms.append(ms)
        self._count += 1

    def quantiles(self) -> Quantiles:
        return Quantiles.of(list(self._latest_ms), self._count)


class _CameraCounts:
    def __init__(self) -> None:
        self.seen_mono_s: deque[float] = deque()
        self.routes: Counter[Route] = Counter()
        self.answers: Counter[Tier] = Counter()
        self.reasons: Counter[Reason] = Counter()
        self.errands: Counter[str] = Counter()
        self.latency = _Times()
        self.upper = _Times()
        self.degraded = 0
        self.failed = 0
        self.sent_bytes = 0

    def fps(self, now_mono_s: float, up_s: float) -> float:
        while self.seen_mono_s and self.seen_mono_s[0] < now_mono_s - _WINDOW_S:
            self.seen_mono_s.popleft()
        return round(len(self.seen_mono_s) / max(min(_WINDOW_S, up_s), 0.001), 2)


class AgentStats:
    """An Observer. Safe for several threads."""

    def __init__(self, cameras: Iterable[str], clock: Clock) -> None:
        self._clock = clock
        self._begun_mono_s = clock.monotonic_s()
        self._lock = threading.Lock()
        self._cameras = {name: _CameraCounts() for name in cameras}
        self._decide_cpu = _Times()
        self._decide_wall = _Times()
        self._stages: defaultdict[str, _Times] = defaultdict(_Times)

    @property
    def up_s(self) -> float:
        return self._clock.monotonic_s() - self._begun_mono_s

    @property
    def sent_bytes(self) -> int:
        """Pictures sent with questions since the start."""
        with self._lock:
            return sum(counts.sent_bytes for counts in self._cameras.values())

    def frame_seen(self, seen: FrameSeen) -> None:
        result = seen.result
        with self._lock:
            counts = self._cameras[seen.camera]
            counts.seen_mono_s.append(self._clock.monotonic_s())
            counts.routes[result.decision.route] += 1
            counts.answers[result.answered_by] += 1
            for reason in result.decision.reasons:
                counts.reasons[reason] += 1
            counts.latency.add(seen.latency_s * 1000)
            counts.degraded += result.degraded is not None
            for stage, ms in result.stage_ms.items():
                self._stages[stage].add(ms)
            if seen.decide_cpu_s is not None:
                self._decide_cpu.add(seen.decide_cpu_s * 1000)
            if seen.decide_wall_s is not None:
                self._decide_wall.add(seen.decide_wall_s * 1000)

    def answer_seen(self, seen: AnswerSeen) -> None:
        with self._lock:
            counts = self._cameras[seen.camera]
            counts.answers[seen.result.answered_by] += 1
            counts.upper.add(seen.latency_s * 1000)

    def frame_failed(self, camera: str) -> None:
        with self._lock:
            self._cameras[camera].failed += 1

    def errand_seen(self, seen: ErrandSeen) -> None:
        with self._lock:
            counts = self._cameras[seen.camera]
            counts.errands[seen.ending.value] += 1
            counts.sent_bytes += seen.sent_bytes

    def camera(self, name: str) -> CameraFigures:
        with self._lock:
            counts = self._cameras[name]
            frames, skipped = counts.routes.total(), counts.routes[Route.SKIP]
            asked = counts.routes[Route.EDGE] + counts.routes[Route.CLOUD]
            return CameraFigures(
                name=name,
                fps=counts.fps(self._clock.monotonic_s(), self.up_s),
                frames=frames,
                skipped=skipped,
                asked=asked,
                asked_pct=round(100 * asked / max(frames - skipped, 1), 2),
                degraded=counts.degraded,
                failed=counts.failed,
                answers={tier.name.lower(): counts.answers[tier] for tier in Tier},
                reasons={reason.value: number for reason, number in counts.reasons.items()},
                latency_ms=counts.latency.quantiles(),
                upper_ms=counts.upper.quantiles(),
                errands=dict(counts.errands),
                sent_bytes=counts.sent_bytes,
            )

    def times(self) -> tuple[Quantiles, Quantiles, dict[str, Quantiles]]:
        """CPU time of decisions, their wall time, and the stages of frames."""
        with self._lock:
            stages = {stage: times.quantiles() for stage, times in self._stages.items()}
            return self._decide_cpu.quantiles(), self._decide_wall.quantiles(), stages
