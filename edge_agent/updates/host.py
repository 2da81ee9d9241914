"""The agent as the updater sees it: the model it runs, the one it tries beside it, its policy, and how it fares."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from edge_agent.agent import Agent
from edge_agent.escalation import Ended
from edge_agent.publish.label_names import LabelNames
from edge_agent.regime import Regime, Regimes
from edge_agent.updates.config import ShadowConfig
from edge_agent.updates.evidence import ModelWatch, UpperAgreement
from edge_agent.updates.shadow import Shadow, ShadowLimits
from fovea.core.detections import ModelRef
from fovea.core.errors import FoveaError, Incompatible
from fovea.core.json_form import from_json_form
from fovea.core.policy import Policy
from fovea.core.ports import Clock, Detector
from fovea.core.release import Health
from fovea.process.resources import ResourceState
from fovea.runtime.bundle import Bundle
from fovea.update.ports import Evidence
from fovea.update.slot import ModelSlot
from fovea.update.starts import Starts

_log = logging.getLogger(__name__)

_SWITCH_WITHIN_S: Final = 60.0
"""A frame under way takes no longer, or the agent hangs anyway."""
_SHADOW_ENDS_IN_S: Final = 5.0
_MOST_DEATHS: Final = 3
"""So often the process may end beside a candidate before that is taken for its fault."""

OpenDetector = Callable[[Bundle], Detector]
"""Makes the model of a bundle ready: warm, and with all the boxes that its gate wants. Raises FoveaErrors."""


@dataclass(frozen=True, slots=True, eq=False)
class HostParts:
    """What the host works with. model_changed: told on the agent's thread, between two frames."""

    slot: ModelSlot
    regimes: Regimes
    open_detector: OpenDetector
    names: LabelNames
    watch: ModelWatch
    starts: Starts
    machine: Callable[[], ResourceState | None]
    model_changed: Callable[[ModelRef], None]
    clock: Clock
    draw: Callable[[], float]


class AgentHost:
    """A `fovea.update.ports.Host`, for the updater's thread; `ended` and `evidence` are for any."""

    def __init__(self, running: Bundle, regime: Regime, parts: HostParts, limits: ShadowConfig) -> None:
        """`running`, under `regime`, is what stands in the slot now."""
        self._running = running
        self._regime = regime
        self._parts = parts
        self._limits = limits
        self._policy: Policy | None = None
        self._agent: Agent | None = None
        self._shadow: Shadow | None = None
        self._agreement = UpperAgreement(running.ref, self._tell_from)
        self._began_mono_s = parts.clock.monotonic_s()

    def attach(self, agent: Agent) -> None:
        """To be called before the updater starts."""
        self._agent = agent

    def switch_to(self, bundle: Bundle) -> None:
        if bundle.ref == self._running.ref:
            return
        parts = self._parts
        regime = parts.regimes.of(bundle, self._policy)
        detector = parts.open_detector(bundle)
        before: list[Detector] = []
        try:
            self._between_frames(lambda: before.append(self._switch(bundle, regime, detector)))
        except BaseException:
            detector.close()
            raise
        for old in before:
            old.close()
        _log.info("from now on %s looks", bundle.ref)

    def shadow(self, bundle: Bundle | None, share: float) -> None:
        self._end_shadow()
        if bundle is None:
            self._parts.starts.shadowing(None)
            return
        sha256 = bundle.ref.sha256
        if self._parts.starts.deaths_beside(sha256) >= _MOST_DEATHS:
            raise Incompatible(f"{bundle.ref}: the process ended {_MOST_DEATHS} times while it looked")
        self._parts.starts.shadowing(sha256)
        candidate = self._parts.open_detector(bundle)
        limits = ShadowLimits(
            min(share, self._limits.most_share), self._limits.busy_share, self._limits.waiting
        )
        shadow = Shadow(
            candidate, self._running.ref, limits, self._tell_from, self._parts.clock, self._parts.draw
        )
        shadow.start()
        self._shadow = shadow
        if self._agent is not None:
            self._agent.second_look = shadow

    def apply(self, policy: Mapping[str, Any] | None) -> None:
        wanted = None if policy is None else from_json_form(Policy, policy, "policy")
        if wanted == self._policy:
            return
        regime = self._parts.regimes.of(self._running, wanted)
        self._between_frames(lambda: self._go_by(regime))
        self._policy = wanted
        _log.info("policy: %s", "as configured" if wanted is None else wanted.name)

    def health(self) -> Health:
        parts, state = self._parts, self._parts.machine()
        rss_bytes = None if state is None else state.process_memory_bytes
        return Health(
            frames=parts.watch.frames,
            restarts=parts.starts.restarts,
            detect_ms_p95=parts.watch.detect_ms_p95(),
            rss_mb=round((rss_bytes or 0) / 1e6, 1),
            uptime_s=round(max(parts.clock.monotonic_s() - self._began_mono_s, 0.0), 1),
            failures=parts.watch.failures,
        )

    def evidence(self) -> Evidence:
        shadow = self._shadow
        sums = self._agreement.sums
        return Evidence(
            self._parts.watch.asked(),
            sums if sums.n else None,
            None if shadow is None else shadow.report(),
        )

    def ended(self, ended: Ended) -> None:
        """A question to the tier above ended; not for the thread of the frames."""
        shadow = self._shadow
        try:
            self._agreement.ended(ended)
            if shadow is not None:
                shadow.ended(ended)
        except FoveaError as error:  # an answer that cannot be compared
            _log.warning("the answer about %s speaks for nobody: %s", ended.errand.frame.id, error)

    def stop(self, timeout_s: float) -> bool:
        """The candidate looks no more. False: its last look takes longer."""
        return self._end_shadow(timeout_s)

    def _tell_from(self) -> float:
        return self._regime.judging.tell_from

    def _between_frames(self, act: Callable[[], None]) -> None:
        if self._agent is None:
            act()
        else:
            self._agent.between_frames(act, _SWITCH_WITHIN_S)

    def _switch(self, bundle: Bundle, regime: Regime, detector: Detector) -> Detector:
        """On the agent's thread: nobody looks now."""
        before = self._parts.slot.put(detector, _SWITCH_WITHIN_S)
        self._parts.names.learn(bundle.manifest.label_set)
        self._go_by(regime)
        self._running = bundle
        self._parts.watch.model_changed(bundle.ref)
        self._agreement.model_changed(bundle.ref)
        if self._shadow is not None:
            self._shadow.champion_changed(bundle.ref)
        self._parts.model_changed(bundle.ref)
        return before

    def _go_by(self, regime: Regime) -> None:
        self._regime = regime
        if self._agent is not None:
            self._agent.go_by(regime.judging, regime.purse, regime.choice, regime.settings)

    def _end_shadow(self, timeout_s: float = _SHADOW_ENDS_IN_S) -> bool:
        if self._agent is not None:
            self._agent.second_look = None
        shadow, self._shadow = self._shadow, None
        if shadow is None or shadow.stop(timeout_s):
            return True
        _log.warning("the candidate's last look takes long; it is left to end by itself")
        return False
