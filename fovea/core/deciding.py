"""Who looks at a frame: one rule, from the gate's opinion and what is possible now."""

from __future__ import annotations

from dataclasses import dataclass

from fovea.core.errors import Malformed
from fovea.core.gate import Opinion
from fovea.core.qoe import RouteChoice
from fovea.core.routing import Reason, Route, RouteDecision

STILL = RouteDecision(Route.SKIP, (Reason.STILL,))
"""The decision about a frame in which nothing moved: nobody looks."""


@dataclass(frozen=True, slots=True)
class DecideSettings:
    """ask_from: a p_ask at or above is worth a question. audit_share: share of the other frames that is sent all
    the same, drawn at random. route: whom this tier asks, EDGE or CLOUD."""

    ask_from: float = 0.7
    audit_share: float = 0.015
    route: Route = Route.EDGE

    def __post_init__(self) -> None:
        if not 0 < self.ask_from <= 1:
            raise Malformed(f"decide ask_from: expected more than 0 up to 1, got {self.ask_from}")
        if not 0 <= self.audit_share <= 1:
            raise Malformed(f"decide audit_share: expected 0 to 1, got {self.audit_share}")
        if self.route not in (Route.EDGE, Route.CLOUD):
            raise Malformed(f"decide route: expected edge or cloud, got {self.route}")


@dataclass(frozen=True, slots=True)
class Situation:
    """What is possible at this moment.

    has_link       a question would be sent; where not, `is_busy`: somebody is there, and has asked for a pause
    time_left_s    may be infinite: nobody waits for the answer
    round_trip_s   how long an answer is expected to take, as far as that is known
    choice         the best of the tiers that may be had by quality of experience; None where nobody weighed them
    """

    has_link: bool
    in_flight: int
    max_in_flight: int
    time_left_s: float
    round_trip_s: float
    budget_allows: bool
    is_busy: bool = False
    choice: RouteChoice | None = None

    def __post_init__(self) -> None:
        if self.in_flight < 0 or self.max_in_flight < 0:
            raise Malformed(
                f"situation: expected counts of 0 or more, got in_flight {self.in_flight}, "
                f"max_in_flight {self.max_in_flight}"
            )
        if self.time_left_s != self.time_left_s or not self.round_trip_s >= 0:
            raise Malformed(
                "situation: expected a time_left_s and a round_trip_s of 0 or more, got "
                f"{self.time_left_s}, {self.round_trip_s}"
            )


def decide(
    opinion: Opinion, audit_draw: float, settings: DecideSettings, situation: Situation
) -> RouteDecision:
    """Ask if and only if p_ask >= ask_from and the question can be sent and paid for now; else audit if and only if
    audit_draw < audit_share; else the camera's own answer is enough.

    `audit_draw` is uniform in 0..1, drawn for every frame before anybody has looked at it, so that a frame that the
    rule asks anyway is an ask (send_probability 1), and every other frame is sent with probability `audit_share`,
    whatever the gate thinks of it. Audits bypass the budget. An audit that cannot be sent now stays an audit (route
    LOCAL, reasons AUDIT and why not): it belongs into the spool. A frame that was worth asking and is not asked is
    LOCAL with the reasons for and the one against. Where tiers were weighed against each other (`situation.choice`),
    the question goes to the best of them, and is not asked when that is the camera itself. Raises Malformed when
    audit_draw is not within 0 to 1.
    """
    if not 0 <= audit_draw <= 1:
        raise Malformed(f"decide audit_draw: expected 0 to 1, got {audit_draw}")
    is_worth_asking = opinion.p_ask >= settings.ask_from
    obstacle, choice = _obstacle(situation), situation.choice
    qoe = None if choice is None else choice.qoe
    keeps = choice is not None and choice.route in (Route.SKIP, Route.LOCAL)
    if is_worth_asking and obstacle is None and situation.budget_allows and not keeps:
        route = settings.route if choice is None else choice.route
        return RouteDecision(route, opinion.reasons, opinion.expected_gain, qoe)
    reasons = opinion.reasons if is_worth_asking else (Reason.SURE,)
    probability = settings.audit_share or 1.0
    if audit_draw < settings.audit_share:
        if obstacle is None:
            route, reasons = settings.route, (Reason.AUDIT, *reasons)
        else:
            route, reasons = Route.LOCAL, (Reason.AUDIT, *reasons, obstacle)
        return RouteDecision(route, reasons, opinion.expected_gain, qoe, probability)
    if is_worth_asking:
        against = obstacle or (Reason.COSTS_MORE if situation.budget_allows else Reason.OVER_BUDGET)
        reasons = (*reasons, against)
    return RouteDecision(Route.LOCAL, reasons, opinion.expected_gain, qoe, probability)


def _obstacle(situation: Situation) -> Reason | None:
    """The first thing, budget apart, for which no question can be sent now."""
    if not situation.has_link:
        return Reason.UPPER_BUSY if situation.is_busy else Reason.LINK_DOWN
    if situation.in_flight >= situation.max_in_flight:
        return Reason.TOO_MANY_IN_FLIGHT
    if situation.round_trip_s > situation.time_left_s:
        return Reason.NO_TIME
    return None
