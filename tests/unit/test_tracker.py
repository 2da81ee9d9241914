"""What a tracker promises about its tracks, frame by frame."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.track.tracker import Box, Track, Tracker, TrackerSettings, Tracking
from fovea.core.detections import Detections, ModelRef
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from fovea.core.routing import Tier

SIZE = ImageSize(640, 360)
REF = ModelRef("student", "1", "ab" * 32)
PERSON, CAR = 0, 2
Row = tuple[Box, float, int]


def seen(*rows: Row, size: ImageSize = SIZE) -> Detections:
    boxes, scores, class_ids = zip(*rows, strict=True) if rows else ([], [], [])
    return Detections(boxes, scores, class_ids, size, REF)  # type: ignore[arg-type]


def at(x: float, y: float = 100.0, width: float = 40.0, height: float = 80.0) -> Box:
    """A box by its centre."""
    return (x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def walk(tracker: Tracker, start_x: float, speed_px_s: float, frames: int, fps: float = 5.0) -> Tracking:
    """One person who walks from left to right, seen in every frame; what is told after the last one."""
    for index in range(frames):
        tracking = tracker.update(seen((at(start_x + speed_px_s * index / fps), 0.8, PERSON)), index / fps)
    return tracking


def overlap(a: Box, b: Box) -> float:
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    both = max(width, 0) * max(height, 0)
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


def test_a_thing_that_moves_keeps_its_id_and_is_confirmed_with_the_second_look() -> None:
    tracker = Tracker()
    first = walk(tracker, 100, 60, frames=1)
    assert [track.is_confirmed for track in first.tracks] == [False]
    last = walk(Tracker(), 100, 60, frames=12)
    (track,) = last.tracks
    assert (track.id, track.hits, track.is_confirmed, track.tier) == (1, 12, True, Tier.AGENT)
    assert (track.started_mono_s, track.seen_mono_s) == (0, 2.2)
    assert overlap(track.box_xyxy, at(100 + 60 * 2.2)) > 0.9


def test_two_that_cross_keep_their_ids() -> None:
    tracker = Tracker()
    for index in range(21):
        left, right = 100 + 20 * index, 500 - 20 * index
        tracking = tracker.update(
            seen((at(left, 100), 0.8, PERSON), (at(right, 150), 0.8, PERSON)), index / 5
        )
        if index == 0:
            ids = [track.id for track in sorted(tracking.tracks, key=lambda t: t.box_xyxy[0])]
    assert [track.id for track in sorted(tracking.tracks, key=lambda t: -t.box_xyxy[0])] == ids


def test_a_weak_box_continues_a_track_but_does_not_start_one() -> None:
    tracker = Tracker()
    assert tracker.update(seen((at(100), 0.3, PERSON)), 0).tracks == ()
    tracker.update(seen((at(100), 0.8, PERSON)), 0.2)
    (track,) = tracker.update(seen((at(104), 0.3, PERSON)), 0.4).tracks
    assert track.hits == 2
    assert track.score == pytest.approx(0.3)


def test_a_second_box_around_the_same_thing_starts_no_second_track() -> None:
    tracker = Tracker()
    walk(tracker, 100, 0, frames=3)
    tracking = tracker.update(seen((at(100), 0.8, PERSON), (at(102), 0.7, CAR)), 0.6)
    assert len(tracking.tracks) == 1


def test_the_class_is_that_which_most_was_said_for() -> None:
    tracker = Tracker()
    for index, class_id in enumerate([CAR, CAR, PERSON, CAR]):
        tracking = tracker.update(seen((at(100), 0.8, class_id)), index / 5)
    assert [track.class_id for track in tracking.tracks] == [CAR]


def test_a_missed_frame_is_bridged_along_the_motion_with_a_falling_score() -> None:
    tracker = Tracker()
    walk(tracker, 100, 100, frames=10)
    (track,) = tracker.update(seen(), 2.0).tracks
    assert overlap(track.box_xyxy, at(300)) > 0.8
    assert track.score < 0.8
    assert track.seen_mono_s == pytest.approx(1.8)


def test_what_is_gone_without_leaving_has_vanished_and_comes_back_under_its_id() -> None:
    tracker = Tracker()
    walk(tracker, 200, 20, frames=10)
    for at_s in (2.0, 2.2, 2.4):
        tracking = tracker.update(seen(), at_s)
        assert [track.id for track in tracking.vanished] == [1]
    assert tracking.tracks == ()
    back = tracker.update(seen((at(200 + 20 * 2.6), 0.8, PERSON)), 2.6)
    assert [track.id for track in back.tracks] == [1]
    assert back.vanished == ()


def test_what_stays_away_ends_once_and_never_comes_back() -> None:
    tracker = Tracker()
    walk(tracker, 200, 0, frames=5)
    ended = [track.id for index in range(5, 40) for track in tracker.update(seen(), index / 5).ended]
    assert ended == [1]
    again = tracker.update(seen((at(200), 0.8, PERSON)), 8.2)
    assert [track.id for track in again.tracks] == [2]


def test_what_leaves_by_the_border_ends_soon_and_has_not_vanished() -> None:
    tracker = Tracker()
    for index in range(7):
        x1, _, x2, _ = at(520 + 20 * index)
        tracker.update(seen(((x1, 60, min(x2, 640), 140), 0.8, PERSON)), index / 5)
    ended: list[Track] = []
    for index in range(7, 12):
        tracking = tracker.update(seen(), index / 5)
        assert tracking.vanished == ()
        ended += tracking.ended
    assert [track.id for track in ended] == [1]


def test_what_passes_behind_something_has_not_vanished() -> None:
    tracker = Tracker()
    for index in range(6):
        tracker.update(seen((at(300), 0.8, PERSON)), index / 5)
    lorry = ((250.0, 40.0, 390.0, 200.0), 0.9, CAR)
    assert tracker.update(seen(lorry), 1.2).vanished == ()
    elsewhere = ((450.0, 40.0, 590.0, 200.0), 0.9, CAR)
    assert [track.id for track in tracker.update(seen(elsewhere), 1.4).vanished] == [1]


def test_one_look_that_is_not_repeated_is_forgotten_silently() -> None:
    tracker = Tracker()
    walk(tracker, 100, 0, frames=1)
    tracking = tracker.update(seen(), 0.2)
    assert (tracking.tracks, tracking.vanished, tracking.ended) == ((), (), ())


def test_told_tracks_make_an_answer_best_first() -> None:
    tracker = Tracker()
    for index in range(3):
        tracking = tracker.update(seen((at(100), 0.5, PERSON), (at(300), 0.9, CAR)), index / 5)
    answer = tracking.detections(REF)
    assert answer.class_ids.tolist() == [CAR, PERSON]
    assert answer.image_size == SIZE
    assert len(Tracker().update(seen(), 0).detections(REF)) == 0


def test_a_clock_that_steps_back_counts_as_no_time() -> None:
    tracker = Tracker()
    walk(tracker, 100, 50, frames=10)
    before = tracker.update(seen((at(200), 0.8, PERSON)), 2.0).tracks[0]
    after = tracker.update(seen((at(202), 0.8, PERSON)), -500.0)
    assert [track.id for track in after.tracks] == [before.id]
    assert overlap(after.tracks[0].box_xyxy, before.box_xyxy) > 0.8
    assert after.at_mono_s == after.tracks[0].seen_mono_s == -500.0
    later = tracker.update(seen((at(212), 0.8, PERSON)), -499.8)
    assert [track.id for track in later.tracks] == [before.id]
    assert overlap(later.tracks[0].box_xyxy, at(212)) > 0.8


def test_a_pause_ends_every_track_rather_than_guessing_across_it() -> None:
    tracker = Tracker()
    walk(tracker, 100, 50, frames=5)
    tracking = tracker.update(seen((at(150), 0.8, PERSON)), 3600.0)
    assert [track.id for track in tracking.ended] == [1]
    assert [track.id for track in tracking.tracks] == [2]


def test_the_same_time_twice_moves_nothing_out_of_place() -> None:
    tracker = Tracker()
    walk(tracker, 100, 50, frames=5)
    for _ in range(5):
        tracking = tracker.update(seen((at(140), 0.8, PERSON)), 0.8)
    assert overlap(tracking.tracks[0].box_xyxy, at(140)) > 0.95


def test_while_nothing_moves_what_was_seen_stays_where_it_was() -> None:
    tracker = Tracker()
    before = walk(tracker, 100, 60, frames=12).tracks[0]
    for index in range(12, 112):
        tracking = tracker.still(index / 5)
    (track,) = tracking.tracks
    assert (track.id, track.box_xyxy, track.score) == (before.id, before.box_xyxy, before.score)
    assert track.seen_mono_s == tracking.at_mono_s == 111 / 5
    assert track.hits == before.hits, "nobody looked"
    assert tracking.vanished == tracking.ended == ()


def test_what_goes_on_after_a_while_without_motion_keeps_its_id() -> None:
    tracker = Tracker()
    walk(tracker, 100, 60, frames=12)
    for index in range(12, 40):
        tracker.still(index / 5)
    for step in range(5):
        tracking = tracker.update(seen((at(232 + 12 * step), 0.8, PERSON)), 8 + step / 5)
    assert [track.id for track in tracking.tracks] == [1]
    assert overlap(tracking.tracks[0].box_xyxy, at(280)) > 0.6


def test_a_long_pause_in_which_nothing_moved_ends_nothing() -> None:
    tracker = Tracker()
    walk(tracker, 100, 0, frames=5)
    assert [track.id for track in tracker.still(60.0).tracks] == [1]


def test_what_was_missing_before_nothing_moved_stays_missing_and_ends() -> None:
    tracker = Tracker()
    walk(tracker, 100, 0, frames=5)
    assert [track.id for track in tracker.update(seen(), 1.0).vanished] == [1]
    trackings = [tracker.still(1.0 + index / 5) for index in range(1, 30)]
    assert [track.id for tracking in trackings for track in tracking.ended] == [1]
    assert trackings[-1].tracks == ()


def test_what_a_late_answer_told_stands_with_the_rest() -> None:
    tracker = Tracker()
    walk(tracker, 100, 0, frames=5)
    tracker.carry(seen((at(300), 0.9, CAR)), 0.8, Tier.EDGE)
    for index in range(5, 30):
        tracking = tracker.still(index / 5)
    assert [track.id for track in tracking.confirmed] == [1, 2]


def test_the_first_frame_cannot_be_still_and_a_clock_that_steps_back_is_no_matter() -> None:
    tracker = Tracker()
    with pytest.raises(Malformed, match="expected a frame before"):
        tracker.still(0.0)
    walk(tracker, 100, 0, frames=5)
    tracking = tracker.still(-500.0)
    assert tracking.at_mono_s == tracking.tracks[0].seen_mono_s == -500.0


def test_another_image_size_ends_every_track() -> None:
    tracker = Tracker()
    walk(tracker, 100, 0, frames=5)
    tracking = tracker.update(seen((at(100), 0.8, PERSON), size=ImageSize(1280, 720)), 1.0)
    assert [track.id for track in tracking.ended] == [1]
    assert [track.id for track in tracking.tracks] == [2]
    assert tracking.image_size == ImageSize(1280, 720)


def test_forgetting_ends_every_track_and_ids_go_on() -> None:
    tracker = Tracker()
    assert tracker.forget() is None
    walk(tracker, 100, 0, frames=3)
    told = tracker.forget()
    assert told is not None
    assert ([track.id for track in told.ended], told.tracks) == ([1], ())
    assert tracker.update(seen((at(100), 0.8, PERSON)), 0.6).tracks[0].id == 2


def test_no_more_tracks_are_started_than_allowed() -> None:
    tracker = Tracker(TrackerSettings(most_tracks=3))
    rows: list[Row] = [(at(60 + 90 * index), 0.9, PERSON) for index in range(6)]
    for index in range(3):
        tracking = tracker.update(seen(*rows), index / 5)
    assert len(tracking.tracks) == 3


frames_of_boxes = st.lists(
    st.tuples(
        st.floats(-1, 4),
        st.lists(
            st.tuples(
                st.floats(-50, 640), st.floats(-50, 360), st.floats(0, 200), st.floats(0, 200),
                st.floats(0, 1), st.integers(0, 2),
            ),
            max_size=6,
        ),
    ),
    min_size=1,
    max_size=12,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(frames_of_boxes, st.sampled_from([SIZE, ImageSize(1, 1), ImageSize(4000, 1)]))
def test_whatever_comes_ids_are_never_reused_and_boxes_stay_in_the_frame(
    frames: list[tuple[float, list[tuple[float, ...]]]], size: ImageSize
) -> None:
    tracker = Tracker()
    over: set[int] = set()
    highest, at_s = 0, 100.0
    for index, (passed_s, rows) in enumerate(frames):
        at_s += passed_s
        boxes: list[Row] = [((x, y, x + w, y + h), score, int(kind)) for x, y, w, h, score, kind in rows]
        answer = seen(*boxes, size=size)
        tracking = tracker.update(answer, at_s)
        for told in (tracking, tracker.carry(answer, at_s - index * 0.3, Tier.EDGE)):
            ids = [track.id for track in told.tracks]
            assert len(set(ids)) == len(ids)
            assert not over & (set(ids) | {track.id for track in told.vanished})
            over |= {track.id for track in told.ended}
            for track in told.tracks + told.vanished + told.ended:
                x1, y1, x2, y2 = track.box_xyxy
                assert 0 <= x1 <= x2 <= size.width
                assert 0 <= y1 <= y2 <= size.height
                assert 0 <= track.score <= 1
                assert track.started_mono_s <= track.seen_mono_s + 1e-6
            new = [each for each in ids if each > highest]
            highest = max([highest, *new])
            told.detections(REF)


@pytest.mark.parametrize("at_s", [math.nan, math.inf, -math.inf])
def test_a_time_that_is_no_number_is_refused(at_s: float) -> None:
    with pytest.raises(Malformed, match="at_mono_s"):
        Tracker().update(seen(), at_s)


@pytest.mark.parametrize(
    "change", [{"start_score": 1.5}, {"lost_after_s": 0}, {"coast_s": math.nan}, {"confirm_hits": 0}]
)
def test_settings_that_make_no_sense_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(Malformed, match=next(iter(change))):
        TrackerSettings(**change)  # type: ignore[arg-type]


def test_boxes_of_no_area_do_not_break_it() -> None:
    tracker = Tracker()
    for index in range(4):
        tracking = tracker.update(seen(((10, 10, 10, 10), 0.9, PERSON)), index / 5)
    assert all(np.isfinite(track.box_xyxy).all() for track in tracking.tracks)
