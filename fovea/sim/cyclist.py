"""Bicycles and the people who ride them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fovea.sim.camera import NEAR_M, Camera, Points
from fovea.sim.canvas import Canvas, extent_of
from fovea.sim.mesh import Pose, turn_matrix
from fovea.sim.person import Bgr, Body, Look
from fovea.sim.shading import Shading

FRAMES: tuple[Bgr, ...] = (
    (40, 38, 38),
    (44, 40, 160),
    (170, 100, 40),
    (200, 198, 194),
    (60, 140, 60),
    (40, 150, 210),
)

_WHEEL_M = 0.345
_HUB_X = 0.52
_STEPS = 16


@dataclass(frozen=True, slots=True)
class Bicycle:
    """One bicycle: its paint, a basket or none, and its size against a 28 inch one."""

    paint: Bgr
    has_basket: bool
    size: float


def random_bicycle(rng: np.random.Generator) -> Bicycle:
    """Draw a bicycle."""
    return Bicycle(
        FRAMES[int(rng.integers(len(FRAMES)))], float(rng.uniform()) < 0.35, float(rng.uniform(0.94, 1.04))
    )


def pedal_angle(pose: Pose) -> float:
    """Crank angle in radians for the distance rolled."""
    return pose.travelled_m / 0.85


def riding(look: Look, pose: Pose) -> Body:
    """A rider's joints in the bicycle's axes."""
    k = look.height_m / 1.72
    angle = pedal_angle(pose)
    seat = (-0.22, 0.99)
    rows: list[tuple[float, float, float]] = []
    for side, turn in ((1.0, 0.0), (-1.0, math.pi)):
        a = angle + turn
        foot = (0.02 + 0.17 * math.cos(a), 0.30 - 0.17 * math.sin(a) + 0.05)
        knee = _knee(seat, foot, 0.43 * k, 0.44 * k)
        y = side * 0.095
        rows += [
            (seat[0], y, seat[1]),
            (knee[0], y * 1.35, knee[1]),
            (foot[0], y * 1.2, foot[1]),
            (foot[0] + 0.17, y * 1.25, foot[1] - 0.03),
        ]
    sx, sz = 0.12 * k, seat[1] + 0.46 * k
    hand = (0.44, 1.02)
    for side in (1.0, -1.0):
        elbow = ((sx + hand[0]) / 2 - 0.02, (sz + hand[1]) / 2 - 0.06)
        rows += [
            (sx, side * 0.185 * k, sz),
            (elbow[0], side * 0.25, elbow[1]),
            (hand[0], side * 0.22, hand[1]),
        ]
    rows += [(sx + 0.05, 0, sz + 0.06), (sx + 0.12, 0, sz + 0.215 * k), (seat[0], 0, seat[1]), (sx, 0, sz)]
    return Body(np.array(rows), 0.2)


def _knee(
    hip: tuple[float, float], foot: tuple[float, float], thigh: float, shank: float
) -> tuple[float, float]:
    dx, dz = foot[0] - hip[0], foot[1] - hip[1]
    d = min(math.hypot(dx, dz), thigh + shank - 1e-3)
    along = (thigh**2 - shank**2 + d * d) / (2 * d)
    out = math.sqrt(max(thigh**2 - along**2, 0.0))
    ux, uz = dx / d, dz / d
    return hip[0] + ux * along - uz * out, hip[1] + uz * along + ux * out


_CIRCLE = np.array(
    [[math.cos(2 * math.pi * i / _STEPS), math.sin(2 * math.pi * i / _STEPS)] for i in range(_STEPS)]
)


def _bike_points(bike: Bicycle, pose: Pose) -> Points:
    rear, front = np.zeros((_STEPS, 3)), np.zeros((_STEPS, 3))
    rear[:, 0], rear[:, 2] = -_HUB_X + _CIRCLE[:, 0] * _WHEEL_M, _WHEEL_M + _CIRCLE[:, 1] * _WHEEL_M
    front[:, 0], front[:, 2] = _HUB_X + _CIRCLE[:, 0] * _WHEEL_M, rear[:, 2]
    a = pedal_angle(pose)
    c, s = 0.17 * math.cos(a), 0.17 * math.sin(a)
    frame = np.array(
        [
            (-_HUB_X, 0, _WHEEL_M),
            (0.0, 0, 0.30),
            (-0.20, 0, 0.86),
            (0.36, 0, 0.84),
            (0.38, 0, 0.72),
            (_HUB_X, 0, _WHEEL_M),
            (-0.23, 0, 0.95),
            (0.34, 0, 1.00),
            (0.42, 0.25, 1.02),
            (0.42, -0.25, 1.02),
            (c, 0.09, 0.30 - s),
            (-c, -0.09, 0.30 + s),
            (-0.36, 0, 0.97),
            (-0.10, 0, 0.97),
            (-0.50, 0, 0.74),
            (0.42, 0, 0.9),
            (0.62, 0, 0.92),
            (0.60, 0, 0.72),
        ]
    )
    return np.concatenate([rear, front, frame]) * bike.size


def draw_bicycle(bike: Bicycle, pose: Pose, camera: Camera, shading: Shading) -> Canvas | None:
    """Draw one bicycle without its rider; None when outside the view."""
    turn = turn_matrix(pose.heading_rad)
    view = camera.to_view(_bike_points(bike, pose) @ turn + np.array([pose.x_m, pose.y_m, 0.0]))
    if view[:, 2].min() < NEAR_M:
        return None
    px = camera.view_to_px(view)
    scale = camera.focal_px / float(view[:, 2].mean())
    extent = extent_of(px, 0.06 * scale)
    width, height = camera.size_px
    if extent[2] < 0 or extent[3] < 0 or extent[0] > width or extent[1] > height:
        return None
    canvas = Canvas(camera, extent)
    tyre, steel, paint, dark = shading.flat(
        np.array([(38, 37, 37), (150, 150, 150), bike.paint, (44, 42, 42)], np.float64), 0.6
    ).tolist()
    thin, tube = 0.022 * scale, max(0.042 * scale, 0.5)
    f: list[list[float]] = px[2 * _STEPS :].tolist()
    for wheel in (px[:_STEPS], px[_STEPS : 2 * _STEPS]):
        hub = wheel.mean(axis=0)
        for i in range(0, _STEPS, 4):
            canvas.line(hub.tolist(), wheel[i].tolist(), thin * 0.3, steel)
        canvas.polyline(wheel, max(0.062 * scale, 0.7), tyre, closed=True)
    for a, b in ((0, 1), (0, 2), (1, 2), (1, 4), (2, 3), (3, 5)):
        canvas.line(f[a], f[b], tube, paint)
    canvas.line(f[2], f[6], tube * 0.8, steel)
    canvas.line(f[3], f[7], tube * 0.8, steel)
    canvas.line(f[8], f[9], tube * 0.9, dark)
    canvas.line(f[10], f[11], thin, steel)
    canvas.line(f[12], f[13], 0.07 * scale, dark)
    if bike.has_basket:
        top = [(f[15][0] + f[16][0]) / 2, (f[15][1] + f[16][1]) / 2]
        canvas.line(top, f[17], 0.22 * scale, shading.flat(np.array([(74, 98, 124.0)])).tolist()[0])
    return canvas
