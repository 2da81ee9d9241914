"""What the stores know about whether a round of learning is due."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from cloud.cases.store import CaseStore
from cloud.cases.stored_case import CaseFilter, Order
from cloud.golden.sites import Sites
from cloud.learn.drift_watch import DriftWatch
from cloud.learn.round_plan import RoundRecord, RoundState
from cloud.learn.rounds import RoundStore
from cloud.learn.supervisor import Known
from cloud.learn.triggers import TriggerFacts
from fovea.core.release import ReportedState

_MOST_ROUNDS = 100
_MOST_AUDITS = 2000
"""Of one look; the rest is taken at the next."""


@dataclass(frozen=True, slots=True, eq=False)
class SiteFacts:
    """Of one site. `states` gives what all devices said last; `watches_drift`: whether drift calls for a round."""

    cases: CaseStore
    rounds: RoundStore
    sites: Sites
    site: str
    watch: DriftWatch
    states: Callable[[], Sequence[ReportedState]]
    watches_drift: bool

    def known(self) -> Known:
        """As of now. Raises what the stores raise."""
        found = self.rounds.rounds(self.site, _MOST_ROUNDS)
        unfinished = self.rounds.find_running(self.site)
        ended = [each for each in found if each.ended_at is not None]
        learned = next((each for each in ended if each.state is RoundState.DONE), None)
        self._look_for_drift("" if learned is None else learned.id)
        facts = TriggerFacts(
            begun_at=self.watch.begun_at,
            cases=self._new_cases(None if learned is None else learned.began_at),
            last_round_at=ended[0].ended_at if ended else None,
            failures=_failures(ended),
            drifted=self.watch.drifted if self.watches_drift else (),
        )
        return Known(facts, None if unfinished is None else unfinished.id)

    def _look_for_drift(self, last_round: str) -> None:
        since = self.watch.audits_since
        walked = self.cases.walk(CaseFilter(is_audit=True, since=since), Order.OLDEST, _MOST_AUDITS)
        audits = (case for case in walked if self.sites.site_of(case.frame_id.camera) == self.site)
        self.watch.look(last_round, self.states(), audits)

    def _new_cases(self, since: datetime | None) -> int:
        cameras = [each.camera for each in self.cases.count_by_camera()]
        ours = [camera for camera in cameras if self.sites.site_of(camera) == self.site]
        return sum(self.cases.count(CaseFilter(camera=camera, since=since)) for camera in ours)


def _failures(ended: list[RoundRecord]) -> int:
    """In a row, the newest first."""
    for number, each in enumerate(ended):
        if each.state is not RoundState.FAILED:
            return number
    return len(ended)
