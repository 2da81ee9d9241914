"""Camera, drawing order, motion and sprites: the sums under the street."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fovea.sim.camera import Camera
from fovea.sim.canvas import Canvas, smeared
from fovea.sim.conditions import CONDITIONS, sample_atmosphere
from fovea.sim.layout import sample_layout
from fovea.sim.motion import AlongLane, Flow, Stand, Walk
from fovea.sim.order import far_to_near, in_front
from fovea.sim.traffic import populate


def _camera(yaw_deg: float = 10.0, tilt_deg: float = 18.0, roll_deg: float = 0.0) -> Camera:
    return Camera.looking(
        (0.0, -4.0, 6.0),
        math.radians(yaw_deg),
        math.radians(tilt_deg),
        math.radians(roll_deg),
        800.0,
        (960, 540),
    )


@given(st.floats(-50, 50), st.floats(8, 30), st.floats(-2, 2), st.floats(40, 920), st.floats(150, 530))
def test_ground_points_project_back_to_the_pixel_they_came_from(
    yaw: float, tilt: float, roll: float, u: float, v: float
) -> None:
    camera = _camera(yaw, tilt, roll)
    a, b, w = camera.ground_plane() @ (u, v, 1.0)
    if w < 1e-3:
        return
    px, depth = camera.project(np.array([[a / w, b / w, 0.0]]))
    assert np.allclose(px[0], (u, v), atol=1e-6)
    assert depth[0] == pytest.approx(1 / w)


def test_axes_of_the_camera_are_a_rotation() -> None:
    r = _camera(33, 21, 1.5).rotation
    assert np.allclose(r @ r.T, np.eye(3))
    assert np.linalg.det(r) == pytest.approx(1.0)


def test_a_point_to_the_left_is_left_in_the_picture_and_a_higher_one_is_higher() -> None:
    camera = _camera(0.0)
    px, _ = camera.project(np.array([(20.0, -4.0, 0.0), (20.0, 0.0, 0.0), (20.0, -4.0, 2.0)]))
    assert px[1, 0] < px[0, 0]
    assert px[2, 1] < px[0, 1]


def test_polygons_reaching_behind_the_camera_are_cut_and_those_wholly_behind_vanish() -> None:
    camera = _camera(0.0)
    road = np.array([(-30.0, -6.0, 0.0), (60.0, -6.0, 0.0), (60.0, 6.0, 0.0), (-30.0, 6.0, 0.0)])
    px = camera.polygon_px(road)
    assert px is not None
    assert np.isfinite(px).all()
    assert camera.polygon_px(road - (200.0, 0.0, 0.0)) is None


def test_the_box_on_the_eyes_side_of_a_parting_line_hides_the_other() -> None:
    eye = np.array([0.0, -4.0])
    bus, person_before, person_behind = (
        (10.0, -1.0, 22.0, 1.5),
        (14.0, -2.5, 14.5, -2.0),
        (14.0, 2.0, 14.5, 2.5),
    )
    a = np.array([bus, person_before, person_behind])
    front = in_front(a, a, eye)
    assert front[1, 0]
    assert not front[0, 1]
    assert front[0, 2]
    assert not front[2, 0]


def test_drawing_order_puts_the_hidden_first_even_when_its_middle_is_nearer() -> None:
    eye = np.array([0.0, -4.0])
    long_bus, person_behind_its_tail = (8.0, -1.0, 20.0, 1.5), (9.0, 2.0, 9.5, 2.5)
    feet = np.array([long_bus, person_behind_its_tail])
    screen = np.tile(np.array([0.0, 0.0, 10.0, 10.0]), (2, 1))
    assert far_to_near(feet, screen, eye) == [1, 0]


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_drawing_order_is_always_a_permutation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    low = rng.uniform(-10, 40, (12, 2))
    feet = np.hstack([low, low + rng.uniform(0.3, 12, (12, 2))])
    corner = rng.uniform(0, 900, (12, 2))
    screen = np.hstack([corner, corner + rng.uniform(5, 200, (12, 2))])
    assert sorted(far_to_near(feet, screen, np.array([0.0, 0.0]))) == list(range(12))


@given(st.floats(4, 12), st.floats(0, 1), st.floats(15, 30), st.floats(0, 30), st.floats(0, 60))
def test_progress_is_the_integral_of_speed_and_never_runs_back(
    cruise: float, depth: float, period: float, phase: float, time_s: float
) -> None:
    flow = Flow(cruise, depth, period, phase)
    step = 1e-4
    slope = (flow.progress_m(time_s + step) - flow.progress_m(time_s - step)) / (2 * step)
    assert slope == pytest.approx(flow.speed_mps(time_s), abs=1e-3)
    assert flow.speed_mps(time_s) >= -1e-9


def test_a_full_stop_comes_once_a_period() -> None:
    flow = Flow(10.0, 1.0, 20.0, 5.0)
    assert flow.speed_mps(5.0) == pytest.approx(0.0)
    assert flow.speed_mps(25.0) == pytest.approx(0.0)
    assert flow.speed_mps(15.0) > 10.0


def test_lane_motion_has_a_beginning_and_an_end() -> None:
    lane = AlongLane((0.0, 2.0), 0.0, 50.0, 0.0, Flow(10.0, 0.0, 20.0, 0.0))
    assert lane.pose_at(-0.1) is None
    assert lane.pose_at(5.1) is None
    pose = lane.pose_at(2.0)
    assert pose is not None
    assert (pose.x_m, pose.y_m, pose.travelled_m) == pytest.approx((20.0, 2.0, 20.0))


def test_walkers_turn_at_their_way_points() -> None:
    walk = Walk(((0.0, 0.0), (4.0, 0.0), (4.0, 3.0)), 1.0, 0.0, 0.0, 0.0)
    first, second = walk.pose_at(2.0), walk.pose_at(5.0)
    assert first is not None
    assert second is not None
    assert (first.x_m, first.y_m, first.heading_rad) == pytest.approx((2.0, 0.0, 0.0))
    assert (second.x_m, second.y_m, second.heading_rad) == pytest.approx((4.0, 1.0, math.pi / 2))
    assert walk.pose_at(7.5) is None
    assert walk.pose_at(-1.0) is None


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_vehicles_of_different_lanes_never_drive_through_each_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layout = sample_layout(rng, (960, 540))
    actors = [a for a in populate(layout, rng, 30.0, False, 1000) if a.mesh is not None]
    assert len({a.track_id for a in actors}) == len(actors)
    for time_s in np.arange(0.0, 30.0, 0.5):
        poses = [(a, p) for a in actors if (p := a.motion.pose_at(float(time_s))) is not None]
        for i, (a, p) in enumerate(poses):
            for b, q in poses[i + 1 :]:
                assert a.mesh is not None
                assert b.mesh is not None
                reach = 0.45 * (a.mesh.width_m + b.mesh.width_m)
                assert math.hypot(p.x_m - q.x_m, p.y_m - q.y_m) > reach


def test_people_standing_about_stay_where_they_are() -> None:
    poses = [Stand(3.0, 4.0, 1.0, 0.5).pose_at(float(t)) for t in range(30)]
    assert max(abs(p.x_m - 3.0) for p in poses if p is not None) <= 0.05


def test_blur_keeps_the_weight_and_the_middle_of_a_sprite() -> None:
    canvas = Canvas(_camera(), (100.0, 100.0, 260.0, 180.0))
    canvas.convex([(150, 120), (190, 120), (190, 160), (150, 160)], (80.0, 120.0, 200.0))
    sharp = canvas.finish()
    assert sharp is not None
    soft = smeared(sharp, 14.0, -5.0)
    assert soft.box_xyxy == sharp.box_xyxy
    assert soft.alpha.sum(dtype=np.int64) == pytest.approx(sharp.alpha.sum(dtype=np.int64), rel=0.03)
    for a, b in ((sharp, soft),):
        ya, xa = np.nonzero(a.alpha > 20)
        yb, xb = np.nonzero(b.alpha > 20)
        assert abs((xa.mean() + a.x_px) - (xb.mean() + b.x_px)) <= 1.5
        assert abs((ya.mean() + a.y_px) - (yb.mean() + b.y_px)) <= 1.5
    assert smeared(sharp, 0.5, 0.5) is sharp


def test_an_empty_canvas_makes_no_sprite() -> None:
    assert Canvas(_camera(), (10.0, 10.0, 40.0, 40.0)).finish() is None


def test_every_condition_has_its_own_light() -> None:
    ambient = {
        c: np.mean([sample_atmosphere(c, np.random.default_rng(k)).ambient.mean() for k in range(20)])
        for c in CONDITIONS
    }
    assert ambient["night"] < ambient["dusk"] < ambient["day"]
    thick = sample_atmosphere("fog", np.random.default_rng(1)).extinction_per_m
    assert thick > 5 * sample_atmosphere("day", np.random.default_rng(1)).extinction_per_m
