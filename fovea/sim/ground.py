"""The ground of one street as the camera sees it: asphalt, paving, kerbs, marks, dirt and snow."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from fovea.sim.canvas import Image
from fovea.sim.layout import CYCLE_M, FAR_M, PARKING_M, Layout

Plane = NDArray[np.float32]
Bgr = tuple[float, float, float]

_SHIFT = 4
_BACK_M = -25.0


class GroundPainter:
    """Paints flat things on the ground into a frame-sized albedo image."""

    def __init__(self, layout: Layout, albedo: Image) -> None:
        self.layout, self.albedo = layout, albedo

    def quad(self, x0: float, x1: float, y0: float, y1: float, colour: Bgr) -> None:
        """A rectangle on the ground, metres."""
        self.outline([(x0, y0), (x1, y0), (x1, y1), (x0, y1)], colour)

    def outline(self, corners: list[tuple[float, float]], colour: Bgr) -> None:
        """A polygon on the ground, metres."""
        points = self.layout.camera.polygon_px(np.array([(x, y, 0.0) for x, y in corners]))
        if points is not None and len(points) >= 3:
            fixed = (points * (1 << _SHIFT)).clip(-2e6, 2e6).astype(np.int32)
            cv2.fillPoly(self.albedo, [fixed], colour, cv2.LINE_AA, _SHIFT)


def _shade(colour: Bgr, factor: float) -> Bgr:
    return colour[0] * factor, colour[1] * factor, colour[2] * factor


def paint_ground(
    layout: Layout, rng: np.random.Generator, snow: float, wet: float
) -> tuple[Image, Plane, Plane]:
    """Albedo u8[h,w,3], and the ground x and y in metres f32[h,w] under each pixel (NaN-free, far = 1e4)."""
    width, height = layout.camera.size_px
    albedo: Image = np.zeros((height, width, 3), np.uint8)
    paint = GroundPainter(layout, albedo)
    tone = layout.asphalt * (1.0 - 0.35 * wet)
    paving = _shade(layout.paving, (1.0 - 0.3 * wet))
    albedo[:] = [int(c * 0.8) for c in paving]
    inner, half = layout.inner_m, layout.half_road_m
    road = (tone * 1.02, tone, tone * 0.98)
    paint.quad(_BACK_M, FAR_M, -inner - 4, inner + 4, paving)
    _paving_lines(paint, layout, paving)
    paint.quad(_BACK_M, FAR_M, -half, half, road)
    if layout.junction_x_m is not None:
        j, c = layout.junction_x_m, layout.half_cross_m
        paint.quad(j - c - 2.5, j + c + 2.5, -75, 75, paving)
        paint.quad(j - c, j + c, -75, 75, road)
        for sx in (-1, 1):
            for sy in (-1, 1):
                x, y = j + sx * c, sy * half
                paint.outline(
                    [(x, y), (x + sx * 2.2, y), (x + sx * 0.7, y + sy * 0.7), (x, y + sy * 2.2)], road
                )
    _wear(paint, layout, rng, road)
    _kerbs(paint, layout)
    if snow < 0.95:
        _marks(paint, layout)
    if snow > 0:
        _tracks(albedo, paint, layout, snow)
    xs, ys = ground_coordinates(layout)
    _grain(albedo, xs, ys, layout, rng, snow)
    return albedo, xs, ys


def ground_coordinates(layout: Layout) -> tuple[Plane, Plane]:
    """Ground x and y in metres f32[h,w] under each pixel, clipped to +-1e4 at and above the horizon."""
    width, height = layout.camera.size_px
    m = layout.camera.ground_plane().astype(np.float32)
    u = np.arange(width, dtype=np.float32)[None] + 0.5
    v = np.arange(height, dtype=np.float32)[:, None] + 0.5
    inverse_depth = m[2, 0] * u + m[2, 1] * v + m[2, 2]
    np.maximum(inverse_depth, 1e-4, out=inverse_depth)
    xs = (m[0, 0] * u + m[0, 1] * v + m[0, 2]) / inverse_depth
    ys = (m[1, 0] * u + m[1, 1] * v + m[1, 2]) / inverse_depth
    return xs.clip(-1e4, 1e4), ys.clip(-1e4, 1e4)


def _paving_lines(paint: GroundPainter, layout: Layout, paving: Bgr) -> None:
    line = _shade(paving, 0.88)
    half, inner = layout.half_road_m, layout.inner_m
    for side in (-1, 1):
        for i in range(1, int(layout.pavement_m / 0.9) + 1):
            y = side * (half + i * 0.9)
            paint.quad(_BACK_M, 45, y - 0.015, y + 0.015, line)
        for i in range(36):
            x = -2 + i * 0.9
            paint.quad(x - 0.015, x + 0.015, side * half, side * inner, line)


def _wear(paint: GroundPainter, layout: Layout, rng: np.random.Generator, road: Bgr) -> None:
    for lane in layout.lanes:
        if lane.kind == "cycle":
            continue
        for offset in (-0.85, 0.85):
            c = lane.centre_m + offset
            dark = _shade(road, 0.95)
            if lane.is_cross:
                paint.quad(c - 0.3, c + 0.3, -75, 75, dark)
            else:
                paint.quad(_BACK_M, FAR_M, c - 0.3, c + 0.3, dark)
    for _ in range(int(rng.integers(2, 7))):  # mended patches and manholes
        x, y = float(rng.uniform(4, 45)), float(rng.uniform(-1, 1)) * (layout.half_road_m - 1.5)
        a, b = float(rng.uniform(0.5, 3.0)), float(rng.uniform(0.4, 1.1))
        k = float(rng.uniform(0.78, 1.12))
        paint.quad(x, x + a, y, y + b, _shade(road, k))
    for _ in range(int(rng.integers(1, 4))):
        x, y = float(rng.uniform(6, 30)), float(rng.uniform(-1, 1)) * (layout.half_road_m - 1.0)
        ring = [(x + 0.35 * np.cos(a), y + 0.35 * np.sin(a)) for a in np.linspace(0, 2 * np.pi, 14)[:-1]]
        paint.outline(ring, _shade(road, 0.7))


def _kerbs(paint: GroundPainter, layout: Layout) -> None:
    stone, gutter = (172.0, 176.0, 178.0), (58.0, 60.0, 62.0)
    spans = [(_BACK_M, FAR_M)]
    if layout.junction_x_m is not None:
        j, c = layout.junction_x_m, layout.half_cross_m + 2.2
        spans = [(_BACK_M, j - c), (j + c, FAR_M)]
    for x0, x1 in spans:
        for s in (-1, 1):
            h = s * layout.half_road_m
            paint.quad(x0, x1, h, h + s * 0.22, stone)
            paint.quad(x0, x1, h - s * 0.14, h, gutter)


def _marks(paint: GroundPainter, layout: Layout) -> None:
    white = (206.0, 212.0, 214.0)
    road = [lane for lane in layout.lanes if lane.kind == "road" and not lane.is_cross]
    lo = min(lane.centre_m for lane in road) - layout.lane_width_m / 2
    hi = max(lane.centre_m for lane in road) + layout.lane_width_m / 2
    stops = _breaks(layout)

    def dashes(y: float, length: float, gap: float, width: float) -> None:
        x = _BACK_M
        while x < FAR_M - 20:
            if not any(a < x + length and x < b for a, b in stops):
                paint.quad(x, x + length, y - width / 2, y + width / 2, white)
            x += length + gap

    y = lo + layout.lane_width_m
    while y < hi - 0.1:
        if abs(y) < 0.1 and len(road) == 4:
            for edge in (-0.12, 0.12):
                dashes(y + edge, 1.0, 0.0, 0.12)
        else:
            dashes(y, 3.0, 4.5, 0.13)
        y += layout.lane_width_m
    if layout.cycle:
        for side, edge in ((-1, lo), (1, hi)):
            dashes(edge, 1.0, 0.5, 0.12)
            paint.quad(_BACK_M, 8, edge + side * 0.1, edge + side * (CYCLE_M - 0.1), (70, 72, 120))
    for has_room, side in zip(layout.parking, (-1, 1), strict=True):
        if has_room:
            edge = side * (layout.half_road_m - PARKING_M)
            dashes(edge, 2.5, 0.4, 0.1)
    if layout.zebra_x_m is not None:
        _zebra(paint, layout, white)


def _zebra(paint: GroundPainter, layout: Layout, white: Bgr) -> None:
    assert layout.zebra_x_m is not None
    x0, half = layout.zebra_x_m, layout.half_road_m
    y = -half + 0.3
    while y < half - 0.3:
        paint.quad(x0, x0 + 4.0, y, min(y + 0.5, half - 0.1), white)
        y += 1.0
    for lane in layout.lanes:
        if lane.kind == "road" and not lane.is_cross:
            x = x0 - 1.2 if lane.way > 0 else x0 + 5.0
            w = layout.lane_width_m / 2 - 0.1
            paint.quad(x, x + 0.35, lane.centre_m - w, lane.centre_m + w, white)


def _breaks(layout: Layout) -> list[tuple[float, float]]:
    out = []
    if layout.zebra_x_m is not None:
        out.append((layout.zebra_x_m - 1.2, layout.zebra_x_m + 5.4))
    if layout.junction_x_m is not None:
        reach = layout.half_cross_m + 2.2
        out.append((layout.junction_x_m - reach, layout.junction_x_m + reach))
    return out


def _tracks(albedo: Image, paint: GroundPainter, layout: Layout, snow: float) -> None:
    """Cover with snow, leaving slush where wheels and feet go."""
    before = albedo.copy()
    cv2.addWeighted(
        albedo, 1 - 0.88 * snow, np.full_like(albedo, (240, 236, 232)), 0.88 * snow, 0, dst=albedo
    )
    slush = GroundPainter(layout, mask := np.zeros_like(albedo))
    for lane in layout.lanes:
        w = 0.45 if lane.kind == "road" else 0.25
        for offset in (-0.85, 0.85) if lane.kind == "road" else (0.0,):
            c = lane.centre_m + offset
            if lane.is_cross:
                slush.quad(c - w, c + w, -75, 75, (200, 200, 200))
            else:
                slush.quad(_BACK_M, FAR_M, c - w, c + w, (200, 200, 200))
    for side in (-1, 1):
        mid = side * (layout.half_road_m + layout.pavement_m * 0.5)
        slush.quad(_BACK_M, FAR_M, mid - 0.5, mid + 0.5, (110, 110, 110))
    mask = cv2.GaussianBlur(mask, (0, 0), 2.0).astype(np.float32) / 255.0 * (1.0 - 0.45 * snow)
    albedo[:] = (albedo * (1 - mask) + (before * 0.9 + 12) * mask).astype(np.uint8)


def _grain(
    albedo: Image, xs: Plane, ys: Plane, layout: Layout, rng: np.random.Generator, snow: float
) -> None:
    tile = rng.normal(0, 1, (128, 128)).astype(np.float32)
    smooth = cv2.GaussianBlur(np.tile(tile, (3, 3)), (0, 0), 3)[128:256, 128:256]
    smooth /= float(smooth.std())
    p = layout.camera.position_m
    distance = np.sqrt((xs - np.float32(p[0])) ** 2 + (ys - np.float32(p[1])) ** 2)
    total = np.zeros(xs.shape, np.float32)
    for source, per_m, amount, reach, step in (
        (tile, 16.0, 0.055, 14.0, 1),
        (smooth, 9.0, 0.05, 45.0, 2),
        (smooth, 1.7, 0.05, 150.0, 2),
    ):
        mx = (xs[::step, ::step] * np.float32(per_m)).clip(-16e3, 16e3)
        my = (ys[::step, ::step] * np.float32(per_m)).clip(-16e3, 16e3)
        layer = cv2.remap(source, mx, my, cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP)
        layer *= cv2.exp(distance[::step, ::step] * np.float32(-1.0 / reach)) * np.float32(amount)
        total += layer if step == 1 else cv2.resize(layer, xs.shape[::-1], interpolation=cv2.INTER_LINEAR)
    total *= 1.0 - 0.4 * snow
    albedo[:] = (albedo.astype(np.float32) * (1.0 + total[:, :, None])).clip(0, 255).astype(np.uint8)
