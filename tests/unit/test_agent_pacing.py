"""When frames are due, when a file shows its next one, pauses between attempts, and what counts as frozen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.capture.sources.frozen import FrozenWatch
from edge_agent.capture.sources.pacing import DueFrames, PlaybackPace, RetryPauses
from tests.builders import scene


def due_times(fps: float, times_s: list[float]) -> list[float]:
    due = DueFrames(fps)
    return [at_s for at_s in times_s if due.is_due(at_s)]


@pytest.mark.parametrize(
    ("source_fps", "wanted_fps"), [(25, 5), (25, 10), (30, 7), (10, 10), (12, 10), (5, 10)]
)
def test_as_many_frames_are_due_as_are_wanted_or_as_there_are(source_fps: int, wanted_fps: int) -> None:
    times_s = [1000 + number / source_fps for number in range(source_fps * 20)]
    rate = len(due_times(wanted_fps, times_s)) / 20
    assert rate == pytest.approx(min(source_fps, wanted_fps), rel=0.03)


@given(st.integers(0, 2**32 - 1))
def test_jitter_of_a_camera_at_the_wanted_rate_costs_hardly_a_frame(seed: int) -> None:
    jitter = np.random.default_rng(seed).uniform(-0.011, 0.011, 300)
    times_s = [1000 + number / 10 + float(jitter[number]) for number in range(300)]
    assert len(due_times(10, times_s)) >= 298


@given(st.lists(st.floats(0.0, 3.0), min_size=1, max_size=200), st.floats(0.5, 50), st.floats(-1e6, 1e6))
def test_never_more_frames_are_due_than_the_rate_allows(
    gaps_s: list[float], fps: float, begun_s: float
) -> None:
    times_s = [begun_s + float(at_s) for at_s in np.cumsum(gaps_s)]
    taken = due_times(fps, times_s)
    assert taken[:1] == times_s[:1]
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            span_s = taken[last] - taken[first]
            assert last - first <= span_s * fps + 1.3


def test_after_a_gap_no_burst_of_frames_is_due() -> None:
    times_s = [0.0, 0.1, 0.2] + [60 + number / 100 for number in range(100)]
    assert len([at_s for at_s in due_times(10, times_s) if at_s >= 60]) <= 11


def test_all_frames_are_due_where_no_rate_is_wanted() -> None:
    due = DueFrames(None)
    assert all(due.is_due(at_s) for at_s in (0.0, 0.0, 0.001))


def test_a_file_is_played_at_its_rate_and_a_late_reader_catches_up_a_little_only() -> None:
    pace = PlaybackPace(10)
    assert [pace.next_at(5.0), pace.next_at(5.0), pace.next_at(5.15)] == pytest.approx([5.0, 5.1, 5.2])
    assert pace.next_at(6.0) == pytest.approx(5.3), "a little late: the grid stays"
    assert pace.next_at(60.0) == 60.0, "far behind: it goes on from where it is"
    assert pace.next_at(60.0) == pytest.approx(60.1)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60))
def test_pauses_stay_between_the_first_and_the_longest_and_grow(draws: list[float]) -> None:
    left = list(draws)
    pauses = RetryPauses(1.0, 30.0, lambda: left.pop(0))
    waits = [pauses.next_s() for _ in draws]
    assert all(1.0 <= wait_s <= 30.0 for wait_s in waits)
    assert all(wait_s >= 15.0 for wait_s in waits[5:])


def test_pauses_differ_between_cameras_and_begin_again_after_a_good_time() -> None:
    early, late = RetryPauses(1.0, 30.0, lambda: 0.0), RetryPauses(1.0, 30.0, lambda: 1.0)
    assert [early.next_s() for _ in range(6)] == [1, 2, 4, 8, 15, 15]
    assert [late.next_s() for _ in range(6)] == [2, 4, 8, 16, 30, 30]
    late.reset()
    assert late.next_s() == 2


def test_the_very_same_picture_for_long_enough_is_frozen_and_a_new_one_is_not() -> None:
    watch = FrozenWatch(5.0)
    still = scene(90, 160, seed=1)
    assert not any(watch.look(still, at_s) for at_s in (0.0, 1.0, 5.0, 5.9))
    assert watch.look(still.copy(), 6.0)
    assert watch.look(still, 100.0), "also when it was lost and opened again in between"
    assert not watch.look(scene(90, 160, seed=2), 101.0)
    assert not watch.look(still, 102.0)


def test_a_clock_in_the_corner_of_a_still_scene_is_life() -> None:
    watch = FrozenWatch(2.0)
    for second in range(20):
        picture = scene(270, 480, seed=1)
        picture[4:16, 4 : 5 + second] = 255  # between the pixels of the coarse look
        assert not watch.look(picture, float(second))


def test_another_size_is_another_picture_and_nothing_is_frozen_where_nobody_asks() -> None:
    watch = FrozenWatch(1.0)
    black = np.zeros((64, 64, 3), np.uint8)
    assert not watch.look(black, 0.0)
    assert not watch.look(black, 0.1)
    assert not watch.look(np.zeros((32, 128, 3), np.uint8), 9.0)
    never = FrozenWatch(None)
    assert not any(never.look(black, at_s) for at_s in range(0, 1000, 100))
