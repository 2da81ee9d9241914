"""What a running cloud does about rollouts every few seconds: moves them, and hints at what is new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from cloud.fleet.channel import SignedChannel
from cloud.rollout.controller import Fleet, RolloutController
from cloud.rollout.deciding import Move
from cloud.rollout.rollout import Rollout, Status
from cloud.rollout.store import RolloutStore


class RolloutLoop:
    """`look` is called from one thread. Commands of people come through the database, from other processes."""

    def __init__(
        self, controller: RolloutController, store: RolloutStore, channel: SignedChannel, fleet: Fleet
    ) -> None:
        self._controller = controller
        self._store = store
        self._channel = channel
        self._fleet = fleet
        self._hinted: dict[str, int] = {}
        self._latest: tuple[Rollout, ...] = ()
        self._moves: Counter[Move] = Counter()

    def look(self) -> None:
        """Once. Raises Unavailable and StoreCorrupt; what fails for one group alone is logged by the controller."""
        for decision in self._controller.tick():
            self._moves[decision.move] += 1
        self._latest = tuple(self._store.latest())
        for group in {*self._store.groups(), *(each.group for each in self._latest)}:
            self._hint(group)

    def _hint(self, group: str) -> None:
        """Also at what somebody else has published, and anew after a restart: a retained hint may be an old one."""
        serial = self._channel.serial(group)
        if serial and self._hinted.get(group) != serial:
            self._fleet.look(group, [each.state.device for each in self._store.reports(group)])
            self._hinted[group] = serial

    @property
    def facts(self) -> Mapping[str, object]:
        """The newest rollout of each group, as /healthz tells it."""
        return {
            each.group: {
                "rollout": each.id,
                "stage": each.stage.value,
                "status": each.status.value,
                "serial": each.serial,
                "candidate": str(each.candidate.ref),
                "since": each.since.isoformat(),
            }
            for each in self._latest
        }

    @property
    def latest(self) -> tuple[Rollout, ...]:
        """The newest rollout of each group, as of the last look."""
        return self._latest

    @property
    def moves(self) -> Mapping[Move, int]:
        """Decisions so far, by what was decided; STAY too."""
        return dict(self._moves)

    @property
    def paused(self) -> str | None:
        """Which rollouts wait for a person; None: none does."""
        waiting = [each for each in self._latest if each.status is Status.PAUSED]
        return "; ".join(f"rollout {each.id} of {each.group} is paused" for each in waiting) or None
