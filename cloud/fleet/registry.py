"""A rollout's registry: the aliases of the model registry follow what became of the candidate."""

from __future__ import annotations

import logging

from cloud.release.registered import Alias
from cloud.release.registry import Registry
from fovea.core.errors import NotFound
from fovea.core.release import ModelPin

_log = logging.getLogger(__name__)


class RegistryAliases:
    """A `cloud.rollout.controller.Registry`. Told twice it changes nothing more. A model that was released without
    being registered has no alias: that is said, and the rollout goes on."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def champion_is(self, pin: ModelPin) -> None:
        """The candidate becomes champion, and the champion previous. Raises Unavailable, StoreCorrupt."""
        named = self._named(pin)
        if named.get(Alias.CHAMPION) == pin.sha256:
            return
        try:
            if named.get(Alias.CANDIDATE) != pin.sha256:
                self._registry.name(pin.family, Alias.CANDIDATE, pin.ref, "was rolled out")
            self._registry.promote(pin.family, "its rollout is done")
        except NotFound:
            _log.warning(
                "%s is what its group runs now, but it is not registered: no alias names it", pin.ref
            )

    def candidate_went_back(self, pin: ModelPin) -> None:
        """It is a candidate no more; a champion gives way to the one before. Raises as above."""
        named = self._named(pin)
        if named.get(Alias.CANDIDATE) == pin.sha256:
            self._registry.name(pin.family, Alias.CANDIDATE, None, "its rollout went back")
        if named.get(Alias.CHAMPION) == pin.sha256 and Alias.PREVIOUS in named:
            self._registry.demote(pin.family, "its rollout was taken back")

    def _named(self, pin: ModelPin) -> dict[Alias, str]:
        return {alias: model.ref.sha256 for alias, model in self._registry.aliases(pin.family).items()}
