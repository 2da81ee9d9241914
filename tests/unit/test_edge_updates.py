"""Blue and green on the edge: what is counted, whose gate judges, what is switched and what is refused."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest

from edge_server.model_teller import ModelTeller
from edge_server.second_gate import GateOfModel, SecondGate
from edge_server.updates import EdgeHost, WatchedSlot
from fovea.core.detections import ModelRef
from fovea.core.errors import DetectorFailed, Incompatible
from fovea.core.gate import RuleGate, RuleGateSettings
from fovea.mqtt.settings import MqttSettings
from fovea.runtime.bundle import Bundle
from fovea.serving.worker import Looked
from fovea.update.starts import Starts
from tests.broker_process import broker
from tests.builders import model_ref, tiny_bundle
from tests.fakes import FakeDetector
from tests.mqtt_listener import listening, wait_until

FRAME = np.zeros((48, 64, 3), np.uint8)
OLD, NEW = tiny_bundle(version="1.0"), tiny_bundle(version="2.0")
OTHER_LABELS = tiny_bundle(version="3.0", labels=("person", "car", "dog"))


class Edge:
    def __init__(self, folder: Path) -> None:
        self.opened: list[FakeDetector] = []
        self.told: list[str] = []
        self.fail_with: DetectorFailed | None = None
        self.slot = WatchedSlot(self.open(OLD))
        self.host = EdgeHost(
            self.slot,
            self.open,
            lambda bundle: self.told.append(f"before {bundle.manifest.version} on {self.slot.ref.version}"),
            lambda ref: self.told.append(f"after {ref.version} on {self.slot.ref.version}"),
            Starts(folder / "starts.json", "boot"),
        )

    def open(self, bundle: Bundle) -> FakeDetector:
        if self.fail_with is not None:
            raise self.fail_with
        self.opened.append(FakeDetector(ref=bundle.ref))
        return self.opened[-1]


@pytest.fixture
def edge(tmp_path: Path) -> Edge:
    return Edge(tmp_path)


def test_the_new_model_is_ready_before_the_old_one_goes(edge: Edge) -> None:
    edge.host.switch_to(NEW)
    assert edge.slot.ref == NEW.ref
    assert edge.told == ["before 2.0 on 1.0", "after 2.0 on 2.0"]
    assert edge.opened[0].is_closed and not edge.opened[1].is_closed
    edge.host.switch_to(NEW)
    assert len(edge.opened) == 2, "it runs already"


def test_a_model_that_cannot_be_made_ready_leaves_the_old_one(edge: Edge) -> None:
    edge.fail_with = DetectorFailed("no")
    with pytest.raises(DetectorFailed):
        edge.host.switch_to(NEW)
    assert edge.slot.ref == OLD.ref and not edge.opened[0].is_closed


def test_a_model_with_other_labels_is_refused(edge: Edge) -> None:
    with pytest.raises(Incompatible, match="labels"):
        edge.host.switch_to(OTHER_LABELS)
    assert edge.slot.ref == OLD.ref


def test_frames_and_failures_count_from_the_start_and_times_from_the_switch(edge: Edge) -> None:
    for _ in range(20):
        edge.slot.detect([FRAME, FRAME])
    edge.opened[0].fail_with = DetectorFailed("no")
    with pytest.raises(DetectorFailed):
        edge.slot.detect([FRAME, FRAME, FRAME])
    health = edge.host.health()
    assert (health.frames, health.failures) == (40, 3)
    assert health.detect_ms_p95 is not None and health.rss_mb > 0
    edge.host.switch_to(NEW)
    assert edge.host.health().detect_ms_p95 is None
    assert edge.host.health().frames == edge.host.evidence().asked.frames == 40


def test_what_an_edge_does_not_do_is_said_and_changes_nothing(
    edge: Edge, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        edge.host.shadow(NEW, 0.5)
        edge.host.apply({"name": "frugal"})
        edge.host.shadow(None, 0.0)
        edge.host.apply(None)
    assert len(caplog.records) == 2
    assert edge.slot.ref == OLD.ref and edge.host.evidence().shadow is None


def judge_of(doubt: float) -> SecondGate:
    return SecondGate(RuleGate(RuleGateSettings(uncertain_boxes=doubt)))


def looked(model: ModelRef) -> Looked:
    detector = FakeDetector(look=lambda _: [((4.0, 4.0, 20.0, 20.0), 0.5, 0)], ref=model)
    return Looked(detector.detect([FRAME])[0], model, detector.labels, 0.0, 0.0)


def test_each_look_is_judged_by_the_gate_of_the_model_that_looked() -> None:
    old, new = model_ref(digit="a"), model_ref(digit="b")
    gates = GateOfModel(old, judge_of(0.0))
    gates.add(new, judge_of(5.0))
    assert gates.judge(looked(old), (), FRAME).p_ask == 0.0
    assert gates.judge(looked(new), (), FRAME).p_ask > 0.9
    for digit in "cdef":
        gates.add(model_ref(digit=digit), judge_of(1.0))
    assert len(gates._judges) == 4
    gates.add(model_ref(digit="f"), judge_of(5.0))
    assert gates.judge(looked(model_ref(digit="f")), (), FRAME).p_ask > 0.9


def test_the_broker_is_told_and_hints_are_heard_whatever_they_say() -> None:
    with broker() as at, listening(at.host, at.port) as listener:
        teller, looks = ModelTeller(MqttSettings(at.host, at.port), "edge-1"), []
        teller.start(lambda: looks.append(1))
        teller.tell({"phase": "idle"})
        teller.tell({"phase": "committed"})
        told = listener.wait_for("fovea/edge-1/model/reported", b'{"phase":"committed"}')
        assert json.loads(told.payload) == {"phase": "committed"}
        listener.say("fovea/edge-1/model/desired", b"\xff\xfe", retain=True)
        wait_until(lambda: bool(looks))
        teller.stop(5.0)
        listener.wait_for("fovea/edge-1/available", b"stopped")
