"""Street furniture and trees: things that hide actors and carry no label."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from fovea.sim.camera import NEAR_M, Camera, Points
from fovea.sim.canvas import Canvas, extent_of
from fovea.sim.layout import Fixture
from fovea.sim.mesh import Mesh, MeshBuilder, Pose, draw_mesh
from fovea.sim.shading import Shading

Bgr = tuple[float, float, float]
_NO_GLOW = np.zeros((5, 3))

SHAPES: dict[str, tuple[float, float]] = {  # half width on the ground (m), height (m)
    "tree": (0.25, 7.0),
    "lamp": (0.12, 7.5),
    "bollard": (0.12, 0.95),
    "bin": (0.3, 1.0),
    "bench": (0.85, 0.9),
    "postbox": (0.28, 1.5),
    "hydrant": (0.18, 0.8),
    "sign": (0.1, 2.9),
    "planter": (0.6, 1.1),
    "cabinet": (0.5, 1.3),
    "board": (0.35, 1.1),
}


def draw_fixture(
    fixture: Fixture, camera: Camera, shading: Shading, lamp_height_m: float, lamp_on: bool, is_bare: bool
) -> Canvas | None:
    """Draw one fixture; None when outside the view."""
    if fixture.kind == "tree":
        return _tree(fixture, camera, shading, is_bare)
    if fixture.kind == "lamp":
        return _lamp(fixture, camera, shading, lamp_height_m, lamp_on)
    if fixture.kind == "sign":
        return _sign(fixture, camera, shading)
    mesh = _BUILDERS[fixture.kind](np.random.default_rng(fixture.seed))
    return draw_mesh(mesh, Pose(fixture.x_m, fixture.y_m, fixture.heading_rad), camera, shading, _NO_GLOW)


def _box(
    b: MeshBuilder, x0: float, x1: float, half: float, z0: float, z1: float, colour: Bgr, taper: float = 1.0
) -> None:
    b.loft(
        [(x0, z0, half), (x0 * taper, z1, half * taper), (x1 * taper, z1, half * taper), (x1, z0, half)],
        colour,
        [colour, colour, colour, None],
    )


def _bollard(rng: np.random.Generator) -> Mesh:
    b = MeshBuilder()
    _box(b, -0.08, 0.08, 0.08, 0, 0.85, (58, 56, 54))
    b.group = 3
    _box(b, -0.09, 0.09, 0.09, 0.68, 0.78, (190, 196, 198))
    _box(b, -0.1, 0.1, 0.1, 0.85, 0.95, (52, 50, 48), 0.6)
    return b.build()


def _bin(rng: np.random.Generator) -> Mesh:
    colour = ((62, 88, 52), (70, 68, 66), (40, 40, 42), (120, 70, 40))[int(rng.integers(4))]
    b = MeshBuilder()
    _box(b, -0.24, 0.24, 0.24, 0.05, 0.9, colour, 1.08)
    b.group = 3
    _box(b, -0.27, 0.27, 0.27, 0.9, 1.0, (50, 48, 46), 0.85)
    return b.build()


def _bench(rng: np.random.Generator) -> Mesh:
    wood = (62, 96, 136)
    b = MeshBuilder()
    for y in (-0.7, 0.7):
        b.middle = (0, y, 0.2)
        b.face(
            [(0.22, y - 0.05, 0), (0.22, y + 0.05, 0), (0.22, y + 0.05, 0.42), (0.22, y - 0.05, 0.42)],
            (48, 48, 48),
        )
        b.face(
            [(-0.22, y - 0.05, 0), (-0.22, y + 0.05, 0), (-0.22, y + 0.05, 0.42), (-0.22, y - 0.05, 0.42)],
            (48, 48, 48),
        )
    b.group = 3
    _box(b, -0.25, 0.25, 0.85, 0.40, 0.47, wood)
    b.group = 4
    _box(b, -0.28, -0.22, 0.85, 0.55, 0.9, wood)
    return b.build()


def _postbox(rng: np.random.Generator) -> Mesh:
    colour = ((38, 34, 178), (48, 176, 226), (130, 72, 36))[int(rng.integers(3))]
    b = MeshBuilder()
    _box(b, -0.05, 0.05, 0.05, 0, 0.7, (70, 68, 66))
    b.group = 3
    _box(b, -0.22, 0.22, 0.27, 0.65, 1.45, colour)
    b.face(
        [(0.225, -0.18, 1.15), (0.225, 0.18, 1.15), (0.225, 0.18, 1.22), (0.225, -0.18, 1.22)], (30, 30, 30)
    )
    return b.build()


def _hydrant(rng: np.random.Generator) -> Mesh:
    colour = ((40, 40, 190), (60, 180, 220), (110, 90, 60))[int(rng.integers(3))]
    b = MeshBuilder()
    _box(b, -0.1, 0.1, 0.1, 0, 0.6, colour)
    b.group = 3
    _box(b, -0.07, 0.07, 0.2, 0.38, 0.5, colour)
    b.group = 4
    _box(b, -0.11, 0.11, 0.11, 0.6, 0.75, colour, 0.5)
    return b.build()


def _planter(rng: np.random.Generator) -> Mesh:
    b = MeshBuilder()
    _box(b, -0.35, 0.35, 0.6, 0, 0.5, (112, 118, 122), 1.06)
    b.group = 3
    green = (46, 92 + float(rng.uniform(0, 30)), 58)
    _box(b, -0.34, 0.34, 0.6, 0.5, 0.85, green, 1.1)
    b.group = 4
    _box(b, -0.3, 0.3, 0.45, 0.85, 1.1, (green[0], green[1] * 1.15, green[2] * 1.1), 0.6)
    return b.build()


def _cabinet(rng: np.random.Generator) -> Mesh:
    b = MeshBuilder()
    _box(b, -0.2, 0.2, 0.5, 0, 1.25, (142, 146, 142))
    b.face([(0.204, -0.01, 0.1), (0.204, 0.01, 0.1), (0.204, 0.01, 1.15), (0.204, -0.01, 1.15)], (90, 90, 90))
    return b.build()


def _board(rng: np.random.Generator) -> Mesh:
    b = MeshBuilder()
    b.loft(
        [(-0.3, 0, 0.32), (-0.02, 1.05, 0.32), (0.02, 1.05, 0.32), (0.3, 0, 0.32)],
        (70, 96, 128),
        [(52, 52, 52), (60, 60, 60), (52, 52, 52), None],
    )
    for i in range(4):
        z, x = 0.85 - i * 0.17, 0.08 + i * 0.045
        b.face(
            [(x, -0.2, z), (x, 0.15, z), (x + 0.012, 0.15, z - 0.06), (x + 0.012, -0.2, z - 0.06)],
            (205, 208, 208),
        )
    return b.build()


_BUILDERS: dict[str, Callable[[np.random.Generator], Mesh]] = {
    "bollard": _bollard,
    "bin": _bin,
    "bench": _bench,
    "postbox": _postbox,
    "hydrant": _hydrant,
    "planter": _planter,
    "cabinet": _cabinet,
    "board": _board,
}


def _stick(
    canvas: Canvas,
    camera: Camera,
    a: Sequence[float] | Points,
    b: Sequence[float] | Points,
    width_m: float,
    colour: list[float],
) -> None:
    px, depth = camera.project(np.array([a, b], np.float64))
    if depth.min() > NEAR_M:
        canvas.line(px[0].tolist(), px[1].tolist(), width_m * camera.focal_px / float(depth.mean()), colour)


def _upright(camera: Camera, fixture: Fixture, height_m: float, reach_m: float) -> Canvas | None:
    x, y = fixture.x_m, fixture.y_m
    points = np.array(
        [(x + a, y + b, z) for a in (-reach_m, reach_m) for b in (-reach_m, reach_m) for z in (0.0, height_m)]
    )
    px, depth = camera.project(points)
    if depth.min() < 1.0:
        return None
    x0, y0, x1, y1 = extent_of(px)
    if x1 < 0 or y1 < 0 or x0 > camera.size_px[0] or y0 > camera.size_px[1]:
        return None
    return Canvas(camera, (x0, y0, x1, y1))


def _lamp(fixture: Fixture, camera: Camera, shading: Shading, height_m: float, is_on: bool) -> Canvas | None:
    canvas = _upright(camera, fixture, height_m + 0.3, 1.6)
    if canvas is None:
        return None
    x, y = fixture.x_m, fixture.y_m
    tones = shading.flat(np.array([(92, 94, 92), (112, 114, 112), (230, 232, 232)], np.float64), 0.5)
    inward = -math.copysign(1.3, y)
    _stick(canvas, camera, (x, y, 0), (x, y, 1.1), 0.19, tones[0].tolist())
    _stick(canvas, camera, (x, y, 1.0), (x, y, height_m), 0.12, tones[1].tolist())
    _stick(canvas, camera, (x, y, height_m), (x, y + inward, height_m + 0.15), 0.09, tones[1].tolist())
    head = [255.0, 255.0, 255.0] if is_on else tones[2].tolist()
    _stick(
        canvas,
        camera,
        (x, y + inward * 0.75, height_m + 0.1),
        (x, y + inward * 1.2, height_m + 0.12),
        0.17,
        head,
    )
    return canvas


def _sign(fixture: Fixture, camera: Camera, shading: Shading) -> Canvas | None:
    canvas = _upright(camera, fixture, 3.0, 0.5)
    if canvas is None:
        return None
    rng = np.random.default_rng(fixture.seed)
    x, y = fixture.x_m, fixture.y_m
    kind = int(rng.integers(4))
    tones = shading.flat(
        np.array([(130, 132, 132), (46, 40, 178), (222, 224, 224), (150, 84, 40)], np.float64), 0.5
    ).tolist()
    _stick(canvas, camera, (x, y, 0), (x, y, 2.8), 0.07, tones[0])
    px, depth = camera.project(np.array([(x, y, 2.5)]))
    r = 0.32 * camera.focal_px / float(depth[0])
    u, v = px[0].tolist()

    def fan(*corners: tuple[float, float]) -> list[tuple[float, float]]:
        return [(u + a * r, v + b * r) for a, b in corners]

    if kind == 0:
        canvas.disc((u, v), r, tones[1])
        canvas.disc((u, v), r * 0.72, tones[2])
    elif kind == 1:
        canvas.convex(fan((0, -1.1), (1, 0.7), (-1, 0.7)), tones[1])
        canvas.convex(fan((0, -0.6), (0.6, 0.45), (-0.6, 0.45)), tones[2])
    elif kind == 2:
        canvas.convex(fan((-1, -1), (1, -1), (1, 1), (-1, 1)), tones[3])
        canvas.convex(fan((-0.3, -0.6), (0.2, -0.6), (0.2, 0.6), (-0.3, 0.6)), tones[2])
    else:
        canvas.disc((u, v), r, tones[3])
        canvas.line((u - r * 0.5, v), (u + r * 0.5, v), r * 0.3, tones[2])
    return canvas


def _tree(fixture: Fixture, camera: Camera, shading: Shading, is_bare: bool) -> Canvas | None:
    rng = np.random.default_rng(fixture.seed)
    k = fixture.size
    height, crown = 6.5 * k, 1.9 * k
    canvas = _upright(camera, fixture, height + 0.5, crown + 0.6)
    if canvas is None:
        return None
    x, y = fixture.x_m, fixture.y_m
    fork = 2.3 * k
    bark = shading.flat(np.array([(52, 62, 74.0)]), 0.4)[0].tolist()
    _stick(canvas, camera, (x, y, 0), (x, y, fork + 1.0), 0.26 * k, bark)
    count = 150 if not is_bare else 70
    directions = rng.normal(0, 1, (count, 3))
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    radii = rng.uniform(0.25, 1.0, count) ** 0.45
    points = directions * (radii * crown)[:, None]
    points[:, 2] *= 1.15
    centres = points + np.array([x, y, fork + crown * 1.05])
    if is_bare:
        _branches(canvas, camera, rng, (x, y, fork), centres, bark, shading)
        return canvas
    base = np.array(
        [(40, 84, 52), (34, 96, 74), (48, 78, 46), (36, 110, 108)][int(rng.integers(4))], np.float64
    )
    tone = base * rng.uniform(0.7, 1.25, (count, 1))
    out = points / (np.linalg.norm(points, axis=1)[:, None] + 1e-6)
    lit = shading.faces(tone * (0.62 + 0.38 * (out[:, 2:] + 1) / 2), out)
    px, depth = camera.project(centres)
    for i in np.argsort(-depth):
        size = crown * float(rng.uniform(0.12, 0.27)) * camera.focal_px / float(depth[i])
        canvas.disc(px[i].tolist(), size, lit[i].tolist())
    return canvas


def _branches(
    canvas: Canvas,
    camera: Camera,
    rng: np.random.Generator,
    fork: tuple[float, float, float],
    ends: Points,
    bark: list[float],
    shading: Shading,
) -> None:
    root = np.array(fork)
    for end in ends:
        middle = root + (end - root) * 0.5 + rng.normal(0, 0.12, 3)
        _stick(canvas, camera, root, middle, 0.075, bark)
        _stick(canvas, camera, middle, end, 0.035, bark)
        if shading.snow_top > 0:
            lift = np.array([0.0, 0.0, 0.03])
            snow = shading.flat(np.array([(236, 234, 232.0)]))[0].tolist()
            _stick(canvas, camera, middle + lift, end + lift, 0.02, snow)
