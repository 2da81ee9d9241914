"""Panel vans, box trucks and flatbeds; some are painted so that they look like buses from afar."""

from __future__ import annotations

import numpy as np

from fovea.sim.bodywork import DARK, GLASS, HEAD, TAIL, Bgr, ends, tint, wheels
from fovea.sim.mesh import Mesh, MeshBuilder

TRUCK_PAINTS: tuple[Bgr, ...] = (
    (226, 226, 224),
    (226, 226, 224),
    (205, 204, 200),
    (156, 92, 38),
    (44, 40, 156),
    (58, 130, 206),
    (74, 74, 72),
    (86, 120, 50),
    (50, 190, 225),
    (120, 150, 160),
)


def truck(rng: np.random.Generator) -> Mesh:
    """A panel van, a box truck or a flatbed."""
    kind = str(rng.choice(["van", "box", "flat"], p=[0.42, 0.40, 0.18]))
    paint = TRUCK_PAINTS[int(rng.integers(len(TRUCK_PAINTS)))]
    return _van(rng, paint) if kind == "van" else _lorry(rng, paint, kind == "box")


def _van(rng: np.random.Generator, paint: Bgr) -> Mesh:
    length, height, hw = float(rng.uniform(5.2, 6.6)), float(rng.uniform(2.25, 2.75)), 1.0
    f, r, low = length / 2, -length / 2, 0.3
    belt = 1.25
    b = MeshBuilder()
    b.group = 1
    b.loft(
        [
            (r, low, hw),
            (r + 0.04, height - 0.1, hw - 0.06),
            (r + 0.15, height, hw - 0.12),
            (f - 1.75, height, hw - 0.12),
            (f - 1.55, height - 0.1, hw - 0.08),
            (f - 0.75, belt, hw - 0.02),
            (f - 0.05, belt - 0.3, hw - 0.06),
            (f, low + 0.2, hw),
            (f - 0.02, low, hw),
        ],
        paint,
        [paint, paint, paint, paint, GLASS, paint, paint, tint(paint, 0.7), None],
    )
    b.group = 2
    y = hw + 0.004
    b.both_sides([(r, low), (f, low), (f, low + 0.2), (r, low + 0.2)], y, (60, 58, 57))
    taper = (belt, height - 0.1, hw - 0.07)
    b.both_sides(
        [
            (f - 1.95, belt + 0.05),
            (f - 0.95, belt + 0.05),
            (f - 1.5, height - 0.45),
            (f - 1.95, height - 0.45),
        ],
        y,
        GLASS,
        0,
        taper,
    )
    for x in (f - 2.05, f - 3.35):
        b.both_sides(
            [(x, low + 0.2), (x + 0.03, low + 0.2), (x + 0.03, height - 0.3), (x, height - 0.3)],
            y + 0.002,
            tint(paint, 0.6),
        )
    if rng.uniform() < 0.6:
        sign = TRUCK_PAINTS[int(rng.integers(len(TRUCK_PAINTS)))]
        z = float(rng.uniform(1.2, 1.6))
        b.both_sides([(r + 0.5, z), (f - 2.2, z), (f - 2.4, z + 0.5), (r + 0.5, z + 0.5)], y + 0.003, sign)
        b.both_sides(
            [(r + 0.9, z + 0.16), (f - 3.1, z + 0.16), (f - 3.1, z + 0.32), (r + 0.9, z + 0.32)],
            y + 0.006,
            (70, 66, 64),
        )
    x = r - 0.012
    b.face(
        [(x, -0.02, low + 0.2), (x, 0.02, low + 0.2), (x, 0.02, height - 0.15), (x, -0.02, height - 0.15)],
        DARK,
    )
    if rng.uniform() < 0.5:
        for s in (-1.0, 1.0):
            b.face([(x, s * 0.15, 1.4), (x, s * 0.78, 1.4), (x, s * 0.75, 2.0), (x, s * 0.15, 2.0)], GLASS)
    wheels(b, (r + 1.15, f - 0.95), 0.35, hw)
    ends(b, f - 0.02, r, hw, 0.68, 0.45)
    return b.build()


def _lorry(rng: np.random.Generator, paint: Bgr, has_box: bool) -> Mesh:
    load = float(rng.uniform(4.2, 7.0))
    cab, hw = 1.9, 1.2
    length = load + cab + 0.2
    f, r = length / 2, -length / 2
    back = f - cab
    cab_h, deck = float(rng.uniform(2.35, 2.8)), 1.0
    b = MeshBuilder()
    b.group = 0
    b.loft(
        [(r + 0.1, 0.5, 0.8), (r + 0.1, 0.95, 0.8), (back, 0.95, 0.8), (back, 0.5, 0.8)],
        DARK,
        [DARK, DARK, None, DARK],
    )
    if has_box:
        top = float(rng.uniform(2.9, 3.6))
        box = TRUCK_PAINTS[int(rng.integers(len(TRUCK_PAINTS)))] if rng.uniform() < 0.55 else (222, 222, 219)
        b.loft(
            [(r, deck, hw), (r, top, hw), (back - 0.2, top, hw), (back - 0.2, deck, hw)],
            box,
            [tint(box, 0.92), box, box, None],
        )
        _box_marks(b, rng, r, back - 0.2, hw, deck, top)
    else:
        b.loft(
            [(r, deck, hw), (r, deck + 0.12, hw), (back - 0.2, deck + 0.12, hw), (back - 0.2, deck, hw)],
            (70, 92, 112),
            [(70, 92, 112)] * 3 + [None],
        )
        rail: Bgr = (62, 84, 104)
        b.loft(
            [
                (r, deck + 0.1, hw),
                (r, deck + 0.6, hw),
                (back - 0.2, deck + 0.6, hw),
                (back - 0.2, deck + 0.1, hw),
            ],
            rail,
            [rail, (54, 62, 70), rail, None],
        )
        load_h = float(rng.uniform(0.5, 1.1))
        sand = (92, 138, 168) if rng.uniform() < 0.5 else (108, 112, 116)
        b.loft(
            [
                (r + 0.6, deck + 0.6, hw - 0.2),
                (r + 1.5, deck + load_h, 0.5),
                (back - 1.4, deck + load_h, 0.5),
                (back - 0.6, deck + 0.6, hw - 0.2),
            ],
            sand,
            [sand, tint(sand, 1.1), sand, None],
        )
    wheels(b, (r + 1.1,) if load < 5.4 else (r + 0.9, r + 1.9), 0.46, hw - 0.02, arch=False)
    b.middle = (r + 1, 0, 1)
    for s in (-1.0, 1.0):
        b.face(
            [
                (r - 0.01, s * 1.1, 0.75),
                (r - 0.01, s * 0.75, 0.75),
                (r - 0.01, s * 0.75, 0.95),
                (r - 0.01, s * 1.1, 0.95),
            ],
            TAIL,
            2,
        )
    b.group = 1
    b.loft(
        [
            (back, 0.5, hw - 0.05),
            (back, cab_h, hw - 0.1),
            (f - 0.35, cab_h, hw - 0.12),
            (f - 0.05, 1.5, hw - 0.05),
            (f, 0.4, hw - 0.05),
        ],
        paint,
        [paint, paint, paint, paint, None],
    )
    y = hw - 0.03
    b.both_sides(
        [(back + 0.55, 1.5), (f - 0.2, 1.5), (f - 0.42, cab_h - 0.3), (back + 0.55, cab_h - 0.3)], y, GLASS
    )
    b.face(
        [
            (f - 0.03, -1.05, 1.5),
            (f - 0.03, 1.05, 1.5),
            (f - 0.27, 1.02, cab_h - 0.25),
            (f - 0.27, -1.02, cab_h - 0.25),
        ],
        GLASS,
    )
    b.both_sides([(back, 0.5), (f, 0.5), (f, 0.62), (back, 0.62)], y, DARK)
    wheels(b, (f - 1.0,), 0.46, hw - 0.04)
    for s in (-1.0, 1.0):
        b.face(
            [(f + 0.01, s * 1.05, 0.68), (f + 0.01, s * 0.72, 0.68), (f, s * 0.72, 0.9), (f, s * 1.05, 0.9)],
            HEAD,
            1,
        )
    b.face([(f + 0.01, -0.6, 0.7), (f + 0.01, 0.6, 0.7), (f - 0.01, 0.6, 1.2), (f - 0.01, -0.6, 1.2)], DARK)
    return b.build(split_x_m=back - 0.1)


def _box_marks(
    b: MeshBuilder, rng: np.random.Generator, r: float, x1: float, hw: float, z0: float, z1: float
) -> None:
    """What is painted on a box body: a band, a name, or a dark strip that looks like windows from afar."""
    y, kind = hw + 0.006, float(rng.uniform())
    colour = TRUCK_PAINTS[int(rng.integers(len(TRUCK_PAINTS)))]
    mid = (z0 + z1) / 2
    if kind < 0.3:
        b.both_sides([(r, mid - 0.35), (x1, mid - 0.35), (x1, mid + 0.1), (r, mid + 0.1)], y, colour)
    elif kind < 0.6:
        b.both_sides(
            [(r + 0.8, mid), (x1 - 0.8, mid), (x1 - 0.8, mid + 0.5), (r + 0.8, mid + 0.5)], y, colour
        )
        b.both_sides(
            [(r + 1.2, mid + 0.15), (x1 - 1.4, mid + 0.15), (x1 - 1.4, mid + 0.35), (r + 1.2, mid + 0.35)],
            y + 0.004,
            (226, 226, 224),
        )
    elif kind < 0.8:
        b.both_sides(
            [(r + 0.2, z1 - 1.1), (x1 - 0.2, z1 - 1.1), (x1 - 0.2, z1 - 0.35), (r + 0.2, z1 - 0.35)],
            y,
            (74, 66, 60),
        )
    x = r - 0.01
    b.face([(x, -0.02, z0), (x, 0.02, z0), (x, 0.02, z1), (x, -0.02, z1)], (90, 88, 86))
