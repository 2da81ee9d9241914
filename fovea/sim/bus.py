"""City buses, coaches and minibuses."""

from __future__ import annotations

import numpy as np

from fovea.sim.bodywork import DARK, GLASS, GLASS_SKY, Bgr, ends, tint, wheels
from fovea.sim.mesh import Mesh, MeshBuilder

BUS_PAINTS: tuple[Bgr, ...] = (
    (44, 38, 178),
    (176, 108, 40),
    (220, 218, 214),
    (66, 128, 52),
    (44, 170, 216),
    (40, 96, 206),
    (150, 148, 146),
    (120, 50, 88),
    (168, 150, 40),
)


def bus(rng: np.random.Generator) -> Mesh:
    """A city bus, a coach or a minibus."""
    kind = str(rng.choice(["city", "coach", "mini"], p=[0.55, 0.2, 0.25]))
    paint = BUS_PAINTS[int(rng.integers(len(BUS_PAINTS)))]
    second = BUS_PAINTS[int(rng.integers(len(BUS_PAINTS)))] if rng.uniform() < 0.6 else (222, 221, 218)
    length = {"city": 11.5, "coach": 12.0, "mini": 7.2}[kind] * float(rng.uniform(0.93, 1.05))
    height = {"city": 3.0, "coach": 3.5, "mini": 2.75}[kind] * float(rng.uniform(0.97, 1.03))
    hw = {"city": 1.26, "coach": 1.26, "mini": 1.05}[kind]
    f, r = length / 2, -length / 2
    low = 0.32
    sill = height * (0.40 if kind == "city" else 0.5 if kind == "coach" else 0.46)
    top = height - (0.42 if kind != "mini" else 0.34)
    b = MeshBuilder()
    b.group = 1
    nose = 0.12 if kind != "mini" else 0.55
    b.loft(
        [
            (r, low, hw),
            (r + 0.02, height - 0.15, hw),
            (r + 0.2, height, hw - 0.1),
            (f - nose - 0.1, height, hw - 0.1),
            (f - nose, height - 0.15, hw),
            (f, sill, hw),
            (f, low, hw),
        ],
        paint,
        [paint, tint(paint, 0.95), (206, 205, 202), tint(paint, 0.95), paint, paint, None],
    )
    b.group = 2
    b.both_sides([(r, low), (f, low), (f, low + 0.22), (r, low + 0.22)], hw + 0.003, DARK)
    band = float(rng.choice([0.0, 0.35, 0.7]))
    if band:
        b.both_sides(
            [
                (r, low + 0.22),
                (f, low + 0.22),
                (f, low + 0.22 + band * 0.8),
                (r + band * 2, low + 0.22 + band * 0.8),
            ],
            hw + 0.004,
            second,
        )
    b.both_sides(
        [(r + 0.25, sill), (f - 0.12, sill), (f - nose - 0.1, top), (r + 0.25, top)], hw + 0.006, DARK
    )
    count = max(int(length / 1.5), 3)
    step = (length - 0.55 - nose) / count
    for i in range(count):
        x0, x1 = r + 0.3 + i * step, r + 0.3 + (i + 1) * step - 0.1
        b.both_sides(
            [(x0, sill + 0.05), (x1, sill + 0.05), (x1, top - 0.05), (x0, top - 0.05)],
            hw + 0.01,
            GLASS if (i * 7) % 3 else tint(GLASS, 1.35),
            4,
        )
    for x in (f - 1.5,) if kind != "city" else (f - 1.5, -0.4):
        _door(b, x, hw, low, top)
    _bus_ends(b, f, r, hw, sill, top, height, nose, second)
    wheels(
        b,
        (r + length * 0.24, f - length * (0.21 if kind != "mini" else 0.16)),
        0.47 if kind != "mini" else 0.36,
        hw,
    )
    ends(b, f, r, hw, 0.72, 0.5, 0.2)
    if kind == "city" or rng.uniform() < 0.4:
        b.group = 3
        x = float(rng.uniform(-2.0, 1.0))
        b.loft(
            [
                (x - 1.1, height, 0.8),
                (x - 1.0, height + 0.2, 0.75),
                (x + 1.0, height + 0.2, 0.75),
                (x + 1.1, height, 0.8),
            ],
            (196, 195, 192),
            [(186, 185, 182)] * 3 + [None],
        )
    return b.build()


def _door(b: MeshBuilder, x: float, hw: float, low: float, top: float) -> None:
    y = -(hw + 0.014)
    b.face([(x, y, low + 0.1), (x + 1.15, y, low + 0.1), (x + 1.15, y, top), (x, y, top)], (50, 48, 47))
    for x0 in (x + 0.06, x + 0.61):
        b.face(
            [
                (x0, y - 0.004, low + 0.3),
                (x0 + 0.48, y - 0.004, low + 0.3),
                (x0 + 0.48, y - 0.004, top - 0.08),
                (x0, y - 0.004, top - 0.08),
            ],
            tint(GLASS, 1.2),
            4,
        )


def _bus_ends(
    b: MeshBuilder,
    f: float,
    r: float,
    hw: float,
    sill: float,
    top: float,
    height: float,
    nose: float,
    second: Bgr,
) -> None:
    def slope(z: float) -> float:
        return f - nose * (z - sill) / (height - 0.15 - sill) + 0.012

    z0, z1 = sill - 0.1, top - 0.05
    b.face(
        [
            (f + 0.012, -hw + 0.1, z0),
            (f + 0.012, hw - 0.1, z0),
            (slope(z1), hw - 0.12, z1),
            (slope(z1), -hw + 0.12, z1),
        ],
        GLASS,
    )
    b.face(
        [
            (slope(z0 + 0.3), -hw + 0.5, z0 + 0.3),
            (slope(z0 + 0.3), -hw + 0.8, z0 + 0.3),
            (slope(z1), -hw + 1.1, z1),
            (slope(z1), -hw + 0.75, z1),
        ],
        GLASS_SKY,
    )
    z2, z3 = top + 0.02, height - 0.16
    if z3 > z2 + 0.1:
        b.face(
            [(slope(z2), -0.8, z2), (slope(z2), 0.8, z2), (slope(z3), 0.8, z3), (slope(z3), -0.8, z3)], DARK
        )
        m = (z2 + z3) / 2
        b.face(
            [
                (slope(m) + 0.004, -0.6, m - 0.06),
                (slope(m) + 0.004, 0.5, m - 0.06),
                (slope(m) + 0.004, 0.5, m + 0.06),
                (slope(m) + 0.004, -0.6, m + 0.06),
            ],
            (50, 150, 220),
            3,
        )
    x = r - 0.01
    b.face(
        [(x, -hw + 0.25, sill + 0.1), (x, hw - 0.25, sill + 0.1), (x, hw - 0.3, top), (x, -hw + 0.3, top)],
        GLASS,
    )
    b.face(
        [(x, -hw + 0.3, 0.55), (x, hw - 0.3, 0.55), (x, hw - 0.3, 1.0), (x, -hw + 0.3, 1.0)],
        tint(second, 0.7),
    )
