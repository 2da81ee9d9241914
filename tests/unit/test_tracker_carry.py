"""Late answers land on what is still in view, and on nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from edge_agent.track.tracker import Box, Tracker, TrackerSettings, Tracking
from fovea.core.detections import Detections, ModelRef
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from fovea.core.routing import Tier
from tests.unit.test_tracker import CAR, PERSON, SIZE, at, overlap, seen, walk

FPS = 5.0


def only(tracking: Tracking) -> tuple[int, Box]:
    (track,) = tracking.tracks
    return track.id, track.box_xyxy


def test_an_answer_about_a_frame_one_second_old_lands_on_the_thing_where_it_is_now() -> None:
    tracker = Tracker()
    walk(tracker, 100, 90, frames=16, fps=FPS)
    late = seen((at(100 + 90 * 2.0), 0.95, CAR))
    track_id, box = only(tracker.carry(late, 2.0, Tier.EDGE))
    assert track_id == 1
    assert overlap(box, at(100 + 90 * 3.0)) > 0.8
    assert overlap(late.boxes_xyxy[0].tolist(), box) < 0.1


def test_ten_things_with_jitter_are_each_found_again_after_a_second() -> None:
    rng = np.random.default_rng(3)
    starts = [(110.0 + 100 * (index % 5), 100.0 + 150 * (index // 5)) for index in range(10)]
    speeds = rng.uniform(-25, 25, (10, 2))

    def true_boxes(at_s: float) -> list[Box]:
        return [
            at(x + vx * at_s, y + vy * at_s, 36, 28)
            for (x, y), (vx, vy) in zip(starts, speeds.tolist(), strict=True)
        ]

    tracker = Tracker()
    for index in range(11):
        jittered = (np.array(true_boxes(index / FPS)) + rng.normal(0, 0.7, (10, 4))).tolist()
        before = tracker.update(seen(*((tuple(box), 0.42, PERSON) for box in jittered)), index / FPS)
    late = seen(*((box, 0.9, PERSON) for box in true_boxes(1.0)))
    after = tracker.carry(late, 1.0, Tier.EDGE)
    assert [track.id for track in after.tracks] == [track.id for track in before.tracks]
    now = true_boxes(2.0)
    for track in after.tracks:
        assert max(overlap(track.box_xyxy, box) for box in now) > 0.5
        assert (track.tier, track.is_confirmed) == (Tier.EDGE, True)


def test_what_sharper_eyes_said_outlasts_the_next_weak_looks_and_fades() -> None:
    tracker = Tracker()
    for index in range(6):
        tracker.update(seen((at(100), 0.45, PERSON)), index / FPS)
    told = tracker.carry(seen((at(100), 0.95, CAR)), 0.8, Tier.EDGE).tracks[0]
    assert (told.class_id, told.tier) == (CAR, Tier.EDGE)
    assert told.score == pytest.approx(0.95 * 0.5**0.2, rel=1e-3)
    soon = tracker.update(seen((at(100), 0.45, PERSON)), 1.2).tracks[0]
    assert (soon.class_id, soon.tier) == (CAR, Tier.EDGE)
    for index in range(7, 20):
        later = tracker.update(seen((at(100), 0.45, PERSON)), index / FPS).tracks[0]
    assert (later.class_id, later.tier) == (PERSON, Tier.AGENT)
    assert later.score == pytest.approx(0.45)


def test_a_thing_the_camera_missed_is_adopted_and_told_at_once_if_the_answer_is_fresh() -> None:
    tracker = Tracker()
    tracker.update(seen(), 0.0)
    tracker.update(seen(), 0.2)
    (track,) = tracker.carry(seen((at(300), 0.8, CAR)), 0.0, Tier.EDGE).tracks
    assert (track.class_id, track.is_confirmed, track.tier) == (CAR, True, Tier.EDGE)
    assert track.started_mono_s == track.seen_mono_s == 0.0


def test_a_thing_missed_long_ago_waits_until_anybody_sees_it_again() -> None:
    tracker = Tracker()
    for index in range(6):
        tracker.update(seen(), index / FPS)
    (track,) = tracker.carry(seen((at(300), 0.8, CAR)), 0.0, Tier.EDGE).tracks
    assert not track.is_confirmed
    by_camera = tracker.update(seen((at(302), 0.3, CAR)), 1.2).tracks
    assert [(each.id, each.is_confirmed) for each in by_camera] == [(track.id, True)]


def test_a_second_late_answer_confirms_too() -> None:
    tracker = Tracker()
    for index in range(6):
        tracker.update(seen(), index / FPS)
    tracker.carry(seen((at(300), 0.8, CAR)), 0.0, Tier.EDGE)
    tracking = tracker.carry(seen((at(304), 0.8, CAR)), 0.4, Tier.EDGE)
    assert [track.is_confirmed for track in tracking.tracks] == [True]


def test_a_weak_late_box_is_not_adopted() -> None:
    tracker = Tracker()
    tracker.update(seen(), 0.0)
    assert tracker.carry(seen((at(300), 0.2, CAR)), 0.0, Tier.EDGE).tracks == ()


def test_an_adopted_thing_that_nobody_sees_again_fades_out_and_asks_no_questions() -> None:
    tracker = Tracker()
    tracker.update(seen(), 0.0)
    tracker.carry(seen((at(300), 0.8, CAR)), 0.0, Tier.EDGE)
    told = []
    for index in range(1, 30):
        tracking = tracker.update(seen(), index / FPS)
        assert tracking.vanished == ()
        told.append(len(tracking.tracks))
    assert told[0] == 1
    assert told[-1] == 0


def test_what_left_since_is_not_called_back() -> None:
    tracker = Tracker()
    for index in range(7):
        x1, _, x2, _ = at(520 + 20 * index)
        tracker.update(seen(((x1, 60, min(x2, 640), 140), 0.8, PERSON)), index / FPS)
    for index in range(7, 11):
        tracking = tracker.update(seen(), index / FPS)
    assert tracking.tracks == ()
    assert tracker.carry(seen(((580, 60, 620, 140), 0.99, PERSON)), 0.8, Tier.CLOUD).tracks == ()


def test_what_was_only_lost_from_sight_is_found_again_by_a_late_answer() -> None:
    tracker = Tracker()
    walk(tracker, 200, 40, frames=8, fps=FPS)
    for index in range(8, 12):
        tracking = tracker.update(seen(), index / FPS)
    assert tracking.tracks == ()
    track_id, box = only(tracker.carry(seen((at(200 + 40 * 2.0), 0.9, PERSON)), 2.0, Tier.EDGE))
    assert track_id == 1
    assert overlap(box, at(200 + 40 * 2.2)) > 0.8


def test_a_late_box_next_to_a_track_is_another_thing() -> None:
    tracker = Tracker()
    walk(tracker, 100, 0, frames=5, fps=FPS)
    tracking = tracker.carry(seen((at(100), 0.9, PERSON), (at(135), 0.9, PERSON)), 0.8, Tier.EDGE)
    assert len(tracking.tracks) == 2


@pytest.mark.parametrize("captured_s", [-100.0, 50.0, float("nan")])
def test_an_answer_about_a_frame_that_is_not_known_changes_nothing(captured_s: float) -> None:
    tracker = Tracker()
    before = walk(tracker, 100, 20, frames=5, fps=FPS)
    after = tracker.carry(seen((at(400), 0.9, CAR)), captured_s, Tier.EDGE)
    assert after.tracks == before.tracks


def test_an_answer_about_another_image_size_changes_nothing() -> None:
    tracker = Tracker()
    before = walk(tracker, 100, 20, frames=5, fps=FPS)
    late = seen((at(400), 0.9, CAR), size=ImageSize(1280, 720))
    assert tracker.carry(late, 0.8, Tier.EDGE).tracks == before.tracks


def test_an_answer_from_before_a_clock_step_changes_nothing() -> None:
    tracker = Tracker()
    walk(tracker, 100, 20, frames=5, fps=FPS)
    before = tracker.update(seen((at(118), 0.8, PERSON)), -50.0)
    after = tracker.carry(seen((at(400), 0.9, CAR)), 0.8, Tier.EDGE)
    assert after.tracks == before.tracks


def test_an_empty_late_answer_changes_nothing() -> None:
    tracker = Tracker()
    before = walk(tracker, 100, 20, frames=5, fps=FPS)
    after = tracker.carry(Detections.empty(SIZE, ModelRef("edge", "1", "cd" * 32)), 0.8, Tier.EDGE)
    assert after.tracks == before.tracks


def test_no_more_is_adopted_than_tracks_are_allowed() -> None:
    tracker = Tracker(TrackerSettings(most_tracks=2))
    tracker.update(seen(), 0.0)
    late = seen(*((at(60 + 90 * index), 0.9, CAR) for index in range(5)))
    assert len(tracker.carry(late, 0.0, Tier.EDGE).tracks) == 2


def test_carrying_before_any_frame_is_refused() -> None:
    with pytest.raises(Malformed, match="expected a frame before"):
        Tracker().carry(seen(), 0.0, Tier.EDGE)
