"""Parts of a frame in one picture: nothing overlaps, all fits, and the way back is exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fovea.core.detections import Candidates, Detections, Inference, ScoreKind
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from fovea.core.labels import LabelSet
from fovea.core.mosaic import BORDER_PX, Mosaic, Tile, mosaic_of
from fovea.core.regions import RegionSettings, regions_around
from tests.builders import model_ref

LABELS = LabelSet.from_names(["person", "car"])
SIZES = st.builds(ImageSize, st.integers(1, 700), st.integers(1, 500))


@st.composite
def mosaics(draw: st.DrawFn) -> Mosaic:
    size = draw(SIZES)
    count = draw(st.integers(1, 8))
    corners = st.tuples(st.floats(0, size.width, width=32), st.floats(0, size.height, width=32))
    points = np.array([draw(corners) + draw(corners) for _ in range(count)], np.float32)
    boxes = np.concatenate(
        [np.minimum(points[:, :2], points[:, 2:]), np.maximum(points[:, :2], points[:, 2:])], 1
    )
    return mosaic_of(regions_around(boxes, size, RegionSettings(pad_px=draw(st.integers(0, 40)))), size)


def inference(boxes: list[list[float]], size: ImageSize, scores: list[float] | None = None) -> Inference:
    array = np.array(boxes, np.float32).reshape(-1, 4)
    given_scores = np.array(scores or [0.5] * len(array), np.float32)
    pairs = np.stack([given_scores, np.zeros_like(given_scores)], axis=1)
    return Inference(
        Detections(array, given_scores, np.zeros(len(array), np.int32), size, model_ref("edge")),
        Candidates(array, pairs, ScoreKind.PER_CLASS, LABELS, size),
    )


@given(mosaics())
def test_tiles_keep_a_border_between_them_and_lie_inside(mosaic: Mosaic) -> None:
    boxes = [tile.mosaic_xyxy for tile in mosaic.tiles]
    for row, a in enumerate(boxes):
        assert a[2] <= mosaic.size.width and a[3] <= mosaic.size.height
        for b in boxes[:row]:
            gap_x, gap_y = max(a[0] - b[2], b[0] - a[2]), max(a[1] - b[3], b[1] - a[3])
            assert max(gap_x, gap_y) >= BORDER_PX


@given(mosaics())
def test_each_tile_shows_its_part_of_the_frame_pixel_by_pixel_and_grey_is_between(mosaic: Mosaic) -> None:
    size = mosaic.frame_size
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 100, (size.height, size.width, 3), np.uint8)
    picture = mosaic.cut(pixels)
    assert picture.shape == (mosaic.size.height, mosaic.size.width, 3)
    for tile in mosaic.tiles:
        (fx1, fy1, fx2, fy2), (x1, y1, x2, y2) = tile.frame_xyxy, tile.mosaic_xyxy
        assert np.array_equal(picture[y1:y2, x1:x2], pixels[fy1:fy2, fx1:fx2])
        picture[y1:y2, x1:x2] = 114
    assert (picture == 114).all()


@given(mosaics(), st.data())
def test_a_thing_inside_a_tile_comes_back_to_where_it_is(mosaic: Mosaic, data: st.DataObject) -> None:
    tile = data.draw(st.sampled_from(mosaic.tiles))
    x1, y1, x2, y2 = tile.frame_xyxy
    inner = [x1 + 4.0, y1 + 4.0, x2 - 4.0, y2 - 4.0]
    if inner[0] >= inner[2] or inner[1] >= inner[3]:
        return
    moved = [
        inner[0] + tile.at_x - tile.x,
        inner[1] + tile.at_y - tile.y,
        inner[2] + tile.at_x - tile.x,
        inner[3] + tile.at_y - tile.y,
    ]
    back = mosaic.to_frame(inference([moved], mosaic.size))
    assert back.detections.boxes_xyxy.tolist() == [inner]
    assert back.candidates.boxes_xyxy.tolist() == [inner]
    assert back.detections.image_size == back.candidates.image_size == mosaic.frame_size


@given(mosaics(), st.data())
def test_whatever_was_seen_comes_back_inside_a_region_best_first(mosaic: Mosaic, data: st.DataObject) -> None:
    sides = st.floats(-20, 800, width=32), st.floats(-20, 600, width=32)
    points = data.draw(st.lists(st.tuples(*sides, *sides), max_size=12))
    boxes = [[min(a, c), min(b, d), max(a, c), max(b, d)] for a, b, c, d in points]
    scores = data.draw(st.lists(st.floats(2**-6, 1, width=32), min_size=len(boxes), max_size=len(boxes)))
    back = mosaic.to_frame(inference(boxes, mosaic.size, scores), cut_share=0.5).detections
    regions = mosaic.regions_xyxy
    for box in back.boxes_xyxy:
        assert any((box[:2] >= r[:2]).all() and (box[2:] <= r[2:]).all() for r in regions)
    assert (np.diff(back.scores) <= 0).all()


TWO = Mosaic(
    ImageSize(200, 100),
    ImageSize(112, 64),
    (Tile(0, 0, 48, 64, 0, 0), Tile(100, 36, 48, 64, 64, 0)),
)


def test_a_box_that_the_edge_of_a_tile_cuts_is_dropped_or_weighs_less() -> None:
    cut = inference(
        [[30.0, 10.0, 47.0, 30.0]], TWO.size, [0.8]
    )  # at the right edge of the first: the frame goes on
    assert len(mosaic_seen := TWO.to_frame(cut).detections) == 0, mosaic_seen
    kept = TWO.to_frame(cut, cut_share=0.5)
    assert kept.detections.scores.tolist() == [pytest.approx(0.4)]
    assert len(kept.candidates) == 0, "of a thing that was cut nobody knows what it was"


def test_a_box_at_the_edge_of_the_frame_is_not_cut() -> None:
    seen = inference([[0.0, 0.0, 20.0, 20.0], [70.0, 30.0, 90.0, 64.0]], TWO.size)
    back = TWO.to_frame(seen).detections
    assert back.boxes_xyxy.tolist() == [[0, 0, 20, 20], [106, 66, 126, 100]]


def test_a_box_between_the_tiles_is_dropped_and_one_that_sticks_out_is_clipped() -> None:
    seen = inference([[49.0, 10.0, 63.0, 30.0], [56.0, 10.0, 88.0, 30.0]], TWO.size)
    assert len(TWO.to_frame(seen).detections) == 0, "the second begins at the edge, where the frame goes on"
    back = TWO.to_frame(seen, cut_share=1.0).detections
    assert back.boxes_xyxy.tolist() == [[100, 46, 124, 66]]


def test_nothing_seen_is_nothing_in_the_frame() -> None:
    back = TWO.to_frame(inference([], TWO.size))
    assert len(back.detections) == len(back.candidates) == 0


@pytest.mark.parametrize(
    ("tiles", "told"),
    [
        ((), "expected 1 to 32 tiles, got 0"),
        ((Tile(160, 0, 48, 64, 0, 0),), "expected tiles within the frame of 200x100 px"),
        ((Tile(0, 0, 48, 64, 80, 0),), "expected tiles within the mosaic of 112x64 px"),
        ((Tile(0, 0, 48, 64, 0, 0), Tile(40, 0, 48, 64, 64, 0)), "do not overlap in the frame"),
        ((Tile(0, 0, 48, 64, 0, 0), Tile(48, 0, 48, 64, 40, 0)), "do not overlap in the mosaic"),
    ],
)
def test_a_layout_that_cannot_be_is_malformed(tiles: tuple[Tile, ...], told: str) -> None:
    with pytest.raises(Malformed, match=told):
        Mosaic(ImageSize(200, 100), ImageSize(112, 64), tiles)


def test_what_is_about_another_picture_is_malformed() -> None:
    with pytest.raises(Malformed, match="expected a frame of 200x100 px, got 20x10"):
        TWO.cut(np.zeros((10, 20, 3), np.uint8))
    with pytest.raises(Malformed, match="expected what was seen in 112x64 px, got 200x100"):
        TWO.to_frame(inference([], ImageSize(200, 100)))
    with pytest.raises(Malformed, match="tile: expected sides of 1 px or more"):
        Tile(0, 0, 0, 4, 0, 0)
    with pytest.raises(Malformed, match="at least one region"):
        mosaic_of([], ImageSize(10, 10))
