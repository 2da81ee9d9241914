"""The agent as the updater sees it: models switched while frames come, policies, a candidate, health."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from edge_agent.agent import Agent, AgentParts, Seat
from edge_agent.case_keeping import CaseKeeping
from edge_agent.config import AgentConfig
from edge_agent.escalation import Escalation
from edge_agent.foresight import Foresight
from edge_agent.frame_walk import FrameWalk
from edge_agent.inbox import Inbox
from edge_agent.observing import Observers
from edge_agent.publish.label_names import LabelNames
from edge_agent.publish.zones import ObjectWatch
from edge_agent.regime import Regimes
from edge_agent.track.tracker import Tracker
from edge_agent.updates.config import ShadowConfig
from edge_agent.updates.evidence import ModelWatch
from edge_agent.updates.host import AgentHost, HostParts
from fovea import zoo
from fovea.core.arrays import ImageArray
from fovea.core.detections import ModelRef
from fovea.core.errors import DetectorFailed, FoveaError, Incompatible, Malformed
from fovea.core.gate import RuleGate
from fovea.core.json_form import to_json_form
from fovea.core.latency import EwmaPredictor
from fovea.core.learned_gate import LearnedGate
from fovea.core.policy import Policy
from fovea.core.routing import Route
from fovea.process.resources import ResourceState
from fovea.runtime.bundle import Bundle
from fovea.update.slot import ModelSlot
from fovea.update.starts import Starts
from tests.agent_fakes import FakeCamera, FakeLink, FakeObserver, FakePublisher, FakeShelf, edge_answer, frame
from tests.builders import tiny_bundle
from tests.fakes import FakeClock, FakeDetector, Seen, bright_parts
from tests.mqtt_listener import wait_until

LIVENESS_S = 20.0
OLD, NEW, OTHER = (tiny_bundle(version=version) for version in ("1.0", "2.0", "3.0"))
CONFIG: dict[str, Any] = {
    "device": "porch",
    "bundle": "old.fovea",
    "cameras": [{"name": "front", "url": "sim://street-v1/day", "fps": 5.0}],
    "edge": {"address": "127.0.0.1:1"},
    "gate": {"ask_from": 0.5},
    "audit_share": 0.0,
}


def half_sure(pixels: ImageArray) -> Seen:
    return [(box, 0.5, channel) for box, _, channel in bright_parts(pixels)]


class Site:
    """A running agent on fake models, fed by hand."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.clock, self.inbox, self.publisher = FakeClock(), Inbox(), FakePublisher()
        self.observer, self.names, self.camera = FakeObserver(), LabelNames(), FakeCamera()
        self.opened: dict[str, FakeDetector] = {}
        self.fail_with: FoveaError | None = None
        self.changes: list[ModelRef] = []
        self.starts = Starts(folder / "starts.json", "boot")
        self.slot = ModelSlot(self.open(OLD))
        watch = ModelWatch(OLD.ref)
        regimes = Regimes(AgentConfig.model_validate(CONFIG | more), Foresight(EwmaPredictor()), lambda: None)
        regime = regimes.of(OLD)
        self.host = AgentHost(
            OLD,
            regime,
            HostParts(
                self.slot,
                regimes,
                self.open,
                self.names,
                watch,
                self.starts,
                lambda: ResourceState(0.0, process_memory_bytes=50_000_000),
                self.changes.append,
                self.clock,
                lambda: 0.5,
            ),
            ShadowConfig(most_share=0.75),
        )
        self.link = FakeLink(edge_answer)
        keeping = CaseKeeping(FakeShelf(), 90)
        observers = Observers([self.observer, watch])
        self.escalation = Escalation(self.link, keeping, 4, self.clock, self._ended, observers)
        walk = FrameWalk(self.slot, None, Tracker(), regime.judging, self.clock)
        self.agent = Agent(
            {"front": Seat(self.camera, walk, ObjectWatch("front", "boot", self.names))},
            AgentParts(
                self.inbox, self.escalation, keeping, regime.purse, self.publisher, observers, self.names
            ),
            regime.settings,
            self.clock,
            lambda: 0.999,
        )
        self.host.attach(self.agent)
        self.keeping = keeping
        self.keeping.start()
        self.escalation.start()
        self.agent.start()
        self.sequence = 0

    def _ended(self, ended: Any) -> None:
        self.inbox.errand_ended(ended)
        self.host.ended(ended)

    def open(self, bundle: Bundle) -> FakeDetector:
        if self.fail_with is not None:
            raise self.fail_with
        detector = self.opened[bundle.manifest.version] = FakeDetector(look=half_sure, ref=bundle.ref)
        return detector

    def frame(self) -> None:
        self.sequence += 1
        self.camera.frames.append(frame(self.clock, self.sequence))
        self.inbox.frame_ready("front")

    def answered(self, frames: int) -> None:
        wait_until(lambda: len(self.own()) == frames)

    def own(self) -> list[tuple[int, str]]:
        """Sequence and model version of each own answer, in order."""
        return [
            (each.frame_id.sequence, each.detections.model.version)
            for each in list(self.publisher.results)
            if each.revision == 0
        ]

    def stop(self) -> None:
        assert self.host.stop(LIVENESS_S)
        assert self.agent.stop(LIVENESS_S)
        assert self.escalation.stop(LIVENESS_S)
        assert self.keeping.stop(LIVENESS_S)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.stop()


def test_every_frame_is_answered_exactly_once_however_often_the_model_is_switched(site: Site) -> None:
    """Frames come as fast as the agent takes them, while ten switches happen."""
    is_over = threading.Event()

    def feed() -> None:
        while not is_over.is_set():
            if not site.camera.frames:
                site.frame()

    feeding = threading.Thread(target=feed, daemon=True)
    feeding.start()
    for turn in range(10):
        before = len(site.own())
        wait_until(lambda: len(site.own()) > before + 2)  # noqa: B023
        replaced = site.opened[site.slot.ref.version]
        site.host.switch_to((NEW, OLD)[turn % 2])
        assert replaced.is_closed, "nobody looks with it any more"
    is_over.set()
    feeding.join(LIVENESS_S)
    site.answered(site.sequence)
    own = site.own()
    assert [sequence for sequence, _ in own] == list(range(1, site.sequence + 1))
    switches = sum(before != after for (_, before), (_, after) in pairwise(own))
    assert switches == 10
    assert site.observer.failed == []


def test_a_switch_takes_along_labels_metrics_and_times(site: Site) -> None:
    site.host.switch_to(NEW)
    site.frame()
    site.answered(1)
    assert site.own() == [(1, "2.0")]
    assert site.changes == [NEW.ref]
    site.host.switch_to(NEW)
    assert site.changes == [NEW.ref], "it runs already"


def test_a_model_that_cannot_be_made_ready_leaves_the_old_one_running(site: Site) -> None:
    site.fail_with = DetectorFailed("no")
    with pytest.raises(DetectorFailed):
        site.host.switch_to(NEW)
    site.frame()
    site.answered(1)
    assert site.own() == [(1, "1.0")]
    assert not site.opened["1.0"].is_closed


def test_a_policy_of_the_order_goes_over_the_configuration_and_stays_with_the_next_model(site: Site) -> None:
    never = Policy("never", ask_from=1.0, tell_from=0.99)
    site.host.apply(to_json_form(never))
    site.frame()
    site.answered(1)
    assert site.publisher.results[-1].decision.route is Route.LOCAL
    assert len(site.publisher.results[-1].detections) == 0, "nothing is told below 0.99"
    site.host.switch_to(NEW)
    site.frame()
    site.answered(2)
    assert len(site.publisher.results[-1].detections) == 0
    site.host.apply(None)
    site.frame()
    site.answered(3)
    assert len(site.publisher.results[-1].detections) == 1


def test_a_policy_that_is_none_changes_nothing(site: Site) -> None:
    with pytest.raises(Malformed, match="gate"):
        site.host.apply({"gate": {"ask_from": 0.7}})
    with pytest.raises(Malformed, match="ask_from"):
        site.host.apply({"name": "odd", "ask_from": 7.0})
    site.frame()
    site.answered(1)
    assert len(site.publisher.results[-1].detections) == 1


def test_a_candidate_looks_beside_and_is_closed_when_it_is_over(site: Site) -> None:
    site.host.shadow(NEW, 1.0)
    for number in range(4):
        site.frame()
        site.answered(number + 1)

    def frames() -> int:
        report = site.host.evidence().shadow
        return 0 if report is None else report.frames

    wait_until(lambda: frames() >= 1)
    report = site.host.evidence().shadow
    assert report is not None
    assert (report.candidate_sha256, report.agreement_with_champion_mean) == (NEW.ref.sha256, 1.0)
    assert {version for _, version in site.own()} == {"1.0"}
    site.host.shadow(OTHER, 1.0)
    assert site.opened["2.0"].is_closed and not site.opened["3.0"].is_closed
    site.host.shadow(None, 0.0)
    assert site.opened["3.0"].is_closed and site.host.evidence().shadow is None
    assert site.agent.second_look is None


def test_a_candidate_beside_which_the_process_died_too_often_is_refused(tmp_path: Path) -> None:
    for _ in range(3):
        site = Site(tmp_path)
        site.host.shadow(NEW, 1.0)
        site.stop()
    site = Site(tmp_path)
    with pytest.raises(Incompatible, match="ended 3 times"):
        site.host.shadow(NEW, 1.0)
    site.host.shadow(OTHER, 1.0)
    site.stop()


def test_health_and_evidence_are_of_what_was_looked_at(site: Site) -> None:
    for number in range(3):
        site.frame()
        site.answered(number + 1)
    site.opened["1.0"].fail_with = DetectorFailed("no")
    site.frame()
    wait_until(lambda: site.observer.failed == ["front"])
    health, evidence = site.host.health(), site.host.evidence()
    assert (health.frames, health.failures, health.restarts, health.rss_mb) == (3, 1, 0, 50.0)
    assert evidence.asked.frames == 3 and evidence.agreement is None and evidence.shadow is None


def test_answers_from_above_speak_for_the_model_that_runs(tmp_path: Path) -> None:
    site = Site(tmp_path, gate={"ask_from": 0.0001, "uncertain_boxes": 10.0})
    site.frame()
    site.answered(1)

    def pairs() -> int:
        agreement = site.host.evidence().agreement
        return 0 if agreement is None else agreement.n

    wait_until(lambda: pairs() == 1)
    agreement = site.host.evidence().agreement
    assert agreement is not None and (agreement.model_sha256, agreement.sum_wx) == (OLD.ref.sha256, 1.0)
    site.stop()


def test_the_gate_that_was_fitted_for_a_model_travels_with_it(site: Site) -> None:
    gate = Bundle.open(zoo.path_of("street-student-int8")).find_gate()
    assert gate is not None
    walk = site.agent.seats["front"].walk
    assert isinstance(walk._judging.gate, RuleGate)
    site.host.switch_to(NEW.with_gate(gate))
    assert isinstance(walk._judging.gate, LearnedGate)
    site.frame()
    site.answered(1)
    site.host.switch_to(OLD)
    assert isinstance(walk._judging.gate, RuleGate)
