"""Parts and colours that cars, buses and trucks share."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fovea.sim.mesh import MeshBuilder

Bgr = tuple[float, float, float]

GLASS: Bgr = (58, 50, 44)
GLASS_SKY: Bgr = (118, 104, 92)
RUBBER: Bgr = (34, 33, 33)
DARK: Bgr = (40, 38, 38)
CHROME: Bgr = (176, 174, 172)
HEAD: Bgr = (214, 212, 205)
TAIL: Bgr = (36, 30, 165)
PLATE: Bgr = (196, 202, 202)


def pick_paint(rng: np.random.Generator, paints: Sequence[tuple[float, Bgr]]) -> Bgr:
    """One colour drawn by weight."""
    weights = np.array([w for w, _ in paints])
    return paints[int(rng.choice(len(paints), p=weights / weights.sum()))][1]


def tint(colour: Bgr, factor: float) -> Bgr:
    """A colour made darker or lighter."""
    b, g, r = colour
    return min(b * factor, 255.0), min(g * factor, 255.0), min(r * factor, 255.0)


def ring(x: float, z: float, radius: float, corners: int, turn: float = 0.0) -> list[tuple[float, float]]:
    """A regular polygon as (x, z) corners."""
    steps = [2 * math.pi * i / corners + turn for i in range(corners)]
    return [(x + radius * math.cos(a), z + radius * math.sin(a)) for a in steps]


def wheels(b: MeshBuilder, xs: Sequence[float], radius: float, half_width: float, arch: bool = True) -> None:
    """Wheels with arches, tyres and rims on both sides."""
    for x in xs:
        if arch:
            b.both_sides(ring(x, radius + 0.03, radius * 1.18, 12), half_width + 0.005, DARK)
        b.both_sides(ring(x, radius, radius, 14), half_width + 0.015, RUBBER)
        b.both_sides(ring(x, radius, radius * 0.64, 10), half_width + 0.02, (150, 148, 146))
        b.both_sides(ring(x, radius, radius * 0.24, 6), half_width + 0.025, (92, 90, 88))


def ends(
    b: MeshBuilder, front: float, rear: float, hw: float, z_light: float, z_plate: float, lamp_h: float = 0.16
) -> None:
    """Lamps, grille, bumpers and plates on the two ends."""
    w = 0.34 if hw < 1.1 else 0.30
    for sign in (-1.0, 1.0):
        y0, y1 = sign * (hw - 0.06), sign * (hw - 0.06 - w)
        f, r = front + 0.012, rear - 0.012
        b.face(
            [(f, y0, z_light), (f, y1, z_light), (f, y1, z_light + lamp_h), (f, y0, z_light + lamp_h)],
            HEAD,
            1,
        )
        b.face(
            [
                (r, y0, z_light + 0.08),
                (r, y1 + sign * 0.1, z_light + 0.08),
                (r, y1 + sign * 0.1, z_light + 0.12 + lamp_h),
                (r, y0, z_light + 0.12 + lamp_h),
            ],
            TAIL,
            2,
        )
    for x in (front + 0.014, rear - 0.014):
        b.face(
            [(x, -0.26, z_plate), (x, 0.26, z_plate), (x, 0.26, z_plate + 0.11), (x, -0.26, z_plate + 0.11)],
            PLATE,
        )
    f = front + 0.011
    b.face(
        [
            (f, -hw + 0.45, z_light - 0.02),
            (f, hw - 0.45, z_light - 0.02),
            (f, hw - 0.45, z_light + lamp_h),
            (f, -hw + 0.45, z_light + lamp_h),
        ],
        DARK,
    )
