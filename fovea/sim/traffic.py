"""Who is on the street in one clip and how they move, without running into each other."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fovea.sim.cyclist import Bicycle, random_bicycle
from fovea.sim.layout import FAR_M, Lane, Layout
from fovea.sim.mesh import Mesh
from fovea.sim.motion import AlongLane, Flow, Motion, Stand, Walk
from fovea.sim.person import Look, random_look
from fovea.sim.vehicle import BUILDERS

PERSON, BICYCLE, CAR, BUS, TRUCK = 0, 1, 2, 5, 7


@dataclass(frozen=True, slots=True, eq=False)
class Actor:
    """One moving thing. A cyclist is one actor with a look and a bicycle, and carries two labels."""

    track_id: int
    motion: Motion
    mesh: Mesh | None = None
    class_id: int = PERSON
    look: Look | None = None
    bicycle: Bicycle | None = None


@dataclass(slots=True)
class _Draft:
    motion: Motion
    length_m: float
    width_m: float
    lane: int  # those of one lane never meet; -1 for people on foot, who may
    mesh: Mesh | None = None
    class_id: int = PERSON
    look: Look | None = None
    bicycle: Bicycle | None = None


def populate(
    layout: Layout, rng: np.random.Generator, duration_s: float, is_warm: bool, first_id: int
) -> tuple[Actor, ...]:
    """Draw the actors of one clip; their ids start at `first_id`."""
    busy = float(rng.uniform(0, 1))
    vehicles = 0.0 if busy < 0.09 else float(rng.uniform(0.1, 1.0)) ** 1.2
    people = 0.0 if busy < 0.09 or busy > 0.97 else float(rng.uniform(0.08, 1.0)) ** 1.2
    period = float(rng.uniform(18, 26))
    phase = float(rng.uniform(0, period))
    drafts: list[_Draft] = []
    for index, lane in enumerate(layout.lanes):
        drafts += _lane_traffic(layout, lane, index, rng, duration_s, vehicles, period, phase, is_warm)
    walkers = _walkers(layout, rng, duration_s, people, is_warm)
    walkers += _crossers(layout, rng, duration_s, people, period, phase, is_warm)
    everyone = _without_collisions(drafts + walkers, duration_s)
    return tuple(
        Actor(first_id + 2 * i, d.motion, d.mesh, d.class_id, d.look, d.bicycle)
        for i, d in enumerate(everyone)
    )


def _lane_traffic(
    layout: Layout,
    lane: Lane,
    index: int,
    rng: np.random.Generator,
    duration_s: float,
    density: float,
    period: float,
    phase: float,
    is_warm: bool,
) -> list[_Draft]:
    half = 68.0 if lane.is_cross else FAR_M - 4
    if lane.is_cross:
        start = (lane.centre_m, -half * lane.way)
        heading, length = math.pi / 2 * lane.way, 2 * half
    else:
        start = (-18.0, lane.centre_m) if lane.way > 0 else (half, lane.centre_m)
        heading, length = (0.0 if lane.way > 0 else math.pi), half + 18
    stops = layout.zebra_x_m is not None or layout.junction_x_m is not None
    is_cycle = lane.kind == "cycle"
    cruise = (
        float(rng.uniform(3.6, 5.8))
        if is_cycle
        else float(rng.uniform(6.0, 12.0)) * (0.7 if lane.is_cross else 1)
    )
    depth = float(rng.uniform(0.9, 1.0)) if stops and not is_cycle else float(rng.uniform(0.0, 0.25))
    flow = Flow(cruise, depth, period, phase + (period / 2 if lane.is_cross else 0.0))
    first, last = flow.progress_m(0.0), flow.progress_m(duration_s)
    out: list[_Draft] = []
    offset = -last - float(rng.uniform(0, 20))
    mean_gap = (9.0 + 55.0 * (1 - density) ** 1.5) * (2.2 if is_cycle or lane.is_cross else 1.0)
    while offset < length - first and density > 0:
        draft, room = _vehicle(rng, index, is_cycle, is_warm)
        offset += room / 2
        draft.motion = AlongLane(
            start, heading, length, offset, flow, float(rng.uniform(0.02, 0.22)), float(rng.uniform(0, 6))
        )
        if not _stops_on_crossing(layout, lane, offset, flow, room, duration_s):
            out.append(draft)
        offset += room / 2 + 1.8 + float(rng.exponential(mean_gap))
    return out


def _vehicle(rng: np.random.Generator, lane: int, is_cycle: bool, is_warm: bool) -> tuple[_Draft, float]:
    nowhere = Stand(0, 0, 0, 0)
    if is_cycle or rng.uniform() < 0.13:
        rider = random_look(rng, is_warm)
        return _Draft(nowhere, 1.8, 0.7, lane, None, BICYCLE, rider, random_bicycle(rng)), 2.4
    kind = int(rng.choice([CAR, BUS, TRUCK], p=[0.62, 0.16, 0.22]))
    mesh = BUILDERS[kind](rng)
    return _Draft(nowhere, mesh.length_m, mesh.width_m, lane, mesh, kind), mesh.length_m


def _stops_on_crossing(
    layout: Layout, lane: Lane, offset: float, flow: Flow, room: float, duration_s: float
) -> bool:
    """Whether a vehicle would come to rest on the zebra or inside the junction."""
    if flow.depth < 0.5:
        return False
    zones: list[tuple[float, float]] = []
    if lane.is_cross:
        zones.append((-layout.half_road_m - 1.0, layout.half_road_m + 1.0))
    else:
        if layout.zebra_x_m is not None:
            zones.append((layout.zebra_x_m - 0.8, layout.zebra_x_m + 4.8))
        if layout.junction_x_m is not None:
            reach = layout.half_cross_m + 0.8
            zones.append((layout.junction_x_m - reach, layout.junction_x_m + reach))
    count = int(duration_s / flow.period_s) + 3
    for k in range(-1, count):
        along = offset + flow.progress_m(flow.phase_s + k * flow.period_s)
        place = along - 68.0 if lane.is_cross else (-18.0 + along if lane.way > 0 else FAR_M - 4 - along)
        place = place * lane.way if lane.is_cross else place
        if any(a - room / 2 < place < b + room / 2 for a, b in zones):
            return True
    return False


def _walkers(
    layout: Layout, rng: np.random.Generator, duration_s: float, density: float, is_warm: bool
) -> list[_Draft]:
    out: list[_Draft] = []
    keep = layout.pavement_m - 0.5
    camera = layout.camera.position_m
    for side in (-1.0, 1.0):
        for _ in range(int(rng.poisson(24 * density))):
            y = side * (layout.half_road_m + 0.7 + float(rng.uniform(0, max(keep - 0.9, 0.2))))
            way = 1.0 if rng.uniform() < 0.5 else -1.0
            speed = float(np.clip(rng.normal(1.35, 0.25), 0.7, 2.6))
            reach = float(rng.choice([60, 100, 150], p=[0.6, 0.25, 0.15]))
            begin, end = (-8.0, reach) if way > 0 else (reach, -8.0)
            start_s = float(rng.uniform(-reach / speed, duration_s))
            for j in range(_group(rng)):
                y_now = y + 0.55 * j * (-side)
                points = ((begin, y_now), (end, y_now))
                motion = Walk(
                    points,
                    speed,
                    start_s + float(rng.normal(0, 0.25)) * (j > 0),
                    0.15,
                    float(rng.uniform(0, 6)),
                )
                out.append(_Draft(motion, 0.5, 0.5, -1, look=random_look(rng, is_warm)))
    for _ in range(int(rng.poisson(7 * density))):
        side = 1.0 if rng.uniform() < 0.5 else -1.0
        x = float(rng.uniform(5, 45))
        y = side * (layout.half_road_m + float(rng.uniform(0.5, layout.pavement_m - 0.4)))
        if abs(x - camera[0]) < 5 and abs(y - camera[1]) < 3:
            continue
        count, ring = _group(rng), float(rng.uniform(0, 6.3))
        for j in range(count):
            a = ring + 2 * math.pi * j / max(count, 1)
            r = 0.42 if count > 1 else 0.0
            place = Stand(x + r * math.cos(a), y + r * math.sin(a), a + math.pi, float(rng.uniform(0, 6)))
            out.append(_Draft(place, 0.5, 0.5, -1, look=random_look(rng, is_warm)))
    return out


def _group(rng: np.random.Generator) -> int:
    return int(rng.choice([1, 2, 3, 4], p=[0.66, 0.24, 0.07, 0.03]))


def _crossers(
    layout: Layout,
    rng: np.random.Generator,
    duration_s: float,
    density: float,
    period: float,
    phase: float,
    is_warm: bool,
) -> list[_Draft]:
    out: list[_Draft] = []
    half = layout.half_road_m
    for _ in range(int(rng.poisson(10 * density))):
        side = 1.0 if rng.uniform() < 0.5 else -1.0
        speed = float(rng.uniform(1.2, 1.8))
        if layout.zebra_x_m is not None:
            x = layout.zebra_x_m + float(rng.uniform(0.5, 3.5))
            k = int(rng.integers(0, int(duration_s / period) + 2))
            middle_s = phase + (k - 1) * period + float(rng.uniform(-1.2, 1.2))
        else:
            x, middle_s = float(rng.uniform(10, 50)), float(rng.uniform(0, duration_s))
        lead = float(rng.uniform(4, 15)) * float(rng.choice([-1.0, 1.0]))
        walk = half + layout.pavement_m * 0.5
        points = ((x + lead, side * walk), (x, side * walk), (x, -side * walk), (x - lead, -side * walk))
        start = middle_s - (abs(lead) + walk) / speed
        for j in range(_group(rng)):
            shifted = tuple((px + 0.5 * j, py + 0.2 * j) for px, py in points)
            motion = Walk(shifted, speed, start + 0.2 * j, 0.08, float(rng.uniform(0, 6)))
            out.append(_Draft(motion, 0.5, 0.5, -1, look=random_look(rng, is_warm)))
    return out


def _without_collisions(drafts: list[_Draft], duration_s: float) -> list[_Draft]:
    """Drop whoever would drive into, or be run over by, somebody listed before."""
    if not drafts:
        return drafts
    times: list[float] = np.arange(-0.2, duration_s + 0.2, 0.5).tolist()
    count = len(drafts)
    nowhere = (1e6, 1e6, 1e6, 1e6)
    rows: list[tuple[float, float, float, float]] = []
    for i, draft in enumerate(drafts):
        away = (1e6 + i * 1e3, *nowhere[1:])
        for time_s in times:
            pose = draft.motion.pose_at(time_s)
            if pose is None:
                rows.append(away)
                continue
            c, s = abs(math.cos(pose.heading_rad)), abs(math.sin(pose.heading_rad))
            half_x = (draft.length_m * c + draft.width_m * s) / 2 + 0.25
            half_y = (draft.length_m * s + draft.width_m * c) / 2 + 0.2
            rows.append((pose.x_m, pose.y_m, half_x, half_y))
    place = np.array(rows).reshape(count, len(times), 4)
    lanes = np.array([d.lane for d in drafts])
    keep = np.ones(count, bool)
    for i in range(1, count):
        others = np.flatnonzero(keep[:i] & (lanes[:i] != lanes[i]))
        if not len(others):
            continue
        gap = np.abs(place[others, :, :2] - place[i, None, :, :2]) - (
            place[others, :, 2:] + place[i, None, :, 2:]
        )
        here = (place[others, :, 0] < 1e5) & (place[i, None, :, 0] < 1e5)
        if ((gap < 0).all(axis=2) & here).any():
            keep[i] = False
    return [d for d, k in zip(drafts, keep, strict=True) if k]
