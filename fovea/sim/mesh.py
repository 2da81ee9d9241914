"""Meshes of flat faces in a thing's own axes, and how to draw one through the camera."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fovea.sim.camera import NEAR_M, Camera, Points
from fovea.sim.canvas import Canvas, extent_of
from fovea.sim.shading import Shading

Vec = tuple[float, float, float]


@dataclass(frozen=True, slots=True, eq=False)
class Mesh:
    """Faces of a thing; own axes are x forward, y left, z up, origin on the ground below its middle.

    `glow` is 0 for painted faces, else which light it is: 1 head, 2 tail, 3 sign, 4 cabin window.
    `group` orders solids: all of a lower group is drawn before a higher one, unless `split_x_m` is
    set, when groups 0 and 1 swap by the side the camera is on.
    """

    vertices_m: Points
    starts: tuple[int, ...]
    colours: NDArray[np.float64]
    normals: NDArray[np.float64]
    anchors: Points
    glow: NDArray[np.int64]
    group: NDArray[np.int64]
    split_x_m: float | None
    length_m: float
    width_m: float
    height_m: float


class MeshBuilder:
    """Collects faces; each is turned outwards, away from the middle of the solid being built."""

    def __init__(self) -> None:
        self._faces: list[Sequence[Vec]] = []
        self._colours: list[Sequence[float]] = []
        self._normals: list[Vec] = []
        self._glow: list[int] = []
        self._group: list[int] = []
        self.middle: Vec = (0.0, 0.0, 1.0)
        self.group = 2

    def face(self, points: Sequence[Vec], colour: Sequence[float], glow: int = 0) -> None:
        """Add one flat convex face."""
        (ax, ay, az), (bx, by, bz), (cx, cy, cz) = points[0], points[1], points[2]
        ux, uy, uz, vx, vy, vz = bx - ax, by - ay, bz - az, cx - ax, cy - ay, cz - az
        nx, ny, nz = uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx
        size = math.sqrt(nx * nx + ny * ny + nz * nz) or 1.0
        count, (mx, my, mz) = len(points), self.middle
        gx, gy, gz = (sum(p[k] for p in points) / count for k in range(3))
        if nx * (gx - mx) + ny * (gy - my) + nz * (gz - mz) < 0:
            size = -size
        self._faces.append(points)
        self._colours.append(colour)
        self._normals.append((nx / size, ny / size, nz / size))
        self._glow.append(glow)
        self._group.append(self.group)

    def loft(
        self,
        profile: Sequence[tuple[float, float, float]],
        side: Sequence[float],
        strips: Sequence[Sequence[float] | None],
    ) -> None:
        """A solid from a side profile of (x, z, half width) points; `strips` colours the faces across."""
        xs = [p[0] for p in profile]
        zs = [p[1] for p in profile]
        self.middle = (sum(xs) / len(xs), 0.0, sum(zs) / len(zs))
        for sign in (-1.0, 1.0):
            self.face([(x, sign * w, z) for x, z, w in profile], side)
        for i, colour in enumerate(strips):
            if colour is None:
                continue
            (xa, za, wa), (xb, zb, wb) = profile[i], profile[(i + 1) % len(profile)]
            self.face([(xa, -wa, za), (xa, wa, za), (xb, wb, zb), (xb, -wb, zb)], colour)

    def both_sides(
        self,
        outline: Sequence[tuple[float, float]],
        y_m: float,
        colour: Sequence[float],
        glow: int = 0,
        top: tuple[float, float, float] | None = None,
    ) -> None:
        """The same (x, z) outline on the left and right side; `top` = (z0, z1, y1) tapers y towards z1."""
        for sign in (-1.0, 1.0):
            points: list[Vec] = []
            for x, z in outline:
                y = y_m
                if top is not None:
                    y = y_m + (top[2] - y_m) * (z - top[0]) / (top[1] - top[0])
                points.append((x, sign * y, z))
            self.face(points, colour, glow)

    def build(self, split_x_m: float | None = None) -> Mesh:
        """The finished mesh."""
        starts = np.concatenate([[0], np.cumsum([len(f) for f in self._faces])])
        vertices = np.array([p for face in self._faces for p in face], np.float64)
        low, high = vertices.min(axis=0), vertices.max(axis=0)
        return Mesh(
            vertices,
            tuple(int(s) for s in starts),
            np.array(self._colours, np.float64),
            np.array(self._normals),
            np.array([f[0] for f in self._faces]),
            np.array(self._glow),
            np.array(self._group),
            split_x_m,
            float(high[0] - low[0]),
            float(high[1] - low[1]),
            float(high[2]),
        )


@dataclass(frozen=True, slots=True)
class Pose:
    """Where a thing stands: ground position, heading (radians left of +x), distance walked or rolled."""

    x_m: float
    y_m: float
    heading_rad: float
    travelled_m: float = 0.0
    speed_mps: float = 0.0


def turn_matrix(heading_rad: float) -> Points:
    """Rotation [3,3] taking own axes to world axes (as row vectors: world = own @ m)."""
    c, s = float(np.cos(heading_rad)), float(np.sin(heading_rad))
    return np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])


def draw_mesh(
    mesh: Mesh, pose: Pose, camera: Camera, shading: Shading, glow: NDArray[np.float64]
) -> Canvas | None:
    """Draw a mesh at a pose; `glow` [5,3] is the BGR colour each light adds, NaN-free, zero when off.

    None when it is behind the camera.
    """
    turn = turn_matrix(pose.heading_rad)
    place = np.array([pose.x_m, pose.y_m, 0.0])
    view = camera.to_view(mesh.vertices_m @ turn + place)
    depth = view[:, 2]
    is_near = bool(depth.min() < NEAR_M)
    if is_near and depth.max() < NEAR_M:
        return None
    clamped = view.copy()
    np.maximum(clamped[:, 2], NEAR_M, out=clamped[:, 2])
    px = camera.view_to_px(clamped)
    extent = extent_of(px)
    width, height = camera.size_px
    if extent[2] < 0 or extent[3] < 0 or extent[0] > width or extent[1] > height:
        return None
    canvas = Canvas(camera, extent)
    eye = (camera.position_m - place) @ turn.T
    shows = ((eye - mesh.anchors) * mesh.normals).sum(axis=1) > 0.0
    colours = shading.faces(mesh.colours, mesh.normals @ turn)
    lit = glow[mesh.glow]
    colours = (colours + lit).clip(0, 255).tolist()
    fixed = canvas.fixed(px)
    for index in _order(mesh, shows, eye):
        a, b = mesh.starts[index], mesh.starts[index + 1]
        if is_near and depth[a:b].min() < NEAR_M:
            world = mesh.vertices_m[a:b] @ turn + place
            points = camera.polygon_px(world)
            if points is not None and len(points) >= 3:
                canvas.polygon(points, colours[index])
        else:
            canvas.convex_fixed(fixed[a:b], colours[index])
    return canvas


def _order(mesh: Mesh, shows: NDArray[np.bool_], eye: Points) -> list[int]:
    group = mesh.group
    if mesh.split_x_m is not None and eye[0] < mesh.split_x_m:
        group = np.where(group == 0, 1, np.where(group == 1, 0, group))
    seen = np.flatnonzero(shows)
    ordered: list[int] = seen[np.argsort(group[seen], kind="stable")].tolist()
    return ordered


def ground_outline(mesh: Mesh, pose: Pose) -> tuple[float, float, float, float]:
    """The (x0, y0, x1, y1) in metres that a mesh covers on the ground."""
    c, s = abs(float(np.cos(pose.heading_rad))), abs(float(np.sin(pose.heading_rad)))
    hx = (mesh.length_m * c + mesh.width_m * s) / 2
    hy = (mesh.length_m * s + mesh.width_m * c) / 2
    return pose.x_m - hx, pose.y_m - hy, pose.x_m + hx, pose.y_m + hy
