"""Light and shade that actors throw: cast shadows, contact shadows, head lamp pools and glare."""

from __future__ import annotations

import math
from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from fovea.sim.canvas import Image
from fovea.sim.conditions import Atmosphere
from fovea.sim.mesh import Mesh, Pose, turn_matrix
from fovea.sim.person import (
    CHEST,
    ELB_L,
    ELB_R,
    FOOT_L,
    FOOT_R,
    HAND_L,
    HAND_R,
    HEAD,
    KNEE_L,
    KNEE_R,
    PELVIS,
    Body,
)
from fovea.sim.scene import Scene

_BONES = (
    (PELVIS, CHEST, 0.17),
    (PELVIS, KNEE_L, 0.08),
    (PELVIS, KNEE_R, 0.08),
    (KNEE_L, FOOT_L, 0.06),
    (KNEE_R, FOOT_R, 0.06),
    (CHEST, HEAD, 0.11),
    (CHEST, ELB_L, 0.06),
    (CHEST, ELB_R, 0.06),
    (ELB_L, HAND_L, 0.05),
    (ELB_R, HAND_R, 0.05),
)
_MAX_SHADOW = 6.0  # metres of shadow per metre of height at most


class ShadowLayer:
    """Collects the shadows of all actors at half size, then darkens bare ground once."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.camera = scene.layout.camera
        width, height = self.camera.size_px
        self.layer: Image = np.zeros((height // 2, width // 2), np.uint8)
        sun = scene.atmosphere.sun_direction
        self.has_sun = float(scene.atmosphere.sun.max()) > 0.05
        slide = -sun[:2] / max(float(sun[2]), 0.05)
        size = float(np.hypot(slide[0], slide[1]))
        self.slide = slide * min(1.0, _MAX_SHADOW / max(size, 1e-6))
        beam = float(scene.atmosphere.sun.mean()) * max(float(sun[2]), 0.1)
        self.cast = int(min(235.0, 255.0 * beam / (beam + float(scene.atmosphere.ambient.mean())) + 10))
        self.contact = 130 if "night" not in scene.atmosphere.condition else 90

    def _clear(self, pose: Pose) -> float:
        far = self.camera.distance_m(pose.x_m, pose.y_m)
        return math.exp(-self.scene.atmosphere.extinction_per_m * far)

    def _fill(self, ground_xy: NDArray[np.float64], tone: float) -> None:
        hull = cv2.convexHull(ground_xy.astype(np.float32))[:, 0].astype(np.float64)
        px = self.camera.polygon_px(np.column_stack([hull, np.zeros(len(hull))]))
        if px is not None and len(px) >= 3:
            fixed = (px * 8).clip(-1e6, 1e6).astype(np.int32)
            cv2.fillConvexPoly(self.layer, fixed, tone, cv2.LINE_8, 4)

    def add_mesh(self, mesh: Mesh, pose: Pose, sunlit: float) -> None:
        """The shadow of a vehicle."""
        turn = turn_matrix(pose.heading_rad)
        place = np.array([pose.x_m, pose.y_m, 0.0])
        long, w = mesh.length_m / 2, mesh.width_m / 2 - 0.1
        clear = self._clear(pose)
        base = np.array([(long, w, 0), (long, -w, 0), (-long, -w, 0), (-long, w, 0)]) @ turn + place
        if self.has_sun and sunlit > 0.3:
            points = mesh.vertices_m @ turn + place
            self._fill(points[:, :2] + points[:, 2:] * self.slide, self.cast * clear)
        self._fill(
            base[:, :2], clear * max(self.contact + 40, self.cast if self.has_sun and sunlit > 0.3 else 0)
        )

    def add_body(self, body: Body, pose: Pose, sunlit: float) -> None:
        """The shadow of a person."""
        points = body.joints_m @ turn_matrix(pose.heading_rad) + np.array([pose.x_m, pose.y_m, 0.0])
        scale = self.camera.focal_px / self.camera.distance_m(pose.x_m, pose.y_m) / 2
        clear = self._clear(pose)
        feet = points[[FOOT_L, FOOT_R]]
        feet[:, 2] = 0
        if self.has_sun and sunlit > 0.3:
            flat = points.copy()
            flat[:, :2] += points[:, 2:] * self.slide
            flat[:, 2] = 0
            px, depth = self.camera.project(flat)
            if depth.min() > 0.5:
                self._bones(px, scale, self.cast * clear)
        px, depth = self.camera.project(feet)
        if depth.min() > 0.5:
            axes = (max(int(0.17 * scale * 16), 12), max(int(0.08 * scale * 16), 8))
            for x, y in px:
                centre = (int(x * 8), int(y * 8))
                if abs(x) < 1e4 and abs(y) < 1e4:
                    cv2.ellipse(self.layer, centre, axes, 0, 0, 360, self.contact * clear, -1, cv2.LINE_8, 4)

    def _bones(self, px: NDArray[np.float64], scale: float, tone: float) -> None:
        fixed = (px * 8).clip(-1e6, 1e6).astype(np.int32).tolist()
        for a, b, width_m in _BONES:
            cv2.line(
                self.layer, fixed[a], fixed[b], tone, max(int(width_m * 2 * scale + 0.5), 1), cv2.LINE_8, 4
            )

    def apply(self, picture: Image) -> None:
        """Darken the bare ground of `picture` in place."""
        cv2.min(self.layer, self.scene.floor, dst=self.layer)
        x, y, w, h = cv2.boundingRect(self.layer)
        if not w:
            return
        x0, y0 = max(x - 3, 0), max(y - 3, 0)
        x1, y1 = min(x + w + 3, self.layer.shape[1]), min(y + h + 3, self.layer.shape[0])
        part = cv2.blur(self.layer[y0:y1, x0:x1], (3, 3))
        keep = cv2.bitwise_not(cv2.resize(part, None, fx=2, fy=2, interpolation=cv2.INTER_LINEAR))
        target = picture[2 * y0 : 2 * y1, 2 * x0 : 2 * x1]
        cv2.multiply(target, cv2.cvtColor(keep, cv2.COLOR_GRAY2BGR), dst=target, scale=1 / 255)


def headlight_pools(
    picture: Image, scene: Scene, vehicles: Sequence[tuple[Mesh, Pose]], strength: float
) -> None:
    """Light the ground and whatever stands there in front of vehicles, in place."""
    camera = scene.layout.camera
    height, width = picture.shape[:2]
    layer: Image = np.zeros((height // 4, width // 4), np.uint8)
    for mesh, pose in vehicles:
        front = mesh.length_m / 2
        beam = np.array(
            [
                (front + 0.4, 0.8, 0),
                (front + 5, 1.7, 0),
                (front + 14, 2.7, 0),
                (front + 20, 1.6, 0),
                (front + 20, -1.2, 0),
                (front + 14, -2.2, 0),
                (front + 5, -1.7, 0),
                (front + 0.4, -0.8, 0),
            ]
        )
        world = beam @ turn_matrix(pose.heading_rad) + np.array([pose.x_m, pose.y_m, 0.0])
        for share, tone in ((1.0, 55), (0.6, 70), (0.3, 70)):
            shape = world[:1] + (world - world[:1]) * share
            px = camera.polygon_px(shape)
            if px is not None and len(px) >= 3:
                spot = np.zeros_like(layer)
                cv2.fillPoly(spot, [(px * 4).clip(-1e6, 1e6).astype(np.int32)], tone, cv2.LINE_8, 4)
                cv2.add(layer, spot, dst=layer)
    soft = cv2.GaussianBlur(layer, (0, 0), 2.2)
    x, y, w, h = cv2.boundingRect(soft)
    if not w:
        return
    part = cv2.resize(soft[y : y + h, x : x + w], None, fx=4, fy=4, interpolation=cv2.INTER_LINEAR)
    rows, cols = slice(4 * y, 4 * (y + h)), slice(4 * x, 4 * (x + w))
    lit = cv2.multiply(scene.albedo[rows, cols], cv2.cvtColor(part, cv2.COLOR_GRAY2BGR), scale=strength / 255)
    cv2.add(picture[rows, cols], lit, dst=picture[rows, cols])


def headlight_on(x_m: float, y_m: float, vehicles: Sequence[tuple[Mesh, Pose]], strength: float) -> float:
    """Extra light on a person at a ground point from the head lamps around, 0..0.6."""
    total = 0.0
    for mesh, pose in vehicles:
        dx, dy = x_m - pose.x_m, y_m - pose.y_m
        c, s = math.cos(pose.heading_rad), math.sin(pose.heading_rad)
        ahead, aside = dx * c + dy * s - mesh.length_m / 2, abs(dy * c - dx * s)
        if 0.5 < ahead < 24 and aside < 1.0 + 0.22 * ahead:
            total += 0.45 * math.exp(-ahead / 10.0)
    return min(total, 0.6) * strength


def vehicle_glow(class_id: int, pose: Pose, atmosphere: Atmosphere) -> NDArray[np.float64]:
    """What each kind of lit face adds to its colour, [5,3] BGR."""
    glow = np.zeros((5, 3))
    power = atmosphere.headlights
    if power <= 0:
        return glow
    glow[1] = np.array([190.0, 215.0, 225.0]) * power
    glow[2] = np.array([30.0, 25.0, 150.0]) * (power * (1.6 if pose.speed_mps < 2.0 else 0.8))
    glow[3] = np.array([20.0, 110.0, 200.0]) * power
    if class_id == 5:
        glow[4] = np.array([66.0, 88.0, 96.0]) * atmosphere.window_glow
    return glow


class GlareLayer:
    """Glare of lamps around their bright spots, collected at quarter size and added once."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        width, height = scene.layout.camera.size_px
        self.layer: Image = np.zeros((height // 4, width // 4, 3), np.uint8)
        self.used = False

    def add_vehicle(self, mesh: Mesh, pose: Pose, owner: NDArray[np.int16], mark: int, power: float) -> None:
        """Lamps of a vehicle that face the camera and are not hidden."""
        camera = self.scene.layout.camera
        turn = turn_matrix(pose.heading_rad)
        dx, dy = camera.position_m[0] - pose.x_m, camera.position_m[1] - pose.y_m
        far = math.hypot(dx, dy) + 1e-6
        facing = (dx * math.cos(pose.heading_rad) + dy * math.sin(pose.heading_rad)) / far
        end = mesh.length_m / 2 * (1 if facing > 0 else -1)
        y = mesh.width_m / 2 - 0.3
        lamps = np.array([(end, y, 0.72), (end, -y, 0.72)]) @ turn + np.array([pose.x_m, pose.y_m, 0.0])
        px, depth = camera.project(lamps)
        colour = (0.78, 0.92, 1.0) if facing > 0 else (0.10, 0.08, 0.75)
        wet = self.scene.atmosphere.wetness
        reach = (4.2 if facing > 0 else 1.3) * abs(facing) ** 1.5
        for (u, v), z in zip(px, depth, strict=True):
            if (
                z < 1
                or not (0 <= u < owner.shape[1] and 0 <= v < owner.shape[0])
                or owner[int(v), int(u)] != mark
            ):
                continue
            radius = max(0.11 * reach * camera.focal_px / float(z) / 4, 0.7)
            tone = [255 * c * power for c in colour]
            cv2.circle(
                self.layer, (int(u * 4), int(v * 4)), max(int(radius * 16), 10), tone, -1, cv2.LINE_AA, 4
            )
            if wet > 0:  # the streak of the lamp in the wet street
                tail = 0.9 * camera.focal_px / float(z) / 4
                streak = [t * 0.4 * wet for t in tone]
                feet = (int(u * 4), int((v / 4 + tail) * 16))
                ends = (feet[0], int(feet[1] + tail * 2.2 * 16))
                cv2.line(self.layer, feet, ends, streak, max(int(radius), 1), cv2.LINE_8, 4)
            self.used = True

    def apply(self, picture: Image) -> None:
        """Add the glare to `picture` in place."""
        if not self.used:
            return
        soft = cv2.add(
            cv2.GaussianBlur(self.layer, (0, 0), 1.6), cv2.blur(cv2.blur(self.layer, (15, 15)), (11, 11))
        )
        spread = cv2.resize(soft, (picture.shape[1], picture.shape[0]), interpolation=cv2.INTER_LINEAR)
        cv2.scaleAdd(spread, 0.75, picture, dst=picture)
