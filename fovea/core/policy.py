"""A named way to spend: when to ask, how much, what to tell, how far to trust whom; and what that was measured to
give.

A policy speaks in shares of the frames that are looked at, so that it fits a site of any number of cameras;
`apply_policy` makes questions and bytes per second of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from fovea.core.detections import TOLD_FROM
from fovea.core.errors import Malformed, NotFound
from fovea.core.json_form import from_json_form, to_json_form
from fovea.core.merging import MergeSettings
from fovea.core.qoe import QoeWeights

POLICIES_FORMAT = 1
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


@dataclass(frozen=True, slots=True)
class Span:
    """A value with its 95 % interval; low <= value <= high, all finite."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not (self.low <= self.value <= self.high and math.isfinite(self.low) and math.isfinite(self.high)):
            raise Malformed(
                f"span: expected finite low <= value <= high, got {self.low}, {self.value}, {self.high}"
            )


@dataclass(frozen=True, slots=True)
class Measured:
    """What a policy gave: `on` which frames (a sentence) and how many, `at` when (UTC). Shares, latency of the final
    answer, bytes sent and modelled energy are means over all frames looked at. `f1` is of the boxes that are told."""

    on: str
    at: datetime
    frames: int
    asked_share: float
    ap: Span
    f1: Span
    latency_ms: Span
    bytes_per_frame: Span
    joules_per_frame: Span

    def __post_init__(self) -> None:
        if self.at.tzinfo is None:
            raise Malformed("policy measured.at: expected a time with its zone, got one without")
        if not self.on or self.frames < 1:
            raise Malformed(f"policy measured: expected a text and at least one frame, got {self.frames}")
        _share("measured.asked_share", self.asked_share)


@dataclass(frozen=True, slots=True)
class Policy:
    """name: lower case letters, digits, `-` and `_`. ask_from: a frame with this p_ask is worth a question, 0 to 1.
    asked_share: questions for each frame that is looked at, on the average, above 0 to 1. bytes_per_frame: of
    pictures sent for each such frame, None: no limit. forward_share: of the questions, what the edge may ask the
    cloud about. tell_from: the score from which a box is told. merge, qoe: how answers are merged and routes
    weighed."""

    name: str
    ask_from: float = 0.7
    asked_share: float = 0.25
    bytes_per_frame: float | None = None
    forward_share: float = 0.0
    tell_from: float = TOLD_FROM
    merge: MergeSettings = field(default_factory=MergeSettings)
    qoe: QoeWeights | None = None
    measured: Measured | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise Malformed(
                f"policy name: expected a letter, then letters, digits, - or _, got {self.name!r:.60}"
            )
        for name in ("ask_from", "asked_share"):
            if not 0 < getattr(self, name) <= 1:
                raise Malformed(f"policy {name}: expected more than 0 up to 1, got {getattr(self, name)}")
        for name in ("forward_share", "tell_from"):
            _share(name, getattr(self, name))
        if self.bytes_per_frame is not None and not 0 < self.bytes_per_frame < math.inf:
            raise Malformed(
                f"policy bytes_per_frame: expected a finite number above 0, got {self.bytes_per_frame}"
            )


@dataclass(frozen=True, slots=True)
class AskingSettings:
    """What a policy decides at one site, in the units that the parts take: questions and bytes per second of all
    cameras together (infinite: no limit)."""

    ask_from: float = 0.7
    asks_per_s: float = 2.0
    bytes_per_s: float = math.inf
    tell_from: float = TOLD_FROM
    merge: MergeSettings = field(default_factory=MergeSettings)
    qoe: QoeWeights = field(default_factory=QoeWeights)


def apply_policy(settings: AskingSettings, policy: Policy, frames_per_s: float) -> AskingSettings:
    """The settings as the policy has them, at a site where `frames_per_s` (finite, above 0) are looked at by all
    cameras together. What the policy does not speak of stays. Raises Malformed for another rate."""
    if not 0 < frames_per_s < math.inf:
        raise Malformed(f"policy {policy.name}: expected a frame rate above 0, got {frames_per_s}")
    return replace(
        settings,
        ask_from=policy.ask_from,
        asks_per_s=policy.asked_share * frames_per_s,
        bytes_per_s=math.inf if policy.bytes_per_frame is None else policy.bytes_per_frame * frames_per_s,
        tell_from=policy.tell_from,
        merge=policy.merge,
        qoe=settings.qoe if policy.qoe is None else policy.qoe,
    )


def find_policy(policies: Sequence[Policy], name: str) -> Policy:
    """The policy of that name. Raises NotFound, naming those that there are."""
    for policy in policies:
        if policy.name == name:
            return policy
    there = ", ".join(policy.name for policy in policies) or "none"
    raise NotFound(f"policy {name!r:.60}: the bundle has {there}")


def policies_to_json(policies: Sequence[Policy]) -> dict[str, Any]:
    """The object that a bundle carries as `policies.json`. Raises Malformed for a name that stands there twice."""
    names = [policy.name for policy in policies]
    if len(set(names)) != len(names):
        raise Malformed(f"policies: expected each name once, got {', '.join(names)}")
    return {"format": POLICIES_FORMAT, "policies": [to_json_form(policy) for policy in policies]}


def policies_from_json(data: Mapping[str, Any]) -> tuple[Policy, ...]:
    """The policies of a `policies.json`. Raises Malformed, naming what is missing, unknown or out of range."""
    if data.get("format") != POLICIES_FORMAT:
        raise Malformed(f"policies: expected format {POLICIES_FORMAT}, got {data.get('format')!r:.40}")
    entries = data.get("policies")
    if not isinstance(entries, list) or set(data) != {"format", "policies"}:
        raise Malformed("policies: expected a list under 'policies' and nothing else")
    policies = tuple(from_json_form(Policy, entry, "policy") for entry in entries)
    policies_to_json(policies)
    return policies


def _share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise Malformed(f"policy {name}: expected 0 to 1, got {value}")
