"""The motion gate: what moves is found, what only gets lighter is not, and a look is due now and then."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.capture.motion import Motion, MotionGate, MotionSettings
from fovea.core.errors import Malformed
from tests.builders import scene

HEIGHT, WIDTH = 540, 960
STILL = scene(HEIGHT, WIDTH, seed=4)
GRAIN = np.random.default_rng(1).normal(0, 1, (HEIGHT, WIDTH, 3)).astype(np.float32)
QUIET = MotionSettings(forced_every_s=None)


def with_block(left: int, top: int = 200, side: int = 60, level: int = 250) -> np.ndarray:
    pixels = STILL.copy()
    pixels[top : top + side, left : left + side] = level
    return pixels


def noisy(rng: np.random.Generator, pixels: np.ndarray, sigma: float) -> np.ndarray:
    if not sigma:
        return pixels
    grain = np.roll(GRAIN, int(rng.integers(0, GRAIN.size)))
    return np.clip(pixels + sigma * grain, 0, 255).astype(np.uint8)


def settled(wanted: MotionSettings = QUIET, sigma: float = 0.0) -> tuple[MotionGate, np.random.Generator]:
    """A gate that has seen a still scene for 3 s, until 102.9 s."""
    gate, rng = MotionGate(wanted), np.random.default_rng(0)
    for number in range(30):
        gate.look(noisy(rng, STILL, sigma), 100 + number / 10)
    return gate, rng


def test_the_first_frame_is_looked_at_although_nothing_moved_yet() -> None:
    motion = MotionGate().look(scene(HEIGHT, WIDTH), 5.0)
    assert (motion.is_moving, motion.is_forced, motion.wants_look) == (False, True, True)
    assert motion.boxes_xyxy.shape == (0, 4)


@pytest.mark.parametrize("sigma", [0.0, 6.0, 15.0])
def test_a_still_scene_does_not_move_however_noisy_it_is(sigma: float) -> None:
    gate, rng = settled(sigma=sigma)
    looks = [gate.look(noisy(rng, STILL, sigma), 103 + n / 10) for n in range(20)]
    assert not any(look.wants_look for look in looks)


@pytest.mark.parametrize("sigma", [0.0, 6.0])
def test_what_moves_is_found_where_it_is(sigma: float) -> None:
    gate, rng = settled(sigma=sigma)
    motion = gate.look(noisy(rng, with_block(400), sigma), 103.0)
    assert motion.is_moving and motion.wants_look and not motion.is_forced
    assert 0.003 < motion.share < 0.02
    x1, y1, x2, y2 = (float(edge) for edge in motion.boxes_xyxy[0])
    assert x1 <= 400 and y1 <= 200 and x2 >= 460 and y2 >= 260
    assert (x2 - x1) < 120 and (y2 - y1) < 120


@settings(max_examples=40)
@given(st.integers(0, WIDTH - 40), st.integers(0, HEIGHT - 40), st.integers(24, 200))
def test_boxes_lie_within_the_frame_and_cover_what_changed(left: int, top: int, side: int) -> None:
    gate = MotionGate(QUIET)
    gate.look(STILL // 2, 1.0)
    pixels = STILL // 2
    pixels[top : top + side, left : left + side] = 255
    motion = gate.look(pixels, 1.1)
    assert motion.is_moving
    boxes = motion.boxes_xyxy
    assert (boxes >= 0).all() and (boxes[:, 2] <= WIDTH).all() and (boxes[:, 3] <= HEIGHT).all()
    x1, y1, x2, y2 = boxes[0]
    middle = (left + min(left + side, WIDTH)) / 2, (top + min(top + side, HEIGHT)) / 2
    assert x1 <= middle[0] <= x2 and y1 <= middle[1] <= y2


def looks_at_light(change: float) -> list[Motion]:
    gate, _ = settled()
    light = np.clip(STILL * change, 0, 255).astype(np.uint8)
    return [gate.look(light, 103 + number / 10) for number in range(30)]


@pytest.mark.parametrize("change", [0.85, 1.15, 1.3])
def test_a_cloud_or_a_lamp_is_no_motion(change: float) -> None:
    looks = looks_at_light(change)
    assert sum(look.wants_look for look in looks) <= 1, "one look at the scene in its new light at most"


def test_lights_that_change_the_whole_picture_ask_for_one_look_and_give_no_boxes() -> None:
    gate, _ = settled()
    dark = scene(HEIGHT, WIDTH, seed=9)
    looks = [gate.look(dark, 103 + number / 10) for number in range(20)]
    assert [look.is_forced for look in looks] == [True] + [False] * 19
    assert not any(look.is_moving for look in looks)


def test_what_stays_becomes_background_after_a_while() -> None:
    gate, _ = settled()
    looks = [gate.look(with_block(400), 103 + number / 10) for number in range(300)]
    assert looks[0].is_moving and looks[5].is_moving
    assert not looks[-1].is_moving


def test_a_look_is_due_after_a_while_without_one_and_motion_counts_as_one() -> None:
    gate, _ = settled(MotionSettings(forced_every_s=2.0))
    still = STILL
    due = [at_s for at_s in np.arange(103.0, 113.0, 0.25) if gate.look(still, float(at_s)).is_forced]
    assert np.diff(due).min() >= 2.0 and len(due) >= 4
    moved_s = due[-1] + 1.75
    assert gate.look(with_block(300), float(moved_s)).is_moving
    assert not gate.look(still, float(moved_s) + 0.5).is_forced


@pytest.mark.parametrize("size", [(1, 1), (1, 4000), (4000, 1), (33, 47), (2160, 3840), (960, 540)])
def test_any_size_and_a_change_of_size_are_fine(size: tuple[int, int]) -> None:
    gate = MotionGate(QUIET)
    gate.look(scene(HEIGHT, WIDTH), 1.0)
    for number in range(3):
        motion = gate.look(scene(*size, seed=1), 2.0 + number)
        assert motion.is_forced == (number == 0), "another size is another scene"
        assert motion.boxes_xyxy.dtype == np.float32 and not motion.boxes_xyxy.flags.writeable


@pytest.mark.parametrize(
    "wrong",
    [{"width_px": 4}, {"least_change": 0}, {"least_share": 0.7}, {"adapt_s": 0}, {"forced_every_s": 0}],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(Malformed, match="motion"):
        MotionSettings(**wrong)  # type: ignore[arg-type]
