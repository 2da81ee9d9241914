"""The frame loop of a simulated device: frames pass by the clock, and what a model would show of itself is drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from fovea.core.detections import ModelRef
from fovea.core.errors import Incompatible
from fovea.core.ports import Clock
from fovea.core.release import Agreement, Asked, Health, ShadowReport
from fovea.runtime.bundle import Bundle
from fovea.sim.fleet_truth import CameraTruth, FleetTruth, ModelTruth
from fovea.update.ports import Evidence

_RSS_MB: Final = 150.0
_LONGEST_STEP_S: Final = 600.0
_SEND_SHARES: Final = (1.0, 0.2)
_FEW_FRAMES: Final = 20


@dataclass(frozen=True, slots=True)
class World:
    """What is the same for all devices; models by version."""

    models: Mapping[str, ModelTruth]
    fleet: FleetTruth
    clock: Clock

    def model(self, ref: ModelRef) -> ModelTruth:
        """Raises Incompatible for a model of which nothing is known."""
        truth = self.models.get(ref.version)
        if truth is None:
            raise Incompatible(f"{ref}: this fleet knows {', '.join(self.models)}")
        return truth


class SimulatedHost:
    """See `fovea.update.ports.Host`. `answered` counts frames by the version that answered them; `dropped` those that
    nobody did (none: between two frames is always time to switch here)."""

    def __init__(
        self, running: ModelRef, camera: CameraTruth, world: World, rng: np.random.Generator, restarts: int
    ) -> None:
        self.running = running
        self.answered: Counter[str] = Counter()
        self.dropped = 0
        self.has_crashed = False
        self._camera, self._world, self._rng = camera, world, rng
        self._restarts = restarts
        self._began_s = self._at_s = world.clock.monotonic_s()
        self._shadowed: tuple[ModelRef, float] | None = None
        self._frames, self._failures, self._asked = 0, 0, 0
        self._of_model = 0
        self._agreement = Agreement(running.sha256)
        self._shadow: ShadowReport | None = None
        self._liking = camera.liking(running.sha256)

    def switch_to(self, bundle: Bundle) -> None:
        self.answer_with(bundle.ref)

    def shadow(self, bundle: Bundle | None, share: float) -> None:
        self.look_with(None if bundle is None else bundle.ref, share)

    def answer_with(self, ref: ModelRef) -> None:
        """As `switch_to`, for whoever has no bundle."""
        self._pass_time()
        self._world.model(ref)
        if ref != self.running:
            self.running, self._of_model = ref, 0
            self._agreement = Agreement(ref.sha256)
            self._liking = self._camera.liking(ref.sha256)

    def look_with(self, ref: ModelRef | None, share: float) -> None:
        """As `shadow`, likewise."""
        self._pass_time()
        self._shadowed = None if ref is None else (ref, share)
        self._shadow = None if ref is None else ShadowReport(ref.sha256, 0, 0, None, None)

    def apply(self, policy: Mapping[str, Any] | None) -> None:
        """Thresholds are nothing to it."""

    def health(self) -> Health:
        self._pass_time()
        p95_ms = self._world.model(self.running).ms_p95 * self._camera.slowness
        return Health(
            self._frames,
            self._restarts,
            p95_ms if self._of_model >= _FEW_FRAMES else None,
            _RSS_MB,
            self._at_s - self._began_s,
            self._failures,
        )

    def evidence(self) -> Evidence:
        self._pass_time()
        return Evidence(Asked(self._frames, self._asked), self._agreement, self._shadow)

    def _pass_time(self) -> None:
        """Draws what has happened since the last call. A process that has crashed sees nothing more."""
        until_s = self._world.clock.monotonic_s()
        while self._at_s < until_s and not self.has_crashed:
            self._pass(min(until_s - self._at_s, _LONGEST_STEP_S))

    def _pass(self, seconds: float) -> None:
        truth = self._world.model(self.running)
        if truth.crashes_per_h:
            lives_s = self._rng.exponential(3600.0 / truth.crashes_per_h)
            self.has_crashed = bool(lives_s < seconds)
            seconds = min(seconds, lives_s)
        frames = self._due_frames(seconds)
        self._at_s += seconds
        failures = min(frames, int(self._rng.poisson(truth.failures_per_h * seconds / 3600.0)))
        self._frames += frames
        self._of_model += frames
        self._failures += failures
        self.answered[self.running.version] += frames
        asked = int(self._rng.binomial(frames, min(truth.asked_share * self._camera.busy, 1.0)))
        self._asked += asked
        self._agree(self._mean(truth), asked)
        self._look_beside(frames, truth)

    def _due_frames(self, seconds: float) -> int:
        """As many as the clock says, not one more or less over time."""
        fps = self._camera.fps
        return int((self._at_s - self._began_s + seconds) * fps) - int((self._at_s - self._began_s) * fps)

    def _mean(self, truth: ModelTruth) -> float:
        usual = truth.agreement + self._camera.difficulty + self._liking
        return usual + self._world.fleet.conditions(self._at_s)

    def _agree(self, mean: float, n: int) -> None:
        if n:
            x = np.clip(self._rng.normal(mean, self._world.fleet.frame_spread, n), 0.0, 1.0)
            n, sums = _summed(x, 1.0 / self._rng.choice(_SEND_SHARES, n))
            before = self._agreement
            self._agreement = Agreement(
                before.model_sha256,
                before.n + n,
                before.sum_w + sums[0],
                before.sum_wx + sums[1],
                before.sum_wxx + sums[2],
                before.sum_ww + sums[3],
            )

    def _look_beside(self, frames: int, champion: ModelTruth) -> None:
        if self._shadowed is None or self._shadow is None:
            return
        ref, share = self._shadowed
        truth, before = self._world.model(ref), self._shadow
        seen = int(self._rng.binomial(frames, share))
        paired = int(self._rng.binomial(seen, min(champion.asked_share * self._camera.busy, 1.0)))
        gain = truth.agreement - champion.agreement + self._camera.liking(ref.sha256) - self._liking
        d = np.clip(self._rng.normal(gain, self._world.fleet.frame_spread, paired), -1.0, 1.0)
        n, sums = _summed(d, 1.0 / self._rng.choice(_SEND_SHARES, paired))
        self._shadow = ShadowReport(
            ref.sha256,
            before.frames + seen,
            before.crashes + int(self._rng.poisson(truth.failures_per_h * seen / self._camera.fps / 3600.0)),
            truth.ms_p95 * self._camera.slowness if before.frames + seen >= _FEW_FRAMES else None,
            0.9,
            before.paired_n + n,
            before.sum_w + sums[0],
            before.sum_wd + sums[1],
            before.sum_wdd + sums[2],
            before.sum_ww + sums[3],
        )


def _summed(x: Any, w: Any) -> tuple[int, tuple[float, float, float, float]]:
    return len(x), (float(w.sum()), float((w * x).sum()), float((w * x * x).sum()), float((w * w).sum()))
