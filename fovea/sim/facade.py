"""Textures of house fronts: walls, windows, shops and doors, with what glows in them at night."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from fovea.sim.canvas import Image

WALLS: tuple[tuple[float, float, float], ...] = (
    (92, 108, 150),
    (104, 128, 172),
    (150, 178, 200),
    (178, 196, 208),
    (196, 204, 210),
    (142, 150, 158),
    (120, 132, 150),
    (88, 96, 118),
    (150, 168, 152),
    (190, 178, 158),
    (110, 150, 190),
    (150, 160, 196),
    (84, 104, 136),
)
SIGNS: tuple[tuple[float, float, float], ...] = (
    (48, 44, 160),
    (120, 70, 36),
    (60, 110, 48),
    (40, 40, 42),
    (60, 170, 215),
    (200, 200, 196),
    (110, 50, 110),
)


def paint_facade(
    width_m: float, height_m: float, px_per_m: float, seed: int, has_shop: bool
) -> tuple[Image, Image]:
    """Albedo and glow, both u8[h,w,3] BGR, of one wall; row 0 is the top of the wall."""
    rng = np.random.default_rng(seed)
    w, h = max(int(width_m * px_per_m), 2), max(int(height_m * px_per_m), 2)
    wall = np.array(WALLS[int(rng.integers(len(WALLS)))]) * float(rng.uniform(0.75, 1.12))
    albedo = _wall(rng, w, h, px_per_m, wall)
    glow = np.zeros_like(albedo)
    floor_m = float(rng.uniform(2.8, 3.4))
    ground_m = float(rng.uniform(3.2, 4.0)) if has_shop else floor_m
    floors = max(int((height_m - ground_m - 0.4) / floor_m), 0)
    plan = _Windows(albedo, glow, px_per_m, height_m, rng)
    bay = float(rng.uniform(2.0, 3.4))
    bays = max(int((width_m - 0.8) / bay), 1)
    pad = (width_m - bays * bay) / 2
    win_w, win_h = bay * float(rng.uniform(0.36, 0.62)), floor_m * float(rng.uniform(0.46, 0.62))
    has_balcony = bool(rng.uniform() < 0.18)
    for floor in range(floors):
        sill = ground_m + floor * floor_m + (floor_m - win_h) * 0.45
        for i in range(bays):
            plan.window(pad + (i + 0.5) * bay - win_w / 2, sill, win_w, win_h, has_balcony and i % 2 == 0)
    if has_shop:
        plan.shops(width_m, ground_m)
    else:
        door = int(rng.integers(bays))
        for i in range(bays):
            x = pad + (i + 0.5) * bay
            if i == door:
                plan.door(x)
            else:
                plan.window(x - win_w / 2, 1.0, win_w, win_h * 0.95, False)
    plan.rect(0, height_m - 0.32, width_m, 0.32, wall * 1.15)
    plan.rect(0, height_m - 0.4, width_m, 0.08, wall * 0.55)
    if has_shop:
        plan.rect(0, ground_m + 0.02, width_m, 0.14, wall * 1.1)
    plan.rect(0, 0, width_m, 0.4, wall * 0.7)
    return albedo, glow


def _wall(rng: np.random.Generator, w: int, h: int, px_per_m: float, wall: NDArray[np.float64]) -> Image:
    tile = rng.normal(0, 1, (max(h // 6, 1), max(w // 6, 1))).astype(np.float32)
    grime = cv2.resize(tile, (w, h), interpolation=cv2.INTER_LINEAR)
    fine = rng.integers(-6, 7, (h, w), dtype=np.int8).astype(np.float32)
    shade = 1.0 + 0.035 * grime + fine / 220.0
    rows = np.arange(h, dtype=np.float32)[:, None] / max(h, 1)
    shade *= 1.04 - 0.14 * rows**3
    if px_per_m > 9 and rng.uniform() < 0.5:
        course = max(int(px_per_m * 0.16), 2)
        shade[::course] *= 0.9
    out: Image = (shade[:, :, None] * wall.astype(np.float32)).clip(0, 255).astype(np.uint8)
    return out


def _whole(colour: NDArray[np.float64] | tuple[float, ...]) -> tuple[int, ...]:
    return tuple(int(min(max(float(c), 0.0), 255.0)) for c in colour)


class _Windows:
    """Paints openings into one wall; coordinates are metres from the lower left corner."""

    def __init__(
        self, albedo: Image, glow: Image, px_per_m: float, height_m: float, rng: np.random.Generator
    ) -> None:
        self.albedo, self.glow, self.ppm, self.height_m, self.rng = albedo, glow, px_per_m, height_m, rng
        self.frame = np.array([225, 228, 230]) * float(rng.choice([1.0, 0.35, 0.75]))
        self.trim = float(rng.choice([0.7, 1.2]))

    def rect(
        self,
        x: float,
        z: float,
        w: float,
        h: float,
        colour: NDArray[np.float64] | tuple[float, ...],
        glow: tuple[float, float, float] | None = None,
    ) -> None:
        x0, x1 = round(x * self.ppm), round((x + w) * self.ppm)
        y0, y1 = round((self.height_m - z - h) * self.ppm), round((self.height_m - z) * self.ppm)
        x0, y0 = max(x0, 0), max(y0, 0)
        if x1 > x0 and y1 > y0:
            corners = (x0, y0), (x1 - 1, y1 - 1)
            cv2.rectangle(self.albedo, *corners, _whole(colour), -1)
            cv2.rectangle(self.glow, *corners, (0, 0, 0) if glow is None else _whole(glow), -1)

    def _lit(self, chance: float) -> tuple[float, float, float] | None:
        if self.rng.uniform() > chance:
            return None
        k = float(self.rng.uniform(0.35, 1.0))
        warm = float(self.rng.uniform(0.3, 0.85))
        return 255 * k * warm, 255 * k * (0.5 + warm / 2) * 0.92, 255 * k

    def window(self, x: float, z: float, w: float, h: float, balcony: bool) -> None:
        self.rect(x - 0.1, z - 0.1, w + 0.2, h + 0.2, self.frame * self.trim * 0.8)
        glass = float(self.rng.uniform(0.6, 1.5))
        lit = self._lit(0.22)
        self.rect(x, z, w, h, (72 * glass, 62 * glass, 54 * glass), lit)
        self.rect(x, z + h * 0.62, w, h * 0.38, (96 * glass, 84 * glass, 74 * glass), lit)
        if self.rng.uniform() < 0.4:
            side = w * float(self.rng.uniform(0.15, 0.4))
            tone = float(self.rng.uniform(110, 200))
            self.rect(x, z, side, h, (tone, tone * 1.02, tone * 1.05), lit)
        self.rect(x + w / 2 - 0.04, z, 0.08, h, self.frame)
        self.rect(x - 0.16, z - 0.2, w + 0.32, 0.12, self.frame * 0.9)
        if balcony:
            self.rect(x - 0.4, z - 0.2, w + 0.8, 0.9, (70, 70, 70))
            for i in range(6):
                self.rect(x - 0.35 + i * (w + 0.7) / 6, z - 0.12, (w + 0.7) / 9, 0.74, (104, 100, 98))

    def door(self, x: float) -> None:
        colour = np.array(SIGNS[int(self.rng.integers(len(SIGNS)))]) * 0.8
        self.rect(x - 0.65, 0, 1.3, 2.6, self.frame * 0.8)
        self.rect(x - 0.5, 0, 1.0, 2.1, colour)
        self.rect(x - 0.5, 2.15, 1.0, 0.35, (80, 72, 66), self._lit(0.5))
        self.rect(x - 0.35, 1.2, 0.7, 0.7, colour * 0.7)

    def shops(self, width: float, ground_m: float) -> None:
        x = 0.3
        while x < width - 2.5:
            w = min(float(self.rng.uniform(4.0, 8.0)), width - x - 0.3)
            sign = np.array(SIGNS[int(self.rng.integers(len(SIGNS)))]) * float(self.rng.uniform(0.7, 1.1))
            lit = self._lit(0.6)
            self.rect(x, 0, w - 0.2, ground_m - 0.1, sign * 0.55)
            self.rect(x + 0.15, 0.5, w - 0.5, ground_m - 1.4, (78, 70, 62), lit)
            for _ in range(5):
                gx, gw = x + 0.3 + float(self.rng.uniform(0, w - 1.4)), float(self.rng.uniform(0.2, 0.8))
                tone = self.rng.uniform(40, 170, 3)
                shine = None if lit is None else (lit[0] * 0.7, lit[1] * 0.8, lit[2] * 0.8)
                self.rect(gx, 0.55, gw, float(self.rng.uniform(0.4, 1.5)), tone, shine)
            self.rect(x + w * 0.6, 0, 1.0, 2.2, (60, 55, 52), lit)
            self.rect(x + w * 0.6 - 0.06, 0, 0.06, 2.3, self.frame * 0.7)
            name = None if lit is None else (sign[0] * 0.6, sign[1] * 0.6, sign[2] * 0.6)
            self.rect(x, ground_m - 0.85, w - 0.2, 0.65, sign, name)
            self._lettering(x + 0.5, ground_m - 0.72, w - 1.4, 0.4, lit is not None)
            if self.rng.uniform() < 0.35:
                for i in range(int(w / 0.5)):
                    stripe = np.array([225.0, 226.0, 226.0]) if i % 2 else sign
                    self.rect(x + i * 0.5, ground_m - 1.25, 0.5, 0.42, stripe)
            x += w

    def _lettering(self, x: float, z: float, w: float, h: float, lit: bool) -> None:
        place = x
        while place < x + w:
            step = float(self.rng.uniform(0.12, 0.34))
            self.rect(
                place,
                z,
                step * 0.72,
                h * float(self.rng.choice([0.7, 1.0])),
                (226, 228, 228),
                (190, 205, 215) if lit else None,
            )
            place += step
