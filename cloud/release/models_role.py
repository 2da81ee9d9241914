"""What a family's role says of its models: which are released, under which counter, and what was withdrawn."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from datetime import datetime
from typing import Any, Final, Self

from tuf.api.metadata import TargetFile, Targets

from cloud.release.layout import bundle_target
from fovea.core.errors import Malformed, NotFound
from fovea.core.release import Compat, ModelPin, TargetFacts
from fovea.runtime.manifest import BundleManifest

_OURS: Final = "fovea"
"""The field of the role's metadata that is ours; readers of TUF pass over it."""


class ModelsRole:
    """A working copy of the role's content: change it, then publish `content`."""

    def __init__(self, family: str, content: Targets) -> None:
        self.family = family
        self.content = content
        ours = content.unrecognized_fields.get(_OURS, {})
        self._counter = int(ours.get("counter", 0))
        self._withdrawn: dict[str, str] = dict(ours.get("withdrawn", {}))

    @classmethod
    def copy_of(cls, family: str, content: Targets) -> Self:
        """Of what is published."""
        return cls(family, deepcopy(content))

    def models(self) -> list[TargetFacts]:
        """All that is released, the newest last."""
        facts = [TargetFacts.from_json(target.custom) for target in self.content.targets.values()]
        return sorted(facts, key=lambda each: each.counter)

    def find(self, target: str) -> tuple[TargetFacts, str] | None:
        """What is said of a target, and the digest of its bytes."""
        entry = self.content.targets.get(target)
        return None if entry is None else (TargetFacts.from_json(entry.custom), entry.hashes["sha256"])

    def get(self, pin: ModelPin) -> TargetFacts:
        """What is said of exactly this model. Raises NotFound."""
        found = self.find(pin.target)
        if found is None or found[0].pin != pin:
            raise NotFound(f"{pin.ref} is not released at {pin.target}; `fovea release add` does that")
        return found[0]

    def add(
        self, manifest: BundleManifest, length: int, sha256: str, compat: Compat, released_at: datetime
    ) -> TargetFacts:
        """Releases a bundle of `length` bytes with digest `sha256`. Raises Malformed when the same version is, or
        ever was, released with other bytes."""
        ref, target = manifest.ref(), bundle_target(self.family, manifest.file_name)
        known = self.content.targets.get(target)
        before = known.hashes["sha256"] if known is not None else self._withdrawn.get(target)
        if before not in (None, sha256):
            raise Malformed(
                f"{ref.name} {ref.version} is released already, with other bytes, and stays as it is: expected a new "
                "version for a new model"
            )
        pin = ModelPin(target, ref.name, ref.version, ref.sha256)
        facts = TargetFacts(pin, self._counter + 1, released_at, compat)
        entry = TargetFile(length, {"sha256": sha256}, target, {"custom": facts.to_json()})
        self.content.targets[target] = entry
        self._counter += 1
        self._withdrawn.pop(target, None)
        self._remember()
        return facts

    def withdraw(self, target: str) -> None:
        """Takes a target back; its version is never used again for other bytes. Raises NotFound."""
        entry = self.content.targets.pop(target, None)
        if entry is None:
            raise NotFound(
                f"{target} is not released; there are: {', '.join(self.content.targets) or 'none'}"
            )
        self._withdrawn[target] = entry.hashes["sha256"]
        self._remember()

    def _remember(self) -> None:
        ours: Mapping[str, Any] = {"counter": self._counter, "withdrawn": self._withdrawn}
        self.content.unrecognized_fields[_OURS] = ours
