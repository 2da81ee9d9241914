"""Puts the actors of a clip into its standing scene, frame by frame, and reports what can be seen."""

from __future__ import annotations

from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from fovea.sim.canvas import SOLID_ALPHA, Canvas, Image, Sprite, blend, crop, overlap, smeared
from fovea.sim.conditions import sample_atmosphere, sample_sensor
from fovea.sim.cyclist import draw_bicycle, riding
from fovea.sim.frame import StreetObject, judge
from fovea.sim.layout import sample_layout
from fovea.sim.lights import GlareLayer, ShadowLayer, headlight_on, headlight_pools, vehicle_glow
from fovea.sim.mesh import Mesh, Pose, draw_mesh, ground_outline
from fovea.sim.order import boxes_meet, far_to_near, in_front
from fovea.sim.person import Body, draw_person, walking
from fovea.sim.scene import Scene, Standing, build_scene
from fovea.sim.sensor import Sensor
from fovea.sim.traffic import BICYCLE, PERSON, Actor, populate
from fovea.sim.weather import LensDrops, add_rain, add_snow

FIRST_ACTOR_ID = 1000
MIN_DRAWN_PX = 4.0  # smaller things are left out altogether
MOVING_SNOW = 0.4  # how much of the snow on parked roofs lies on those that drive
MAX_VEIL_DEPTH = 4.2  # optical depth beyond which fog swallows everything


@dataclass(slots=True, eq=False)
class _Part:
    """One labelled silhouette of an actor."""

    track_id: int
    class_id: int
    sprite: Sprite
    area_px: int


@dataclass(slots=True, eq=False)
class _Present:
    """One actor near the view at one time."""

    actor: Actor
    pose: Pose
    body: Body | None
    sunlit: float


@dataclass(slots=True, eq=False)
class _Shown:
    """One actor in one frame, nearest parts last."""

    actor: Actor
    pose: Pose
    parts: list[_Part]
    footprint_m: tuple[float, float, float, float]
    screen: tuple[float, float, float, float]
    velocity_px: tuple[float, float]


class ClipRenderer:
    """Everything needed to draw any frame of one clip; building it draws the standing scene."""

    def __init__(self, condition: str, seed: int, size_px: tuple[int, int], duration_s: float) -> None:
        layout_rng, air_rng, scene_rng, actor_rng, sensor_rng = (
            np.random.default_rng([seed, k]) for k in range(5)
        )
        self.seed, self.size_px = seed, size_px
        self.atmosphere = sample_atmosphere(condition, air_rng)
        self.layout = sample_layout(layout_rng, size_px)
        self.scene: Scene = build_scene(self.layout, self.atmosphere, scene_rng)
        is_warm = condition in ("day", "dusk") and bool(actor_rng.uniform() < 0.6)
        self.actors: tuple[Actor, ...] = populate(self.layout, actor_rng, duration_s, is_warm, FIRST_ACTOR_ID)
        self.traits = sample_sensor(condition, sensor_rng)
        self.sensor = Sensor(self.traits, size_px, seed)
        self.drops = LensDrops(self.traits.drops, size_px, sensor_rng)
        self._standing_feet = np.array([s.footprint_m for s in self.scene.standing]).reshape(-1, 4)
        self._standing_boxes = np.array([s.box for s in self.scene.standing], np.float64).reshape(-1, 4)
        self._darkness = float(np.clip(1.15 - 1.9 * self.atmosphere.ambient.mean(), 0.0, 1.0))

    def draw(self, index: int, time_s: float) -> tuple[Image, tuple[StreetObject, ...]]:
        """Pixels u8[h,w,3] and objects at a time."""
        rng = np.random.default_rng([self.seed, 77, index])
        picture, objects = self.compose(time_s, self.actors)
        if "rain" in self.atmosphere.condition:
            add_rain(picture, self.atmosphere.fall, rng)
        elif self.atmosphere.condition == "snow":
            add_snow(picture, self.atmosphere.fall, time_s, self.seed % 97)
        self.drops.apply(picture)
        return self.sensor.capture(picture, time_s, rng), objects

    def compose(self, time_s: float, actors: tuple[Actor, ...]) -> tuple[Image, tuple[StreetObject, ...]]:
        """The scene with the given actors before weather and sensor, and the objects in it."""
        picture: Image = self.scene.background.copy()
        present = self._present(time_s, actors)
        vehicles = [(p.actor.mesh, p.pose) for p in present if p.actor.mesh is not None]
        self._shadows(picture, present)
        power = self.atmosphere.headlights
        if power > 0 and self._darkness > 0.2 and vehicles:
            headlight_pools(picture, self.scene, vehicles, 1.5 * power * self._darkness)
        shown = [s for p in present if (s := self._show(p, vehicles)) is not None]
        owner = np.zeros(picture.shape[:2], np.int16)
        if shown:
            self._place(picture, owner, shown)
        if power > 0:
            self._glare(picture, owner, shown)
        return picture, self._objects(picture, owner, shown)

    def silhouettes(self, time_s: float, actors: tuple[Actor, ...]) -> tuple[Image, tuple[StreetObject, ...]]:
        """Like `compose`, but of the actors' bodies alone: no shadow, glare, head lamp pool or blur."""
        picture: Image = self.scene.background.copy()
        shown = [s for p in self._present(time_s, actors) if (s := self._show(p, [])) is not None]
        for s in shown:
            s.velocity_px = (0.0, 0.0)
        owner = np.zeros(picture.shape[:2], np.int16)
        if shown:
            self._place(picture, owner, shown)
        return picture, self._objects(picture, owner, shown)

    def _present(self, time_s: float, actors: tuple[Actor, ...]) -> list[_Present]:
        poses = [(a, p) for a in actors if (p := a.motion.pose_at(time_s)) is not None]
        if not poses:
            return []
        camera = self.layout.camera
        ground = np.array([(p.x_m, p.y_m) for _, p in poses])
        view = camera.to_view(np.column_stack([ground, np.ones(len(poses))]))
        reach = np.array([a.mesh.length_m if a.mesh is not None else 1.5 for a, _ in poses])
        edge = self.size_px[0] / 2 / camera.focal_px
        height_m = np.where(reach > 1.5, 1.5, 1.7)
        near = (view[:, 2] > -reach) & (np.abs(view[:, 0]) < edge * np.maximum(view[:, 2], 0) + reach + 1.5)
        near &= camera.focal_px * height_m > MIN_DRAWN_PX * view[:, 2]
        near &= self.atmosphere.extinction_per_m * view[:, 2] < MAX_VEIL_DEPTH
        sunlit = self.scene.sunlit_at(ground)
        return [_Present(a, p, _body(a, p), float(sunlit[i])) for i, (a, p) in enumerate(poses) if near[i]]

    def _shadows(self, picture: Image, present: list[_Present]) -> None:
        layer = ShadowLayer(self.scene)
        for p in present:
            if p.actor.mesh is not None:
                layer.add_mesh(p.actor.mesh, p.pose, p.sunlit)
            elif p.body is not None:
                layer.add_body(p.body, p.pose, p.sunlit)
        layer.apply(picture)

    def _show(self, present: _Present, vehicles: list[tuple[Mesh, Pose]]) -> _Shown | None:
        camera, actor, pose = self.layout.camera, present.actor, present.pose
        extra = 0.0
        if actor.mesh is None and self.atmosphere.headlights > 0 and self._darkness > 0.2:
            extra = headlight_on(pose.x_m, pose.y_m, vehicles, self._darkness)
        shading = self.scene.shading_for(pose.x_m, pose.y_m, present.sunlit, extra)
        parts: list[_Part] = []
        if actor.mesh is not None:
            shading = replace(shading, snow_top=shading.snow_top * MOVING_SNOW)
            glow = vehicle_glow(actor.class_id, pose, self.atmosphere) * (1.0 - shading.veil)
            self._add(
                parts, actor.track_id, actor.class_id, draw_mesh(actor.mesh, pose, camera, shading, glow)
            )
            foot = ground_outline(actor.mesh, pose)
        else:
            rider_id = actor.track_id
            if actor.bicycle is not None:
                self._add(parts, actor.track_id, BICYCLE, draw_bicycle(actor.bicycle, pose, camera, shading))
                rider_id += 1
            if actor.look is not None and present.body is not None:
                self._add(
                    parts, rider_id, PERSON, draw_person(actor.look, present.body, pose, camera, shading)
                )
            r = 0.5 if actor.bicycle else 0.22
            foot = (pose.x_m - r, pose.y_m - r, pose.x_m + r, pose.y_m + r)
        if not parts:
            return None
        boxes = np.array([p.sprite.box_xyxy for p in parts])
        low, high = boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)
        screen = (float(low[0]), float(low[1]), float(high[0]), float(high[1]))
        return _Shown(actor, pose, parts, foot, screen, self._velocity(pose))

    def _add(self, parts: list[_Part], track_id: int, class_id: int, canvas: Canvas | None) -> None:
        sprite = canvas.finish() if canvas is not None else None
        if sprite is not None and overlap(sprite, self.size_px) is not None:
            solid = cv2.compare(sprite.alpha, SOLID_ALPHA, cv2.CMP_GE)
            parts.append(_Part(track_id, class_id, sprite, cv2.countNonZero(solid)))

    def _velocity(self, pose: Pose) -> tuple[float, float]:
        step = pose.speed_mps * self.traits.exposure_s
        if step < 0.004:
            return 0.0, 0.0
        dx, dy = step * np.cos(pose.heading_rad), step * np.sin(pose.heading_rad)
        px, depth = self.layout.camera.project(
            np.array([(pose.x_m, pose.y_m, 0.8), (pose.x_m + dx, pose.y_m + dy, 0.8)])
        )
        if depth.min() < 1.0:
            return 0.0, 0.0
        return float(px[1, 0] - px[0, 0]), float(px[1, 1] - px[0, 1])

    def _place(self, picture: Image, owner: NDArray[np.int16], shown: list[_Shown]) -> None:
        eye = self.layout.camera.position_m[:2]
        feet = np.array([s.footprint_m for s in shown])
        screen = np.array([s.screen for s in shown])
        hidden_by = np.zeros((0, len(shown)), bool)
        if len(self._standing_feet):
            hidden_by = in_front(self._standing_feet, feet, eye) & boxes_meet(self._standing_boxes, screen)
        for index in far_to_near(feet, screen, eye):
            fronts = [self.scene.standing[k] for k in np.flatnonzero(hidden_by[:, index])]
            for part in shown[index].parts:
                moved = smeared(part.sprite, *shown[index].velocity_px)
                for thing in fronts:
                    _carve(moved, thing)
                    if moved is not part.sprite:
                        _carve(part.sprite, thing)
                self._lay(picture, owner, moved, part)

    def _lay(self, picture: Image, owner: NDArray[np.int16], moved: Sprite, part: _Part) -> None:
        box = overlap(moved, self.size_px)
        if box is not None:
            bgr, alpha = crop(moved, box)
            blend(picture[box[1] : box[3], box[0] : box[2]], bgr, alpha)
        box = overlap(part.sprite, self.size_px)
        if box is not None:
            _, alpha = crop(part.sprite, box)
            np.copyto(owner[box[1] : box[3], box[0] : box[2]], part.track_id, where=alpha >= SOLID_ALPHA)

    def _glare(self, picture: Image, owner: NDArray[np.int16], shown: list[_Shown]) -> None:
        layer = GlareLayer(self.scene)
        power = self.atmosphere.headlights * (0.35 + 0.65 * self._darkness)
        for s in shown:
            if s.actor.mesh is not None:
                clear = float(
                    np.exp(
                        -self.atmosphere.extinction_per_m
                        * 0.6
                        * self.layout.camera.distance_m(s.pose.x_m, s.pose.y_m)
                    )
                )
                layer.add_vehicle(s.actor.mesh, s.pose, owner, s.actor.track_id, power * clear)
        layer.apply(picture)

    def _objects(
        self, picture: Image, owner: NDArray[np.int16], shown: list[_Shown]
    ) -> tuple[StreetObject, ...]:
        out: list[StreetObject] = []
        for s in shown:
            for part in s.parts:
                box = overlap(part.sprite, self.size_px)
                if box is None or part.area_px == 0:
                    continue
                rows, cols = slice(box[1], box[3]), slice(box[0], box[2])
                mask = (owner[rows, cols] == part.track_id).astype(np.uint8)
                seen = cv2.countNonZero(mask)
                if seen == 0:
                    continue
                change = cv2.mean(cv2.absdiff(picture[rows, cols], self.scene.background[rows, cols]), mask)
                made = judge(
                    part.track_id,
                    part.class_id,
                    part.sprite.box_xyxy,
                    seen / part.area_px,
                    sum(change[:3]) / 3,
                    self.size_px,
                )
                if made is not None:
                    out.append(made)
        for number, thing in enumerate(self.scene.standing):
            if thing.class_id >= 0 and thing.seen is not None and thing.area_px > 0:
                made = self._parked(number, thing, owner)
                if made is not None:
                    out.append(made)
        out.sort(key=lambda o: o.track_id)
        return tuple(out)

    def _parked(self, number: int, thing: Standing, owner: NDArray[np.int16]) -> StreetObject | None:
        x0, y0, x1, y1 = thing.box
        assert thing.seen is not None
        seen = int(np.count_nonzero(thing.seen[owner[y0:y1, x0:x1] == 0]))
        return judge(
            number, thing.class_id, thing.outline_xyxy, seen / thing.area_px, thing.contrast, self.size_px
        )


def _body(actor: Actor, pose: Pose) -> Body | None:
    if actor.look is None:
        return None
    return riding(actor.look, pose) if actor.bicycle is not None else walking(actor.look, pose)


def _carve(sprite: Sprite, thing: Standing) -> None:
    """Take away the part of a sprite that a standing thing hides, in place."""
    h, w = sprite.alpha.shape
    x0, y0 = max(sprite.x_px, thing.box[0]), max(sprite.y_px, thing.box[1])
    x1, y1 = min(sprite.x_px + w, thing.box[2]), min(sprite.y_px + h, thing.box[3])
    if x1 <= x0 or y1 <= y0:
        return
    bgr, alpha = crop(sprite, (x0, y0, x1, y1))
    front = thing.alpha[y0 - thing.box[1] : y1 - thing.box[1], x0 - thing.box[0] : x1 - thing.box[0]]
    if cv2.countNonZero(front) == 0:
        return
    clear = cv2.bitwise_not(front)
    cv2.multiply(alpha, clear, dst=alpha, scale=1 / 255)
    cv2.multiply(bgr, cv2.cvtColor(clear, cv2.COLOR_GRAY2BGR), dst=bgr, scale=1 / 255)
