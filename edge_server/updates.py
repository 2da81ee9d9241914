"""Other models while the edge serves: a new one beside the old one, switched between two batches, and told about."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol

from edge_server.config import EdgeUpdatesConfig
from fovea.core.arrays import ImageArray
from fovea.core.detections import Inference, ModelRef
from fovea.core.errors import Incompatible
from fovea.core.ports import Clock, Detector
from fovea.core.release import Asked, Health, ReportedState
from fovea.process.system_files import SystemFiles
from fovea.runtime.bundle import Bundle
from fovea.update.device import DeviceDisk, DeviceUpdates
from fovea.update.ports import Evidence
from fovea.update.slot import ModelSlot
from fovea.update.starts import Starts
from fovea.update.times import LatestTimes

_log = logging.getLogger(__name__)

_SWITCH_WITHIN_S: Final = 60.0
"""A batch under way takes no longer, or the model hangs anyway."""
_STOPS_WITHIN_S: Final = 2.0


class WatchedSlot(ModelSlot):
    """The slot of the edge's model, which counts: frames and failures since the start, times since the model runs."""

    def __init__(self, detector: Detector) -> None:
        super().__init__(detector)
        self._counting = threading.Lock()
        self._times = LatestTimes()
        self._frames = self._failures = 0

    def detect(self, frames: Sequence[ImageArray]) -> list[Inference]:
        begun_s = time.monotonic()
        try:
            answers = super().detect(frames)
        except BaseException:
            with self._counting:
                self._failures += len(frames)
            raise
        if frames:
            with self._counting:
                self._frames += len(frames)
                self._times.add((time.monotonic() - begun_s) * 1000 / len(frames))
        return answers

    def put(self, detector: Detector, timeout_s: float) -> Detector:
        before = super().put(detector, timeout_s)
        with self._counting:
            self._times = LatestTimes()
        return before

    def seen(self) -> tuple[int, int, float | None]:
        """Frames, failures, and the 95th percentile of ms a frame."""
        with self._counting:
            return self._frames, self._failures, self._times.p95_ms()


class EdgeHost:
    """A `fovea.update.ports.Host`, for the updater's thread."""

    def __init__(
        self,
        slot: WatchedSlot,
        open_detector: Callable[[Bundle], Detector],
        before_switch: Callable[[Bundle], None],
        after_switch: Callable[[ModelRef], None],
        starts: Starts,
    ) -> None:
        """`open_detector` makes a model ready, warm; the other two are told before and after its first look."""
        self._slot = slot
        self._open_detector = open_detector
        self._before_switch = before_switch
        self._after_switch = after_switch
        self._starts = starts
        self._files = SystemFiles(Path("/"))
        self._began_mono_s = time.monotonic()

    def switch_to(self, bundle: Bundle) -> None:
        if bundle.ref == self._slot.ref:
            return
        if bundle.manifest.label_set.labels != self._slot.labels.labels:
            raise Incompatible(f"{bundle.ref}: expected the labels of {self._slot.ref}, it has others")
        detector = self._open_detector(bundle)
        try:
            self._before_switch(bundle)
            before = self._slot.put(detector, _SWITCH_WITHIN_S)
        except BaseException:
            detector.close()
            raise
        before.close()
        self._after_switch(bundle.ref)
        _log.info("from now on %s looks", bundle.ref)

    def shadow(self, bundle: Bundle | None, share: float) -> None:
        """An edge tries no candidate beside its model: its groups begin with the stage canary."""
        if bundle is not None:
            _log.warning(
                "%s is not looked with beside the model that runs: an edge does not do that", bundle.ref
            )

    def apply(self, policy: Mapping[str, Any] | None) -> None:
        """Policies are for cameras; an edge goes by its configuration."""
        if policy is not None:
            _log.warning("a policy is ignored: an edge goes by its configuration")

    def health(self) -> Health:
        frames, failures, p95_ms = self._slot.seen()
        rss_bytes = self._files.process_memory_bytes() or 0
        up_s = time.monotonic() - self._began_mono_s
        return Health(
            frames, self._starts.restarts, p95_ms, round(rss_bytes / 1e6, 1), round(up_s, 1), failures
        )

    def evidence(self) -> Evidence:
        return Evidence(Asked(self._slot.seen()[0], 0))


class Teller(Protocol):
    """Who is told what was reported, and hints at news; `edge_server.model_teller.ModelTeller` is one."""

    def start(self, look: Callable[[], None]) -> None: ...

    def tell(self, state: Mapping[str, object]) -> None: ...

    def stop(self, timeout_s: float) -> None: ...


class EdgeUpdates(AbstractContextManager["EdgeUpdates"]):
    """Follows the desired state of a group from entering it to leaving it."""

    def __init__(
        self,
        config: EdgeUpdatesConfig,
        disk: DeviceDisk,
        host: EdgeHost,
        clock: Clock,
        threads: int,
        teller: Teller | None,
    ) -> None:
        """Raises NotFound and Malformed for files."""
        self._teller = teller
        self._reported: ReportedState | None = None
        self._device = DeviceUpdates(
            config, disk, config.device, secrets.token_hex(6), host, self._report, clock, threads
        )

    def __enter__(self) -> EdgeUpdates:
        if self._teller is not None:
            self._teller.start(self._device.look)
        self._device.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._device.stop(_STOPS_WITHIN_S)
        if self._teller is not None:
            self._teller.stop(_STOPS_WITHIN_S)

    def facts(self) -> Mapping[str, object]:
        """For /healthz; null before the first time."""
        return {"updates": None if self._reported is None else self._reported.to_json()}

    def _report(self, state: ReportedState) -> None:
        self._reported = state
        if self._teller is not None:
            self._teller.tell(state.to_json())
