"""From tracks to events and counts: who is where, what is told, and that nothing stays that is gone."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.publish.label_names import LabelNames
from edge_agent.publish.publishing import EventKind, ObjectEvent
from edge_agent.publish.zones import ObjectFilter, ObjectNews, ObjectSettings, ObjectWatch, Zone
from edge_agent.track.tracking import Track
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from fovea.core.labels import label_named
from fovea.core.routing import Tier
from tests.published_values import NOON, moment, some_track, some_tracking

LEFT = Zone("left", ((0, 0), (0.5, 0), (0.5, 1), (0, 1)))
RIGHT_CARS = Zone("right", ((0.5, 0), (1, 0), (1, 1), (0.5, 1)), frozenset({"car"}))


class Watched:
    """An ObjectWatch with a time that goes on."""

    def __init__(self, **settings: Any) -> None:
        self.watch = ObjectWatch("gate", "b00t", LabelNames(), ObjectSettings(**settings))
        self.at_s = 0.0

    def look(self, *tracks: Track, ended: tuple[Track, ...] = (), after_s: float = 0.2) -> ObjectNews:
        self.at_s += after_s
        return self.watch.look(some_tracking(*tracks, ended=ended), moment(self.at_s), 100 + self.at_s)


def at_x(x: float, **changes: Any) -> Track:
    """A track whose feet stand at `x` px of 640."""
    return some_track(box_xyxy=(x - 20, 100.0, x + 20, 300.0), **changes)


def kinds(events: tuple[ObjectEvent, ...]) -> list[str]:
    return [event.kind.value for event in events]


def test_an_object_is_new_once_then_silent_while_nothing_changes_then_ended_once() -> None:
    watched = Watched()
    track = some_track()
    assert kinds(watched.look(track).events) == ["new"]
    for _ in range(50):
        assert watched.look(track).events == ()
    (end,) = watched.look(ended=(track,)).events
    assert end.kind is EventKind.END
    assert end.after.ended_at == moment(watched.at_s)
    assert end.after.started_at == moment(0.2)
    assert watched.look(ended=(track,)).events == ()


def test_unconfirmed_tracks_are_nobodys_business() -> None:
    news = Watched().look(some_track(is_confirmed=False))
    assert news.events == () and not news.counts.by_label


@pytest.mark.parametrize(
    "filter_",
    [
        ObjectFilter(labels=frozenset({"car"})),
        ObjectFilter(min_score=0.81),
        ObjectFilter(min_area=0.05),
        ObjectFilter(max_area=0.03),
    ],
)
def test_what_does_not_pass_the_filter_is_neither_told_nor_counted(filter_: ObjectFilter) -> None:
    track = some_track()  # a person of score 0.8 on 4 % of the frame
    watched = Watched(filter=filter_)
    news = watched.look(track)
    assert news.events == () and not news.counts.by_label
    assert watched.look(ended=(track,)).events == ()
    assert kinds(Watched().look(track).events) == ["new"]


def test_an_object_that_passed_once_does_not_flicker_with_its_score() -> None:
    watched = Watched(filter=ObjectFilter(min_score=0.5))
    watched.look(some_track(score=0.6))
    news = watched.look(some_track(score=0.2))
    assert news.events == () and news.counts.by_label == {"person": 1}


def test_updates_come_when_something_changed_and_not_more_often_than_allowed() -> None:
    watched = Watched(update_every_s=1.0)
    told = [event for step in range(100) for event in watched.look(at_x(50 + 5 * step), after_s=0.1).events]
    assert kinds(tuple(told))[0] == "new"
    updates = told[1:]
    assert 5 <= len(updates) <= 10
    assert {event.kind for event in updates} == {EventKind.UPDATE}
    for before, after in itertools.pairwise(told):
        assert after.before == before.after


def test_a_first_step_into_a_zone_is_told_at_once_and_going_to_and_fro_is_not() -> None:
    watched = Watched(zones=(LEFT, Zone("right", RIGHT_CARS.corners)), update_every_s=60.0)
    assert watched.look(at_x(300)).events[0].after.zones == ("left",)
    (update,) = watched.look(at_x(340)).events
    assert update.before.zones == ("left",)
    assert (update.after.zones, update.after.entered_zones) == (("right",), ("left", "right"))
    for step in range(20):
        assert watched.look(at_x(300 if step % 2 else 340)).events == ()


def test_new_says_that_before_it_the_object_was_in_no_zone() -> None:
    (new,) = Watched(zones=(LEFT,)).look(at_x(100)).events
    assert (new.before.zones, new.before.entered_zones) == ((), ())
    assert (new.after.zones, new.after.entered_zones) == (("left",), ("left",))


def test_a_better_name_from_a_late_answer_is_an_update_and_moves_the_count() -> None:
    watched = Watched()
    watched.look(some_track(label="dog"))
    news = watched.look(some_track(label="cat", score=0.95, tier=Tier.EDGE), after_s=2.0)
    (update,) = news.events
    assert (update.before.label, update.after.label, update.after.tier) == ("dog", "cat", Tier.EDGE)
    assert update.after.top_score == pytest.approx(0.95)
    assert news.counts.by_label == {"cat": 1, "dog": 0}


def test_zones_count_only_their_labels() -> None:
    watched = Watched(zones=(LEFT, RIGHT_CARS))
    news = watched.look(at_x(100, track_id=1), at_x(600, track_id=2), at_x(610, track_id=3, label="car"))
    assert news.counts.by_label == {"person": 2, "car": 1}
    assert news.counts.by_zone == {("left", "person"): 1, ("right", "car"): 1}


def test_counts_fall_to_0_and_are_told_as_0() -> None:
    watched = Watched(zones=(LEFT,))
    track = at_x(100)
    watched.look(track)
    news = watched.look(ended=(track,))
    assert news.counts.by_label == {"person": 0}
    assert news.counts.by_zone == {("left", "person"): 0}


def test_a_track_that_is_neither_in_view_nor_ended_is_not_counted_and_can_come_back() -> None:
    watched = Watched()
    track = some_track()
    watched.look(track)
    assert watched.look().counts.by_label == {"person": 0}
    news = watched.look(track)
    assert news.events == () and news.counts.by_label == {"person": 1}


def test_everything_ends_with_the_camera() -> None:
    watched = Watched(zones=(LEFT,))
    watched.look(at_x(100, track_id=1), at_x(600, track_id=2, label="car"))
    news = watched.watch.end_all(moment(9))
    assert kinds(news.events) == ["end", "end"]
    assert set(news.counts.by_label.values()) == set(news.counts.by_zone.values()) == {0}
    assert watched.watch.end_all(moment(10)).events == ()


def test_ids_differ_between_cameras_boots_and_tracks() -> None:
    def first_id(camera: str, boot_id: str, track_id: int) -> str:
        watch = ObjectWatch(camera, boot_id, LabelNames())
        return watch.look(some_tracking(some_track(track_id)), NOON, 1.0).events[0].after.id

    ids = {first_id("a", "1", 1), first_id("b", "1", 1), first_id("a", "2", 1), first_id("a", "1", 2)}
    assert len(ids) == 4
    assert first_id("a", "1", 1) in ids


def test_a_change_of_resolution_moves_nothing() -> None:
    watched = Watched()
    watched.look(some_track())
    twice = some_track(box_xyxy=tuple(2 * side for side in some_track().box_xyxy))
    news = watched.watch.look(some_tracking(twice, size=ImageSize(1280, 960)), moment(5), 105.0)
    assert news.events == ()


def test_a_box_on_the_lower_border_stands_in_the_zone_there() -> None:
    track = some_track(box_xyxy=(10.0, 300.0, 50.0, 480.0))
    assert Watched(zones=(LEFT,)).look(track).events[0].after.zones == ("left",)


@given(st.floats(0.0, 1.0), st.floats(0.0, 0.999))
def test_two_halves_share_every_point_and_no_point_twice(x: float, y: float) -> None:
    right = Zone("right", RIGHT_CARS.corners)
    assert LEFT.holds("person", x, y) + right.holds("person", x, y) == (1 if x < 1 else 0)


def test_a_zone_with_a_bay_does_not_hold_what_stands_in_the_bay() -> None:
    bay = Zone("u", ((0, 0), (1, 0), (1, 1), (0.6, 1), (0.6, 0.4), (0.4, 0.4), (0.4, 1), (0, 1)))
    assert bay.holds("car", 0.2, 0.8) and bay.holds("car", 0.5, 0.2) and bay.holds("car", 0.8, 0.8)
    assert not bay.holds("car", 0.5, 0.8)


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.sampled_from(["person", "car"])), max_size=4),
        max_size=12,
    )
)
def test_whatever_happens_each_object_is_new_once_and_ends_once_and_counts_end_at_0(
    looks: list[list[tuple[int, bool, str]]],
) -> None:
    watched = Watched(zones=(LEFT,), update_every_s=0.0)
    told: list[ObjectEvent] = []
    over: set[int] = set()
    for look in looks:
        by_id = {number: (lasts, label) for number, lasts, label in look if number not in over}
        in_view = [
            at_x(80 * number, track_id=number, label=label)
            for number, (lasts, label) in by_id.items()
            if lasts
        ]
        ended = tuple(some_track(number) for number, (lasts, _) in by_id.items() if not lasts)
        over |= {track.id for track in ended}
        told.extend(watched.look(*in_view, ended=ended).events)
    news = watched.watch.end_all(moment(99))
    told.extend(news.events)
    assert not any(news.counts.by_label.values()) and not any(news.counts.by_zone.values())
    for object_id in {event.after.id for event in told}:
        story = [event.kind.value for event in told if event.after.id == object_id]
        assert story == ["new", *["update"] * (len(story) - 2), "end"]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Zone("", LEFT.corners), "zone name"),
        (lambda: Zone("z", ((0, 0), (1, 1))), "at least 3"),
        (lambda: Zone("z", ((0, 0), (1, 0), (1, 1.5))), "0 to 1"),
        (lambda: ObjectFilter(min_score=2), "min_score"),
        (lambda: ObjectFilter(min_area=0.5, max_area=0.4), "min_area <= max_area"),
        (lambda: ObjectSettings(zones=(LEFT, LEFT)), "once"),
        (lambda: ObjectSettings(update_every_s=-1), "update_every_s"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Any, says: str) -> None:
    with pytest.raises(Malformed, match=says):
        make()


def test_labels_are_those_that_the_models_use() -> None:
    watch = ObjectWatch("gate", "b", LabelNames([label_named("forklift")]))
    news = watch.look(some_tracking(some_track(label="forklift")), NOON, 1.0)
    assert news.events[0].after.label == "forklift"
