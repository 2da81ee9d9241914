"""What named policies make of a configuration, and the comparison of two of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from edge_agent import settings_from_config as settings
from edge_agent.agent import AgentSettings
from edge_agent.config import AgentConfig
from edge_agent.frame_walk import Judging
from edge_agent.policy_arms import AbTest, ArmParts
from edge_agent.purse import purse_for
from fovea.core.ab import AbPlan, AbUnit, Arm
from fovea.core.budget import Budget
from fovea.core.policy import AskingSettings, Policy, apply_policy, find_policy
from fovea.core.ports import Clock

_USUAL_FPS = 25.0
"""Of a camera that gives all the frames it has."""


def with_policy(config: AgentConfig, policies: Sequence[Policy]) -> AgentConfig:
    """The configuration as the policy that it names has it; as it is where it names none. How answers are merged is
    the business of who merges them. Raises NotFound, naming the policies of the bundle, for one that is not there."""
    return config if config.policy is None else following(config, find_policy(policies, config.policy))


def following(config: AgentConfig, policy: Policy) -> AgentConfig:
    """The configuration as this policy has it."""
    found = apply_policy(asking_settings(config), policy, frames_per_s(config))
    weights = config.qoe.weights.model_copy(
        update={name: getattr(found.qoe, name) for name in type(config.qoe.weights).model_fields}
    )
    return config.model_copy(
        update={
            "gate": config.gate.model_copy(update={"ask_from": found.ask_from}),
            "budget": config.budget.model_copy(
                update={
                    "asks_per_s": found.asks_per_s,
                    "bytes_per_s": None if math.isinf(found.bytes_per_s) else found.bytes_per_s,
                }
            ),
            "tell_from": found.tell_from,
            "qoe": config.qoe.model_copy(update={"weights": weights}),
        }
    )


def ab_test(config: AgentConfig, policies: Sequence[Policy], judging: Judging, clock: Clock) -> AbTest | None:
    """The comparison that is configured, each arm with its share of the site's frames; None without one. Raises
    NotFound for a policy that the bundle has not, Malformed for two that are one."""
    if config.ab is None:
        return None
    plan = ab_plan(config)
    arms = {}
    for arm in Arm:
        policy = find_policy(policies, plan.name_of(arm))
        share = frames_per_s(config) * plan.share_of(arm)
        found = apply_policy(asking_settings(config), policy, share)
        budget = Budget(found.asks_per_s, found.bytes_per_s, config.budget.burst_s)
        decides = replace(judging.decide, ask_from=found.ask_from)
        arms[arm] = ArmParts(purse_for(judging.gate, budget), decides)
    return AbTest(plan, arms, config.tell_from, clock)


def agent_settings(config: AgentConfig, policies: Sequence[Policy]) -> AgentSettings:
    """What the agent goes by; of two policies that are compared, the lower threshold, from which on tiers are
    weighed at all."""
    usual = settings.agent_settings(config)
    if config.ab is None:
        return usual
    named = [find_policy(policies, name) for name in (config.ab.a, config.ab.b)]
    return replace(usual, ask_from=min(policy.ask_from for policy in named))


def ab_plan(config: AgentConfig) -> AbPlan:
    """Raises Malformed where no comparison is configured, or one of a policy with itself."""
    ab = config.ab
    assert ab is not None
    return AbPlan(ab.a, ab.b, ab.share_b, AbUnit(ab.by), ab.slice_s, ab.salt)


def asking_settings(config: AgentConfig) -> AskingSettings:
    """What the configuration says without a policy."""
    return AskingSettings(
        ask_from=config.gate.ask_from,
        asks_per_s=config.budget.asks_per_s,
        bytes_per_s=config.budget.bytes_per_s or math.inf,
        tell_from=config.tell_from,
        qoe=config.qoe.weights.weights(),
    )


def frames_per_s(config: AgentConfig) -> float:
    """Of all cameras together, as they are meant to be looked at."""
    return math.fsum(_USUAL_FPS if camera.fps is None else camera.fps for camera in config.cameras)
