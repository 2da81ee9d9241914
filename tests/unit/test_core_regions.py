"""Which parts of a frame are worth a sharper look, and what is said about the rest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fovea.core.detections import Detections
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from fovea.core.hard_case import TierAnswer
from fovea.core.labels import LabelSet
from fovea.core.merging import MergeSettings, merge_answers
from fovea.core.regions import RegionSettings, plan_mosaic, regions_around
from fovea.core.routing import Tier
from tests.builders import model_ref

SIZE = ImageSize(960, 540)
LABELS = LabelSet.from_names(["person", "car"])
BOXES = st.tuples(
    st.floats(0, 900, width=32),
    st.floats(0, 500, width=32),
    st.floats(0, 60, width=32),
    st.floats(0, 40, width=32),
).map(lambda b: (b[0], b[1], b[0] + b[2], b[1] + b[3]))


def seen(
    *boxes: tuple[float, float, float, float, float], size: ImageSize = SIZE, by: str = "student"
) -> Detections:
    """Persons at x1, y1, x2, y2 with a score each."""
    rows = np.array(boxes, np.float32).reshape(-1, 5)
    return Detections(rows[:, :4], rows[:, 4], np.zeros(len(rows), np.int32), size, model_ref(by))


@given(st.lists(BOXES, min_size=1, max_size=30), st.integers(1, 8), st.sampled_from([1, 16, 32]))
def test_regions_hold_every_box_overlap_nowhere_and_are_few(
    boxes: list[tuple[float, float, float, float]], most: int, snap_px: int
) -> None:
    regions = regions_around(np.array(boxes, np.float32), SIZE, RegionSettings(most=most, snap_px=snap_px))
    assert 1 <= len(regions) <= most
    for x1, y1, x2, y2 in regions:
        assert 0 <= x1 < x2 <= SIZE.width and 0 <= y1 < y2 <= SIZE.height
        assert x1 % snap_px == y1 % snap_px == 0
        assert x2 % snap_px == 0 or x2 == SIZE.width
        assert y2 % snap_px == 0 or y2 == SIZE.height
    for box in boxes:
        assert any(r[0] <= box[0] and r[1] <= box[1] and r[2] >= box[2] and r[3] >= box[3] for r in regions)
    for row, a in enumerate(regions):
        assert not any(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for b in regions[:row])


@given(
    st.lists(st.tuples(BOXES, st.floats(0, 1, width=32)), max_size=20),
    st.lists(BOXES, max_size=4),
    st.floats(0.1, 1),
)
def test_a_mosaic_never_has_more_pixels_than_its_share(
    boxes: list[tuple[tuple[float, float, float, float], float]],
    places: list[tuple[float, float, float, float]],
    share: float,
) -> None:
    answered = seen(*((*box, score) for box, score in boxes))
    at = np.array(places, np.float32).reshape(-1, 4)
    mosaic = plan_mosaic(answered, at, RegionSettings(largest_share=share))
    if mosaic is not None:
        assert mosaic.frame_size == SIZE
        assert mosaic.size.width * mosaic.size.height <= share * SIZE.width * SIZE.height


def test_one_doubtful_box_is_one_padded_region() -> None:
    mosaic = plan_mosaic(seen((300, 200, 340, 220, 0.4), (10, 10, 90, 90, 0.95)))
    assert mosaic is not None
    assert [tile.frame_xyxy for tile in mosaic.tiles] == [(256, 160, 384, 256)]


@pytest.mark.parametrize("score", [0.01, 0.7, 1.0])
def test_where_nothing_is_doubtful_the_whole_frame_is_the_question(score: float) -> None:
    assert plan_mosaic(seen((300, 200, 340, 220, score))) is None
    assert plan_mosaic(seen()) is None


def test_doubt_all_over_the_frame_asks_about_the_whole_frame() -> None:
    everywhere = [(x, y, x + 60, y + 60, 0.5) for x in range(0, 900, 120) for y in range(0, 480, 120)]
    assert plan_mosaic(seen(*everywhere)) is None


@pytest.mark.parametrize(("held_share", "regions"), [(0.7, 1), (1.0, 2)])
def test_the_last_bit_of_doubt_is_not_worth_its_pixels(held_share: float, regions: int) -> None:
    answered = seen((700, 400, 720, 420, 0.06), (100, 100, 120, 120, 0.5))  # 0.33 bits and 1 bit
    mosaic = plan_mosaic(answered, settings=RegionSettings(held_share=held_share))
    assert mosaic is not None and len(mosaic.tiles) == regions
    assert mosaic.tiles[0].x == 64, "the more doubtful one"


def test_a_lost_track_and_motion_without_a_box_are_looked_at_and_explained_motion_is_not() -> None:
    sure = seen((100, 100, 200, 200, 0.9))
    place = np.array([[500, 300, 540, 340]], np.float32)
    mosaic = plan_mosaic(sure, place)
    assert mosaic is not None
    [tile] = mosaic.tiles
    assert tile.x <= 500 and tile.y <= 300 and tile.x + tile.width >= 540 and tile.y + tile.height >= 340
    assert plan_mosaic(sure, np.array([[110, 110, 190, 190]], np.float32)) is None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"noise_below": 0.7}, "expected 0 <= noise_below < sure_from <= 1"),
        ({"held_share": 0.0}, "expected shares above 0 up to 1"),
        ({"largest_share": 1.5}, "expected shares above 0 up to 1"),
        ({"pad_px": -1.0}, "expected paddings of 0 or more"),
        ({"most": 0}, "1 to 32 regions"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, float], told: str) -> None:
    with pytest.raises(Malformed, match=told):
        RegionSettings(**changes)  # type: ignore[arg-type]


# What becomes of the camera's own answer

REF = model_ref("both")


def merged(own: Detections, other: Detections, looked: np.ndarray | None) -> Detections:
    answers = [TierAnswer(Tier.AGENT, own, LABELS), TierAnswer(Tier.EDGE, other, LABELS, looked)]
    return merge_answers(answers, REF, MergeSettings())


def test_what_lies_outside_the_parts_keeps_the_cameras_answer_and_inside_silence_counts() -> None:
    own = seen((100, 100, 150, 150, 0.8), (700, 300, 750, 350, 0.8))
    nothing = seen(by="edge")
    parts = np.array([[64, 64, 256, 256]], np.float32)
    both = merged(own, nothing, parts)
    by_place = {
        round(float(box[0])): float(score) for box, score in zip(both.boxes_xyxy, both.scores, strict=True)
    }
    assert by_place[700] == pytest.approx(0.8), "nobody looked there"
    assert by_place[100] < 0.8
    assert by_place[100] == pytest.approx(float(merged(own, nothing, None).scores[0]))


def test_a_thing_across_the_edge_of_a_part_is_merged_with_what_was_seen_of_it() -> None:
    own, other = seen((200, 100, 260, 160, 0.6)), seen((202, 100, 260, 160, 0.9), by="edge")
    both = merged(own, other, np.array([[224, 64, 320, 192]], np.float32))
    assert len(both) == 1 and both.scores[0] > 0.8


def test_a_part_that_is_the_whole_frame_changes_nothing() -> None:
    own, other = seen((100, 100, 150, 150, 0.8)), seen((400, 100, 450, 150, 0.7), by="edge")
    whole = np.array([[0, 0, 960, 540]], np.float32)
    assert merged(own, other, whole).scores.tolist() == merged(own, other, None).scores.tolist()


def test_looking_at_no_part_at_all_is_no_answer() -> None:
    with pytest.raises(Malformed, match="expected at least one part of the frame"):
        TierAnswer(Tier.EDGE, seen(), LABELS, np.empty((0, 4), np.float32))
