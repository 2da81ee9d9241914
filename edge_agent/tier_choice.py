"""Which of the tiers that may be asked looks at a frame: weighed by quality of experience, with what the machine has
left. Called where the gate would ask, and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from edge_agent.foresight import Foresight
from fovea.core.detections import Detections
from fovea.core.errors import Malformed
from fovea.core.frame import Frame
from fovea.core.gate import Opinion
from fovea.core.qoe import (
    Constraints,
    Priorities,
    QoeWeights,
    RouteChoice,
    RouteOption,
    choose_route,
)
from fovea.core.routing import Route
from fovea.process.resources import ResourceState

RESERVE_SHARE = 0.05
"""Of a machine's memory: what has to stay free for others, whatever a question would bring."""
_PICTURES_IN_MEMORY = 2
"""Of a frame that is asked about: its pixels, and a copy while they are encoded or on their way."""


@dataclass(frozen=True, slots=True)
class QoeSettings:
    """How tiers are weighed.

    weights      of all cameras, but for those in `by_camera`; frames with a label in `by_label` (class id) are
                 weighed by its weights, of several by those of the one with the highest priority
    own_quality  0..1, AP of the camera's model, as its report says
    hold_s       how long after its capture the own answer is held back for a better one at most; None: it is
                 published at once and the better one when it comes, so that nobody waits for that
    """

    weights: QoeWeights = field(default_factory=QoeWeights)
    by_camera: Mapping[str, QoeWeights] = field(default_factory=dict)
    by_label: Mapping[int, QoeWeights] = field(default_factory=dict)
    priorities: Priorities = field(default_factory=Priorities)
    own_quality: float = 0.5
    hold_s: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.own_quality <= 1:
            raise Malformed(f"qoe own_quality: expected 0 to 1, got {self.own_quality}")

    def weights_of(self, camera: str, class_ids: frozenset[int]) -> QoeWeights:
        """For a frame of `camera` in which these classes were seen."""
        of_camera = self.by_camera.get(camera, self.weights)
        claims = [class_id for class_id in class_ids if class_id in self.by_label]
        if not claims:
            return of_camera
        usual, by_label = self.priorities.usual, self.priorities.by_label
        first = max(claims, key=lambda class_id: (by_label.get(class_id, usual), -class_id))
        return self.by_label[first]


@dataclass(frozen=True, slots=True)
class Room:
    """What is left on this machine. spare_bytes: memory that a question may still take; is_held_back: it runs slower
    than it could, for heat or weak power."""

    spare_bytes: float = math.inf
    is_held_back: bool = False

    @classmethod
    def of(cls, state: ResourceState | None) -> Room:
        """Of a look at the machine. What it does not say is taken for ample."""
        if state is None:
            return cls()
        spare_bytes = math.inf
        if state.memory_available_bytes is not None and state.memory_total_bytes is not None:
            spare_bytes = max(state.memory_available_bytes - RESERVE_SHARE * state.memory_total_bytes, 0.0)
        return cls(spare_bytes, bool(state.is_throttled))

    def share_of(self, size_bytes: float) -> float:
        """0..1 of it that `size_bytes` take."""
        if self.spare_bytes <= size_bytes:
            return 1.0
        return size_bytes / self.spare_bytes


class TierChoice:
    """Weighs the own answer against that of each tier that could be asked. For the thread that decides."""

    def __init__(
        self, settings: QoeSettings, foresight: Foresight, machine: Callable[[], ResourceState | None]
    ) -> None:
        """`machine`: the newest look at it, at no cost."""
        self._settings = settings
        self._foresight = foresight
        self._machine = machine
        self._seen: ResourceState | None = None
        self._room = Room()

    def choose(
        self,
        frame: Frame,
        seen: Detections,
        opinion: Opinion,
        own_ms: float,
        expected_ms: Mapping[Route, float],
        in_flight: int,
        time_left_s: float,
    ) -> RouteChoice | None:
        """The best route for a frame that is worth a question; `own_ms` is since its capture, `expected_ms` how long
        each tier that may be asked is expected to take from now. None where the gate estimates no gain: then there is
        nothing to weigh."""
        if opinion.expected_gain is None:
            return None
        settings, camera = self._settings, frame.id.camera
        class_ids = frozenset(seen.class_ids.tolist())
        weights = settings.weights_of(camera, class_ids)
        options = [RouteOption(Route.LOCAL, own_ms, own_ms, settings.own_quality)]
        options += [
            self._asked(frame, route, opinion.expected_gain, own_ms, took_ms, in_flight, weights)
            for route, took_ms in expected_ms.items()
        ]
        constraints = Constraints(
            deadline_ms=max(own_ms + 1000 * time_left_s, own_ms),
            priority=settings.priorities.of(camera, class_ids),
        )
        return choose_route(options, weights, constraints)

    def _asked(
        self,
        frame: Frame,
        route: Route,
        gain: float,
        own_ms: float,
        took_ms: float,
        in_flight: int,
        weights: QoeWeights,
    ) -> RouteOption:
        """Where the own answer goes out first, asking delays nothing, but the gain is worth the less the later it
        comes; where it is held back, the answer is as late as the better one. A machine that holds itself back makes
        the frames after this one wait for the encoding of the question."""
        room, settings = self._machine_room(), self._settings
        there_ms = own_ms + took_ms
        first_ms = own_ms + (self._foresight.encode_ms if room.is_held_back else 0.0)
        if settings.hold_s is None:
            gain /= 1 + took_ms / weights.half_ms
        else:
            first_ms += min(took_ms, max(1000 * settings.hold_s - own_ms, 0.0))
        held_bytes = (1 + in_flight) * (_PICTURES_IN_MEMORY * frame.pixels.nbytes)
        return RouteOption(
            route,
            latency_ms=first_ms,
            latency_p95_ms=max(there_ms, first_ms),
            quality=min(max(settings.own_quality + gain, 0.0), 1.0),
            memory_share=room.share_of(held_bytes),
            sent_bytes=float(self._foresight.question_bytes),
        )

    def _machine_room(self) -> Room:
        """Worked out once for each look at the machine."""
        state = self._machine()
        if state is not self._seen:
            self._seen, self._room = state, Room.of(state)
        return self._room
