"""Privacy masks: what a polygon covers is black, all of it, at every resolution."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.capture.mask import Polygon, PrivacyMask
from fovea.core.errors import Malformed

SHARES = st.floats(0, 1)
TRIANGLES = st.tuples(*[st.tuples(SHARES, SHARES)] * 3)


def white(height: int, width: int) -> np.ndarray:
    return np.full((height, width, 3), 255, np.uint8)


@given(TRIANGLES, st.integers(1, 20), st.integers(1, 20))
def test_every_pixel_whose_middle_is_inside_is_black(
    corners: tuple[tuple[float, float], ...], height: int, width: int
) -> None:
    masked = PrivacyMask([Polygon(corners)]).apply(white(height, width))
    outline = (np.array(corners) * (width, height)).astype(np.float32).reshape(-1, 1, 2)
    for row in range(height):
        for column in range(width):
            inside_px = cv2.pointPolygonTest(outline, (column + 0.5, row + 0.5), True)
            if inside_px > 0.05:
                assert not masked[row, column].any(), (row, column)
            if inside_px < -2:
                assert masked[row, column].all(), (row, column)


@pytest.mark.parametrize("size", [(48, 64), (49, 65), (1, 64), (64, 1), (1, 1), (1080, 1920)])
def test_the_whole_frame_can_be_masked_at_any_size(size: tuple[int, int]) -> None:
    whole = Polygon(((0, 0), (1, 0), (1, 1), (0, 1)))
    assert not PrivacyMask([whole]).apply(white(*size)).any()


def test_masks_add_up_and_none_is_none() -> None:
    left = Polygon(((0, 0), (0.25, 0), (0.25, 1), (0, 1)))
    right = Polygon(((0.75, 0), (1, 0), (1, 1), (0.75, 1)))
    masked = PrivacyMask([left, right]).apply(white(8, 80))
    assert not masked[:, :20].any() and not masked[:, 60:].any()
    assert masked[:, 22:58].all()
    pixels = white(4, 4)
    assert PrivacyMask().apply(pixels) is pixels


def test_what_cannot_be_written_to_is_copied() -> None:
    pixels = white(20, 20)
    pixels.flags.writeable = False
    masked = PrivacyMask([Polygon(((0, 0), (1, 0), (1, 1)))]).apply(pixels)
    assert pixels.all() and not masked.all()
    strided = white(20, 40)[:, ::2]
    assert not PrivacyMask([Polygon(((0, 0), (1, 0), (1, 1)))]).apply(strided).all()


@pytest.mark.parametrize(
    "corners",
    [
        (),
        ((0, 0), (1, 1)),
        ((0, 0), (1, 0), (1.01, 1)),
        ((0, 0), (1, 0), (-0.1, 1)),
        ((0, 0), (1, 0), (float("nan"), 1)),
        ((0, 0), (1, 0), (1, 1, 1)),
    ],
)
def test_a_polygon_that_is_none_is_refused(corners: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(Malformed, match="polygon"):
        Polygon(corners)
