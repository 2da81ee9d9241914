"""From the `updates` of a configuration to the parts that follow them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from edge_agent.agent import Agent
from edge_agent.config import AgentConfig
from edge_agent.publish.label_names import LabelNames
from edge_agent.publish.publishing import Publisher
from edge_agent.regime import Regime, Regimes
from edge_agent.updates.config import AgentUpdatesConfig
from edge_agent.updates.evidence import ModelWatch
from edge_agent.updates.host import AgentHost, HostParts, OpenDetector
from fovea.core.detections import ModelRef
from fovea.core.ports import Clock, Detector
from fovea.core.release import ReportedState
from fovea.process.resources import ResourceMonitor
from fovea.runtime.bundle import Bundle
from fovea.update.device import DeviceDisk, DeviceUpdates
from fovea.update.slot import ModelSlot


@dataclass(frozen=True, slots=True, eq=False)
class Booted:
    """What a device with updates has started from: `running` stands in the slot, ready to look."""

    wishes: AgentUpdatesConfig
    disk: DeviceDisk
    running: Bundle
    slot: ModelSlot
    watch: ModelWatch
    open_detector: OpenDetector

    @classmethod
    def from_disk(
        cls,
        wishes: AgentUpdatesConfig,
        factory: Bundle,
        open_detector: OpenDetector,
        own: Detector | None = None,
    ) -> Booted:
        """See `DeviceDisk.start_from`; `own` takes the place of the first model."""
        disk = DeviceDisk(wishes)
        running, detector = disk.start_from(factory, lambda bundle: own or open_detector(bundle))
        return cls(wishes, disk, running, ModelSlot(detector), ModelWatch(running.ref), open_detector)

    def host(
        self,
        regime: Regime,
        regimes: Regimes,
        names: LabelNames,
        monitor: ResourceMonitor,
        model_changed: Callable[[ModelRef], None],
        clock: Clock,
    ) -> AgentHost:
        parts = HostParts(
            self.slot,
            regimes,
            self.open_detector,
            names,
            self.watch,
            self.disk.starts,
            lambda: monitor.state,
            model_changed,
            clock,
            random.Random().random,
        )
        return AgentHost(self.running, regime, parts, self.wishes.shadow)


class AgentUpdates:
    """Follows the desired state of a group, from `start` to `stop`, and tells what came of it."""

    def __init__(
        self,
        config: AgentConfig,
        booted: Booted,
        host: AgentHost,
        agent: Agent,
        publisher: Publisher,
        boot_id: str,
        clock: Clock,
    ) -> None:
        """Raises NotFound and Malformed for files."""
        self._host = host
        self._publisher = publisher
        self._reported: ReportedState | None = None
        self._device = DeviceUpdates(
            booted.wishes, booted.disk, config.device, boot_id, host, self._report, clock, config.threads
        )
        host.attach(agent)
        publisher.on_look(self._device.look)

    def start(self) -> None:
        self._device.start()

    def stop(self, timeout_s: float) -> bool:
        """False when a model is still being opened or tried; the next start goes on with it."""
        has_ended = self._device.stop(timeout_s / 2)
        return self._host.stop(timeout_s / 2) and has_ended

    def figures(self) -> Mapping[str, Any]:
        """What was reported last; empty before the first time."""
        return {} if self._reported is None else self._reported.to_json()

    def _report(self, state: ReportedState) -> None:
        self._reported = state
        self._publisher.publish_model_state(state.to_json())
