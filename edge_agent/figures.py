"""One picture of the whole agent: what each part counts, put together for people, health checks and files."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Protocol

from edge_agent.agent import FAILURES_UNHEALTHY, Agent
from edge_agent.capture.camera_state import CameraState, DropCause
from edge_agent.case_keeping import CaseKeeping
from edge_agent.escalation import Escalation
from edge_agent.publish.publishing import Publisher
from edge_agent.stats import AgentFigures, AgentStats, CameraFigures
from edge_agent.thread_cpu import thread_cpu_s
from fovea.core.ab import ArmFigures
from fovea.core.ports import Clock, Detector
from fovea.process.metrics_http import Health

_log = logging.getLogger(__name__)


class CameraFacts(Protocol):
    """What a camera says about itself."""

    @property
    def state(self) -> CameraState: ...

    @property
    def drops(self) -> Mapping[DropCause, int]: ...


Facts = Callable[[], Mapping[str, float]]
"""Numbers by name, as they are now."""
Counting = Callable[[], Mapping[str, object]]
"""What a part counts, by name."""


class AgentView:
    """Looks at a running agent from outside. Safe for several threads."""

    def __init__(
        self,
        device: str,
        detector: Detector,
        agent: Agent,
        cameras: Mapping[str, CameraFacts],
        stats: AgentStats,
        escalation: Escalation | None,
        keeping: CaseKeeping,
        spool: Counting,
        uploads: Counting,
        publisher: Publisher,
        clock: Clock,
        stuck_after_s: float,
        resources: Facts = dict,
        forecasts: Facts = dict,
        ab: Callable[[], Mapping[str, ArmFigures]] = dict,
        updates: Counting = dict,
    ) -> None:
        self._device = device
        self._detector = detector
        self._agent = agent
        self._cameras = cameras
        self._stats = stats
        self._escalation = escalation
        self._keeping = keeping
        self._spool = spool
        self._uploads = uploads
        self._publisher = publisher
        self._clock = clock
        self._stuck_after_s = stuck_after_s
        self._resources = resources
        self._forecasts = forecasts
        self._ab = ab
        self._updates = updates

    @property
    def is_stuck(self) -> bool:
        """A frame takes far too long, or nobody looks at frames any more. A camera that is away is no reason."""
        return self._agent.has_broken or self._agent.busy_s() > self._stuck_after_s

    def health(self) -> Health:
        """Healthy while frames that come are answered."""
        is_broken = self._agent.failures_in_a_row >= FAILURES_UNHEALTHY
        facts: dict[str, object] = {
            "stuck": self.is_stuck,
            "failures_in_a_row": self._agent.failures_in_a_row,
            "link": self.link().get("status"),
            "cameras": {name: camera.state.phase.value for name, camera in self._cameras.items()},
            "resources": dict(self._resources()),
            **_update_facts(self._updates()),
        }
        return Health(not self.is_stuck and not is_broken, facts)

    def figures(self) -> AgentFigures:
        decide_cpu_ms, decide_wall_ms, stages_ms = self._stats.times()
        cameras = tuple(self._camera(name) for name in self._cameras)
        return AgentFigures(
            device=self._device,
            model=str(self._detector.ref),
            up_s=round(self._stats.up_s, 2),
            is_healthy=self.health().is_healthy,
            cameras=cameras,
            fps=round(sum(camera.fps for camera in cameras), 2),
            in_flight=0 if self._escalation is None else self._escalation.in_flight,
            decide_cpu_ms=decide_cpu_ms,
            decide_wall_ms=decide_wall_ms,
            stages_ms=stages_ms,
            link=self.link(),
            spool=dict(self._keeping.counts) | dict(self._spool()),
            uploads=dict(self._uploads()),
            published=dict(self._publisher.counts) | {"connected": int(self._publisher.is_connected)},
            resources=dict(self._resources()),
            forecasts=dict(self._forecasts()),
            ab=dict(self._ab()),
            threads_cpu_s=thread_cpu_s(),
            updates=dict(self._updates()),
        )

    def health_facts(self) -> dict[str, object]:
        """What goes to the broker now and then: small, and the same names as in the figures."""
        figures = self.figures()
        return {
            "healthy": figures.is_healthy,
            "up_s": figures.up_s,
            "model": figures.model,
            "fps": figures.fps,
            "in_flight": figures.in_flight,
            "link": figures.link,
            "spool": figures.spool,
            "resources": figures.resources,
            "forecasts": figures.forecasts,
            "ab": {arm: asdict(each) for arm, each in figures.ab.items()},
            **_update_facts(figures.updates),
            "cameras": {
                camera.name: {
                    "condition": camera.condition,
                    "fps": camera.fps,
                    "asked_pct": camera.asked_pct,
                    "latency_ms_p95": camera.latency_ms.p95,
                    "idle_level": camera.idle_level,
                    "drops": dict(camera.drops),
                }
                for camera in figures.cameras
            },
        }

    def link(self) -> dict[str, object]:
        """How the tier above stands; empty where none is configured."""
        if self._escalation is None:
            return {}
        state, trip_ms = self._escalation.link.state, self._escalation.link.round_trip_ms
        return {
            "status": state.status.value,
            "since_s": round(max(self._clock.monotonic_s() - state.since_mono_s, 0.0), 1),
            "reason": state.reason,
            "round_trip_ms": None if trip_ms is None else round(trip_ms, 2),
        }

    def _camera(self, name: str) -> CameraFigures:
        camera, state = self._cameras[name], self._cameras[name].state
        idling = self._agent.seats[name].idling
        drops = {cause.value: number for cause, number in camera.drops.items() if number}
        if switched_off := self._agent.seats[name].switched_off_frames:
            drops["switched_off"] = switched_off
        return replace(
            self._stats.camera(name),
            condition=state.phase.value,
            condition_reason=state.reason,
            drops=drops,
            idle_level=0 if idling is None else idling.pace.level,
            wanted_fps=None if idling is None else idling.pace.fps,
        )


def _update_facts(state: Mapping[str, object]) -> dict[str, object]:
    """The short form of what is reported in full elsewhere; empty without updates."""
    if not state:
        return {}
    return {"updates": {name: state[name] for name in ("phase", "reason", "serial")}}


class StatsFile:
    """The figures as JSON, in a file that is always whole: written beside it, then renamed over it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._was_written = True

    def write(self, figures: AgentFigures) -> None:
        """Never raises for the disk's sake; says once that it cannot write. Nothing is synced: the file is worth
        nothing after a power cut, and once a second is too often for a memory card."""
        part = self._path.with_name(self._path.name + ".part")
        try:
            part.write_text(json.dumps(figures.as_json(), allow_nan=False), encoding="utf-8")
            part.replace(self._path)
            self._was_written = True
        except OSError as error:
            if self._was_written:
                _log.error("figures cannot be written to %s: %s", self._path, error)
            self._was_written = False
