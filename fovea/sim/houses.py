"""Paints houses into the standing picture and keeps where every pixel of it lies in the world."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from fovea.sim.camera import Camera, Points
from fovea.sim.canvas import Box, Image
from fovea.sim.conditions import Atmosphere
from fovea.sim.facade import paint_facade
from fovea.sim.ground import Plane
from fovea.sim.layout import Building, Layout
from fovea.sim.order import far_to_near

ROOFS: tuple[tuple[float, float, float], ...] = ((62, 74, 128), (70, 72, 78), (58, 62, 96), (84, 88, 92))


@dataclass(slots=True, eq=False)
class Surface:
    """The seen surface per pixel: albedo, glow, facing to the sun, distance and place."""

    camera: Camera
    albedo: Image
    glow: Image
    sun: Plane
    distance: Plane
    xs: Plane
    ys: Plane
    zs: Plane
    is_ground: NDArray[np.bool_]

    @classmethod
    def of_ground(cls, camera: Camera, albedo: Image, xs: Plane, ys: Plane, sun_z: float) -> Surface:
        """Start with bare ground; pixels at or above the horizon are at distance 1e4."""
        p = camera.position_m.astype(np.float32)
        distance = np.sqrt((xs - p[0]) ** 2 + (ys - p[1]) ** 2 + p[2] ** 2)
        m = camera.ground_plane()
        v = np.arange(camera.size_px[1])[:, None] + 0.5
        u = np.arange(camera.size_px[0])[None] + 0.5
        above = (m[2, 0] * u + m[2, 1] * v + m[2, 2]) <= 1e-4
        distance[above] = 1e4
        return cls(
            camera,
            albedo,
            np.zeros_like(albedo),
            np.full(xs.shape, sun_z, np.float32),
            distance,
            xs.copy(),
            ys.copy(),
            np.zeros_like(xs),
            ~above,
        )

    def wall(
        self,
        origin: Points,
        u_axis: Points,
        v_axis: Points,
        corners: Points,
        albedo: Image,
        glow: Image,
        px_per_m: float,
        sun: float,
    ) -> tuple[Box, Image] | None:
        """Hang a texture (row 0 on top, so v points down) on the polygon `corners` [N,3]; its box and mask."""
        px = self.camera.polygon_px(corners)
        if px is None or len(px) < 3:
            return None
        height, width = self.sun.shape
        x0, y0 = np.floor(px.min(axis=0)).astype(int)
        x1, y1 = np.ceil(px.max(axis=0)).astype(int) + 1
        x0, y0, x1, y1 = max(int(x0), 0), max(int(y0), 0), min(int(x1), width), min(int(y1), height)
        if x1 - x0 < 1 or y1 - y0 < 1:
            return None
        mask: Image = np.zeros((y1 - y0, x1 - x0), np.uint8)
        cv2.fillPoly(mask, [((px - (x0, y0)) * 16).clip(-2e6, 2e6).astype(np.int32)], 255, cv2.LINE_8, 4)
        plane = self.camera.plane(origin, u_axis, v_axis)
        move = np.array([[1, 0, x0 + 0.5], [0, 1, y0 + 0.5], [0, 0, 1.0]])
        to_texture = np.diag([px_per_m, px_per_m, 1.0]) @ plane @ move
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        size = (x1 - x0, y1 - y0)
        rows, cols = slice(y0, y1), slice(x0, x1)
        inside = mask > 0
        for target, texture in ((self.albedo, albedo), (self.glow, glow)):
            hung = cv2.warpPerspective(
                texture, to_texture, size, flags=flags, borderMode=cv2.BORDER_REPLICATE
            )
            np.copyto(target[rows, cols], hung, where=inside[:, :, None])
        self._place(rows, cols, inside, plane, origin, u_axis, v_axis)
        np.copyto(self.sun[rows, cols], np.float32(sun), where=inside)
        self.is_ground[rows, cols] &= ~inside
        return (x0, y0, x1, y1), mask

    def _place(
        self,
        rows: slice,
        cols: slice,
        inside: NDArray[np.bool_],
        plane: Points,
        origin: Points,
        u_axis: Points,
        v_axis: Points,
    ) -> None:
        u = np.arange(cols.start, cols.stop, dtype=np.float32)[None] + 0.5
        v = np.arange(rows.start, rows.stop, dtype=np.float32)[:, None] + 0.5
        m = plane.astype(np.float32)
        w = np.maximum(m[2, 0] * u + m[2, 1] * v + m[2, 2], 1e-5)
        a = (m[0, 0] * u + m[0, 1] * v + m[0, 2]) / w
        b = (m[1, 0] * u + m[1, 1] * v + m[1, 2]) / w
        square = np.zeros_like(a)
        for k, target in enumerate((self.xs, self.ys, self.zs)):
            value = np.float32(origin[k]) + a * np.float32(u_axis[k]) + b * np.float32(v_axis[k])
            np.copyto(target[rows, cols], value, where=inside)
            square += (value - np.float32(self.camera.position_m[k])) ** 2
        np.copyto(self.distance[rows, cols], np.sqrt(square), where=inside)


def paint_houses(
    surface: Surface, layout: Layout, atmosphere: Atmosphere
) -> list[tuple[tuple[float, float, float, float], Box, Image]]:
    """Paint all houses far to near; ground box, frame box and mask of each that is seen."""
    eye = surface.camera.position_m
    feet = np.array([(b.x0_m, b.y0_m, b.x1_m, b.y1_m) for b in layout.buildings])
    everywhere = np.tile(np.array([0.0, 0.0, 1.0, 1.0]), (len(feet), 1))
    out = []
    for index in far_to_near(feet, everywhere, eye[:2]):
        house = layout.buildings[index]
        parts = _house(surface, house, atmosphere)
        if parts:
            x0, y0 = min(p[0][0] for p in parts), min(p[0][1] for p in parts)
            x1, y1 = max(p[0][2] for p in parts), max(p[0][3] for p in parts)
            mask = np.zeros((y1 - y0, x1 - x0), np.uint8)
            for box, part in parts:
                view = mask[box[1] - y0 : box[3] - y0, box[0] - x0 : box[2] - x0]
                np.maximum(view, part, out=view)
            out.append(((house.x0_m, house.y0_m, house.x1_m, house.y1_m), (x0, y0, x1, y1), mask))
    return out


def _house(surface: Surface, house: Building, atmosphere: Atmosphere) -> list[tuple[Box, Image]]:
    eye = surface.camera.position_m
    rng = np.random.default_rng(house.seed)
    parts: list[tuple[Box, Image]] = []
    if house.roof_m > 0:
        part = _roof(surface, house, atmosphere, rng)
        if part is not None:
            parts.append(part)
    shop = bool(rng.uniform() < 0.55)
    x0, x1, y0, y1, h = house.x0_m, house.x1_m, house.y0_m, house.y1_m, house.height_m
    walls: list[tuple[tuple[float, float], tuple[float, float], tuple[float, float]]] = []
    if eye[0] < x0:
        walls.append(((x0, y1), (x0, y0), (-1.0, 0.0)))
    if eye[0] > x1:
        walls.append(((x1, y0), (x1, y1), (1.0, 0.0)))
    if eye[1] < y0:
        walls.append(((x0, y0), (x1, y0), (0.0, -1.0)))
    if eye[1] > y1:
        walls.append(((x1, y1), (x0, y1), (0.0, 1.0)))
    for (ax, ay), (bx, by), (nx, ny) in walls:
        part = _wall(surface, house, (ax, ay), (bx, by), (nx, ny), h, shop and ny != 0, atmosphere)
        if part is not None:
            parts.append(part)
    return parts


def _wall(
    surface: Surface,
    house: Building,
    a: tuple[float, float],
    b: tuple[float, float],
    normal: tuple[float, float],
    height_m: float,
    shop: bool,
    atmosphere: Atmosphere,
) -> tuple[Box, Image] | None:
    camera = surface.camera
    along = np.array([b[0] - a[0], b[1] - a[1], 0.0])
    length = float(np.linalg.norm(along))
    middle = (np.array(a) + np.array(b)) / 2
    nearest = max(camera.distance_m(float(middle[0]), float(middle[1]), 3.0) - length * 0.35, 6.0)
    px_per_m = float(np.clip(camera.focal_px / nearest * 0.8, 4.0, 34.0))
    origin = np.array([a[0], a[1], height_m])
    corners = np.array([(a[0], a[1], 0), (b[0], b[1], 0), (b[0], b[1], height_m), (a[0], a[1], height_m)])
    if normal[1] == 0 and house.roof_m > 0:  # the gable
        corners = np.insert(corners, 3, (middle[0], middle[1], height_m + house.roof_m), axis=0)
    px = camera.polygon_px(corners)
    if px is None or px[:, 0].max() < 0 or px[:, 0].min() > camera.size_px[0] or px[:, 1].max() < 0:
        return None
    albedo, glow = paint_facade(length, height_m, px_per_m, house.seed, shop)
    direction = atmosphere.sun_direction
    sun = max(float(normal[0] * direction[0] + normal[1] * direction[1]), 0.0)
    dim = 0.86 if normal[1] == 0 else 0.94
    return surface.wall(
        origin,
        along / length,
        np.array([0.0, 0.0, -1.0]),
        corners,
        cv2.multiply(albedo, (dim, dim, dim, 0)),
        glow,
        px_per_m,
        sun,
    )


def _roof(
    surface: Surface, house: Building, atmosphere: Atmosphere, rng: np.random.Generator
) -> tuple[Box, Image] | None:
    towards = 1.0 if surface.camera.position_m[1] > (house.y0_m + house.y1_m) / 2 else -1.0
    front = house.y1_m if towards > 0 else house.y0_m
    ridge = (house.y0_m + house.y1_m) / 2
    h, top = house.height_m, house.height_m + house.roof_m
    x0, x1 = house.x0_m, house.x1_m
    eaves = front + towards * 0.3
    corners = np.array([(x0, eaves, h - 0.1), (x1, eaves, h - 0.1), (x1, ridge, top), (x0, ridge, top)])
    slope = np.array([0.0, front - ridge, h - top])
    length = float(np.linalg.norm(slope))
    colour = np.array(ROOFS[int(rng.integers(len(ROOFS)))], np.float64)
    colour = colour + (238 - colour) * atmosphere.snow_cover * 0.9
    texture = np.full((max(int(length * 8), 2), max(int((x1 - x0) * 8), 2), 3), 0, np.uint8)
    shade = rng.uniform(0.92, 1.06, (texture.shape[0], 1, 1))
    texture[:] = (colour * shade).clip(0, 255).astype(np.uint8)
    normal = np.array([0.0, towards * house.roof_m, abs(front - ridge)])
    normal /= np.linalg.norm(normal)
    return surface.wall(
        np.array([x0, ridge, top]),
        np.array([1.0, 0, 0]),
        slope / length,
        corners,
        texture,
        np.zeros_like(texture),
        8.0,
        max(float(normal @ atmosphere.sun_direction), 0.0),
    )
