"""What a device says of itself while it updates: one reported state for each phase."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fovea.core.detections import ModelRef
from fovea.core.errors import StoreCorrupt
from fovea.core.ports import Clock
from fovea.core.release import ModelPin, Phase, ReportedState
from fovea.runtime.store import BundleStore
from fovea.update.floors import FloorFile, Floors
from fovea.update.judging import Machine
from fovea.update.ports import Host
from fovea.update.time_floor import TimeFloor


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this device is, and which models it takes. boot_id: another one for every start of the process."""

    device: str
    group: str
    family: str
    boot_id: str
    machine: Machine


class Teller:
    """Puts together what is reported; a store or floors that cannot be read are reported as unknown."""

    def __init__(
        self,
        identity: Identity,
        store: BundleStore,
        floors: FloorFile,
        host: Host,
        clock: Clock,
        time_floor: TimeFloor,
        report: Callable[[ReportedState], None],
    ) -> None:
        self._identity = identity
        self._store = store
        self._floors = floors
        self._host = host
        self._clock = clock
        self._time_floor = time_floor
        self._report = report

    def tell(self, phase: Phase, reason: str | None) -> None:
        identity, evidence = self._identity, self._host.evidence()
        try:
            floors = self._floors.read()
        except StoreCorrupt:
            floors = Floors()
        self._report(
            ReportedState(
                device=identity.device,
                group=identity.group,
                agent_version=identity.machine.agent,
                boot_id=identity.boot_id,
                at=self._clock.now(),
                clock_synced=self._time_floor.clock_synced,
                serial=floors.group(identity.group).serial,
                counter_floor=floors.family(identity.family).counter,
                running=self._pin(self._store.current),
                last_good=self._pin(self._store.last_good),
                phase=phase,
                reason=reason,
                health=self._host.health(),
                asked=evidence.asked,
                agreement=evidence.agreement,
                shadow=evidence.shadow,
            )
        )

    def _pin(self, pointer: Callable[[], ModelRef | None]) -> ModelPin | None:
        """With the target under which every model of the family is published."""
        try:
            ref = pointer()
        except StoreCorrupt:
            return None
        if ref is None:
            return None
        target = f"models/{self._identity.family}/{ref.name}-{ref.version}.fovea"
        return ModelPin(target, ref.name, ref.version, ref.sha256)
