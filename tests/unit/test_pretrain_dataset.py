"""What the training set shows: labels that fit their pixels, nothing that teaches a net to overlook objects."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud.street_dataset import (
    VIEWS,
    Amount,
    Example,
    Pixels,
    View,
    build_dataset,
    choose_window,
    example_of,
    frame_indices,
    planned_clips,
    soften,
)

FULL = View("whole", (960, 540))
CROPPED = View("cropped", (960, 540), (416, 320))


@dataclass(frozen=True)
class Thing:
    label: str
    box_xyxy: tuple[float, float, float, float]
    ignore: bool = False


def noise(height: int = 540, width: int = 960) -> Pixels:
    return np.random.default_rng(3).integers(0, 256, (height, width, 3)).astype(np.uint8)


@dataclass(frozen=True)
class Scene:
    objects: Sequence[Thing]
    pixels: Pixels = field(default_factory=noise)


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def test_label_lines_are_class_centre_and_size_as_shares_of_the_image() -> None:
    example = Example(noise(100, 200), np.array([[20, 10, 60, 50]], np.float32), np.array([3]))
    assert example.label_lines() == "3 0.200000 0.300000 0.200000 0.400000\n"


def test_an_image_without_objects_has_an_empty_label_file() -> None:
    assert example_of(Scene(()), FULL, True, rng()).label_lines() == ""


def test_boxes_shrink_with_the_frame() -> None:
    example = example_of(Scene([Thing("bus", (300, 150, 600, 450))]), VIEWS["student"], True, rng())
    assert example.pixels.shape == (180, 320, 3)
    np.testing.assert_allclose(example.boxes_xyxy, [[100, 50, 200, 150]])
    assert example.classes.tolist() == [3]


def test_labels_outside_the_vocabulary_are_left_alone() -> None:
    scene = Scene([Thing("zeppelin", (100, 100, 300, 300))])
    example = example_of(scene, FULL, True, rng())
    assert len(example.boxes_xyxy) == 0
    np.testing.assert_array_equal(example.pixels, scene.pixels)


def test_an_ignored_object_has_no_label_and_is_no_longer_to_be_seen() -> None:
    scene = Scene([Thing("car", (400, 200, 500, 300), ignore=True)])
    example = example_of(scene, FULL, True, rng())
    assert len(example.boxes_xyxy) == 0
    assert example.pixels[210:290, 410:490].std() < scene.pixels[210:290, 410:490].std() / 3
    np.testing.assert_array_equal(example.pixels[:, :390], scene.pixels[:, :390])


def test_softening_never_touches_a_labelled_object() -> None:
    pixels = noise(100, 100)
    kept = np.array([[40, 40, 70, 70]], np.float32)
    shown = soften(pixels, np.array([[20, 20, 60, 60]], np.float32), kept)
    np.testing.assert_array_equal(shown[40:70, 40:70], pixels[40:70, 40:70])
    assert not np.array_equal(shown[20:40, 20:40], pixels[20:40, 20:40])


def test_the_frame_of_the_caller_is_never_changed() -> None:
    scene = Scene([Thing("car", (400, 200, 500, 300), ignore=True)])
    before = scene.pixels.copy()
    example_of(scene, FULL, True, rng())
    np.testing.assert_array_equal(scene.pixels, before)


@pytest.mark.parametrize("seed", range(12))
def test_crop_labels_are_cut_at_the_border_and_mostly_hidden_ones_are_dropped(seed: int) -> None:
    things = [Thing("person", (10 + 90 * k, 200, 60 + 90 * k, 320)) for k in range(10)]
    example = example_of(Scene(things), CROPPED, True, np.random.default_rng(seed))
    assert example.pixels.shape == (320, 416, 3)
    assert (example.boxes_xyxy >= 0).all()
    assert (example.boxes_xyxy <= [416, 320, 416, 320]).all()
    areas = np.prod(example.boxes_xyxy[:, 2:] - example.boxes_xyxy[:, :2], axis=1)
    assert (areas >= 0.3 * 50 * 120 - 1).all()


def test_validation_shows_the_whole_frame_even_where_training_crops() -> None:
    example = example_of(Scene([]), VIEWS["cloud"], False, rng())
    assert example.pixels.shape == (540, 960, 3)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.floats(0, 900), st.floats(0, 500))
def test_a_crop_window_lies_inside_the_frame(seed: int, x: float, y: float) -> None:
    boxes = np.array([[x, y, x + 60, y + 40]], np.float32)
    left, top = choose_window(np.random.default_rng(seed), boxes, (960, 540), (416, 320))
    assert 0 <= left <= 960 - 416
    assert 0 <= top <= 540 - 320


def test_most_windows_show_an_object_and_some_do_not() -> None:
    source = rng()
    boxes = np.array([[20, 20, 60, 60]], np.float32)
    windows = [choose_window(source, boxes, (960, 540), (200, 200)) for _ in range(300)]
    hits = sum(left <= 20 and top <= 20 for left, top in windows)
    assert 0.6 * 300 < hits < 300


@given(st.integers(0, 2**31), st.integers(1, 12))
def test_the_frames_of_a_clip_are_distinct_and_in_range(seed: int, wanted: int) -> None:
    frames = frame_indices(np.random.default_rng(seed), 300, wanted)
    assert len(set(frames)) == len(frames) == wanted
    assert all(0 <= frame < 300 for frame in frames)


def test_conditions_take_turns_so_that_a_cut_off_run_is_balanced() -> None:
    assert list(planned_clips(["day", "night"], 2)) == [("day", 0), ("night", 0), ("day", 1), ("night", 1)]


def test_rendering_again_adds_nothing_and_a_lost_image_pair_is_made_again(tmp_path: Path) -> None:
    views, amount = [VIEWS["student"], VIEWS["cloud"]], Amount(1, 2)
    data = build_dataset(tmp_path, views, ["day"], amount, amount)
    labels = sorted((tmp_path / "student" / "labels" / "train").glob("*.txt"))
    stamps = [path.stat().st_mtime_ns for path in labels]
    assert len(labels) == 2
    lost = labels[0].read_text()
    labels[0].unlink()
    build_dataset(tmp_path, views, ["day"], amount, amount)
    assert labels[0].read_text() == lost
    assert labels[1].stat().st_mtime_ns == stamps[1]
    image = cv2.imread(str(tmp_path / "cloud" / "images" / "train" / f"{labels[0].stem}.jpg"))
    width_px, height_px = VIEWS["cloud"].crop_wh_px or (0, 0)
    assert image is not None and image.shape == (height_px, width_px, 3)
    assert "train: images/train" in data["cloud"].read_text()
