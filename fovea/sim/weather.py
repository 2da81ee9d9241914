"""Rain and snow in the air, and drops on the lens."""

from __future__ import annotations

from functools import lru_cache

import cv2
import numpy as np

from fovea.sim.canvas import Image

_SPARE_PX = 256


@lru_cache(maxsize=4)
def _streaks(width: int, height: int) -> Image:
    rng = np.random.default_rng(7_101)
    tile: Image = np.zeros((height + _SPARE_PX, width + _SPARE_PX), np.uint8)
    for _ in range(1100):
        x, y = int(rng.integers(0, tile.shape[1])), int(rng.integers(0, tile.shape[0]))
        length, near = float(rng.uniform(8, 46)), float(rng.uniform(0, 1))
        slant = length * 0.12
        tone = int(9 + 26 * near)
        cv2.line(tile, (x, y), (int(x + slant), int(y + length)), tone, 2 if near > 0.85 else 1, cv2.LINE_AA)
    soft = cv2.blur(tile, (1, 9))
    out: Image = cv2.cvtColor(soft, cv2.COLOR_GRAY2BGR)
    return out


@lru_cache(maxsize=12)
def _flakes(width: int, height: int, layer: int) -> Image:
    rng = np.random.default_rng(9_300 + layer)
    tile: Image = np.zeros((height, width), np.uint8)
    count, low, high = ((900, 0.5, 0.9), (300, 0.9, 1.5), (40, 1.8, 3.4))[layer]
    for _ in range(count):
        x, y = int(rng.integers(0, width * 16)), int(rng.integers(0, height * 16))
        radius = float(rng.uniform(low, high))
        tone = int(rng.uniform(70, 190))
        for wrap_x in (0, -width * 16):
            cv2.circle(tile, (x + wrap_x, y), int(radius * 16), tone, -1, cv2.LINE_AA, 4)
    if layer == 2:
        tile = cv2.GaussianBlur(tile, (0, 0), 1.4)
    doubled = np.tile(tile, (2, 2))
    out: Image = cv2.cvtColor(doubled, cv2.COLOR_GRAY2BGR)
    return out


def add_rain(picture: Image, strength: float, rng: np.random.Generator) -> None:
    """Streaks of falling rain, in place."""
    height, width = picture.shape[:2]
    tile = _streaks(width, height)
    for _ in range(2 if strength > 0.6 else 1):
        dx, dy = (int(v) for v in rng.integers(0, _SPARE_PX, 2))
        cv2.scaleAdd(tile[dy : dy + height, dx : dx + width], 0.55 + 0.45 * strength, picture, dst=picture)


def add_snow(picture: Image, strength: float, time_s: float, seed: int) -> None:
    """Falling flakes in three depths, drifting with time, in place."""
    height, width = picture.shape[:2]
    layers = 3 if strength > 0.5 else 2
    for layer in range(layers):
        fall, drift = ((90, 25), (190, 60), (420, 140))[layer]
        dx = (int(drift * time_s) + seed * 131) % width
        dy = (height - int(fall * time_s) % height) % height
        tile = _flakes(width, height, layer)
        view = tile[dy : dy + height, width - dx : 2 * width - dx] if dx else tile[dy : dy + height, :width]
        cv2.scaleAdd(view, 0.45 + 0.5 * strength, picture, dst=picture)


class LensDrops:
    """Drops on the glass that bend the picture behind them; they stay where they are during a clip."""

    def __init__(self, count: int, size_px: tuple[int, int], rng: np.random.Generator) -> None:
        self._drops: list[tuple[int, int, int, int, Image]] = []
        for _ in range(count):
            r = int(rng.integers(7, 24))
            stretch = float(rng.uniform(1.0, 1.5))
            w, h = 2 * r, int(2 * r * stretch)
            x, y = int(rng.integers(0, size_px[0] - w)), int(rng.integers(0, size_px[1] - h))
            mask: Image = np.zeros((h, w), np.uint8)
            cv2.ellipse(mask, (w // 2, h // 2), (w // 2 - 2, h // 2 - 2), 0, 0, 360, 205, -1, cv2.LINE_AA)
            mask = cv2.GaussianBlur(mask, (0, 0), 2.0)
            self._drops.append((x, y, w, h, mask))

    def apply(self, picture: Image) -> None:
        """Bend the picture, in place."""
        height, width = picture.shape[:2]
        for x, y, w, h, mask in self._drops:
            x0, y0 = max(x - w, 0), max(y - h, 0)
            x1, y1 = min(x + 2 * w, width), min(y + 2 * h, height)
            seen = cv2.resize(picture[y0:y1, x0:x1], (w, h), interpolation=cv2.INTER_AREA)
            seen = cv2.blur(cv2.flip(seen, -1), (3, 3))
            share = cv2.cvtColor(mask, cv2.COLOR_GRAY2BGR)
            target = picture[y : y + h, x : x + w]
            kept = cv2.multiply(target, cv2.bitwise_not(share), scale=1 / 255)
            cv2.add(kept, cv2.multiply(seen, share, scale=1 / 245), dst=target)
