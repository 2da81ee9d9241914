"""Begins a rollout by the names that people use: finds both models, and releases what is not released yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cloud.release.live import families_of
from cloud.release.registered import Alias, RegisteredModel
from cloud.release.registry import Registry
from cloud.release.repository import Repository
from cloud.rollout.controller import RolloutController
from cloud.rollout.plan import RolloutPlan
from cloud.rollout.rollout import Rollout
from fovea.core.errors import Malformed, NotFound
from fovea.core.release import ModelPin, Probation


@dataclass(frozen=True, slots=True)
class Started:
    """A rollout, and what had to be released for it."""

    rollout: Rollout
    released: tuple[ModelPin, ...] = ()


class RolloutStarter:
    """`plan_of` a group says how a new model goes up there."""

    def __init__(
        self,
        controller: RolloutController,
        repository: Repository,
        registry: Registry,
        plan_of: Callable[[str], RolloutPlan],
        probation: Probation,
    ) -> None:
        self._controller = controller
        self._repository = repository
        self._registry = registry
        self._plan_of = plan_of
        self._probation = probation

    def start(self, group: str, candidate: str, champion: str | None, family: str | None, by: str) -> Started:
        """`candidate`: an alias, NAME-VERSION, NAME@VERSION, or the first digits of a digest. The champion is what
        the group is told to run now, or, where it was told nothing yet, the family's champion. Raises NotFound,
        Malformed, Incompatible (another rollout of the group is open), and what the stores raise."""
        current = self._repository.desired(group)
        wanted = family or (current.family if current is not None else self._only_family())
        if current is not None and current.family != wanted:
            raise Malformed(f"group {group}: runs {current.family}, expected no other family, got {wanted}")
        released: list[ModelPin] = []
        new = self._pin(wanted, candidate, released)
        if champion is not None or current is None:
            old = self._pin(wanted, champion or Alias.CHAMPION, released)
        else:
            old = current.champion
        if old.sha256 == new.sha256:
            raise Malformed(f"group {group}: runs {new.ref} already; expected another candidate")
        policy = None if current is None else current.policy
        rollout = self._controller.start(group, old, new, self._plan_of(group), self._probation, policy, by)
        return Started(rollout, tuple(released))

    def _only_family(self) -> str:
        families = families_of(self._repository.live())
        if len(families) != 1:
            told = (
                f"there are {', '.join(families)}"
                if families
                else "there is none; `fovea release family` adds one"
            )
            raise Malformed(f"expected --family, as the group is told for the first time and {told}")
        return families[0]

    def _pin(self, family: str, wanted: str, released: list[ModelPin]) -> ModelPin:
        """A model that devices can fetch."""
        facts = self._repository.models(family)
        model = self._find_registered(family, wanted)
        for each in facts:
            names = (
                each.pin.target,
                f"{each.pin.name}@{each.pin.version}",
                f"{each.pin.name}-{each.pin.version}",
            )
            if each.pin.sha256 == model.ref.sha256 if model is not None else wanted in names:
                return each.pin
        if model is None:
            raise NotFound(
                f"no model {wanted!r:.120} is registered or released in {family}; expected candidate, champion, "
                "previous, NAME-VERSION or the first digits of a digest (`fovea registry list` shows them)"
            )
        if model.family != family:
            raise Malformed(f"{model.ref}: expected a model of {family}, it is one of {model.family}")
        pin = self._repository.add_bundle(family, self._registry.load(model)).pin
        released.append(pin)
        return pin

    def _find_registered(self, family: str, wanted: str) -> RegisteredModel | None:
        if wanted in list(Alias):
            named = self._registry.aliases(family).get(Alias(wanted))
            if named is None:
                raise NotFound(
                    f"family {family}: no model is called {wanted} (`fovea registry alias` does that)"
                )
            return named
        for model in self._registry.models(family):
            if wanted in (f"{model.ref.name}-{model.ref.version}", f"{model.ref.name}@{model.ref.version}"):
                return model
        try:
            return self._registry.get(wanted)
        except NotFound:
            return None
