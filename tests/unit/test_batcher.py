"""The queue's policy on a clock that stands still: who goes next, with whom, and who is dropped."""

from __future__ import annotations

from typing import Any

import pytest

from fovea.core.errors import Malformed
from fovea.serving.admission import Ask, QueueLimits, Reason, Refused
from fovea.serving.batcher import Admitted, Batch, Batcher, BatchPolicy, Item, Wait
from fovea.serving.latency_model import LatencyModel
from protos.calls import Priority

FAR_S = 1e6


def batcher(
    latency: LatencyModel | None = None, limits: QueueLimits = QueueLimits(), **policy: Any
) -> Batcher[str]:
    return Batcher(BatchPolicy(**({"max_batch": 4} | policy)), limits, latency or LatencyModel())


def latency_of(per_item_s: float, fixed_s: float = 0.0) -> LatencyModel:
    """A model that has seen a device of that speed."""
    latency = LatencyModel()
    for size in (1, 8) * 20:
        latency.observe(size, per_item_s * size + fixed_s, now_s=0.0)
    return latency


def item(
    name: str,
    arrived_s: float = 0.0,
    expires_s: float = FAR_S,
    priority: Priority = Priority.NORMAL,
    size_bytes: int = 1,
) -> Item[str]:
    return Item(name, Ask(expires_s, priority, size_bytes), arrived_s)


def come(queue: Batcher[str], *newcomers: Item[str]) -> None:
    for newcomer in newcomers:
        assert isinstance(queue.offer(newcomer), Admitted)


def names(items: tuple[Item[str], ...]) -> list[str]:
    return [each.payload for each in items]


def taken(queue: Batcher[str], now_s: float) -> list[str]:
    step = queue.take(now_s)
    assert isinstance(step, Batch), step
    return names(step.items)


def waited_until(queue: Batcher[str], now_s: float) -> float | None:
    step = queue.take(now_s)
    assert isinstance(step, Wait), step
    return step.until_mono_s


def test_an_empty_line_waits_for_somebody_to_come() -> None:
    assert waited_until(batcher(), 0.0) is None


def test_everybody_who_waits_goes_together_when_the_device_frees() -> None:
    queue = batcher()
    come(queue, item("a"))
    assert taken(queue, 0.0) == ["a"]
    come(queue, item("b", 0.1), item("c", 0.2), item("d", 0.3))
    assert names(queue.finish(0.4)) == ["a"]
    assert taken(queue, 0.4) == ["b", "c", "d"]


def test_one_more_than_a_batch_goes_into_the_next_one() -> None:
    queue = batcher(max_batch=4)
    come(queue, *(item(name) for name in "abcde"))
    assert taken(queue, 0.0) == ["a", "b", "c", "d"]
    queue.finish(0.1)
    assert taken(queue, 0.1) == ["e"]
    assert names(queue.finish(0.2)) == ["e"]
    assert waited_until(queue, 0.2) is None


def test_the_wait_for_company_counts_from_the_first_and_ends_when_the_batch_is_full() -> None:
    queue = batcher(max_batch=3, max_wait_s=0.002)
    come(queue, item("a", 1.000))
    assert waited_until(queue, 1.000) == pytest.approx(1.002)
    come(queue, item("b", 1.0015))
    assert waited_until(queue, 1.0015) == pytest.approx(1.002), "a newcomer does not start it again"
    assert taken(queue, 1.002) == ["a", "b"]
    come(queue, *(item(name, 2.0) for name in "cde"))
    queue.finish(2.0)
    assert taken(queue, 2.0) == ["c", "d", "e"]


def test_who_waited_behind_a_running_batch_does_not_wait_again() -> None:
    queue = batcher(max_wait_s=0.002)
    come(queue, item("a", 0.0))
    assert taken(queue, 0.002) == ["a"]
    come(queue, item("b", 0.003))
    queue.finish(0.5)
    assert taken(queue, 0.5) == ["b"]


def test_who_expired_is_dropped_at_its_turn_and_told() -> None:
    queue = batcher()
    come(queue, item("a", expires_s=1.0), item("b", expires_s=1.1), item("c"))
    step = queue.take(1.0)
    assert isinstance(step, Batch)
    assert (names(step.items), names(step.expired)) == (["b", "c"], ["a"])


def test_a_line_of_expired_ones_only_is_told_and_the_device_waits() -> None:
    queue = batcher()
    come(queue, item("a", expires_s=1.0))
    step = queue.take(1.5)
    assert isinstance(step, Wait)
    assert (step.until_mono_s, names(step.expired), len(queue)) == (None, ["a"], 0)


def test_a_higher_priority_goes_first_and_equals_in_the_order_of_their_coming() -> None:
    queue = batcher(max_batch=2)
    low, high = Priority.LOW, Priority.HIGH
    come(
        queue,
        item("l", 0.00, priority=low),
        item("n1", 0.01),
        item("n2", 0.02),
        item("h", 0.03, priority=high),
    )
    assert taken(queue, 0.1) == ["h", "n1"]
    queue.finish(0.2)
    assert taken(queue, 0.2) == ["n2", "l"]


def test_a_low_priority_gains_rank_by_waiting_so_that_an_endless_stream_of_high_ones_does_not_starve_it() -> (
    None
):
    queue = batcher(max_batch=1, aging_s=0.5)
    come(queue, item("low", 0.0, priority=Priority.LOW))
    order = []
    for step in range(20):
        now_s = step * 0.1
        come(queue, item(f"high at {now_s:.1f}", now_s, priority=Priority.HIGH))
        order += taken(queue, now_s)
        queue.finish(now_s + 0.1)
    assert order.index("low") == 10, "those that came within two steps of 0.5 s went first, and nobody else"


def test_who_left_while_waiting_is_skipped_and_harms_no_neighbour() -> None:
    queue = batcher()
    gone = item("gone")
    come(queue, item("a"), gone, item("b"))
    assert queue.cancel(gone)
    assert not queue.cancel(gone)
    assert taken(queue, 0.0) == ["a", "b"]


def test_who_left_while_looked_at_is_not_served_and_its_neighbours_are() -> None:
    queue = batcher()
    gone = item("gone")
    come(queue, item("a"), gone, item("b"))
    assert taken(queue, 0.0) == ["a", "gone", "b"]
    assert queue.cancel(gone)
    assert names(queue.finish(0.1)) == ["a", "b"]
    assert not queue.cancel(gone)


def test_after_a_batch_that_failed_each_goes_alone_once_and_only_the_one_to_blame_fails() -> None:
    queue = batcher()
    come(queue, item("a"), item("poison"), item("b"))
    assert taken(queue, 0.0) == ["a", "poison", "b"]
    assert queue.fail() == ()
    come(queue, item("new", 0.1))
    assert taken(queue, 0.1) == ["a"]
    assert names(queue.finish(0.2)) == ["a"]
    assert taken(queue, 0.2) == ["poison"]
    assert names(queue.fail()) == ["poison"]
    assert taken(queue, 0.3) == ["b"]
    assert names(queue.finish(0.3)) == ["b"]
    assert taken(queue, 0.4) == ["new"]


def test_a_newcomer_of_higher_rank_is_not_put_together_with_a_suspect() -> None:
    queue = batcher()
    come(queue, item("a"), item("b"))
    taken(queue, 0.0)
    queue.fail()
    come(queue, item("h1", 0.1, priority=Priority.HIGH), item("h2", 0.1, priority=Priority.HIGH))
    assert taken(queue, 0.1) == ["h1", "h2"]
    queue.finish(0.2)
    assert [taken(queue, 0.2), names(queue.finish(0.3)), taken(queue, 0.3)] == [["a"], ["a"], ["b"]]


def test_a_suspect_whose_time_is_over_or_who_left_is_not_tried_again() -> None:
    queue = batcher()
    late, gone = item("late", expires_s=0.5), item("gone")
    come(queue, late, gone)
    taken(queue, 0.0)
    queue.cancel(gone)
    queue.fail()
    step = queue.take(0.6)
    assert isinstance(step, Wait)
    assert names(step.expired) == ["late"]


def test_no_more_join_a_batch_than_leave_those_aboard_in_time() -> None:
    """On a device that takes 100 ms for each picture, a batch of 4 would make the first, who has 250 ms, late."""
    queue = batcher(latency_of(per_item_s=0.1), max_batch=4)
    come(queue, item("a", 0.0, expires_s=0.25), *(item(name, 0.0, expires_s=9.0) for name in "bcd"))
    assert taken(queue, 0.0) == ["a", "b"]
    queue.finish(0.2)
    assert taken(queue, 0.2) == ["c", "d"]


def test_who_cannot_be_in_time_any_more_does_not_keep_others_out() -> None:
    queue = batcher(latency_of(per_item_s=0.1), max_batch=4)
    come(queue, item("a", 0.0, expires_s=0.15), *(item(name, 0.0, expires_s=9.0) for name in "bcd"))
    assert taken(queue, 0.1) == ["a", "b", "c", "d"]


def test_a_full_line_refuses_by_count_and_says_when_to_come_back() -> None:
    queue = batcher(latency_of(0.01), QueueLimits(max_items=2), max_batch=2)
    come(queue, item("a"))
    taken(queue, 0.0)
    come(queue, item("b"), item("c"))
    refused = queue.offer(item("d"))
    assert isinstance(refused, Refused)
    assert refused.reason is Reason.QUEUE_FULL
    assert refused.retry_after_s == pytest.approx(0.03, rel=0.1)
    queue.finish(0.01)
    taken(queue, 0.01)
    come(queue, item("e", 0.01))


def test_a_full_line_refuses_by_bytes_but_takes_a_single_large_one() -> None:
    queue = batcher(limits=QueueLimits(max_bytes=100))
    come(queue, item("huge", size_bytes=5000))
    refused = queue.offer(item("b", size_bytes=1))
    assert isinstance(refused, Refused)
    assert refused.reason is Reason.QUEUE_BYTES_FULL
    taken(queue, 0.0)
    come(queue, item("c", size_bytes=60), item("d", size_bytes=40))


def test_bytes_are_given_back_by_all_who_leave() -> None:
    queue = batcher(limits=QueueLimits(max_bytes=100), max_batch=1)
    for round_s in range(5):
        gone, late = item("gone", round_s, size_bytes=40), item("late", round_s, round_s + 0.1, size_bytes=40)
        come(queue, gone, late, item("a", round_s, size_bytes=20))
        queue.cancel(gone)
        assert taken(queue, round_s + 0.5) == ["a"]
        queue.finish(round_s + 0.5)


def test_a_closed_line_refuses_all_who_wait_are_looked_at_or_come_later() -> None:
    queue = batcher(max_batch=2)
    come(queue, *(item(name) for name in "abc"))
    taken(queue, 0.0)
    assert sorted(names(queue.close())) == ["a", "b", "c"]
    refused = queue.offer(item("d"))
    assert isinstance(refused, Refused)
    assert refused.reason is Reason.STOPPING
    assert queue.finish(1.0) == ()
    assert queue.close() == ()


def test_a_batch_that_fails_after_the_close_is_not_tried_again() -> None:
    queue = batcher()
    come(queue, item("a"), item("b"))
    taken(queue, 0.0)
    queue.close()
    assert queue.fail() == ()
    assert len(queue) == 0


@pytest.mark.parametrize("changes", [{"max_batch": 0}, {"max_wait_s": -1.0}, {"aging_s": float("nan")}])
def test_a_policy_that_cannot_be_followed_is_malformed(changes: dict[str, Any]) -> None:
    with pytest.raises(Malformed, match=r"^batch policy: expected"):
        BatchPolicy(**changes)
