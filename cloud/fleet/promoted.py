"""Begins the rollout of what a round of learning has promoted: the loop closes without a person."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from cloud.fleet.starting import RolloutStarter
from cloud.learn.promotion import Verdict
from cloud.learn.round_plan import RoundRecord, RoundState
from cloud.learn.rounds import RoundStore
from cloud.rollout.store import RolloutStore

_log = logging.getLogger(__name__)

_MOST = 50


class PromotedRollouts:
    """`look` is called now and then. What was begun once, for whatever reason it ended, is not begun again."""

    def __init__(
        self,
        rounds: RoundStore,
        rollouts: RolloutStore,
        starter: RolloutStarter,
        site: str,
        family: str,
        groups: Sequence[str],
    ) -> None:
        self._rounds = rounds
        self._rollouts = rollouts
        self._starter = starter
        self._site = site
        self._family = family
        self._groups = tuple(groups)

    def look(self) -> None:
        """A group with another rollout under way waits for its end. Raises what `RolloutStarter.start` raises."""
        newest = self._newest_done()
        if newest is None or newest.verdict is not Verdict.PROMOTE or newest.candidate is None:
            return
        for group in self._groups:
            known = self._rollouts.newest(group, _MOST)
            was_begun = any(each.candidate.sha256 == newest.candidate for each in known)
            if not was_begun and not (known and known[0].is_open):
                self._starter.start(group, newest.candidate, None, self._family, f"round {newest.id}")
                _log.info("what round %s has promoted goes to group %s", newest.id, group)

    def _newest_done(self) -> RoundRecord | None:
        done = (each for each in self._rounds.rounds(self._site, _MOST) if each.state is RoundState.DONE)
        return next(done, None)
