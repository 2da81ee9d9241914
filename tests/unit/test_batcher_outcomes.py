"""Whatever comes, leaves, expires, fails and finishes in whatever order: everybody ends once, and the sums add up."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fovea.serving.admission import Ask, QueueLimits, Refused
from fovea.serving.batcher import Batch, Batcher, BatchPolicy, Item
from fovea.serving.latency_model import LatencyModel
from fovea.serving.outcomes import Outcome
from protos.calls import Priority
from tests.fakes import FakeClock

MAX_ITEMS, MAX_BYTES, MAX_BATCH = 6, 50, 3


class AnyDay(RuleBasedStateMachine):
    """A queue and its device on a fake clock; `ended` remembers how everybody ended, and fails for a second end."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.queue: Batcher[int] = Batcher(
            BatchPolicy(MAX_BATCH, max_wait_s=0.01, aging_s=0.2),
            QueueLimits(MAX_ITEMS, MAX_BYTES, margin_s=0.01),
            LatencyModel(),
        )
        self.asked = 0
        self.ended: dict[int, Outcome] = {}
        self.inside: list[Item[int]] = []
        self.running: tuple[Item[int], ...] = ()

    def end(self, items: tuple[Item[int], ...], outcome: Outcome) -> None:
        for item in items:
            assert item.payload not in self.ended, "ended twice"
            self.ended[item.payload] = outcome
            self.inside.remove(item)

    @rule(
        time_s=st.floats(-0.05, 1.0),
        priority=st.sampled_from(Priority),
        size_bytes=st.integers(1, 40),
    )
    def comes(self, time_s: float, priority: Priority, size_bytes: int) -> None:
        now_s = self.clock.monotonic_s()
        item = Item(self.asked, Ask(now_s + time_s, priority, size_bytes), now_s)
        self.asked += 1
        self.inside.append(item)
        verdict = self.queue.offer(item)
        if isinstance(verdict, Refused):
            self.end((item,), Outcome.REFUSED)

    @rule(seconds=st.floats(0.001, 0.5))
    def time_goes_by(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: not self.running)
    @rule()
    def the_device_asks(self) -> None:
        step = self.queue.take(self.clock.monotonic_s())
        self.end(step.expired, Outcome.EXPIRED)
        if isinstance(step, Batch):
            assert 1 <= len(step.items) <= MAX_BATCH
            assert all(item.ask.expires_mono_s > self.clock.monotonic_s() for item in step.items)
            self.running = step.items

    @precondition(lambda self: self.running)
    @rule(seconds=st.floats(0.0, 0.3))
    def the_batch_is_done(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.end(self.queue.finish(self.clock.monotonic_s()), Outcome.SERVED)
        self.running = ()

    @precondition(lambda self: self.running)
    @rule()
    def the_batch_fails(self) -> None:
        self.end(self.queue.fail(), Outcome.FAILED)
        self.running = ()

    @precondition(lambda self: self.inside)
    @rule(data=st.data())
    def somebody_leaves(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(self.inside))
        assert self.queue.cancel(item), "who is inside can leave"
        self.end((item,), Outcome.CANCELLED)

    @invariant()
    def the_sums_add_up(self) -> None:
        assert self.asked == len(self.ended) + len(self.inside)
        still_running = [item for item in self.running if item in self.inside]
        assert len(self.queue) == len(self.inside) - len(still_running)

    @invariant()
    def the_line_is_bounded(self) -> None:
        """By its limit, and what a failed batch puts back into it."""
        assert len(self.queue) <= MAX_ITEMS + MAX_BATCH

    def teardown(self) -> None:
        """The end of the day: the device works off what is there or the process stops; nobody is left inside."""
        if self.asked % 2:
            self.end(self.queue.close(), Outcome.REFUSED)
        while self.inside:
            if not self.running:
                self.clock.advance(0.02)
                self.the_device_asks()
            else:
                self.the_batch_is_done(0.01)
        assert sum(Counter(self.ended.values()).values()) == self.asked
        assert len(self.queue) == 0


TestAnyDay = AnyDay.TestCase


@given(st.lists(st.tuples(st.sampled_from(Priority), st.floats(0, 0.3)), min_size=1, max_size=40))
def test_nobody_is_overtaken_by_more_than_two_steps_of_priority(
    arrivals: list[tuple[Priority, float]],
) -> None:
    aging_s, now_s = 0.2, 0.0
    queue: Batcher[int] = Batcher(BatchPolicy(1, aging_s=aging_s), QueueLimits(1000), LatencyModel())
    came: list[Item[int]] = []
    for priority, pause_s in arrivals:
        now_s += pause_s
        came.append(Item(len(came), Ask(1e9, priority), now_s))
        queue.offer(came[-1])
    left: set[int] = set()
    while len(queue):
        step = queue.take(now_s)
        assert isinstance(step, Batch)
        for earlier in came:
            if earlier.payload not in left | {step.items[0].payload}:
                assert step.items[0].arrived_mono_s <= earlier.arrived_mono_s + 2 * aging_s + 1e-9
        left.add(step.items[0].payload)
        queue.finish(now_s)
