"""A decision never comes without a reason."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fovea.core.errors import Malformed
from fovea.core.routing import Reason, Route, RouteDecision, Tier


def test_the_number_of_a_tier_is_the_revision_of_its_answer() -> None:
    assert [int(tier) for tier in (Tier.AGENT, Tier.EDGE, Tier.CLOUD)] == [0, 1, 2]
    assert max(Tier.CLOUD, Tier.EDGE) is Tier.CLOUD


@pytest.mark.parametrize(
    ("route", "is_asked"),
    [(Route.SKIP, False), (Route.LOCAL, False), (Route.EDGE, True), (Route.CLOUD, True)],
)
def test_only_edge_and_cloud_are_asked(route: Route, is_asked: bool) -> None:
    assert RouteDecision(route, (Reason.SURE,)).is_asked is is_asked


def test_an_audit_is_known_by_its_reason_wherever_it_stands() -> None:
    assert RouteDecision(Route.LOCAL, (Reason.SURE, Reason.AUDIT)).is_audit
    assert not RouteDecision(Route.EDGE, (Reason.WEAK_BOXES,)).is_audit


def test_every_reason_is_a_word_fit_for_a_metric_label() -> None:
    for reason in Reason:
        assert reason.value == reason.name.lower()
        assert reason.value.replace("_", "").isalpha()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"reasons": ()}, "at least one reason"),
        ({"expected_gain": math.nan}, "expected_gain"),
        ({"qoe": math.inf}, "qoe"),
        ({"send_probability": 0}, "send_probability"),
        ({"send_probability": 1.1}, "send_probability"),
        ({"send_probability": math.nan}, "send_probability"),
    ],
)
def test_a_decision_that_makes_no_sense_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(Malformed, match=message):
        RouteDecision(**({"route": Route.EDGE, "reasons": (Reason.SURE,)} | fields))
