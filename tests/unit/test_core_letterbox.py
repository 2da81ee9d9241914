"""The way into a model's input and back, against the arithmetic and against what OpenCV does to pixels."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fovea.core.arrays import FloatArray, ImageArray
from fovea.core.frame import ImageSize
from fovea.core.letterbox import Letterbox, Placement

EDGE_CASES = [
    ImageSize(*sides)
    for sides in [
        (1, 1),
        (1, 4000),
        (4000, 1),
        (3, 2),
        (641, 479),
        (1080, 1920),
        (4608, 2592),
        (333, 7),
        (1279, 719),
    ]
]
TARGETS = [ImageSize(*sides) for sides in [(640, 640), (320, 192), (416, 256), (33, 65)]]
SIDES = st.integers(1, 5000)
SIZES = st.one_of(st.sampled_from(EDGE_CASES), st.builds(ImageSize, SIDES, SIDES))
PLACEMENTS = st.sampled_from(list(Placement))


@st.composite
def sizes_and_boxes(draw: st.DrawFn) -> tuple[ImageSize, FloatArray]:
    size = draw(SIZES)
    share = st.floats(0, 1, width=32)
    points = np.array(draw(st.lists(st.tuples(share, share), min_size=2, max_size=10)), np.float32)
    corners = points[: len(points) // 2 * 2].reshape(-1, 2, 2) * [size.width, size.height]
    return size, np.sort(corners, axis=1).reshape(-1, 4).astype(np.float32)


@settings(max_examples=400)
@given(sizes_and_boxes(), st.sampled_from(TARGETS), PLACEMENTS)
def test_there_and_back_is_the_same_box_within_half_a_pixel(
    case: tuple[ImageSize, FloatArray], target: ImageSize, placement: Placement
) -> None:
    size, boxes = case
    fitted = Letterbox.fit(size, target, placement)
    back = fitted.to_frame(fitted.to_input(boxes))
    assert back.dtype == np.float32
    assert np.abs(back - boxes).max() < 0.5


@given(SIZES, st.sampled_from(TARGETS), PLACEMENTS)
def test_the_whole_frame_fills_the_resized_area_and_that_lies_in_the_input(
    size: ImageSize, target: ImageSize, placement: Placement
) -> None:
    fitted = Letterbox.fit(size, target, placement)
    whole = fitted.to_input(np.array([[0, 0, size.width, size.height]], np.float32))[0]
    right, bottom = fitted.left + fitted.resized.width, fitted.top + fitted.resized.height
    assert whole == pytest.approx([fitted.left, fitted.top, right, bottom], abs=1e-3)
    assert fitted.left >= 0 and fitted.top >= 0 and right <= target.width and bottom <= target.height
    filled = (fitted.resized.width == target.width, fitted.resized.height == target.height)
    assert all(filled) if placement is Placement.STRETCH else any(filled)
    if placement is Placement.TOP_LEFT:
        assert (fitted.left, fitted.top) == (0, 0)
    if placement is Placement.CENTER:
        assert 0 <= target.width - right - fitted.left <= 1 and 0 <= target.height - bottom - fitted.top <= 1


@given(SIZES, st.sampled_from(TARGETS))
def test_the_aspect_is_kept_to_half_a_pixel_of_the_input(size: ImageSize, target: ImageSize) -> None:
    fitted = Letterbox.fit(size, target)
    gain = min(target.width / size.width, target.height / size.height)
    assert fitted.resized.width == pytest.approx(max(size.width * gain, 1), abs=0.5)
    assert fitted.resized.height == pytest.approx(max(size.height * gain, 1), abs=0.5)


@pytest.mark.parametrize("value", [-3e38, 3e38])
def test_wild_boxes_come_back_clipped_to_the_frame(value: float) -> None:
    fitted = Letterbox.fit(ImageSize(4000, 1), ImageSize(320, 192))
    back = fitted.to_frame(np.full((1, 4), value, np.float32))[0]
    assert back.tolist() == ([4000, 1, 4000, 1] if value > 0 else [0, 0, 0, 0])


def placed(pixels: ImageArray, fitted: Letterbox, interpolation: int) -> ImageArray:
    """What a model gets to see: resized by OpenCV, then padded."""
    resized = cv2.resize(pixels, (fitted.resized.width, fitted.resized.height), interpolation=interpolation)
    canvas = np.zeros((fitted.target.height, fitted.target.width), np.uint8)
    canvas[fitted.top :, fitted.left :][: resized.shape[0], : resized.shape[1]] = resized
    return canvas


def edges(profile: FloatArray) -> tuple[float, float]:
    """Where a bright run starts and ends, in px, from how bright each cell is (0 to 1)."""
    bright = np.flatnonzero(profile > 0.02)
    middle = len(profile) if not bright.size else int(bright[len(bright) // 2])
    return middle - profile[:middle].sum(), middle + profile[middle:].sum()


def found(pixels: ImageArray) -> list[float]:
    """The box of the one bright rectangle in an image, to a fraction of a pixel."""
    light = pixels.astype(np.float32) / 255
    left, right = edges(light.max(axis=0) / light.max())
    top, bottom = edges(light.max(axis=1) / light.max())
    return [left, top, right, bottom]


@pytest.mark.parametrize("placement", Placement)
@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("size", EDGE_CASES, ids=str)
def test_a_painted_rectangle_is_found_where_the_letterbox_says(
    size: ImageSize, target: ImageSize, placement: Placement
) -> None:
    fitted = Letterbox.fit(size, target, placement)
    shrinks = fitted.resized.width <= size.width and fitted.resized.height <= size.height
    random = np.random.default_rng(size.width * 7 + target.width)
    for _ in range(3):
        # At least three cells of the input wide, so that some cell in the middle is as bright as the paint.
        box = np.array(
            [*some_run(random, size.width, fitted.gains[0]), *some_run(random, size.height, fitted.gains[1])]
        )
        x1, x2, y1, y2 = box.tolist()
        pixels = np.zeros((size.height, size.width), np.uint8)
        pixels[y1:y2, x1:x2] = 255
        expected = fitted.to_input(np.array([[x1, y1, x2, y2]], np.float32))[0]
        exact = found(placed(pixels, fitted, cv2.INTER_AREA)) if shrinks else expected
        quick = found(placed(pixels, fitted, cv2.INTER_LINEAR))
        assert exact == pytest.approx(expected, abs=0.06)
        assert quick == pytest.approx(expected, abs=0.75)


def some_run(random: np.random.Generator, length: int, gain: float) -> tuple[int, int]:
    """A run of pixels within `length` that covers at least three cells of the input, or all there is."""
    shortest = min(length, int(np.ceil(3 / gain)) + 1)
    start = int(random.integers(0, length - shortest + 1))
    return start, int(random.integers(start + shortest, length + 1))
