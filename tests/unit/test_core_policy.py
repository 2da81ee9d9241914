"""Named policies: what they may say, how they travel, and what they make of the settings of a site."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fovea.core.errors import Malformed, NotFound
from fovea.core.merging import MergeSettings
from fovea.core.policy import (
    AskingSettings,
    Measured,
    Policy,
    Span,
    apply_policy,
    find_policy,
    policies_from_json,
    policies_to_json,
)
from fovea.core.qoe import QoeWeights

MEASURED = Measured(
    on="288 frames of street-v1 test",
    at=datetime(2026, 11, 30, 20, 0, tzinfo=UTC),
    frames=288,
    asked_share=0.31,
    ap=Span(0.30, 0.27, 0.33),
    f1=Span(0.6, 0.5, 0.7),
    latency_ms=Span(80, 70, 90),
    bytes_per_frame=Span(30_000, 20_000, 40_000),
    joules_per_frame=Span(0.2, 0.1, 0.3),
)
BALANCED = Policy(
    "balanced", 0.5, 0.3, bytes_per_frame=40_000.0, forward_share=0.5, tell_from=0.2, measured=MEASURED,
    merge=MergeSettings(edge=2.0), qoe=QoeWeights(0.2, 0.5),
)  # fmt: skip

shares = st.floats(0.01, 1.0)


@given(ask_from=shares, asked=shares, forward=st.floats(0, 1), told=st.floats(0, 1))
def test_a_policy_comes_back_from_json_as_it_was(
    ask_from: float, asked: float, forward: float, told: float
) -> None:
    policy = replace(BALANCED, ask_from=ask_from, asked_share=asked, forward_share=forward, tell_from=told)
    text = json.dumps(policies_to_json([policy, Policy("plain")]), allow_nan=False)
    assert policies_from_json(json.loads(text)) == (policy, Policy("plain"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "Über"}, "name"),
        ({"name": ""}, "name"),
        ({"ask_from": 0.0}, "ask_from"),
        ({"ask_from": float("nan")}, "ask_from"),
        ({"asked_share": 1.1}, "asked_share"),
        ({"forward_share": -0.1}, "forward_share"),
        ({"tell_from": 2.0}, "tell_from"),
        ({"bytes_per_frame": 0.0}, "bytes_per_frame"),
        ({"bytes_per_frame": math.inf}, "bytes_per_frame"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(change: dict[str, object], said: str) -> None:
    with pytest.raises(Malformed, match=said):
        replace(BALANCED, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [(0.5, 0.6, 0.7), (0.5, 0.1, 0.4), (math.nan, 0, 1), (0.5, 0.0, math.inf)])
def test_an_interval_that_leaves_its_value_out_is_refused(values: tuple[float, float, float]) -> None:
    with pytest.raises(Malformed, match="low <= value <= high"):
        Span(*values)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"format": 2, "policies": []},
        {"format": 1},
        {"format": 1, "policies": {}},
        {"format": 1, "policies": [], "extra": 0},
        {"format": 1, "policies": ["balanced"]},
        {"format": 1, "policies": [{"name": "balanced", "surprise": 1}]},
        {"format": 1, "policies": [{"name": "balanced", "ask_from": "often"}]},
        {"format": 1, "policies": [{"name": "balanced"}, {"name": "balanced"}]},
    ],
)
def test_a_file_that_is_not_of_policies_is_refused_in_one_sentence(data: dict[str, object]) -> None:
    with pytest.raises(Malformed, match=r"polic"):
        policies_from_json(data)


def test_shares_become_rates_of_the_site() -> None:
    found = apply_policy(AskingSettings(), BALANCED, frames_per_s=20.0)
    assert found.asks_per_s == pytest.approx(6.0)
    assert found.bytes_per_s == pytest.approx(800_000)
    assert (found.ask_from, found.tell_from) == (0.5, 0.2)
    assert found.merge == MergeSettings(edge=2.0)
    assert found.qoe == QoeWeights(0.2, 0.5)


def test_what_a_policy_does_not_speak_of_stays() -> None:
    settings = AskingSettings(qoe=QoeWeights(0.1, 0.6))
    found = apply_policy(settings, Policy("plain"), 5.0)
    assert found.qoe == settings.qoe
    assert math.isinf(found.bytes_per_s)


@pytest.mark.parametrize("rate", [0.0, -1.0, math.inf, math.nan])
def test_a_site_without_a_frame_rate_is_refused(rate: float) -> None:
    with pytest.raises(Malformed, match="frame rate"):
        apply_policy(AskingSettings(), BALANCED, rate)


def test_a_policy_is_found_by_name_and_else_those_are_told_that_there_are() -> None:
    assert find_policy([Policy("frugal"), BALANCED], "balanced") is BALANCED
    with pytest.raises(NotFound, match="frugal, balanced"):
        find_policy([Policy("frugal"), BALANCED], "sharp")
    with pytest.raises(NotFound, match="none"):
        find_policy([], "sharp")
