"""All that goes by the model which runs: how its frames are judged, decided and paid for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from edge_agent import policy_config
from edge_agent import settings_from_config as settings
from edge_agent.agent import AgentSettings
from edge_agent.config import AgentConfig
from edge_agent.foresight import Foresight
from edge_agent.frame_walk import Judging
from edge_agent.purse import Purse, purse_for
from edge_agent.tier_choice import TierChoice
from fovea.core.budget import Budget
from fovea.core.gate import Gate, RuleGate
from fovea.core.learned_gate import gate_from_json
from fovea.core.policy import Policy
from fovea.process.resources import ResourceState
from fovea.runtime.autotune import quality_of
from fovea.runtime.bundle import Bundle

_UNKNOWN_QUALITY = 0.5
"""Of a model whose report says nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Regime:
    """What an agent goes by while one model runs; see `Agent.go_by`."""

    judging: Judging
    purse: Purse
    choice: TierChoice | None
    settings: AgentSettings


class Regimes:
    """Makes the regime of each model: its own gate and policies, the rest as configured."""

    def __init__(
        self, config: AgentConfig, foresight: Foresight, machine: Callable[[], ResourceState | None]
    ) -> None:
        self._config = config
        self._foresight = foresight
        self._machine = machine

    def of(self, bundle: Bundle, policy: Policy | None = None) -> Regime:
        """`policy` goes over the one that is configured. Raises NotFound when the configured one is not in the
        bundle, Malformed for a policy that does not fit this site."""
        config = policy_config.with_policy(self._config, bundle.policies())
        if policy is not None:
            config = policy_config.following(config, policy)
        judging, budget = judging_of(bundle, config), config.budget
        return Regime(
            judging,
            purse_for(
                judging.gate, Budget(budget.asks_per_s, budget.bytes_per_s or math.inf, budget.burst_s)
            ),
            self._choice(config, bundle),
            policy_config.agent_settings(config, bundle.policies()),
        )

    def _choice(self, config: AgentConfig, bundle: Bundle) -> TierChoice | None:
        quality = quality_of(bundle)
        qoe = settings.qoe_settings(config, _UNKNOWN_QUALITY if quality is None else quality)
        return None if qoe is None else TierChoice(qoe, self._foresight, self._machine)


def judging_of(bundle: Bundle, config: AgentConfig) -> Judging:
    """With the gate that was fitted for the model, or the hand-set rules for a model without one."""
    features = settings.feature_settings(config.gate)
    gate: Gate = RuleGate(settings.rule_gate_settings(config.gate))
    found = bundle.find_gate()
    if found is not None:
        gate = fitted = gate_from_json(found)
        features = replace(features, class_weights=fitted.class_weights)
    return Judging(
        gate,
        settings.decide_settings(config),
        features,
        tell_from=config.tell_from,
        is_edge_meant=config.edge is not None,
    )
