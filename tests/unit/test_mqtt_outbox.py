"""What waits to be sent: who goes first, who gives way, and that everybody is counted."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from fovea.mqtt.outbox import Lane, Message, Outbox


def message(topic: str, lane: Lane, payload: bytes = b"") -> Message:
    return Message(topic, partial(bytes, payload), lane)


def taken(outbox: Outbox) -> list[bytes]:
    found = []
    while (next_one := outbox.take()) is not None:
        found.append(next_one.encode())
    return found


def test_retained_first_then_events_then_results_each_in_order() -> None:
    outbox = Outbox(5, 5)
    for number in b"12":
        outbox.put(message("r", Lane.RESULTS, b"r%c" % number))
        outbox.put(message("e", Lane.EVENTS, b"e%c" % number))
        outbox.put(message(f"l{number}", Lane.LATEST, b"l%c" % number))
    assert taken(outbox) == [b"l1", b"l2", b"e1", b"e2", b"r1", b"r2"]


def test_the_oldest_gives_way_and_never_to_another_lane() -> None:
    outbox = Outbox(max_events=2, max_results=1)
    for number in b"123":
        outbox.put(message("e", Lane.EVENTS, b"e%c" % number))
        outbox.put(message("r", Lane.RESULTS, b"r%c" % number))
    assert outbox.dropped == {Lane.EVENTS: 1, Lane.RESULTS: 2}
    assert taken(outbox) == [b"e2", b"e3", b"r3"]


def test_only_the_last_value_of_a_retained_topic_waits() -> None:
    outbox = Outbox(1, 1)
    for number in b"123":
        outbox.put(message("count", Lane.LATEST, b"%c" % number))
    assert len(outbox) == 1
    assert taken(outbox) == [b"3"]


def test_everything_retained_can_be_said_again() -> None:
    outbox = Outbox(1, 1)
    outbox.put(message("a", Lane.LATEST, b"1"))
    outbox.put(message("b", Lane.LATEST, b"2"))
    outbox.put(message("e", Lane.EVENTS, b"event"))
    assert taken(outbox) == [b"1", b"2", b"event"]
    outbox.repeat_latest()
    assert taken(outbox) == [b"1", b"2"]
    assert outbox.has_latest("a") and not outbox.has_latest("e")


def test_what_could_not_be_sent_comes_first_again() -> None:
    outbox = Outbox(2, 2)
    outbox.put(message("e", Lane.EVENTS, b"1"))
    outbox.put(message("e", Lane.EVENTS, b"2"))
    first = outbox.take()
    assert first is not None
    outbox.put_back(first)
    assert taken(outbox) == [b"1", b"2"]


def test_what_could_not_be_sent_is_dropped_where_its_place_was_taken() -> None:
    outbox = Outbox(1, 1)
    outbox.put(message("e", Lane.EVENTS, b"1"))
    first = outbox.take()
    assert first is not None
    outbox.put(message("e", Lane.EVENTS, b"2"))
    outbox.put_back(first)
    assert outbox.dropped[Lane.EVENTS] == 1
    assert taken(outbox) == [b"2"]


def test_an_old_retained_value_never_comes_after_a_newer_one() -> None:
    outbox = Outbox(1, 1)
    outbox.put(message("count", Lane.LATEST, b"old"))
    old = outbox.take()
    assert old is not None
    outbox.put(message("count", Lane.LATEST, b"new"))
    outbox.put_back(old)
    assert taken(outbox) == [b"new"]
    outbox.put_back(old)
    assert taken(outbox) == []


def test_what_cannot_be_said_is_not_repeated() -> None:
    outbox = Outbox(1, 1)
    old, new = message("health", Lane.LATEST, b"1"), message("health", Lane.LATEST, b"2")
    outbox.put(old)
    outbox.put(new)
    outbox.forget(old)
    assert outbox.has_latest("health")
    outbox.forget(new)
    outbox.repeat_latest()
    assert not outbox.has_latest("health") and len(outbox) == 0


@given(
    st.lists(st.sampled_from([Lane.EVENTS, Lane.RESULTS, None]), max_size=100),
    st.integers(1, 5),
    st.integers(1, 5),
)
def test_every_message_is_sent_waiting_or_counted_as_dropped(
    steps: list[Lane | None], max_events: int, max_results: int
) -> None:
    outbox = Outbox(max_events, max_results)
    put = sent = 0
    for lane in steps:
        if lane is not None:
            outbox.put(message("t", lane))
            put += 1
        elif outbox.take() is not None:
            sent += 1
    assert sent + len(outbox) + sum(outbox.dropped.values()) == put
    assert len(outbox) <= max_events + max_results
