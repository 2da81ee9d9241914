"""Two policies at once on a running loop: whose frame it is, what each spends, what is counted; and named policies in
the configuration."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from edge_agent import policy_config
from edge_agent.agent import Agent, AgentParts, AgentSettings, Seat
from edge_agent.camera_config import CameraConfig
from edge_agent.case_keeping import CaseKeeping
from edge_agent.config import AbConfig, AgentConfig, EdgeLinkConfig
from edge_agent.escalation import Escalation
from edge_agent.frame_walk import FrameWalk, Judging
from edge_agent.inbox import Inbox
from edge_agent.metrics import _of_arms
from edge_agent.outage import OutageTeller
from edge_agent.policy_arms import AbTest, ArmParts
from edge_agent.publish.label_names import LabelNames
from edge_agent.publish.zones import ObjectWatch
from edge_agent.purse import RULES_PRICE, Purse
from edge_agent.track.tracker import Tracker
from fovea.core.ab import AbPlan, AbUnit, Arm
from fovea.core.budget import Budget
from fovea.core.deciding import DecideSettings
from fovea.core.errors import Malformed, NotFound
from fovea.core.policy import Policy
from fovea.core.price import AskPrice
from fovea.core.qoe import QoeWeights
from tests.agent_fakes import (
    FakeCamera,
    FakeGate,
    FakeLink,
    FakeMotion,
    FakeObserver,
    FakePublisher,
    FakeShelf,
    edge_answer,
    frame,
)
from tests.fakes import FakeClock, FakeDetector
from tests.unit.test_agent_loop import LIVENESS_S, until

KEEN, SHY = Policy("keen", 0.3, 1.0), Policy("shy", 0.9, 0.2)
FRAMES = 60


def config(**more: object) -> AgentConfig:
    values: dict[str, object] = {
        "device": "porch",
        "bundle": "zoo:street-student-int8",
        "cameras": [
            CameraConfig(name="street", url="0", fps=10.0),
            CameraConfig(name="yard", url="1", fps=None),
        ],
    }
    return AgentConfig(**{**values, **more})  # type: ignore[arg-type]


@pytest.fixture
def compared() -> AbTest:
    """Sixty frames by turns: arm a asks about every one, arm b about none; both audit a tenth and more."""
    clock, gate = FakeClock(), FakeGate(0.5)
    plan = AbPlan("keen", "shy", by=AbUnit.FRAME)
    purse = Purse(Budget(1000.0), AskPrice(replace(RULES_PRICE, start=0.01)))
    arms = {
        Arm.A: ArmParts(purse, DecideSettings(0.3, audit_share=0.5)),
        Arm.B: ArmParts(purse, DecideSettings(0.9, audit_share=0.5)),
    }
    ab = AbTest(plan, arms, 0.25, clock)
    inbox, observer, link = Inbox(), FakeObserver(), FakeLink(edge_answer)
    keeping = CaseKeeping(FakeShelf(), jpeg_quality=90)
    escalation = Escalation(link, keeping, 4, clock, inbox.errand_ended, observer)
    judging = Judging(gate, DecideSettings(), decide_now=lambda: ab.decide)
    camera, names = FakeCamera(), LabelNames()
    walk = FrameWalk(FakeDetector(), FakeMotion(), Tracker(), judging, clock)
    draws = iter([0.2, 0.8] * FRAMES * 2)
    agent = Agent(
        {"front": Seat(camera, walk, ObjectWatch("front", "boot", names))},
        AgentParts(
            inbox, escalation, keeping, ab.purse, FakePublisher(), observer, names, OutageTeller(), ab=ab
        ),
        AgentSettings(ask_from=0.3),
        clock,
        draw=lambda: next(draws),
    )
    keeping.start()
    escalation.start()
    for number in range(FRAMES):
        clock.advance(1.0)
        camera.frames.append(frame(clock, number))
        inbox.frame_ready("front")
        work = inbox.take(0)
        assert work is not None
        agent.step(work)
        until(lambda: escalation.in_flight == 0 and len(observer.errands) == len(link.asked))
        if not inbox.is_empty and (work := inbox.take(0)) is not None:
            agent.step(work)
    assert escalation.stop(LIVENESS_S) and keeping.stop(LIVENESS_S)
    return ab


def test_each_frame_is_decided_by_the_policy_of_its_arm(compared: AbTest) -> None:
    figures = compared.figures()
    a, b = figures["a"], figures["b"]
    assert (a.policy, b.policy) == ("keen", "shy")
    assert a.frames + b.frames == FRAMES
    assert min(a.frames, b.frames) > FRAMES // 4
    assert a.asked == a.frames
    assert b.asked == 0


def test_agreement_is_told_where_there_are_audits_or_nothing_was_kept(compared: AbTest) -> None:
    b = compared.figures()["b"]
    assert b.audited > 0
    assert b.agreement is not None and 0 <= b.agreement.value <= 1
    assert b.bytes_per_frame is not None and b.bytes_per_frame.value == 0


def test_what_was_asked_costs_bytes_and_every_frame_has_a_final_answer(compared: AbTest) -> None:
    a, b = compared.figures()["a"], compared.figures()["b"]
    assert a.asked_share is not None and a.asked_share.value == 1.0
    assert a.latency_ms is not None and a.latency_ms.count == a.frames
    assert b.latency_ms is not None and b.latency_ms.count == b.frames


def test_a_skipped_frame_counts_for_nobody() -> None:
    clock = FakeClock()
    purse = Purse(Budget(1.0), AskPrice(RULES_PRICE))
    arms = {arm: ArmParts(purse, DecideSettings()) for arm in Arm}
    ab = AbTest(AbPlan("x", "y"), arms, 0.25, clock)
    walk = FrameWalk(
        FakeDetector(), FakeMotion(False), Tracker(), Judging(FakeGate(), DecideSettings()), clock
    )
    walk.walk(frame(clock, 0), 0.9, None)
    ab.looked(walk.walk(frame(clock, 1), 0.9, None))
    assert all(each.frames == 0 for each in ab.figures().values())


def test_each_arm_spends_of_its_own_purse() -> None:
    clock = FakeClock()
    purses = {arm: Purse(Budget(0.001), AskPrice(RULES_PRICE)) for arm in Arm}
    plan = AbPlan("x", "y", by=AbUnit.FRAME)
    ab = AbTest(plan, {arm: ArmParts(purses[arm], DecideSettings()) for arm in Arm}, 0.25, clock)
    frames = [frame(clock, number) for number in range(99)]
    of_a = next(each for each in frames if ab.arm_of(each) is Arm.A)
    ab.enter(of_a)
    assert ab.purse.can_pay(clock.monotonic_s())
    ab.purse.spend_ask(clock.monotonic_s())
    ab.purse.spend_bytes(clock.monotonic_s(), 10)
    assert not purses[Arm.A].can_pay(clock.monotonic_s())
    assert purses[Arm.B].can_pay(clock.monotonic_s())


def test_a_named_policy_takes_the_place_of_threshold_budget_and_weights() -> None:
    policy = Policy("balanced", 0.4, 0.2, 10_000.0, tell_from=0.3, qoe=QoeWeights(0.1, 0.6))
    made = policy_config.with_policy(config(policy="balanced"), [policy])
    assert made.gate.ask_from == 0.4
    assert made.budget.asks_per_s == pytest.approx(0.2 * 35)
    assert made.budget.bytes_per_s == pytest.approx(10_000 * 35)
    assert made.tell_from == 0.3
    assert made.qoe.weights.weights() == QoeWeights(0.1, 0.6)
    assert policy_config.with_policy(config(policy="keen"), [KEEN]).budget.bytes_per_s is None


def test_without_a_policy_the_configuration_stays_as_it_is() -> None:
    assert policy_config.with_policy(config(), [KEEN]) == config()


def test_a_policy_that_the_bundle_has_not_is_told_with_those_it_has() -> None:
    with pytest.raises(NotFound, match="keen, shy"):
        policy_config.with_policy(config(policy="sharp"), [KEEN, SHY])


def test_arms_share_the_frames_and_each_has_its_budget_of_them() -> None:
    clock = FakeClock()
    made = config(ab=AbConfig(a="keen", b="shy", share_b=0.2), edge=EdgeLinkConfig(address="127.0.0.1:1"))
    judging = Judging(FakeGate(), DecideSettings(audit_share=0.02))
    ab = policy_config.ab_test(made, [KEEN, SHY], judging, clock)
    assert ab is not None
    assert ab.plan.name_of(Arm.B) == "shy" and ab.plan.share_b == 0.2
    assert policy_config.agent_settings(made, [KEEN, SHY]).ask_from == 0.3
    ab.enter(frame(clock, 0))
    assert ab.decide.audit_share == 0.02
    assert ab.decide.ask_from in (0.3, 0.9)
    assert policy_config.ab_test(config(), [KEEN], judging, clock) is None


def test_a_comparison_with_itself_or_with_nobody_is_refused() -> None:
    judging = Judging(FakeGate(), DecideSettings())
    with_edge = EdgeLinkConfig(address="127.0.0.1:1")
    twice = config(ab=AbConfig(a="keen", b="keen"), edge=with_edge)
    with pytest.raises(Malformed, match="two different policies"):
        policy_config.ab_test(twice, [KEEN], judging, FakeClock())
    with pytest.raises(ValueError, match="an edge to be asked"):
        config(ab=AbConfig(a="keen", b="shy"))
    with pytest.raises(ValueError, match="policy or ab"):
        config(ab=AbConfig(a="keen", b="shy"), policy="keen", edge=with_edge)


def test_prometheus_tells_what_came_of_each_arm(compared: AbTest) -> None:
    class Arms(Collector):
        def collect(self):  # type: ignore[no-untyped-def]
            yield _of_arms(compared.figures())

    registry = CollectorRegistry()
    registry.register(Arms())
    text = generate_latest(registry).decode()
    assert 'fovea_ab{arm="a",policy="keen",what="asked_share"} 1.0' in text
    assert 'what="agreement"' in text
