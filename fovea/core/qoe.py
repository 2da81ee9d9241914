"""Which tier looks at a frame: the route of the highest quality of experience among those that can be had at all.

Hard constraints first (deadline, bytes, questions, memory): what breaks one is no option, however good. Among the
rest the quality of experience is a weighted sum of four terms, each 0 (worst) to 1 (best):

latency   1 / (1 + expected latency / `half_ms`): 1 at once, 0.5 at `half_ms`, never quite 0, so that of two slow
          routes the less slow one is still the better
quality   the expected AP of the answer, 0 to 1 (of a route that asks: the own answer's plus the expected gain)
memory    the share of memory that stays free on the machine that does the work
priority  business priority of the frame times quality: what matters more gets the better look. So a higher priority
          never moves a frame to a route of lower quality
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fovea.core.errors import Malformed
from fovea.core.routing import Reason, Route

_SUM_TOLERANCE = 1e-6
_TIERS = tuple(Route)


@dataclass(frozen=True, slots=True)
class QoeWeights:
    """What each term counts, 0 or more and 1 together; `half_ms` is the latency at which its term is 0.5."""

    latency: float = 0.4
    quality: float = 0.3
    memory: float = 0.2
    priority: float = 0.1
    half_ms: float = 250.0

    def __post_init__(self) -> None:
        weights = (self.latency, self.quality, self.memory, self.priority)
        if not all(0 <= weight <= 1 for weight in weights) or not abs(sum(weights) - 1) <= _SUM_TOLERANCE:
            raise Malformed(f"qoe weights: expected four of 0 or more that add up to 1, got {weights}")
        if not 0 < self.half_ms < math.inf:
            raise Malformed(f"qoe half_ms: expected a finite number above 0, got {self.half_ms}")


@dataclass(frozen=True, slots=True)
class Priorities:
    """Business priority 0 to 1 of cameras (by name) and of labels (by class id); `usual` for all others."""

    usual: float = 0.5
    by_camera: Mapping[str, float] = field(default_factory=dict)
    by_label: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named: list[tuple[str, float]] = [("usual", self.usual)]
        named += [(f"of camera {name!r:.80}", value) for name, value in self.by_camera.items()]
        named += [(f"of class {class_id}", value) for class_id, value in self.by_label.items()]
        for name, value in named:
            if not 0 <= value <= 1:
                raise Malformed(f"priority {name}: expected 0 to 1, got {value}")
        object.__setattr__(self, "by_camera", dict(self.by_camera))
        object.__setattr__(self, "by_label", dict(self.by_label))

    def of(self, camera: str, class_ids: Iterable[int] = ()) -> float:
        """Of a frame of `camera` in which these classes were seen or suspected: the highest that anyone claims.
        Nobody's claim counts as `usual`."""
        claims = [self.by_label[class_id] for class_id in class_ids if class_id in self.by_label]
        if camera in self.by_camera:
            claims.append(self.by_camera[camera])
        return max(claims, default=self.usual)


@dataclass(frozen=True, slots=True)
class RouteOption:
    """One way that a frame could go, as far as it is known beforehand.

    latency_ms                  until there is an answer: its own, or that of a nearer tier that does not wait for it
    latency_p95_ms              until its own answer is here, as late as it may have to be expected
    quality                     0..1, expected AP of the answer
    memory_share                0..1, of the memory of the machine that does the work, in use while it does
    sent_bytes                  what the question takes on the wire; 0 for the own answer
    """

    route: Route
    latency_ms: float
    latency_p95_ms: float
    quality: float
    memory_share: float = 0.0
    sent_bytes: float = 0.0

    def __post_init__(self) -> None:
        for name in ("latency_ms", "latency_p95_ms", "sent_bytes"):
            if not 0 <= getattr(self, name) < math.inf:
                raise Malformed(
                    f"route option {name}: expected a finite number of 0 or more, got {getattr(self, name)}"
                )
        for name in ("quality", "memory_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise Malformed(f"route option {name}: expected 0 to 1, got {getattr(self, name)}")

    @property
    def is_asked(self) -> bool:
        return self.route in (Route.EDGE, Route.CLOUD)


@dataclass(frozen=True, slots=True)
class Constraints:
    """What no route may break. deadline_ms: time that is left, held against the 95 % latency. bytes_left and
    asks_left: of the budget, for routes that ask (both may be in debt). most_memory_share: 0..1, of the machine that
    does the work. priority: 0..1 of this frame, see `Priorities.of`."""

    deadline_ms: float = math.inf
    bytes_left: float = math.inf
    asks_left: float = math.inf
    most_memory_share: float = 1.0
    priority: float = 0.5

    def __post_init__(self) -> None:
        for name in ("deadline_ms", "bytes_left", "asks_left"):
            if math.isnan(getattr(self, name)):
                raise Malformed(f"constraints {name}: expected a number, got nan")
        for name in ("most_memory_share", "priority"):
            if not 0 <= getattr(self, name) <= 1:
                raise Malformed(f"constraints {name}: expected 0 to 1, got {getattr(self, name)}")


class RouteChoice(NamedTuple):
    """What was chosen, how good it is expected to be (0..1), and why: first what speaks for it, then what stood in
    the way of routes that would have been better."""

    route: Route
    qoe: float
    reasons: tuple[Reason, ...]


def choose_route(
    options: Sequence[RouteOption],
    weights: QoeWeights = QoeWeights(),
    constraints: Constraints = Constraints(),
) -> RouteChoice:
    """The option of the highest quality of experience that breaks no constraint; of equals the nearer tier.

    When every option breaks one, the choice is SKIP with a quality of experience of 0: nobody can look in time.
    Raises Malformed without options and for a route that is offered twice.
    """
    routes = [option.route for option in options]
    if not options or len(set(routes)) < len(routes):
        raise Malformed(
            f"route options: expected at least one, each route once, got {[str(r) for r in routes]}"
        )
    scored = [(quality_of_experience(option, weights, constraints.priority), option) for option in options]
    scored.sort(key=lambda each: (-each[0], _TIERS.index(each[1].route)))
    obstacles: list[Reason] = []
    for qoe, option in scored:
        obstacle = broken_constraint(option, constraints)
        if obstacle is None:
            own = Reason.EXPECTED_GAIN if option.is_asked else Reason.SURE
            return RouteChoice(option.route, qoe, tuple(dict.fromkeys([own, *obstacles])))
        obstacles.append(obstacle)
    return RouteChoice(Route.SKIP, 0.0, tuple(dict.fromkeys(obstacles)))


def quality_of_experience(option: RouteOption, weights: QoeWeights, priority: float) -> float:
    """The weighted sum of the four terms, 0 to 1. Rises with quality, falls with latency and memory; rises with
    priority the faster the better the answer."""
    return (
        weights.latency / (1 + option.latency_ms / weights.half_ms)
        + weights.quality * option.quality
        + weights.memory * (1 - option.memory_share)
        + weights.priority * priority * option.quality
    )


def broken_constraint(option: RouteOption, constraints: Constraints) -> Reason | None:
    """The first constraint that the option would break, as a reason; None when it breaks none."""
    if max(option.latency_ms, option.latency_p95_ms) > constraints.deadline_ms:
        return Reason.NO_TIME
    if option.is_asked and (option.sent_bytes > constraints.bytes_left or constraints.asks_left < 1):
        return Reason.OVER_BUDGET
    if option.memory_share > constraints.most_memory_share:
        return Reason.OVER_BUDGET
    return None
