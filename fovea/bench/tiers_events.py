"""Simulated time: events, stations with a queue, and links with the product's own judge of whether to ask."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from fovea.bench.tiers_link import LinkSpec, Outage, Way
from fovea.link.link_judge import JudgeSettings, LinkJudge, Permit, Verdict

_POLL_S = 0.1
_CHECK_TIMEOUT_S = 2.0
_ROUND_TRIP_WEIGHT = 0.2
"""The last two as in `fovea.link.upstream`."""


class Events:
    """Things that happen at their time, in the order in which they were planned where that is the same."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()

    def at(self, at_s: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (at_s, next(self._number), happen))

    def run(self) -> None:
        while self._heap:
            self.now_s, _, happen = heapq.heappop(self._heap)
            happen()


class Station:
    """Does one thing after the other."""

    def __init__(self) -> None:
        self._free_s = 0.0

    def done_at(self, at_s: float, takes_s: float) -> float:
        """When a thing that comes now and takes so long is done."""
        self._free_s = max(at_s, self._free_s) + takes_s
        return self._free_s

    def done_by(self, at_s: float, takes_s: float, ends_s: float) -> float | None:
        """The same; None, and nothing is done, when that would be after `ends_s`: refused at the door, as servers
        refuse what cannot be in time."""
        if max(at_s, self._free_s) + takes_s > ends_s:
            return None
        return self.done_at(at_s, takes_s)


class SimLink:
    """A link as its lower end knows it: two ways, and the product's own judge of whether to ask."""

    def __init__(self, events: Events, spec: LinkSpec, outage: Outage | None, seed: int) -> None:
        self.up, self.down = Way(spec, outage, seed), Way(spec, outage, seed + 1)
        self._events = events
        self._spec = spec
        self._outage = outage
        self._judge = LinkJudge(JudgeSettings(), 0.0)
        # It was reached before the first frame.
        self._judge.check_succeeded(self._judge.admit_check(0.0), 0.0)
        self._is_checking = False
        self.round_trip_s = 0.0

    @property
    def may_ask(self) -> bool:
        return self._judge.may_ask(self._events.now_s)

    def admit(self) -> Permit | None:
        return self._judge.admit_question(self._events.now_s)

    def ended(self, permit: Permit, verdict: Verdict, round_trip_s: float | None = None) -> None:
        """How a question ended, and what it took beside the server's own time."""
        self._judge.ended(permit, verdict, self._events.now_s)
        self._judge.take_changes()
        if round_trip_s is not None:
            known_s = self.round_trip_s or round_trip_s
            self.round_trip_s = known_s + _ROUND_TRIP_WEIGHT * (round_trip_s - known_s)

    def poll(self, until_s: float) -> None:
        """Looks now and then whether somebody is there, as the link's own thread does."""
        now_s = self._events.now_s
        if not self._is_checking and now_s >= self._judge.check_due_mono_s():
            self._is_checking = True
            ticket = self._judge.admit_check(now_s)
            back_s = now_s + self._spec.round_trip_s
            if self._outage is not None and self._outage.hits(now_s, back_s):
                self._events.at(now_s + _CHECK_TIMEOUT_S, lambda: self._checked(ticket, is_there=False))
            else:
                self._events.at(back_s, lambda: self._checked(ticket, is_there=True))
        if now_s < until_s:
            self._events.at(now_s + _POLL_S, lambda: self.poll(until_s))

    def _checked(self, ticket: int, *, is_there: bool) -> None:
        self._is_checking = False
        if is_there:
            self._judge.check_succeeded(ticket, self._events.now_s)
        else:
            self._judge.check_failed(ticket, self._events.now_s, "no answer")
        self._judge.take_changes()
