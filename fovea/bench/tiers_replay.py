"""Replays frames through the tiers as they would have gone over some links: who answered what, and when.

A simulation of events: the agent's one thread, the links in both directions, the servers with their queues, and the
budgets, deadlines and breakers of the product itself, all on simulated time. What models say of a frame, how long
they take, and what gates think of it was recorded before.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from edge_agent.purse import Purse
from fovea.bench.tiers_events import Events, SimLink, Station
from fovea.bench.tiers_link import LAN, LinkSpec, Outage
from fovea.bench.tiers_outcome import Mode, Outcome, ReplayFrame, Said, TierTimes
from fovea.core.budget import Budget
from fovea.core.deciding import DecideSettings, Situation, decide
from fovea.core.errors import Malformed
from fovea.core.routing import Route, RouteDecision
from fovea.link.link_judge import Permit, Verdict


@dataclass(frozen=True, slots=True)
class Network:
    """site: between cameras and edge. wide: between the site and the cloud. An outage cuts both."""

    wide: LinkSpec
    site: LinkSpec = LAN
    outage: Outage | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """How it is decided who is asked; purse and budget are made anew for each replay. Times as the agent's and the
    edge's configurations have them."""

    purse: Callable[[], Purse]
    budget: Callable[[], Budget]
    decide: DecideSettings = field(default_factory=DecideSettings)
    second: DecideSettings = field(default_factory=lambda: DecideSettings(audit_share=0.0, route=Route.CLOUD))
    ask_timeout_s: float = 1.5
    max_in_flight: int = 4
    cloud_timeout_s: float = 2.0
    margin_s: float = 0.02
    least_s: float = 0.05
    seed: int = 0


def replay(
    frames: Sequence[ReplayFrame], mode: Mode, network: Network, times: TierTimes, policy: Policy
) -> list[Outcome]:
    """One outcome for each frame, in their order. Raises Malformed for frames that are not in order of time."""
    if any(later.captured_s < earlier.captured_s for earlier, later in itertools.pairwise(frames)):
        raise Malformed("replay: expected frames in the order of their capture")
    run = _Run(frames, network, times, policy)
    for index, frame in enumerate(frames):
        start = run.look if mode in (Mode.AGENT, Mode.HYBRID) else run.upload
        run.events.at(frame.captured_s, partial(start, index, mode))
    if mode is Mode.HYBRID and frames:
        ends_s = frames[-1].captured_s + policy.ask_timeout_s
        for link in (run.site, run.wide):
            run.events.at(frames[0].captured_s, partial(link.poll, ends_s))
    run.events.run()
    return run.outcomes


class _Run:
    """One replay: the stations that all frames share."""

    def __init__(
        self, frames: Sequence[ReplayFrame], network: Network, times: TierTimes, policy: Policy
    ) -> None:
        self.frames, self.network, self.times, self.policy = frames, network, times, policy
        self.outcomes = [Outcome(frame.captured_s) for frame in frames]
        self.events = Events()
        self.site = SimLink(self.events, network.site, network.outage, policy.seed + 11)
        self.wide = SimLink(self.events, network.wide, network.outage, policy.seed + 23)
        self.agent, self.encoder, self.edge, self.cloud = Station(), Station(), Station(), Station()
        self.purse, self.budget = policy.purse(), policy.budget()
        self.draw = random.Random(policy.seed).random
        self.in_flight = self.in_flight_above = 0

    # One tier alone: a picture goes up, an answer comes down, however long it takes

    def upload(self, index: int, mode: Mode) -> None:
        encode_s = _turn(self.times.encode_s, index)
        done_s = self.encoder.done_at(self.events.now_s, encode_s)
        self.events.at(done_s, lambda: self._sent_alone(index, mode))

    def _sent_alone(self, index: int, mode: Mode) -> None:
        outcome, size_bytes = self.outcomes[index], self.question_bytes(index)
        outcome.is_asked, outcome.sent_bytes = True, size_bytes
        if mode is Mode.CLOUD:
            outcome.wide_bytes, outcome.is_forwarded = size_bytes, True
        link = self.wide if mode is Mode.CLOUD else self.site
        there_s = link.up.send(self.events.now_s, size_bytes)
        if there_s is not None:
            self.events.at(there_s, lambda: self._served_alone(index, mode, link))

    def _served_alone(self, index: int, mode: Mode, link: SimLink) -> None:
        outcome, now_s = self.outcomes[index], self.events.now_s
        if mode is Mode.CLOUD:
            outcome.cloud_looks += 1
            done_s = self.cloud.done_at(now_s, _turn(self.times.cloud_s, index))
        else:
            outcome.edge_looks += 1
            done_s = self.edge.done_at(now_s, _turn(self.times.edge_s, index))
        said = Said.CLOUD if mode is Mode.CLOUD else Said.EDGE
        self.events.at(done_s, lambda: self._answered_alone(index, said, link))

    def _answered_alone(self, index: int, said: Said, link: SimLink) -> None:
        back_s = link.down.send(self.events.now_s, self.times.answer_bytes)
        if back_s is not None:
            self.outcomes[index].answers.append((back_s, said))

    # The agent's own answer, and what it asks

    def look(self, index: int, mode: Mode) -> None:
        done_s = self.agent.done_at(self.events.now_s, _turn(self.times.camera_s, index))
        self.events.at(done_s, lambda: self._looked(index, mode))

    def _looked(self, index: int, mode: Mode) -> None:
        now_s, outcome = self.events.now_s, self.outcomes[index]
        outcome.answers.append((now_s, Said.CAMERA))
        if mode is not Mode.HYBRID:
            return
        opinion, policy = self.frames[index].opinion, self.policy
        situation = Situation(
            has_link=self.site.may_ask,
            in_flight=self.in_flight,
            max_in_flight=policy.max_in_flight,
            time_left_s=outcome.captured_s + policy.ask_timeout_s - now_s,
            round_trip_s=self.site.round_trip_s,
            budget_allows=self.purse.allows(opinion, now_s),
        )
        decision = decide(opinion, self.draw(), policy.decide, situation)
        if not decision.is_asked:
            return
        if not decision.is_audit:
            self.purse.spend_ask(now_s)
        self.in_flight += 1
        errand = _Errand(self, index, decision)
        self.events.at(now_s + _turn(self.times.encode_s, index), errand.send)

    def question_bytes(self, index: int) -> float:
        return self.frames[index].jpeg_bytes + self.times.question_bytes


class _Errand:
    """One question of the agent on its way through edge and cloud; `_end` is reached exactly once."""

    def __init__(self, run: _Run, index: int, decision: RouteDecision) -> None:
        self._run = run
        self._index = index
        self._is_audit = decision.is_audit
        self._outcome = run.outcomes[index]
        self._size_bytes = run.question_bytes(index)
        self._expires_s = self._outcome.captured_s + run.policy.ask_timeout_s
        self._permit: Permit | None = None
        self._above: Permit | None = None
        self._sent_s = self._forwarded_s = self._above_ends_s = 0.0
        self._server_s = 0.0
        self._is_over = self._is_landed = False

    def send(self) -> None:
        run = self._run
        self._permit = run.site.admit()
        if self._permit is None or run.events.now_s >= self._expires_s:
            self._end(None)
            return
        self._outcome.is_asked, self._outcome.sent_bytes = True, self._size_bytes
        self._sent_s = run.events.now_s
        there_s = run.site.up.send(self._sent_s, self._size_bytes)
        run.events.at(self._expires_s, lambda: self._end(None))
        if there_s is not None:
            run.events.at(there_s, self._at_edge)

    def _at_edge(self) -> None:
        run = self._run
        takes_s, ends_s = _turn(run.times.edge_s, self._index), self._expires_s - run.policy.margin_s
        done_s = run.edge.done_by(run.events.now_s, takes_s, ends_s)
        if done_s is None:
            self._reply(None, Verdict.BESIDE_IT)
            return
        self._outcome.edge_looks += 1
        self._server_s = done_s - run.events.now_s
        run.events.at(done_s, self._looked)

    def _looked(self) -> None:
        """The edge has looked: it answers, or asks the cloud first."""
        run, policy, now_s = self._run, self._run.policy, self._run.events.now_s
        time_left_s = self._expires_s - policy.margin_s - now_s
        situation = Situation(
            has_link=run.wide.may_ask,
            in_flight=run.in_flight_above,
            max_in_flight=policy.max_in_flight,
            time_left_s=time_left_s,
            round_trip_s=max(run.wide.round_trip_s, policy.least_s),
            budget_allows=run.budget.allows(now_s),
        )
        second = run.frames[self._index].second
        decision = decide(second, run.draw(), policy.second, situation)
        self._above = run.wide.admit() if decision.is_asked else None
        if self._above is None:
            self._reply(Said.CAMERA_EDGE)
            return
        run.budget.spend_ask(now_s)
        run.in_flight_above += 1
        self._outcome.is_forwarded, self._outcome.wide_bytes = True, self._size_bytes
        self._forwarded_s = now_s
        self._above_ends_s = now_s + min(policy.cloud_timeout_s, time_left_s)
        there_s = run.wide.up.send(now_s, self._size_bytes)
        run.events.at(self._above_ends_s, partial(self._without_cloud, Verdict.LATE))
        if there_s is not None:
            run.events.at(there_s, self._at_cloud)

    def _at_cloud(self) -> None:
        run, now_s = self._run, self._run.events.now_s
        takes_s, ends_s = _turn(run.times.cloud_s, self._index), self._above_ends_s - run.policy.margin_s
        done_s = run.cloud.done_by(now_s, takes_s, ends_s)
        if done_s is None:
            back_s = run.wide.down.send(now_s, 0.0)
            if back_s is not None:
                run.events.at(back_s, partial(self._without_cloud, Verdict.BESIDE_IT))
            return
        self._outcome.cloud_looks += 1
        run.events.at(done_s, partial(self._from_cloud, done_s - now_s))

    def _from_cloud(self, server_s: float) -> None:
        back_s = self._run.wide.down.send(self._run.events.now_s, self._run.times.answer_bytes)
        if back_s is not None:
            self._run.events.at(back_s, lambda: self._landed(server_s))

    def _landed(self, server_s: float) -> None:
        if not self._is_landed:
            took_s = self._run.events.now_s - self._forwarded_s
            self._server_s += took_s
            self._land(Verdict.ANSWERED, took_s - server_s)
            self._reply(Said.ALL)

    def _without_cloud(self, verdict: Verdict) -> None:
        """It was too late, or has refused."""
        if not self._is_landed:
            self._land(verdict, None)
            self._reply(Said.CAMERA_EDGE)

    def _land(self, verdict: Verdict, round_trip_s: float | None) -> None:
        run, self._is_landed = self._run, True
        run.in_flight_above -= 1
        run.budget.spend_bytes(run.events.now_s, round(self._size_bytes))
        if self._above is not None:
            run.wide.ended(self._above, verdict, round_trip_s)

    def _reply(self, said: Said | None, verdict: Verdict = Verdict.ANSWERED) -> None:
        """Back to the camera; None: it is refused."""
        size_bytes = 0.0 if said is None else self._run.times.answer_bytes
        back_s = self._run.site.down.send(self._run.events.now_s, size_bytes)
        if back_s is not None:
            self._run.events.at(back_s, partial(self._end, said, verdict))

    def _end(self, said: Said | None, verdict: Verdict = Verdict.LATE) -> None:
        if self._is_over:
            return
        run, self._is_over, now_s = self._run, True, self._run.events.now_s
        run.in_flight -= 1
        if self._outcome.sent_bytes and not self._is_audit:
            run.purse.spend_bytes(now_s, round(self._outcome.sent_bytes))
        if said is not None:
            self._outcome.answers.append((now_s, said))
        if self._permit is not None:
            round_trip_s = None if said is None else now_s - self._sent_s - self._server_s
            run.site.ended(self._permit, verdict, round_trip_s)


def _turn(times_s: Sequence[float], index: int) -> float:
    return times_s[index % len(times_s)]
