"""People: a jointed body in three dimensions, walking or standing, drawn as tapered limbs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fovea.sim.camera import NEAR_M, Camera, Points
from fovea.sim.canvas import Canvas, extent_of
from fovea.sim.mesh import Pose, turn_matrix
from fovea.sim.shading import Shading

Bgr = tuple[float, float, float]
Pair = tuple[float, float]

SKINS: tuple[Bgr, ...] = ((168, 192, 226), (140, 170, 214), (106, 140, 190), (70, 98, 142), (44, 62, 96))
HAIRS: tuple[Bgr, ...] = (
    (28, 26, 28),
    (34, 44, 62),
    (48, 74, 108),
    (96, 148, 190),
    (150, 152, 154),
    (40, 60, 120),
)
COATS: tuple[Bgr, ...] = (
    (42, 40, 40),
    (34, 33, 34),
    (72, 52, 42),
    (96, 70, 52),
    (96, 96, 98),
    (140, 138, 136),
    (60, 84, 108),
    (52, 70, 60),
    (214, 212, 208),
    (190, 186, 180),
    (44, 40, 140),
    (40, 50, 176),
    (150, 90, 44),
    (90, 120, 60),
    (60, 170, 215),
    (150, 110, 190),
    (40, 110, 215),
    (160, 160, 70),
    (120, 140, 160),
    (80, 60, 110),
)
LEGS: tuple[Bgr, ...] = (
    (40, 38, 38),
    (52, 46, 42),
    (92, 66, 48),
    (112, 84, 60),
    (74, 74, 76),
    (100, 118, 136),
    (62, 70, 80),
    (150, 152, 154),
    (46, 56, 70),
)
SHOES: tuple[Bgr, ...] = ((30, 30, 32), (40, 50, 66), (208, 208, 206), (70, 70, 72))


@dataclass(frozen=True, slots=True)
class Look:
    """One person's body and clothes."""

    height_m: float
    girth: float
    skin: Bgr
    hair: Bgr
    coat: Bgr
    legs: Bgr
    shoes: Bgr
    skirt_m: float  # length of a skirt or coat below the hips, 0 for none
    bare_legs: bool
    bare_arms: bool
    hat: Bgr | None
    pack: Bgr | None
    bag: Bgr | None
    long_hair: bool


def random_look(rng: np.random.Generator, is_warm: bool) -> Look:
    """Draw a person; `is_warm` weather allows bare arms and legs."""

    def one(options: tuple[Bgr, ...]) -> Bgr:
        c = options[int(rng.integers(len(options)))]
        k = float(rng.uniform(0.8, 1.2))
        return min(c[0] * k, 250.0), min(c[1] * k, 250.0), min(c[2] * k, 250.0)

    child = float(rng.uniform()) < 0.09
    skirt = float(rng.uniform())
    return Look(
        height_m=float(rng.uniform(1.1, 1.45))
        if child
        else min(max(float(rng.normal(1.70, 0.085)), 1.5), 1.93),
        girth=float(rng.uniform(0.86, 1.22)),
        skin=one(SKINS),
        hair=one(HAIRS),
        coat=one(COATS),
        legs=one(LEGS),
        shoes=one(SHOES),
        skirt_m=0.36 if skirt < 0.10 else 0.24 if skirt < 0.28 else 0.0,
        bare_legs=is_warm and float(rng.uniform()) < 0.3,
        bare_arms=is_warm and float(rng.uniform()) < 0.5,
        hat=one(COATS) if float(rng.uniform()) < (0.12 if is_warm else 0.45) else None,
        pack=one(COATS) if float(rng.uniform()) < 0.2 else None,
        bag=one(COATS) if float(rng.uniform()) < 0.22 else None,
        long_hair=float(rng.uniform()) < 0.4,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """Joints in own axes (x forward, y left, z up), metres; rows are named by the constants below."""

    joints_m: Points
    lean: float


HIP_L, KNEE_L, FOOT_L, TOE_L, HIP_R, KNEE_R, FOOT_R, TOE_R = range(8)
SHO_L, ELB_L, HAND_L, SHO_R, ELB_R, HAND_R, NECK, HEAD, PELVIS, CHEST = range(8, 18)


def walking(look: Look, pose: Pose) -> Body:
    """The body mid-stride, or standing when the speed is 0."""
    h = look.height_m
    stride = 0.82 * h
    phase = 2 * math.pi * pose.travelled_m / stride
    swing = min(pose.speed_mps / 1.3, 1.7)
    amp = 0.41 * min(swing, 1.25)
    hip_z = 0.53 * h - 0.012 * h * swing * (0.5 - 0.5 * math.cos(2 * phase))
    w = 0.055 * h * look.girth
    rows: list[tuple[float, float, float]] = []
    for side, turn in ((1.0, 0.0), (-1.0, math.pi)):
        a = amp * math.sin(phase + turn)
        bend = amp * (0.35 + 1.15 * max(0.0, math.cos(phase + turn))) if swing > 0 else 0.04
        rows += _leg(h, side * w, hip_z, a, bend)
    shoulder_z, sw = hip_z + 0.29 * h, 0.115 * h * (0.85 + 0.15 * look.girth)
    lean = 0.03 + 0.05 * max(swing - 1.0, 0)
    for side, turn in ((1.0, math.pi), (-1.0, 0.0)):
        rows += _arm(
            h, side * sw, shoulder_z, 0.8 * amp * math.sin(phase + turn), 0.25 + 0.5 * max(swing - 1, 0), lean
        )
    top = shoulder_z + 0.035 * h
    rows += [
        (lean * h * 0.3, 0, top),
        (lean * h * 0.4 + 0.012, 0, hip_z + 0.405 * h),
        (0, 0, hip_z),
        (lean * h * 0.25, 0, shoulder_z),
    ]
    return Body(np.array(rows), lean)


def _leg(h: float, y: float, hip_z: float, angle: float, bend: float) -> list[tuple[float, float, float]]:
    thigh, shank = 0.245 * h, 0.245 * h
    kx, kz = thigh * math.sin(angle), hip_z - thigh * math.cos(angle)
    low = angle - bend
    fx, fz = kx + shank * math.sin(low), kz - shank * math.cos(low)
    fz = max(fz, 0.035 * h)
    return [(0, y, hip_z), (kx, y, kz), (fx, y, fz), (fx + 0.105 * h, y * 1.1, max(fz - 0.03 * h, 0.012))]


def _arm(
    h: float, y: float, z: float, angle: float, bend: float, lean: float
) -> list[tuple[float, float, float]]:
    upper, fore = 0.17 * h, 0.19 * h
    x0 = lean * h * 0.25
    ex, ez = x0 + upper * math.sin(angle), z - upper * math.cos(angle)
    up = angle + bend
    return [(x0, y, z), (ex, y * 1.14, ez), (ex + fore * math.sin(up), y * 1.12, ez - fore * math.cos(up))]


def draw_person(look: Look, body: Body, pose: Pose, camera: Camera, shading: Shading) -> Canvas | None:
    """Draw one person; None when outside the view."""
    turn = turn_matrix(pose.heading_rad)
    place = np.array([pose.x_m, pose.y_m, 0.0])
    view = camera.to_view(body.joints_m @ turn + place)
    if view[:, 2].min() < NEAR_M:
        return None
    px = camera.view_to_px(view)
    scale = camera.focal_px / float(view[PELVIS, 2])  # px per metre at the body
    extent = extent_of(px, 0.13 * look.height_m * scale)
    width, height = camera.size_px
    if extent[2] < 0 or extent[3] < 0 or extent[0] > width or extent[1] > height:
        return None
    canvas = Canvas(camera, extent)
    away = np.array([camera.position_m[0] - pose.x_m, camera.position_m[1] - pose.y_m]) @ turn[:2, :2].T
    away = away / (float(np.hypot(away[0], away[1])) + 1e-9)
    points: list[Pair] = [(x, y) for x, y in px.tolist()]
    _Figure(canvas, points, scale * look.height_m, look, shading, float(away[0]), float(away[1])).draw()
    return canvas


def _mix(a: Pair, b: Pair, k: float) -> Pair:
    return a[0] + (b[0] - a[0]) * k, a[1] + (b[1] - a[1]) * k


class _Figure:
    """Draws the parts of one person in the right order. `size` is the body height in px."""

    def __init__(
        self,
        canvas: Canvas,
        px: list[Pair],
        size: float,
        look: Look,
        shading: Shading,
        facing: float,
        leftness: float,
    ) -> None:
        self.canvas, self.px, self.size, self.look = canvas, px, size, look
        self.facing, self.leftness = facing, leftness  # towards the camera: front / left side
        coat = look.coat
        palette = np.array(
            [
                look.skin,
                look.hair,
                coat,
                look.legs,
                look.shoes,
                look.hat or coat,
                look.pack or coat,
                look.bag or coat,
            ]
        )
        self.light: list[list[float]] = shading.flat(palette, 0.75).tolist()
        self.dim: list[list[float]] = shading.flat(palette * 0.74, 0.25).tolist()
        ahead = px[TOE_L][0] - px[FOOT_L][0]
        self.way = -1.0 if ahead < 0 else 1.0  # which way on the screen the person faces

    def draw(self) -> None:
        far, near = ("r", "l") if self.leftness > 0 else ("l", "r")
        self._arm(far, self.dim)
        if self.look.pack and self.facing > 0.2:
            self._pack()
        self._leg(far, self.dim)
        self._leg(near, self.light)
        self._torso()
        if self.look.pack and self.facing <= 0.2:
            self._pack()
        self._arm(near, self.light)
        self._head()

    def _limb(self, a: int, b: int, wa: float, wb: float, colour: list[float]) -> None:
        p, q = self.px[a], self.px[b]
        if self.size < 110:
            self.canvas.line(p, q, (wa + wb) / 2 * self.size, colour)
            return
        dx, dy = q[0] - p[0], q[1] - p[1]
        long = math.hypot(dx, dy) + 1e-6
        nx, ny = -dy / long * self.size / 2, dx / long * self.size / 2
        self.canvas.convex(
            [
                (p[0] + nx * wa, p[1] + ny * wa),
                (p[0] - nx * wa, p[1] - ny * wa),
                (q[0] - nx * wb, q[1] - ny * wb),
                (q[0] + nx * wb, q[1] + ny * wb),
            ],
            colour,
        )
        self.canvas.disc(q, wb * self.size / 2, colour)
        self.canvas.disc(p, wa * self.size / 2, colour)

    def _leg(self, side: str, tone: list[list[float]]) -> None:
        hip, knee, foot, toe = (
            (HIP_L, KNEE_L, FOOT_L, TOE_L) if side == "l" else (HIP_R, KNEE_R, FOOT_R, TOE_R)
        )
        g = self.look.girth
        shin = tone[0] if self.look.bare_legs else tone[3]
        self._limb(foot, toe, 0.042, 0.034, tone[4])
        self._limb(knee, foot, 0.058 * g, 0.040, shin)
        self._limb(hip, knee, 0.092 * g, 0.062 * g, tone[3])

    def _arm(self, side: str, tone: list[list[float]]) -> None:
        sho, elb, hand = (SHO_L, ELB_L, HAND_L) if side == "l" else (SHO_R, ELB_R, HAND_R)
        fore = tone[0] if self.look.bare_arms else [c * 0.93 for c in tone[2]]
        self._limb(elb, hand, 0.044, 0.032, fore)
        self.canvas.disc(self.px[hand], 0.020 * self.size, tone[0])
        self._limb(sho, elb, 0.058 * self.look.girth**0.5, 0.046, [c * 0.96 for c in tone[2]])
        if self.look.bag and side == "r":
            x, y = self.px[hand]
            w, h = 0.05 * self.size, 0.10 * self.size
            self.canvas.convex([(x - w, y), (x + w, y), (x + w * 1.1, y + h), (x - w * 1.1, y + h)], tone[7])

    def _torso(self) -> None:
        px, s, g = self.px, self.size, self.look.girth
        (nx, ny), (cx, cy), (px_, py_) = px[NECK], px[CHEST], px[PELVIS]
        ax, ay = cx - px_, cy - py_
        long = math.hypot(ax, ay) + 1e-6
        ux, uy = ax / long, ay / long
        sx, sy = -uy, ux
        turned = abs(self.facing)
        chest = (0.085 + 0.043 * turned) * s * g**0.6
        waist = (0.072 + 0.022 * turned) * s * g
        hips = (0.074 + 0.022 * turned) * s * g
        spine = (
            (nx, ny, 0.03 * s),
            (cx + ux * 0.004 * s, cy + uy * 0.004 * s, chest * 0.93),
            (cx - ax * 0.12, cy - ay * 0.12, chest),
            (px_ + ax * 0.35, py_ + ay * 0.35, waist),
            (px_ - ux * 0.035 * s, py_ - uy * 0.035 * s, hips),
        )
        left = [(x + sx * w, y + sy * w) for x, y, w in spine]
        right = [(x - sx * w, y - sy * w) for x, y, w in spine]
        light, dim = self.light[2], self.dim[2]
        self.canvas.polygon(np.array(left + right[::-1]), light)
        if s > 24:
            shade = [
                (nx, ny),
                *right,
                (spine[4][0] - sx * hips * 0.1, spine[4][1] - sy * hips * 0.1),
                (spine[3][0] - sx * waist * 0.2, spine[3][1] - sy * waist * 0.2),
            ]
            self.canvas.polygon(
                np.array(shade), [a * 0.55 + b * 0.45 for a, b in zip(light, dim, strict=True)]
            )
        if self.look.skirt_m:
            self._skirt((spine[4][0], spine[4][1]), sx, sy, hips)

    def _skirt(self, low: Pair, sx: float, sy: float, hips: float) -> None:
        (lx, ly), (rx, ry) = self.px[KNEE_L], self.px[KNEE_R]
        knees = ((lx + rx) / 2, (ly + ry) / 2)
        hem = _mix(low, knees, self.look.skirt_m / 0.25)
        wide = max(hips * 1.15, max(abs(lx - rx), abs(ly - ry)) * 0.5 + hips * 0.5)
        x, y = _mix(low, knees, -0.25)
        tone = [c * 0.97 for c in self.light[2]] if self.look.skirt_m < 0.3 else self.light[3]
        self.canvas.convex(
            [
                (x + sx * hips, y + sy * hips),
                (x - sx * hips, y - sy * hips),
                (hem[0] - sx * wide, hem[1] - sy * wide),
                (hem[0] + sx * wide, hem[1] + sy * wide),
            ],
            tone,
        )

    def _pack(self) -> None:
        s = self.size
        x, y = _mix(self.px[PELVIS], self.px[CHEST], 0.62)
        x -= self.way * 0.05 * s * abs(self.leftness)
        w, h = (0.055 + 0.03 * abs(self.facing)) * s, 0.125 * s
        self.canvas.convex(
            [(x - w, y - h), (x + w, y - h), (x + w * 1.1, y + h), (x - w * 1.1, y + h)], self.light[6]
        )

    def _head(self) -> None:
        s, c = self.size, self.canvas
        (hx, hy), (nx, ny) = self.px[HEAD], self.px[NECK]
        c.line((nx - (hx - nx) * 0.1, ny - (hy - ny) * 0.1), (hx, hy), 0.05 * s, self.dim[0])
        r = 0.062 * s
        t = self.way * r * 0.28 * abs(self.leftness)
        if self.look.long_hair:
            c.line((hx - t * 0.9, hy), (nx - t * 1.3, ny + r * 0.5), r * 1.7, self.light[1])
        c.disc((hx, hy + r * 0.08), r, self.light[0])
        hair = self.light[5] if self.look.hat else self.light[1]
        if self.facing > 0.15:
            c.disc((hx - t, hy - r * 0.42), r * 0.98, hair)
            c.disc((hx + t, hy + r * 0.42), r * 0.74, self.light[0])
        else:
            c.disc((hx - t, hy - r * 0.1), r * 1.06, hair)
            if abs(self.leftness) > 0.45:
                c.disc((hx + t * 2.4, hy + r * 0.35), r * 0.55, self.light[0])
        if self.look.hat:
            x = hx + t * 0.4
            c.convex(
                [
                    (x - r * 1.08, hy - r * 0.32),
                    (x + r * 1.08, hy - r * 0.32),
                    (x + r * 0.9, hy - r * 0.75),
                    (x - r * 0.9, hy - r * 0.75),
                ],
                [v * 0.8 for v in self.light[5]],
            )
