"""Saloons, hatchbacks, estates, off-roaders and taxis."""

from __future__ import annotations

import numpy as np

from fovea.sim.bodywork import GLASS, GLASS_SKY, Bgr, ends, pick_paint, tint, wheels
from fovea.sim.mesh import Mesh, MeshBuilder

CAR_PAINTS: tuple[tuple[float, Bgr], ...] = (
    (20, (224, 224, 222)),
    (18, (46, 45, 44)),
    (16, (118, 116, 113)),
    (13, (176, 175, 172)),
    (8, (120, 66, 32)),
    (5, (64, 38, 24)),
    (7, (42, 36, 150)),
    (3, (40, 30, 88)),
    (3, (58, 92, 46)),
    (2, (52, 148, 205)),
    (2, (60, 190, 222)),
    (2, (140, 170, 190)),
    (1, (150, 120, 48)),
)


def car(rng: np.random.Generator) -> Mesh:
    """A saloon, hatchback, estate, off-roader or taxi."""
    kind = str(rng.choice(["hatch", "saloon", "estate", "suv"], p=[0.33, 0.27, 0.15, 0.25]))
    paint = pick_paint(rng, CAR_PAINTS)
    paint = tint(paint, float(rng.uniform(0.85, 1.1)))
    is_taxi = bool(rng.uniform() < 0.05) and kind != "suv"
    if is_taxi:
        paint = (62, 188, 232)
    length = {"hatch": 3.9, "saloon": 4.6, "estate": 4.7, "suv": 4.5}[kind] * float(rng.uniform(0.95, 1.05))
    height = {"hatch": 1.47, "saloon": 1.44, "estate": 1.48, "suv": 1.72}[kind] * float(
        rng.uniform(0.97, 1.03)
    )
    hw = {"hatch": 0.86, "saloon": 0.9, "estate": 0.9, "suv": 0.94}[kind]
    f, r = length / 2, -length / 2
    belt = height * 0.61
    low = 0.30 if kind == "suv" else 0.22
    bonnet = f - (1.0 if kind == "hatch" else 1.25)
    b = MeshBuilder()
    b.group = 0
    b.loft(
        [
            (r + 0.15, 0.05, hw - 0.15),
            (r + 0.15, 0.42, hw - 0.15),
            (f - 0.15, 0.42, hw - 0.15),
            (f - 0.15, 0.05, hw - 0.15),
        ],
        (26, 26, 26),
        [(26, 26, 26), None, (26, 26, 26), None],
    )
    b.group = 1
    boot = {"hatch": r + 0.05, "saloon": r + 0.85, "estate": r + 0.04, "suv": r + 0.06}[kind]
    boot_z = belt if kind != "saloon" else belt - 0.02
    b.loft(
        [
            (r, low, hw - 0.02),
            (r - 0.02, low + 0.3, hw),
            (r + 0.06, boot_z, hw - 0.05),
            (boot, belt, hw - 0.04),
            (bonnet, belt + 0.01, hw - 0.04),
            (f - 0.12, belt - 0.20, hw - 0.10),
            (f, low + 0.22, hw - 0.02),
            (f - 0.03, low, hw - 0.02),
        ],
        paint,
        [tint(paint, 0.8), paint, paint, paint, tint(paint, 1.04), paint, tint(paint, 0.8), None],
    )
    b.both_sides([(r, low), (f, low), (f, low + 0.13), (r, low + 0.13)], hw + 0.002, tint(paint, 0.62))
    b.both_sides(
        [(0.05, low + 0.1), (0.09, low + 0.1), (0.09, belt), (0.05, belt)], hw - 0.0, tint(paint, 0.55)
    )
    b.both_sides(
        [(-0.35, belt - 0.13), (-0.15, belt - 0.13), (-0.15, belt - 0.1), (-0.35, belt - 0.1)],
        hw + 0.004,
        tint(paint, 0.5),
    )
    wheels(b, (r + 0.75, f - 0.82), 0.36 if kind == "suv" else 0.31, hw)
    ends(b, f - 0.01, r, hw, low + 0.26, low + 0.14)
    roof_f = bonnet - (0.62 if kind != "suv" else 0.55)
    roof_r = {"hatch": r + 0.55, "saloon": r + 1.35, "estate": r + 0.42, "suv": r + 0.35}[kind]
    cabin_r = {"hatch": r + 0.1, "saloon": r + 0.75, "estate": r + 0.1, "suv": r + 0.1}[kind]
    cw, rw = hw - 0.06, hw - 0.24
    b.group = 3
    b.loft(
        [
            (cabin_r, belt, cw),
            (roof_r, height - 0.05, rw),
            ((roof_r + roof_f) / 2, height, rw),
            (roof_f, height - 0.04, rw),
            (bonnet + 0.1, belt, cw),
        ],
        paint,
        [GLASS, paint, paint, GLASS, None],
    )
    b.group = 4
    zt, zb = height - 0.13, belt + 0.05
    taper = (belt, height - 0.04, rw)
    mid = (roof_r + roof_f) / 2 - 0.1

    def edge(z: float, low_x: float, high_x: float) -> float:
        return low_x + (high_x - low_x) * (z - belt) / (height - belt)

    rear_b, rear_t = edge(zb, cabin_r, roof_r) + 0.12, edge(zt, cabin_r, roof_r) + 0.14
    front_b, front_t = edge(zb, bonnet + 0.1, roof_f) - 0.14, edge(zt, bonnet + 0.1, roof_f) - 0.12
    y = cw + 0.012
    b.both_sides([(rear_b, zb), (mid - 0.05, zb), (mid - 0.05, zt), (rear_t, zt)], y, GLASS, 4, taper)
    b.both_sides([(mid + 0.05, zb), (front_b, zb), (front_t, zt), (mid + 0.05, zt)], y, GLASS, 4, taper)
    b.both_sides(
        [(mid + 0.3, zb + 0.1), (mid + 0.5, zb + 0.1), (mid + 0.42, zt - 0.03), (mid + 0.22, zt - 0.03)],
        y + 0.004,
        GLASS_SKY,
        0,
        taper,
    )
    b.both_sides(
        [
            (bonnet - 0.22, belt),
            (bonnet - 0.02, belt),
            (bonnet - 0.02, belt + 0.14),
            (bonnet - 0.22, belt + 0.14),
        ],
        hw + 0.12,
        tint(paint, 0.85),
    )
    if is_taxi:
        b.group = 5
        b.loft(
            [
                (-0.3, height, 0.22),
                (-0.3, height + 0.16, 0.18),
                (-0.12, height + 0.16, 0.18),
                (-0.12, height, 0.22),
            ],
            (200, 230, 235),
            [(200, 230, 235)] * 3 + [None],
        )
    return b.build()
