"""What is possible for a frame at this moment: link, time, budget, and the best of the tiers that may be had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edge_agent.escalation import Escalation
from edge_agent.foresight import TIER_OF, Foresight
from edge_agent.idling import Idling
from edge_agent.purse import Purse
from edge_agent.tier_choice import TierChoice
from fovea.core.deciding import Situation
from fovea.core.detections import Detections
from fovea.core.frame import Frame
from fovea.core.gate import Opinion
from fovea.core.qoe import RouteChoice
from fovea.core.routing import Reason, Route

KEPT = RouteChoice(Route.LOCAL, 0.0, (Reason.COSTS_MORE,))
"""Of a camera that saves: nobody is asked about what a cheaper model saw, for which the gate was not fitted."""


@dataclass(frozen=True, slots=True)
class ProspectSettings:
    """timeout_s: an answer is worth having for so long after the capture. ask_from: the p_ask from which on a frame
    is worth a question; below it nothing is foretold or weighed. route: whom the link reaches, EDGE or CLOUD."""

    timeout_s: float = 1.5
    ask_from: float = 0.7
    route: Route = Route.EDGE


class Prospects:
    """For the thread that decides. Without a `choice` the gate's word alone counts."""

    def __init__(
        self,
        escalation: Escalation | None,
        purse: Purse,
        foresight: Foresight,
        choice: TierChoice | None,
        settings: ProspectSettings,
        monotonic_s: Callable[[], float],
    ) -> None:
        self._escalation = escalation
        self._purse = purse
        self._foresight = foresight
        self._choice = choice
        self._settings = settings
        self._monotonic_s = monotonic_s

    def of(self, frame: Frame, idling: Idling | None, opinion: Opinion, seen: Detections) -> Situation:
        """For a frame of a camera with that pace, in which `seen` was told and of which the gate has that opinion. To
        be asked for every frame that is looked at: the price of questions follows it."""
        now_mono_s, escalation = self._monotonic_s(), self._escalation
        own_s = max(now_mono_s - frame.captured_mono_s, 0.0)
        left_s = self._settings.timeout_s - own_s
        allows = self._purse.allows(opinion, now_mono_s)
        if escalation is None:
            return Situation(False, 0, 0, left_s, 0.0, allows)
        link, in_flight = escalation.link, escalation.in_flight
        has_link, took_ms = link.may_ask, link.round_trip_ms or 0.0
        choice = KEPT if idling is not None and idling.pace.model else None
        if has_link and opinion.p_ask >= self._settings.ask_from:
            route = self._settings.route
            expected_ms = self._foresight.expected_ms(TIER_OF[route], now_mono_s, in_flight)
            took_ms = took_ms if expected_ms is None else expected_ms
            if allows and choice is None and self._choice is not None and took_ms <= 1000 * left_s:
                choice = self._choice.choose(
                    frame, seen, opinion, 1000 * own_s, {route: took_ms}, in_flight, left_s
                )
        return Situation(
            has_link=has_link,
            in_flight=in_flight,
            max_in_flight=escalation.max_in_flight,
            time_left_s=left_s,
            round_trip_s=took_ms / 1000,
            budget_allows=allows,
            is_busy=not has_link and link.is_busy,
            choice=choice,
        )
