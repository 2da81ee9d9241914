"""The truth: boxes hug what is drawn, fractions follow what hides, ids stay with their object."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache

import cv2
import numpy as np
import pytest

from fovea.sim.frame import StreetObject, judge
from fovea.sim.mesh import Pose
from fovea.sim.motion import Stand
from fovea.sim.person import random_look
from fovea.sim.render import ClipRenderer
from fovea.sim.suite import load_suite
from fovea.sim.traffic import Actor
from fovea.sim.vehicle import BUILDERS


@cache
def _renderer(condition: str, index: int) -> ClipRenderer:
    return load_suite("street-v1").clip("train", condition, index).renderer


def _still(objects: tuple[StreetObject, ...], track_id: int) -> StreetObject:
    return next(o for o in objects if o.track_id == track_id)


@pytest.mark.parametrize(("condition", "index"), [("day", 0), ("day", 5), ("snow", 4), ("fog", 3)])
def test_boxes_are_tight_around_each_actor_drawn_alone(condition: str, index: int) -> None:
    renderer = _renderer(condition, index)
    checked = 0
    for time_s in (3.0, 17.0):
        for actor in renderer.actors:
            if actor.bicycle is not None:
                continue
            picture, objects = renderer.silhouettes(time_s, (actor,))
            mine = [o for o in objects if o.track_id == actor.track_id]
            if not mine or mine[0].ignore or mine[0].visible_fraction < 0.999:
                continue
            changed = cv2.absdiff(picture, renderer.scene.background).max(axis=2) >= 2
            x, y, w, h = cv2.boundingRect(changed.astype(np.uint8))
            assert np.abs(np.array(mine[0].box_xyxy) - (x, y, x + w, y + h)).max() <= 2.0, mine[0]
            checked += 1
    assert checked >= 6


def test_bicycle_and_rider_boxes_together_cover_what_is_drawn() -> None:
    checked = 0
    for index in (0, 5):
        renderer = _renderer("day", index)
        for actor in renderer.actors:
            if actor.bicycle is None:
                continue
            picture, objects = renderer.silhouettes(8.0, (actor,))
            pair = [o for o in objects if o.track_id in (actor.track_id, actor.track_id + 1)]
            if (
                len(pair) != 2
                or min(o.box_xyxy[0] for o in pair) <= 0
                or max(o.box_xyxy[3] for o in pair) >= 540
            ):
                continue
            if pair[1].visible_fraction < 0.999 or pair[1].ignore:
                continue
            assert {o.label for o in pair} == {"bicycle", "person"}
            boxes = np.array([o.box_xyxy for o in pair])
            hull = (*boxes[:, :2].min(axis=0), *boxes[:, 2:].max(axis=0))
            changed = cv2.absdiff(picture, renderer.scene.background).max(axis=2) >= 2
            x, y, w, h = cv2.boundingRect(changed.astype(np.uint8))
            assert np.abs(np.array(hull) - (x, y, x + w, y + h)).max() <= 2.0
            checked += 1
    assert checked >= 2


def _on_axis(renderer: ClipRenderer, ahead_m: float, aside_m: float) -> tuple[float, float]:
    """A ground point straight ahead of the camera, and `aside_m` to its left."""
    camera = renderer.layout.camera
    forward = camera.rotation[2, :2] / np.linalg.norm(camera.rotation[2, :2])
    left = np.array([-forward[1], forward[0]])
    x, y = camera.position_m[:2] + forward * ahead_m + left * aside_m
    return float(x), float(y)


def _bare(renderer: ClipRenderer) -> ClipRenderer:
    """The same street without anything that stands on it."""
    other = object.__new__(ClipRenderer)
    other.__dict__.update(renderer.__dict__)
    other.scene = replace(renderer.scene, standing=())
    other._standing_feet = np.zeros((0, 4))
    other._standing_boxes = np.zeros((0, 4))
    return other


def _person(track_id: int, x_m: float, y_m: float) -> Actor:
    look = random_look(np.random.default_rng(5), False)
    return Actor(track_id, Stand(x_m, y_m, 0.0, 0.0), look=replace(look, height_m=1.8))


def test_visible_fraction_falls_as_a_vehicle_covers_a_person_and_the_box_stays() -> None:
    renderer = _bare(_renderer("day", 5))
    person = _person(2000, *_on_axis(renderer, 18.0, 0.0))
    alone = _still(renderer.silhouettes(0.0, (person,))[1], 2000)
    assert alone.visible_fraction == 1.0
    forward = renderer.layout.camera.rotation[2, :2]
    heading = float(np.arctan2(forward[1], forward[0])) + np.pi / 2
    mesh = BUILDERS[7](np.random.default_rng(3))
    fractions = []
    for aside_m in np.arange(6.5, -0.1, -0.5):
        x, y = _on_axis(renderer, 15.0, float(aside_m))
        truck = Actor(3000, Stand(x, y, heading, 0.0), mesh, 7)
        objects = renderer.silhouettes(0.0, (person, truck))[1]
        seen = [o for o in objects if o.track_id == 2000]
        fractions.append(seen[0].visible_fraction if seen else 0.0)
        for thing in seen:
            assert thing.box_xyxy == alone.box_xyxy
            assert thing.ignore == (thing.visible_fraction < 0.25)
        assert _still(objects, 3000).visible_fraction >= 0.6
    assert fractions[0] == 1.0
    assert all(a >= b for a, b in itertools.pairwise(fractions))
    assert fractions[-1] < 0.5


def test_the_nearer_of_two_people_hides_the_farther_and_is_whole_itself() -> None:
    renderer = _bare(_renderer("day", 5))
    near = _person(2000, *_on_axis(renderer, 12.0, 0.0))
    far = _person(2002, *_on_axis(renderer, 12.8, 0.05))
    for actors in ((near, far), (far, near)):
        objects = renderer.silhouettes(0.0, actors)[1]
        assert _still(objects, 2000).visible_fraction == 1.0
        assert _still(objects, 2002).visible_fraction < 0.8


def test_what_leaves_the_frame_loses_its_share_and_its_box_is_cut() -> None:
    renderer = _bare(_renderer("day", 5))
    fractions = []
    for aside_m in np.arange(0.0, 14.0, 0.5):
        actor = _person(2000, *_on_axis(renderer, 12.0, float(aside_m)))
        objects = renderer.silhouettes(0.0, (actor,))[1]
        fractions.append(objects[0].visible_fraction if objects else 0.0)
        for thing in objects:
            assert thing.box_xyxy[0] >= 0.0
    assert fractions[0] == 1.0
    assert fractions[-1] == 0.0
    assert all(a >= b - 0.03 for a, b in itertools.pairwise(fractions))


def test_ids_stay_with_their_object_and_boxes_move_smoothly() -> None:
    renderer = _renderer("dusk", 4)
    before: dict[int, StreetObject] = {}
    followed = 0
    for i in range(60, 75):
        now = {o.track_id: o for o in renderer.compose(i / 10, renderer.actors)[1]}
        for track_id in now.keys() & before.keys():
            a, b = before[track_id], now[track_id]
            assert a.class_id == b.class_id
            inside = all(o.box_xyxy[0] > 0 and o.box_xyxy[2] < 960 and o.box_xyxy[3] < 540 for o in (a, b))
            if inside and a.class_id == 0:
                move = np.abs(np.array(a.box_xyxy) - b.box_xyxy).max()
                assert move <= 0.35 * (a.box_xyxy[3] - a.box_xyxy[1]) + 3, (a, b)
                followed += 1
        before = now
    assert followed > 50


def test_objects_too_small_too_hidden_or_too_faint_are_ignored_and_the_rest_is_not() -> None:
    size = (960, 540)

    def ignored(height_px: float, fraction: float, contrast: float) -> bool:
        thing = judge(1, 0, (10.0, 10.0, 20.0, 10.0 + height_px), fraction, contrast, size)
        assert thing is not None
        return thing.ignore

    assert not ignored(8.0, 0.25, 6.0)
    assert ignored(7.9, 1.0, 50.0)
    assert ignored(80.0, 0.24, 50.0)
    assert ignored(80.0, 1.0, 5.9)


def test_objects_of_which_nothing_is_seen_are_not_listed() -> None:
    assert judge(1, 0, (10.0, 10.0, 20.0, 60.0), 0.01, 50.0, (960, 540)) is None
    assert judge(1, 0, (-40.0, 10.0, 0.5, 60.0), 0.5, 50.0, (960, 540)) is None


def test_parked_vehicles_are_labelled_and_stand_still() -> None:
    renderer = _renderer("snow", 4)
    early = {o.track_id: o.box_xyxy for o in renderer.compose(2.0, ())[1]}
    late = {o.track_id: o.box_xyxy for o in renderer.compose(25.0, ())[1]}
    assert early == late
    assert early


def test_people_fade_into_fog_with_distance() -> None:
    renderer = _bare(_renderer("fog", 3))
    contrasts = []
    for ahead_m in (12.0, 25.0, 50.0, 90.0):
        actor = _person(2000, *_on_axis(renderer, ahead_m, 0.0))
        picture, _ = renderer.silhouettes(0.0, (actor,))
        difference = cv2.absdiff(picture, renderer.scene.background)
        contrasts.append(float(difference.max()))
    assert contrasts == sorted(contrasts, reverse=True)
    assert contrasts[-1] < contrasts[0] / 2


def test_a_pose_with_a_heading_turns_the_vehicle() -> None:
    renderer = _bare(_renderer("day", 5))
    x, y = _on_axis(renderer, 20.0, 0.0)
    forward = renderer.layout.camera.rotation[2, :2]
    along = float(np.arctan2(forward[1], forward[0]))
    mesh = BUILDERS[5](np.random.default_rng(1))
    widths = {}
    for name, turn in (("away", 0.0), ("across", np.pi / 2)):
        actor = Actor(2000, Stand(x, y, along + turn, 0.0), mesh, 5)
        box = _still(renderer.silhouettes(0.0, (actor,))[1], 2000).box_xyxy
        widths[name] = box[2] - box[0]
    assert widths["across"] > 1.8 * widths["away"]
    assert Pose(x, y, along).speed_mps == 0.0
