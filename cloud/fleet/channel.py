"""A rollout's channel: the signed release repository."""

from __future__ import annotations

from cloud.release.repository import Repository
from fovea.core.release import DesiredState


class SignedChannel:
    """A `cloud.rollout.controller.Channel`. Every method raises what `Repository` raises."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def current(self, group: str) -> DesiredState | None:
        """What the group is told now; None: nothing yet."""
        return self._repository.desired(group)

    def publish(self, desired: DesiredState) -> None:
        """Signs it and makes it what devices read."""
        self._repository.publish(desired)

    def serial(self, group: str) -> int:
        """Of what the group is told now; 0: nothing yet."""
        desired = self.current(group)
        return 0 if desired is None else desired.serial
