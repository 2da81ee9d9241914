"""The standing part of a clip, drawn once: ground, houses, sky, light, furniture, parked vehicles."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from fovea.sim.canvas import SOLID_ALPHA, Box, Image, Sprite, blend, crop, overlap
from fovea.sim.conditions import Atmosphere
from fovea.sim.cyclist import draw_bicycle, random_bicycle
from fovea.sim.fixtures import SHAPES, draw_fixture
from fovea.sim.ground import paint_ground
from fovea.sim.houses import Surface, paint_houses
from fovea.sim.layout import Layout, Parked
from fovea.sim.mesh import Pose, draw_mesh, ground_outline
from fovea.sim.order import far_to_near
from fovea.sim.shading import Lamps, Shading, shading_at
from fovea.sim.sky import mirror_below_horizon, paint_sky
from fovea.sim.vehicle import BUILDERS

NO_GLOW = np.zeros((5, 3))


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """A thing that stands still and may hide actors: its ground box, its frame box, its alpha there.

    Parked objects carry a class id and the share of them seen with the street otherwise empty.
    """

    footprint_m: tuple[float, float, float, float]
    box: Box
    alpha: Image
    class_id: int = -1
    outline_xyxy: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    seen: Image | None = None
    area_px: int = 0
    contrast: float = 0.0  # mean grey levels between it and the empty street behind


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """One clip's standing picture and what is needed to put actors into it."""

    layout: Layout
    atmosphere: Atmosphere
    lamps: Lamps
    background: Image
    albedo: Image
    shade: Image  # 255 where the ground lies in a cast shadow
    floor: Image  # half size, 255 where bare ground is seen
    standing: tuple[Standing, ...]

    def sunlit_at(self, ground_m: NDArray[np.float64]) -> NDArray[np.float64]:
        """Share of sun at ground points [N,2]: 1 in the open, 0 in a cast shadow; [N]."""
        out = np.ones(len(ground_m))
        if not self.atmosphere.sun.any():
            return out
        camera = self.layout.camera
        px, depth = camera.project(np.column_stack([ground_m, np.zeros(len(ground_m))]))
        size = np.array(camera.size_px)
        seen = (depth > 0.5) & (px >= 0).all(axis=1) & (px < size).all(axis=1)
        spot = px[seen].astype(np.int64)
        out[seen] = 1.0 - self.shade[spot[:, 1], spot[:, 0]] / 255.0
        return out

    def shading_for(self, x_m: float, y_m: float, sunlit: float, extra: float = 0.0) -> Shading:
        """Light on a thing standing at a ground point; `sunlit` as `sunlit_at` gives it."""
        distance_m = self.layout.camera.distance_m(x_m, y_m, 1.0)
        lamp = self.lamps.strength_at(x_m, y_m) if self.atmosphere.lamp.any() else 0.0
        return shading_at(self.atmosphere, lamp, sunlit, distance_m, extra)


def build_scene(layout: Layout, atmosphere: Atmosphere, rng: np.random.Generator) -> Scene:
    """Draw everything of a clip that does not move."""
    camera = layout.camera
    width, height = camera.size_px
    albedo, xs, ys = paint_ground(layout, rng, atmosphere.snow_cover, atmosphere.wetness)
    surface = Surface.of_ground(camera, albedo, xs, ys, float(atmosphere.sun_direction[2]))
    masks = paint_houses(surface, layout, atmosphere)
    lamps = Lamps(np.array(layout.lamps).reshape(-1, 2), layout.lamp_height_m)
    shade = _cast_shadows(layout, atmosphere, surface.is_ground)
    picture = _light(surface, atmosphere, lamps, shade)
    sky = paint_sky(camera, atmosphere, rng)
    is_sky = surface.distance > 9e3
    fog = np.exp(-np.float32(atmosphere.extinction_per_m) * surface.distance)[:, :, None]
    picture = picture * fog + (atmosphere.air * 255.0).astype(np.float32) * (1 - fog)
    picture[is_sky] = sky[is_sky]
    if atmosphere.wetness > 0:
        mirror_below_horizon(picture, camera, surface.is_ground & ~is_sky, atmosphere.wetness)
    background = picture.clip(0, 255).astype(np.uint8)
    blank = Scene(layout, atmosphere, lamps, background, albedo, shade, np.zeros((1, 1), np.uint8), ())
    standing = _furnish(blank, masks)
    floor = (surface.is_ground & ~is_sky).astype(np.uint8) * 255
    for thing in standing:
        x0, y0, x1, y1 = thing.box
        floor[y0:y1, x0:x1] = cv2.min(floor[y0:y1, x0:x1], cv2.bitwise_not(thing.alpha))
        if thing.class_id != -2:
            veil = cv2.cvtColor(cv2.bitwise_not(thing.alpha), cv2.COLOR_GRAY2BGR)
            albedo[y0:y1, x0:x1] = cv2.multiply(albedo[y0:y1, x0:x1], veil, scale=1 / 255)
    _bloom(background, surface.glow, layout, atmosphere, lamps)
    small = cv2.resize(floor, (width // 2, height // 2), interpolation=cv2.INTER_AREA)
    return Scene(layout, atmosphere, lamps, background, albedo, shade, small, standing)


def _light(surface: Surface, atmosphere: Atmosphere, lamps: Lamps, shade: Image) -> NDArray[np.float32]:
    sun = surface.sun * (1.0 - shade.astype(np.float32) / 255.0)
    light = sun[:, :, None] * atmosphere.sun.astype(np.float32) + atmosphere.ambient.astype(np.float32)
    if atmosphere.lamp.any():
        step = 4
        x, y, z = (m[::step, ::step].astype(np.float64) for m in (surface.xs, surface.ys, surface.zs))
        pool = lamps.strength(x, y, z).astype(np.float32)
        pool = cv2.resize(pool, (shade.shape[1], shade.shape[0]), interpolation=cv2.INTER_LINEAR)
        light += pool[:, :, None] * atmosphere.lamp.astype(np.float32)
    out: NDArray[np.float32] = surface.albedo.astype(np.float32) * light
    if atmosphere.window_glow > 0:
        out += surface.glow.astype(np.float32) * np.float32(atmosphere.window_glow * 0.75)
    return out


def _cast_shadows(layout: Layout, atmosphere: Atmosphere, is_ground: NDArray[np.bool_]) -> Image:
    camera = layout.camera
    shade: Image = np.zeros(is_ground.shape, np.uint8)
    direction = atmosphere.sun_direction
    if float(atmosphere.sun.max()) < 0.02:
        return shade
    slide = -direction[:2] / max(float(direction[2]), 0.05)

    def fill(points_xy: NDArray[np.float64]) -> None:
        hull = cv2.convexHull(points_xy.astype(np.float32))[:, 0].astype(np.float64)
        px = camera.polygon_px(np.column_stack([hull, np.zeros(len(hull))]))
        if px is not None and len(px) >= 3:
            cv2.fillPoly(shade, [(px * 16).clip(-2e6, 2e6).astype(np.int32)], 255, cv2.LINE_AA, 4)

    for b in layout.buildings:
        base = np.array([(b.x0_m, b.y0_m), (b.x1_m, b.y0_m), (b.x1_m, b.y1_m), (b.x0_m, b.y1_m)])
        fill(np.concatenate([base, base + slide * b.height_m]))
    circle = np.array([(np.cos(a), np.sin(a)) for a in np.linspace(0, 2 * np.pi, 10)[:-1]])
    for f in layout.fixtures:
        spot = np.array([f.x_m, f.y_m])
        if f.kind == "tree" and atmosphere.snow_cover == 0:
            rng = np.random.default_rng(f.seed)
            for _ in range(14):
                offset, z = rng.normal(0, 0.85, 2) * f.size, float(rng.uniform(2.6, 6.0)) * f.size
                fill(spot + offset + slide * z + circle * float(rng.uniform(0.4, 0.9)) * f.size)
            fill(np.concatenate([spot + circle * 0.12, spot + slide * 3 * f.size + circle * 0.12]))
        elif f.kind == "lamp":
            fill(np.concatenate([spot + circle * 0.08, spot + slide * layout.lamp_height_m + circle * 0.06]))
        else:
            fill(
                np.concatenate([spot + circle * 0.25, spot + slide * SHAPES[f.kind][1] * 0.9 + circle * 0.22])
            )
    shade[~is_ground] = 0
    soft: Image = cv2.GaussianBlur(shade, (0, 0), 1.1)
    return soft


def _sun(scene: Scene, x_m: float, y_m: float) -> float:
    return float(scene.sunlit_at(np.array([[x_m, y_m]]))[0])


_Drawn = tuple[tuple[float, float, float, float], Sprite, int, float]  # ground box, sprite, class, distance


def _furnish(
    scene: Scene, masks: list[tuple[tuple[float, float, float, float], Box, Image]]
) -> tuple[Standing, ...]:
    """Draw furniture and parked vehicles into the background, far to near."""
    layout, camera = scene.layout, scene.layout.camera
    drawn: list[_Drawn] = []
    for fixture in layout.fixtures:
        shading = scene.shading_for(fixture.x_m, fixture.y_m, _sun(scene, fixture.x_m, fixture.y_m))
        canvas = draw_fixture(
            fixture,
            camera,
            shading,
            layout.lamp_height_m,
            bool(scene.atmosphere.lamp.any()),
            scene.atmosphere.snow_cover > 0,
        )
        sprite = canvas.finish() if canvas is not None else None
        if sprite is not None and overlap(sprite, camera.size_px):
            r = SHAPES[fixture.kind][0]
            drawn.append(
                ((fixture.x_m - r, fixture.y_m - r, fixture.x_m + r, fixture.y_m + r), sprite, -1, 0.0)
            )
    for parked in layout.parked:
        made = _draw_parked(scene, parked)
        if made is not None:
            drawn.append(made)
    if not drawn:
        return tuple(Standing(f, b, m, -2) for f, b, m in masks)
    feet = np.array([d[0] for d in drawn])
    screen = np.array([d[1].box_xyxy for d in drawn])
    owner = np.full(scene.background.shape[:2], -1, np.int16)
    empty = scene.background.copy()
    order = far_to_near(feet, screen, camera.position_m[:2])
    _contact(scene, [d for d in drawn if d[2] >= 0])
    for index in order:
        box = overlap(drawn[index][1], camera.size_px)
        if box is None:
            continue
        bgr, alpha = crop(drawn[index][1], box)
        x0, y0, x1, y1 = box
        blend(scene.background[y0:y1, x0:x1], bgr, alpha)
        np.copyto(owner[y0:y1, x0:x1], index, where=alpha >= SOLID_ALPHA)
    out = [Standing(f, b, m, -2) for f, b, m in masks]
    for index, (foot, sprite, class_id, _) in enumerate(drawn):
        box = overlap(sprite, camera.size_px)
        if box is None:
            continue
        _, alpha = crop(sprite, box)
        x0, y0, x1, y1 = box
        seen = (owner[y0:y1, x0:x1] == index).astype(np.uint8) if class_id >= 0 else None
        area = int(np.count_nonzero(sprite.alpha >= SOLID_ALPHA))
        change = cv2.absdiff(scene.background[y0:y1, x0:x1], empty[y0:y1, x0:x1])
        contrast = sum(cv2.mean(change, seen)[:3]) / 3 if seen is not None else 0.0
        out.append(Standing(foot, box, alpha.copy(), class_id, sprite.box_xyxy, seen, area, contrast))
    return tuple(out)


def _draw_parked(scene: Scene, parked: Parked) -> _Drawn | None:
    camera = scene.layout.camera
    shading = scene.shading_for(parked.x_m, parked.y_m, _sun(scene, parked.x_m, parked.y_m))
    pose = Pose(parked.x_m, parked.y_m, parked.heading_rad)
    rng = np.random.default_rng(parked.seed)
    if parked.class_id == 1:
        canvas = draw_bicycle(random_bicycle(rng), pose, camera, shading)
        c, s = abs(math.cos(parked.heading_rad)), abs(math.sin(parked.heading_rad))
        a, b = 0.8 * c + 0.2 * s, 0.8 * s + 0.2 * c
        foot = (parked.x_m - a, parked.y_m - b, parked.x_m + a, parked.y_m + b)
    else:
        mesh = BUILDERS[parked.class_id](rng)
        canvas = draw_mesh(mesh, pose, camera, shading, NO_GLOW)
        foot = ground_outline(mesh, pose)
    sprite = canvas.finish() if canvas is not None else None
    if sprite is None or overlap(sprite, camera.size_px) is None:
        return None
    return foot, sprite, parked.class_id, camera.distance_m(parked.x_m, parked.y_m, 0.8)


def _contact(scene: Scene, parked: list[_Drawn]) -> None:
    """Dark ground under and (in sun) beside parked vehicles."""
    camera, atmosphere = scene.layout.camera, scene.atmosphere
    layer = np.zeros(scene.background.shape[:2], np.uint8)
    slide = -atmosphere.sun_direction[:2] / max(float(atmosphere.sun_direction[2]), 0.05)
    strong = float(atmosphere.sun.max()) > 0.02
    for foot, _, class_id, distance_m in parked:
        clear = float(np.exp(-atmosphere.extinction_per_m * distance_m))
        x0, y0, x1, y1 = foot
        if class_id == 1:
            continue
        base = np.array([(x0, y0), (x1, y0), (x1, y1), (x0, y1)])
        for push, tone in ((1.3 if strong else 0.0, 120), (0.0, 165)):
            hull = cv2.convexHull(np.concatenate([base, base + slide * push]).astype(np.float32))[
                :, 0
            ].astype(np.float64)
            px = camera.polygon_px(np.column_stack([hull, np.zeros(len(hull))]))
            if px is not None and len(px) >= 3:
                cv2.fillPoly(
                    layer, [(px * 16).clip(-2e6, 2e6).astype(np.int32)], tone * clear, cv2.LINE_AA, 4
                )
    layer = cv2.GaussianBlur(layer, (0, 0), 2.0)
    keep = cv2.cvtColor(cv2.bitwise_not(layer), cv2.COLOR_GRAY2BGR)
    cv2.multiply(scene.background, keep, dst=scene.background, scale=1 / 255)


def _bloom(background: Image, glow: Image, layout: Layout, atmosphere: Atmosphere, lamps: Lamps) -> None:
    """Light of lamps and lit windows spilling in the lens and the air."""
    if atmosphere.window_glow < 0.3 and not atmosphere.lamp.any():
        return
    camera = layout.camera
    height, width = background.shape[:2]
    small = cv2.resize(glow, (width // 4, height // 4), interpolation=cv2.INTER_AREA).astype(np.float32)
    out = cv2.GaussianBlur(small * np.float32(atmosphere.window_glow), (0, 0), 6) * 0.18
    if atmosphere.lamp.any():
        spots = np.zeros_like(small)
        colour = atmosphere.lamp / atmosphere.lamp.max()
        for x, y in lamps.positions_m:
            px, depth = camera.project(np.array([[x, y - np.sign(y) * 1.25, lamps.height_m + 0.1]]))
            if depth[0] > 1.0 and -40 < px[0, 0] < width + 40 and -40 < px[0, 1] < height:
                u, v = int(px[0, 0]), int(px[0, 1])
                if 0 <= u < width and 0 <= v < height and int(background[v, u].max()) < 200:
                    continue  # hidden behind a tree or a house
                r = max(0.28 * camera.focal_px / float(depth[0]) / 4, 0.6)
                centre = (int(px[0, 0] / 4), int(px[0, 1] / 4))
                cv2.circle(spots, centre, max(round(r), 1), tuple((colour * 255).tolist()), -1, cv2.LINE_AA)
        out += cv2.GaussianBlur(spots, (0, 0), 2.0) * 1.6 + cv2.GaussianBlur(spots, (0, 0), 11.0) * 2.2
    spread = cv2.resize(out.clip(0, 255).astype(np.uint8), (width, height), interpolation=cv2.INTER_LINEAR)
    cv2.add(background, spread, dst=background)
