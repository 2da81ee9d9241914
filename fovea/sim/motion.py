"""Where a moving thing is at any time, in closed form: nothing has to be simulated step by step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from fovea.sim.mesh import Pose


class Motion(Protocol):
    """A thing's pose at any time; None while it is not on the street."""

    def pose_at(self, time_s: float) -> Pose | None:
        """The pose at a time in seconds from the clip's start."""
        ...


@dataclass(frozen=True, slots=True)
class Flow:
    """How all traffic of a lane moves together: cruising, swelling, and stopping for a crossing.

    Speed is cruise * ((1 - depth) + depth * stop(t)); stop(t) = (1 - cos)^2 / 1.5 is flat around its
    zeros, which come every period. Its integral is closed, so progress is too.
    """

    cruise_mps: float
    depth: float
    period_s: float
    phase_s: float

    def progress_m(self, time_s: float) -> float:
        """Metres covered since an arbitrary origin."""
        w = 2 * math.pi / self.period_s
        a = w * (time_s - self.phase_s)
        stop = (1.5 * a - 2.0 * math.sin(a) + 0.25 * math.sin(2 * a)) / (1.5 * w)
        return self.cruise_mps * ((1 - self.depth) * (time_s - self.phase_s) + self.depth * stop)

    def speed_mps(self, time_s: float) -> float:
        """Metres per second."""
        a = 2 * math.pi / self.period_s * (time_s - self.phase_s)
        return self.cruise_mps * ((1 - self.depth) + self.depth * (1 - math.cos(a)) ** 2 / 1.5)


@dataclass(frozen=True, slots=True)
class AlongLane:
    """On a straight line: starts at `offset_m` along it and moves with the lane's flow."""

    start_xy: tuple[float, float]
    heading_rad: float
    length_m: float
    offset_m: float
    flow: Flow
    sway_m: float = 0.0
    sway_phase: float = 0.0

    def pose_at(self, time_s: float) -> Pose | None:
        """See Motion."""
        along = self.offset_m + self.flow.progress_m(time_s)
        if not 0.0 <= along <= self.length_m:
            return None
        c, s = math.cos(self.heading_rad), math.sin(self.heading_rad)
        side = self.sway_m * math.sin(along * 0.11 + self.sway_phase)
        turn = self.sway_m * 0.11 * math.cos(along * 0.11 + self.sway_phase)
        x, y = self.start_xy[0] + along * c - side * s, self.start_xy[1] + along * s + side * c
        return Pose(x, y, self.heading_rad + turn, along, self.flow.speed_mps(time_s))


@dataclass(frozen=True, slots=True)
class Walk:
    """On foot through way points at a steady speed, entering at `start_s`."""

    points: tuple[tuple[float, float], ...]
    speed_mps: float
    start_s: float
    sway_m: float
    sway_phase: float

    def pose_at(self, time_s: float) -> Pose | None:
        """See Motion."""
        gone = (time_s - self.start_s) * self.speed_mps
        if gone < 0:
            return None
        left = gone
        for (ax, ay), (bx, by) in zip(self.points, self.points[1:], strict=False):
            length = math.hypot(bx - ax, by - ay)
            if left <= length and length > 0:
                k = left / length
                heading = math.atan2(by - ay, bx - ax)
                side = self.sway_m * math.sin(gone * 0.35 + self.sway_phase)
                heading_now = heading + self.sway_m * 0.35 * math.cos(gone * 0.35 + self.sway_phase)
                x = ax + (bx - ax) * k - side * math.sin(heading)
                y = ay + (by - ay) * k + side * math.cos(heading)
                return Pose(x, y, heading_now, gone, self.speed_mps)
            left -= length
        return None


@dataclass(frozen=True, slots=True)
class Stand:
    """Standing about, shifting and turning a little."""

    x_m: float
    y_m: float
    heading_rad: float
    phase: float

    def pose_at(self, time_s: float) -> Pose | None:
        """See Motion."""
        turn = 0.35 * math.sin(time_s * 0.4 + self.phase)
        return Pose(
            self.x_m + 0.05 * math.sin(time_s * 0.7 + self.phase), self.y_m, self.heading_rad + turn, 0.0, 0.0
        )
