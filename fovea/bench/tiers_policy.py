"""Who decides in the replay: the gates that the bundles carry, with budgets and deadlines as they are configured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from edge_agent.config import BudgetConfig as AgentBudget
from edge_agent.config import EdgeLinkConfig
from edge_agent.config import GateConfig as AgentGate
from edge_agent.purse import purse_for
from edge_server.config import CloudConfig
from edge_server.config import GateConfig as EdgeGate
from fovea.bench.cascade_recording import RecordedFrame, Trio
from fovea.bench.tiers_outcome import ReplayFrame
from fovea.bench.tiers_replay import Policy
from fovea.core.budget import Budget
from fovea.core.deciding import DecideSettings
from fovea.core.detections import TOLD_FROM, Detections
from fovea.core.features import FeatureSettings, FrameFeatures, weighed_doubts
from fovea.core.gate import Gate, Opinion, RuleGate, RuleGateSettings
from fovea.core.learned_gate import LearnedGate, gate_from_json
from fovea.core.routing import Route
from fovea.runtime.bundle import Bundle

_FREE_ASK_FROM = 0.01
"""Where a budget is a share of the frames, its price is to choose among them, not the threshold."""
_BURST_S = 10.0
_NOBODY = "127.0.0.1:1"


@dataclass(frozen=True, slots=True, eq=False)
class Gates:
    """What decides who is asked: the gates of the bundles, or the usual rules where one has none."""

    camera: Gate
    edge: Gate
    is_edge_fitted: bool
    told: str

    @classmethod
    def of(cls, trio: Trio) -> Gates:
        """Raises what opening the bundles raises."""
        camera, edge = (Bundle.open(path).find_gate() for path in (trio.camera, trio.edge))
        usual = EdgeGate()
        rules = RuleGateSettings(uncertain_boxes=usual.uncertain_boxes, weak_mass=usual.weak_mass)
        return cls(
            RuleGate() if camera is None else gate_from_json(camera),
            RuleGate(rules) if edge is None else gate_from_json(edge),
            edge is not None,
            ", ".join("rules" if fitted is None else "fitted" for fitted in (camera, edge)),
        )

    def second(self, features: FrameFeatures) -> Opinion:
        """What the edge's gate thinks after its look, see `edge_server.second_gate`."""
        if self.is_edge_fitted:
            return self.edge.judge(features)
        opinion = self.edge.judge(replace(features, vanished_count=0.0))
        doubt = EdgeGate().contradictions * math.sqrt(features.vanished_count)
        return Opinion(1 - (1 - opinion.p_ask) * 0.3**doubt, opinion.expected_gain, opinion.reasons)

    def frames(self, recorded: Sequence[RecordedFrame], fps: float, camera: int = 0) -> list[ReplayFrame]:
        """The frames one after another, `fps` a second."""
        return [
            ReplayFrame(
                1 + index / fps,
                frame.jpeg_bytes,
                self.camera.judge(as_seen(self.camera, frame.features, frame.camera)),
                self.second(as_seen(self.edge, frame.edge_features, frame.edge)),
                camera,
            )
            for index, frame in enumerate(recorded)
        ]

    def policy(self, audit_share: float | None = None) -> Policy:
        """As agent and edge are configured usually."""
        own, usual = AgentBudget(), DecideSettings(AgentGate().ask_from)
        decide = usual if audit_share is None else replace(usual, audit_share=audit_share)
        return self._policy((own.asks_per_s, own.burst_s), decide)

    def policy_within(self, asked_share: float, fps: float, lasts_s: float) -> Policy:
        """With a budget of no more than that share (0..1) of the frames of a run of `lasts_s`: the price alone
        chooses among them, and there are no audits. The burst that a full bucket begins with is part of the share."""
        asks_per_s = asked_share * fps * lasts_s / (lasts_s + _BURST_S)
        decide = DecideSettings(_FREE_ASK_FROM, audit_share=0.0)
        return self._policy((asks_per_s, _BURST_S), decide)

    def _policy(self, budget: tuple[float, float], decide: DecideSettings) -> Policy:
        link, above = EdgeLinkConfig(address=_NOBODY), CloudConfig(address=_NOBODY)
        return Policy(
            lambda: purse_for(self.camera, Budget(budget[0], burst_s=budget[1])),
            lambda: Budget(above.budget.asks_per_s, above.budget.bytes_per_s, above.budget.burst_s),
            decide,
            DecideSettings(above.gate.ask_from, above.audit_share, Route.CLOUD),
            ask_timeout_s=link.timeout_ms / 1000,
            max_in_flight=link.max_in_flight,
            cloud_timeout_s=above.timeout_ms / 1000,
            margin_s=above.margin_ms / 1000,
            least_s=above.least_ms / 1000,
        )


def as_seen(gate: Gate, recorded: FrameFeatures, answered: Detections) -> FrameFeatures:
    """The features as this gate sees them: a fitted one has its doubts of the answered boxes, by class weights."""
    if not isinstance(gate, LearnedGate):
        return recorded
    settings = FeatureSettings(class_weights=gate.class_weights)
    entropy, mass = weighed_doubts(answered, len(answered.above(TOLD_FROM)), settings)
    return replace(recorded, entropy_sum=entropy, weak_mass=mass)
