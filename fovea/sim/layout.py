"""The plan of one street: camera, lanes, pavements, crossing, side road, buildings and furniture."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fovea.sim.camera import Camera

FAR_M = 185.0  # where the street ends in a closing row of houses
NEAR_END_M = -12.0


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane along x (or along y when `is_cross`): centre line, way of travel (+1/-1), its kind."""

    centre_m: float
    way: int
    kind: str  # "road" or "cycle"
    is_cross: bool


@dataclass(frozen=True, slots=True)
class Building:
    """A house: ground box, height, and the seed of its face."""

    x0_m: float
    x1_m: float
    y0_m: float
    y1_m: float
    height_m: float
    seed: int
    roof_m: float  # height of a pitched roof above the walls, 0 for flat


@dataclass(frozen=True, slots=True)
class Fixture:
    """A thing that stands still and carries no label (except parked vehicles, listed apart)."""

    kind: str
    x_m: float
    y_m: float
    heading_rad: float
    size: float
    seed: int


@dataclass(frozen=True, slots=True)
class Parked:
    """A parked vehicle or bicycle; a labelled object that never moves."""

    class_id: int
    x_m: float
    y_m: float
    heading_rad: float
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Everything that stands still in one clip. Lengths in metres; y > 0 is left of the street."""

    camera: Camera
    lanes: tuple[Lane, ...]
    lane_width_m: float
    half_road_m: float
    pavement_m: float
    parking: tuple[bool, bool]  # right, left
    cycle: bool
    zebra_x_m: float | None
    junction_x_m: float | None
    half_cross_m: float
    buildings: tuple[Building, ...]
    fixtures: tuple[Fixture, ...]
    parked: tuple[Parked, ...]
    lamps: tuple[tuple[float, float], ...]
    lamp_height_m: float
    asphalt: float
    paving: tuple[float, float, float]

    @property
    def inner_m(self) -> float:
        """Distance from the middle of the street to the house fronts."""
        return self.half_road_m + self.pavement_m


PARKING_M = 2.15
CYCLE_M = 1.6


def sample_layout(rng: np.random.Generator, size_px: tuple[int, int]) -> Layout:
    """Draw the plan of one street."""
    u = rng.uniform
    lane_width = float(u(3.1, 3.6))
    lanes, half_lanes = _lanes(rng, lane_width)
    parking = (bool(u() < 0.55), bool(u() < 0.55))
    has_cycle = bool(u() < 0.4)
    half_road = half_lanes + (CYCLE_M if has_cycle else 0.0) + (PARKING_M if any(parking) else 0.0)
    if has_cycle:
        lanes += [Lane(s * (half_lanes + CYCLE_M / 2), -int(s), "cycle", False) for s in (-1.0, 1.0)]
    pavement = float(u(2.6, 4.8))
    junction = float(u(24, 46)) if u() < 0.45 else None
    half_cross = float(u(3.2, 4.0))
    zebra = float(u(13, 24)) if u() < 0.62 else None
    if junction is not None:
        lanes += [Lane(junction + s * half_cross / 2, int(s), "road", True) for s in (-1.0, 1.0)]
        if zebra is not None:
            zebra = min(zebra, junction - half_cross - 6.0)
    camera = _camera(rng, half_road, pavement, size_px)
    buildings = _buildings(rng, half_road + pavement, junction, half_cross + 2.5)
    lamps, lamp_height = _lamps(rng, half_road, junction, half_cross)
    parked = _parked(rng, half_road, parking, junction, half_cross, zebra)
    parked += _parked_bicycles(rng, half_road, pavement, junction, half_cross, zebra)
    fixtures = _fixtures(rng, half_road, pavement, junction, half_cross, zebra, lamps, camera)
    grey = float(u(120, 190))
    return Layout(
        camera,
        tuple(lanes),
        lane_width,
        half_road,
        pavement,
        parking,
        has_cycle,
        zebra,
        junction,
        half_cross,
        buildings,
        fixtures,
        parked,
        lamps,
        lamp_height,
        float(u(70, 112)),
        (grey * float(u(0.86, 1.0)), grey * float(u(0.93, 1.0)), grey),
    )


def _lanes(rng: np.random.Generator, width: float) -> tuple[list[Lane], float]:
    kind = str(rng.choice(["two", "one", "double", "four"], p=[0.55, 0.15, 0.15, 0.15]))
    way = 1 if rng.uniform() < 0.5 else -1
    if kind == "one":
        return [Lane(0.0, way, "road", False)], width / 2 + 0.5
    if kind == "double":
        return [Lane(s * width / 2, way, "road", False) for s in (-1.0, 1.0)], width
    if kind == "two":
        return [Lane(s * width / 2, -int(s), "road", False) for s in (-1.0, 1.0)], width
    return [Lane(s * width * k, -int(s), "road", False) for s in (-1.0, 1.0) for k in (0.5, 1.5)], width * 2


def _camera(rng: np.random.Generator, half_road: float, pavement: float, size_px: tuple[int, int]) -> Camera:
    u = rng.uniform
    kind = str(rng.choice(["pole", "across", "gantry"], p=[0.55, 0.27, 0.18]))
    side = 1.0 if u() < 0.5 else -1.0
    fov = math.radians(float(u(50, 82)))
    if kind == "pole":
        y, z = side * (half_road + float(u(0.4, pavement - 0.8))), float(u(4.0, 8.0))
        yaw, tilt = -side * float(u(4, 27)), float(u(11, 23))
    elif kind == "across":
        y, z = side * (half_road + float(u(pavement * 0.5, pavement - 0.5))), float(u(4.0, 7.0))
        yaw, tilt = -side * float(u(36, 68)), float(u(13, 22))
    else:
        y, z = float(u(-0.5, 0.5)) * half_road, float(u(5.5, 9.0))
        yaw, tilt = float(u(-8, 8)), float(u(13, 25))
    focal = size_px[0] / 2 / math.tan(fov / 2)
    return Camera.looking(
        (0.0, y, z),
        math.radians(yaw),
        math.radians(tilt),
        math.radians(float(rng.normal(0, 0.7))),
        focal,
        size_px,
    )


def _buildings(
    rng: np.random.Generator, inner: float, junction: float | None, gap: float
) -> tuple[Building, ...]:
    out: list[Building] = []
    style = float(rng.uniform(6, 14))
    for side in (-1.0, 1.0):
        x = NEAR_END_M - float(rng.uniform(0, 8))
        while x < FAR_M:
            width = float(rng.uniform(8, 21))
            end = x + width
            if junction is not None and end > junction - gap and x < junction + gap:
                if junction - gap - x < 4.0:
                    x = junction + gap
                    continue
                end = junction - gap
            height = float(np.clip(rng.normal(style, 3.0), 4.5, 20.0))
            setback = float(rng.choice([0.0, 0.0, 0.6, 3.0]))
            a, b = inner + setback, inner + setback + float(rng.uniform(9, 13))
            roof = float(rng.uniform(1.5, 3.5)) if rng.uniform() < 0.5 else 0.0
            y0, y1 = (a, b) if side > 0 else (-b, -a)
            out.append(Building(x, end, y0, y1, height, int(rng.integers(2**31)), roof))
            x = end + (float(rng.uniform(1, 6)) if rng.uniform() < 0.18 else 0.0)
    out.append(Building(FAR_M, FAR_M + 10, -60, 60, float(rng.uniform(9, 18)), int(rng.integers(2**31)), 0.0))
    if junction is not None:
        for y0, y1 in ((70.0, 80.0), (-80.0, -70.0)):
            out.append(
                Building(
                    junction - 30,
                    junction + 30,
                    y0,
                    y1,
                    float(rng.uniform(7, 15)),
                    int(rng.integers(2**31)),
                    0.0,
                )
            )
    return tuple(out)


def _clear(x: float, junction: float | None, half_cross: float, zebra: float | None, room: float) -> bool:
    if junction is not None and abs(x - junction) < half_cross + room:
        return False
    return zebra is None or abs(x - zebra - 2.0) > 2.0 + room * 0.7


def _lamps(
    rng: np.random.Generator, half_road: float, junction: float | None, half_cross: float
) -> tuple[tuple[tuple[float, float], ...], float]:
    spacing, start = float(rng.uniform(20, 30)), float(rng.uniform(3, 16))
    both = float(rng.uniform()) < 0.5
    side = 1.0 if rng.uniform() < 0.5 else -1.0
    out = []
    for i in range(int((FAR_M - start) / spacing)):
        x = start + i * spacing
        if _clear(x, junction, half_cross, None, 1.5):
            out.append((x, side * (half_road + 0.55)))
            if both:
                out.append((x, -side * (half_road + 0.55)))
    return tuple(out), float(rng.uniform(5.5, 8.5))


def _parked(
    rng: np.random.Generator,
    half_road: float,
    parking: tuple[bool, bool],
    junction: float | None,
    half_cross: float,
    zebra: float | None,
) -> tuple[Parked, ...]:
    out: list[Parked] = []
    fullness = float(rng.uniform(-0.15, 0.9))
    for has_room, side in zip(parking, (-1.0, 1.0), strict=True):
        x = float(rng.uniform(-4, 2))
        while has_room and x < 110:
            kind = 7 if rng.uniform() < 0.09 else 2
            room = 7.6 if kind == 7 else 5.8
            x += room / 2
            if rng.uniform() < fullness and _clear(x, junction, half_cross, zebra, room / 2 + 2.0):
                heading = (0.0 if side < 0 else math.pi) + (math.pi if rng.uniform() < 0.12 else 0.0)
                y = side * (half_road - PARKING_M / 2 + float(rng.uniform(-0.08, 0.08)))
                out.append(
                    Parked(kind, x, y, heading + float(rng.normal(0, 0.015)), int(rng.integers(2**31)))
                )
            x += room / 2
    return tuple(out)


def _parked_bicycles(
    rng: np.random.Generator,
    half_road: float,
    pavement: float,
    junction: float | None,
    half_cross: float,
    zebra: float | None,
) -> tuple[Parked, ...]:
    out: list[Parked] = []
    if rng.uniform() < 0.4:
        side, x = float(rng.choice([-1.0, 1.0])), float(rng.uniform(9, 36))
        leans = rng.uniform() < 0.5  # along the wall, or in a row across the pavement's edge
        for _ in range(int(rng.integers(1, 5))):
            if _clear(x, junction, half_cross, zebra, 2.0):
                y = side * (half_road + (pavement - 0.35 if leans else 1.15))
                heading = (
                    (0.0 if leans else math.pi / 2)
                    + float(rng.normal(0, 0.08))
                    + (math.pi if rng.uniform() < 0.5 else 0)
                )
                out.append(Parked(1, x, y, heading, int(rng.integers(2**31))))
            x += 2.0 if leans else float(rng.uniform(0.65, 1.1))
    return tuple(out)


def _fixtures(
    rng: np.random.Generator,
    half_road: float,
    pavement: float,
    junction: float | None,
    half_cross: float,
    zebra: float | None,
    lamps: tuple[tuple[float, float], ...],
    camera: Camera,
) -> tuple[Fixture, ...]:
    out = [Fixture("lamp", x, y, -math.pi / 2 if y > 0 else math.pi / 2, 1.0, 0) for x, y in lamps]
    kerb = half_road + 0.5
    cx, cy = float(camera.position_m[0]), float(camera.position_m[1])

    def place(kind: str, x: float, y: float, size: float, keep_m: float) -> None:
        near_lamp = any(abs(x - lx) < 1.5 and abs(y - ly) < 1 for lx, ly in lamps)
        if (
            near_lamp
            or math.hypot(x - cx, y - cy) < keep_m
            or not _clear(x, junction, half_cross, zebra, 1.0)
        ):
            return
        facing = -math.pi / 2 if y > 0 else math.pi / 2
        out.append(Fixture(kind, x, y, facing, size, int(rng.integers(2**31))))

    if rng.uniform() < 0.6:
        spacing, side = float(rng.uniform(9, 18)), float(rng.choice([-1.0, 1.0, 0.0]))
        for i in range(int(100 / spacing)):
            for s in (-1.0, 1.0) if side == 0 else (side,):
                if rng.uniform() < 0.85:
                    place(
                        "tree",
                        8 + i * spacing + float(rng.uniform(-1, 1)),
                        s * (kerb + 0.35),
                        float(rng.uniform(0.75, 1.25)),
                        13.0,
                    )
    for kind, chance, count in (
        ("bollard", 0.35, 8),
        ("bin", 0.6, 3),
        ("bench", 0.35, 2),
        ("postbox", 0.25, 1),
        ("hydrant", 0.3, 2),
        ("sign", 0.8, 4),
        ("planter", 0.3, 4),
        ("cabinet", 0.3, 1),
        ("board", 0.3, 2),
    ):
        if rng.uniform() < chance:
            side, x = float(rng.choice([-1.0, 1.0])), float(rng.uniform(4, 34))
            back = (
                float(rng.uniform(1.0, pavement - 0.5))
                if kind in ("bench", "planter", "board", "bin")
                else 0.3
            )
            for i in range(int(rng.integers(1, count + 1))):
                step = 2.0 if kind == "bollard" else float(rng.uniform(5, 16))
                place(kind, x + i * step, side * (half_road + back), float(rng.uniform(0.9, 1.1)), 4.5)
    return tuple(out)
