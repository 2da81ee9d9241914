"""Frames, sizes and ids refuse what they are not."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from fovea.core.errors import Malformed
from fovea.core.frame import Frame, FrameId, ImageSize, checked_pixels, size_of

ID = FrameId("yard", "b1", 7)
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def frame(pixels: Any = None, **changes: Any) -> Frame:
    pixels = np.zeros((4, 6, 3), np.uint8) if pixels is None else pixels
    return Frame(**{"id": ID, "pixels": pixels, "captured_at": NOW, "captured_mono_s": 1.5} | changes)


@pytest.mark.parametrize(
    ("pixels", "got"),
    [
        (np.zeros((4, 6), np.uint8), r"uint8 \[4, 6\]"),
        (np.zeros((4, 6, 4), np.uint8), r"uint8 \[4, 6, 4\]"),
        (np.zeros((4, 6, 3), np.uint16), r"uint16 \[4, 6, 3\]"),
        (np.zeros((4, 6, 3), np.float32), r"float32 \[4, 6, 3\]"),
        (np.zeros((0, 6, 3), np.uint8), r"uint8 \[0, 6, 3\]"),
        (np.zeros((4, 0, 3), np.uint8), r"uint8 \[4, 0, 3\]"),
        (np.zeros((1, 4, 6, 3), np.uint8), r"uint8 \[1, 4, 6, 3\]"),
        ([[[1, 2, 3]]], "list"),
        (None, "NoneType"),
    ],
)
def test_what_is_no_bgr_image_is_malformed_and_the_text_says_what_it_was(pixels: Any, got: str) -> None:
    with pytest.raises(Malformed, match=rf"^pixels: expected a uint8 array \[H, W, 3\], got {got}$"):
        checked_pixels(pixels)


@pytest.mark.parametrize("height", [1, 5])
@pytest.mark.parametrize("width", [1, 7])
def test_any_size_is_an_image_also_read_only_and_strided(width: int, height: int) -> None:
    wide = np.arange(height * width * 6, dtype=np.uint8).reshape(height, 2 * width, 3)
    strided = wide[:, ::2]
    strided.flags.writeable = False
    pixels = checked_pixels(strided)
    assert np.array_equal(pixels, wide[:, ::2]) and pixels.flags.c_contiguous
    assert size_of(pixels) == ImageSize(width, height)


def test_the_pixels_of_a_frame_are_a_read_only_view_and_not_a_copy() -> None:
    mine = np.zeros((4, 6, 3), np.uint8)
    made = frame(mine)
    assert np.shares_memory(made.pixels, mine) and mine.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        made.pixels[0, 0] = 1
    assert made.size == ImageSize(6, 4)


def test_a_frame_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        frame().id = ID  # type: ignore[misc]


def test_a_time_without_a_zone_is_malformed() -> None:
    with pytest.raises(Malformed, match=r"^frame captured_at: expected a time with a zone \(UTC\)"):
        frame(captured_at=datetime(2030, 1, 1))


@pytest.mark.parametrize("mono_s", [float("nan"), float("inf")])
def test_a_monotonic_time_that_is_no_number_is_malformed(mono_s: float) -> None:
    with pytest.raises(Malformed, match=f"^frame captured_mono_s: expected a finite number, got {mono_s}"):
        frame(captured_mono_s=mono_s)


@pytest.mark.parametrize("side", [0, -1, 2**24 + 1, 1.5, float("nan"), "7", None])
def test_a_size_that_is_no_size_is_malformed_and_the_side_is_told(side: Any) -> None:
    with pytest.raises(Malformed, match=r"^image size width: expected 1 to 16777216 whole px, got "):
        ImageSize(side, 1)
    with pytest.raises(Malformed, match=r"^image size height: expected 1 to 16777216 whole px, got "):
        ImageSize(1, side)


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        (("", "b", 0), "frame id: expected a camera and a boot id, got '', 'b'"),
        (("c", "", 0), "frame id: expected a camera and a boot id, got 'c', ''"),
        (("c", "b", -1), r"frame id sequence: expected 0 to 2\*\*63 - 1, got -1"),
        (("c", "b", 2**63), r"frame id sequence: expected 0 to 2\*\*63 - 1, got 9223372036854775808"),
        (("c", "b", 0.5), r"frame id sequence: expected 0 to 2\*\*63 - 1, got 0.5"),
    ],
)
def test_a_frame_id_that_names_nothing_is_malformed(parts: tuple[Any, ...], told: str) -> None:
    with pytest.raises(Malformed, match=f"^{told}"):
        FrameId(*parts)


def test_ids_and_sizes_read_well_and_work_as_keys() -> None:
    assert (str(ID), str(ImageSize(6, 4))) == ("yard/b1/7", "6x4")
    assert len({ID, FrameId("yard", "b1", 7), FrameId("yard", "b2", 7)}) == 2
