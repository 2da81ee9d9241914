"""A whole agent: its parts started in the right order, and ended in time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from edge_agent.agent import Agent
from edge_agent.capture.camera import Camera, CameraState, stop_all
from edge_agent.case_keeping import CaseKeeping
from edge_agent.escalation import Escalation
from edge_agent.figures import AgentView
from edge_agent.metrics import PrometheusMetrics
from edge_agent.publish.publishing import CameraCondition, CameraStatus, Feature, Publisher
from edge_agent.stats import AgentStats
from fovea.core.ports import Detector
from fovea.link.case_spool import CaseSpool
from fovea.link.case_uploader import CaseUploader
from fovea.process.resources import ResourceMonitor

if TYPE_CHECKING:
    from edge_agent.updates.bootstrap import AgentUpdates

_USUAL_FPS = 25.0
"""Told of a camera that gives all the frames it has."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How it ended. is_hung: a frame never came back from the model. left: cameras whose thread sits in a read, and
    `updates` where a model is still being opened or tried."""

    is_hung: bool
    left: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class BuiltAgent:
    """All parts, none of them started but the link, which has begun to connect."""

    detectors: tuple[Detector, ...]
    agent: Agent
    cameras: Mapping[str, Camera]
    keeping: CaseKeeping
    escalation: Escalation | None
    spool: CaseSpool | None
    uploader: CaseUploader | None
    publisher: Publisher
    metrics: PrometheusMetrics
    stats: AgentStats
    view: AgentView
    monitor: ResourceMonitor
    updates: AgentUpdates | None = None

    @property
    def detector(self) -> Detector:
        """The one that usually looks."""
        return self.detectors[0]

    def start(self) -> None:
        self.monitor.start()
        self.publisher.on_command(self.agent.command)
        self.publisher.start()
        for name, camera in self.cameras.items():
            self.publisher.publish_status(name, status_of(camera.state))
            self.publisher.publish_state(name, Feature.DETECT, True)
            self.publisher.publish_state(name, Feature.GATE, True)
            self.publisher.publish_state(name, Feature.FPS, camera.settings.fps or _USUAL_FPS)
        self.keeping.start()
        if self.escalation is not None:
            self.escalation.start()
        if self.uploader is not None:
            self.uploader.start()
        self.agent.start()
        for camera in self.cameras.values():
            camera.start()
        if self.updates is not None:
            self.updates.start()

    def stop(self, timeout_s: float) -> Ending:
        """Ends everything within about `timeout_s`: frames first, then what is under way upwards (which becomes cases
        on the disk), the goodbye to the broker last."""
        for camera in self.cameras.values():
            camera.begin_stop()
        has_left_updates = self.updates is not None and not self.updates.stop(timeout_s * 0.2)
        is_hung = not self.agent.stop(timeout_s * 0.25)
        if self.uploader is not None:
            self.uploader.stop(timeout_s * 0.05)
        if self.escalation is not None:
            self.escalation.stop(timeout_s * 0.25)
        self.keeping.stop(timeout_s * 0.15)
        left = [*stop_all(self.cameras.values(), timeout_s * 0.1), *["updates"] * has_left_updates]
        self.publisher.stop(timeout_s * 0.2)
        self.monitor.stop(timeout_s * 0.05)
        if self.spool is not None:
            self.spool.close()
        if not is_hung:
            for detector in self.detectors:
                detector.close()
        return Ending(is_hung, tuple(left))


def status_of(state: CameraState) -> CameraStatus:
    """What is published about a camera's state."""
    return CameraStatus(CameraCondition(state.phase.value), state.since_at, state.reason)


def plain_counts(counts: object) -> dict[str, object]:
    """The fields of a dataclass of counts; the refusals of all causes together."""
    values = {each.name: getattr(counts, each.name) for each in fields(counts)}  # type: ignore[arg-type]
    return {
        name: sum(value.values()) if isinstance(value, Mapping) else value for name, value in values.items()
    }
