"""A signed release repository in a folder: what may be done to it, one at a time, from any process."""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tuf.api.metadata import TargetFile, Targets

from cloud.release.keys import Keys
from cloud.release.layout import (
    CHANNELS,
    OFFLINE_ROLES,
    TARGET_FILES,
    Lifetimes,
    file_of,
    models_role,
)
from cloud.release.live import Live, families_of, groups_of, is_there, read_live, role_names, signers_of
from cloud.release.models_role import ModelsRole
from cloud.release.offline import first_metadata, new_family, new_key, renewed
from cloud.release.publication import Change, Publisher, Write, write_public
from cloud.release.staging import Missing, Staged
from fovea.core.errors import BrokenError, Malformed, NotFound, StoreCorrupt, TooLarge
from fovea.core.release import Compat, DesiredState, TargetFacts, channel_target
from fovea.runtime.bundle import Bundle
from fovea.runtime.manifest import canonical_json
from fovea.serving.release_pruning import prune

PUBLIC = "public"
"""Below the repository's folder: what is served, and nothing else."""
_STAGED = "staged"
_LOCK = "lock"
_LARGEST_ORDER_BYTES = 60_000
_CLOCK_SLACK = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Signing:
    """How a change of root or targets stands: published when nothing is missing."""

    why: str
    missing: tuple[Missing, ...]

    @property
    def is_published(self) -> bool:
        return not self.missing


class Repository:
    """`public/` is served to devices; a change that waits for signatures lies beside it. Every method may raise
    NotFound (no repository, a key that is not here), NotAllowed (a key that does not open), BrokenError (disk) and
    StoreCorrupt; whatever it raises, and wherever it is killed, readers see the old state or the new one."""

    def __init__(
        self,
        folder: Path,
        keys: Keys,
        lifetimes: Lifetimes = Lifetimes(),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        write: Write = write_public,
    ) -> None:
        """Reads nothing yet."""
        self.folder = folder
        self.public = folder / PUBLIC
        self._staged = folder / _STAGED
        self._keys = keys
        self._lifetimes = lifetimes
        self._now = now
        self._write = write
        self._publisher = Publisher(self.public, keys, lifetimes, write)

    def init(self) -> None:
        """Makes all keys and the first state. Raises Malformed where there is a repository already."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._locked():
            if is_there(self.public):
                raise Malformed(f"{self.folder}: expected a folder without a repository, found one")
            root, targets = first_metadata(self._keys, self._lifetimes, self._now())
            self._publisher.first(root, targets, self._now())

    def live(self) -> Live:
        """What devices read now."""
        return read_live(self.public)

    def add_family(self, family: str) -> Signing:
        """A family with an online key of its own. Raises Malformed where there is one of that name."""
        role = models_role(family)
        with self._changing() as live:
            self._check_nothing_waits()
            if role in live.roles:
                raise Malformed(f"family {family}: expected a new one, it exists already")
            targets = new_family(live.targets.signed, family, self._keys.online.make(role))
            return self._stage(live, renewed(f"add the family {family}", None, targets, self._due_dates()))

    def rotate(self, role: str, keyid: str | None = None, is_key_lost: bool = False) -> Signing:
        """A new key in place of one of `role`'s: `keyid`, which may be left out where there is one only (its first
        digits will do). The old key signs the change once more unless it is lost."""
        with self._changing() as live:
            self._check_nothing_waits()
            why, root, targets = new_key(live, self._keys, role, keyid)
            return self._stage(live, renewed(why, root, targets, self._due_dates(), is_key_lost))

    def sign(self) -> Signing:
        """Adds the signatures of the keys at hand to the change that waits, and publishes it when they suffice."""
        with self._locked():
            staged = Staged.find(self._staged)
            if staged is None:
                raise NotFound("no change waits for signatures")
            return self._stage(self.live(), staged)

    def waiting(self) -> Signing | None:
        """The change that waits for signatures, if one does."""
        staged = Staged.find(self._staged)
        return Signing(staged.why, tuple(staged.missing(self.live()))) if staged else None

    def drop_waiting(self) -> None:
        """Forgets the change that waits for signatures."""
        with self._locked():
            Staged.drop(self._staged)
            self._forget_old_keys(self.live())

    def add_bundle(
        self, family: str, bundle: Bundle, device_classes: tuple[str, ...] = (), arch: tuple[str, ...] = ()
    ) -> TargetFacts:
        """Releases a model. The same bundle again is fine; Malformed for the same version with other bytes."""
        data = bundle.to_bytes()
        digest = hashlib.sha256(data).hexdigest()
        with self._changing() as live:
            models = self._models(live, family)
            known = models.find(f"models/{family}/{bundle.manifest.file_name}")
            if known is not None and known[1] == digest:
                return known[0]
            compat = compat_of(bundle, device_classes, arch)
            facts = models.add(bundle.manifest, len(data), digest, compat, self._now())
            files = {file_of(facts.pin.target, digest): data}
            self._publish(live, {models_role(family): models.content}, files)
            return facts

    def withdraw(self, family: str, target: str) -> None:
        """No device fetches this target any more. Raises Malformed while a group is told to run it."""
        with self._changing() as live:
            for group in groups_of(live):
                desired = self._desired(live, group)
                if desired and target in {pin.target for pin in (desired.champion, desired.candidate) if pin}:
                    raise Malformed(
                        f"{target}: the group {group} is told to run it; publish another model first"
                    )
            models = self._models(live, family)
            models.withdraw(target)
            self._publish(live, {models_role(family): models.content}, {})

    def models(self, family: str) -> list[TargetFacts]:
        """What is released of a family, the newest last."""
        return self._models(self.live(), family).models()

    def publish(self, desired: DesiredState) -> None:
        """Tells a group what to run. Raises Malformed unless the serial is higher than all before it and the state
        has not expired, and NotFound for a model that is not released."""
        with self._changing() as live:
            self._check_desired(live, desired)
            self._publish_desired(live, [desired])

    def desired(self, group: str) -> DesiredState | None:
        """What a group is told now; None: nothing yet."""
        return self._desired(self.live(), group)

    def refresh(self, max_age: timedelta = timedelta(days=1)) -> None:
        """Signs again what would expire: the timestamp always, the rest in the second half of its life; also what
        groups are told: the same order with the same serial, for as long again. What nobody was led to for
        `max_age` is removed."""
        with self._changing() as live:
            now = self._now()
            states = [self._desired(live, group) for group in groups_of(live)]
            due = [
                each
                for each in states
                if each and each.expires_at - now < (each.expires_at - each.issued_at) / 2
            ]
            renewals = [
                replace(
                    each,
                    issued_at=now,
                    expires_at=now + (each.expires_at - each.issued_at),
                )
                for each in due
            ]
            half_over = {
                role: deepcopy(metadata.signed)
                for role, metadata in live.roles.items()
                if role != "targets" and self._publisher.is_half_over(role, metadata.signed, now)
            }
            if renewals:
                self._publish_desired(live, renewals, half_over)
            else:
                self._publish(live, half_over, {})
            prune(self.public, self.live().metadata_files(), now - max_age)

    def renew_offline(self) -> Signing | None:
        """Root and targets again for a whole life, where more than half of it is over; None: nothing was due."""
        with self._changing() as live:
            self._check_nothing_waits()
            now = self._now()
            root = live.root.signed if self._publisher.is_half_over("root", live.root.signed, now) else None
            old = live.targets.signed
            targets = old if self._publisher.is_half_over("targets", old, now) else None
            if root is None and targets is None:
                return None
            return self._stage(live, renewed("renew what people sign", root, targets, self._due_dates()))

    def _stage(self, live: Live, staged: Staged) -> Signing:
        staged.sign(self._keys, live)
        missing = tuple(staged.missing(live))
        staged.save(self._staged, self._write)
        if not missing:
            self._publish_staged(live, staged)
        return Signing(staged.why, missing)

    def _publish_staged(self, live: Live, staged: Staged) -> None:
        if not staged.is_published(live):
            change = Change(staged.root, staged.fresh_targets(live))
            self._publisher.publish(live, change, self._now())
        Staged.drop(self._staged)
        self._forget_old_keys(self.live())

    def _forget_old_keys(self, live: Live) -> None:
        root, targets = live.root.signed, live.targets.signed
        for role in role_names(root, targets):
            if role not in OFFLINE_ROLES:
                self._keys.online.keep_only(role, signers_of(role, root, targets)[1])

    def _check_nothing_waits(self) -> None:
        staged = Staged.find(self._staged)
        if staged is not None:
            raise Malformed(
                f"a change waits for signatures already ({staged.why}): expected `fovea release sign` first, or "
                "`fovea release sign --drop`"
            )

    def _publish(self, live: Live, roles: Mapping[str, Targets], files: Mapping[str, bytes]) -> None:
        self._publisher.publish(live, Change(roles=roles, files=files), self._now())

    def _publish_desired(
        self, live: Live, states: list[DesiredState], others: Mapping[str, Targets] | None = None
    ) -> None:
        content = deepcopy(live.roles[CHANNELS].signed)
        files = {}
        for desired in states:
            target, data = channel_target(desired.group), canonical_json(desired.to_json())
            digest = hashlib.sha256(data).hexdigest()
            content.targets[target] = TargetFile(len(data), {"sha256": digest}, target)
            files[file_of(target, digest)] = data
        self._publish(live, {**(others or {}), CHANNELS: content}, files)

    def _check_desired(self, live: Live, desired: DesiredState) -> None:
        before = self._desired(live, desired.group)
        if before is not None and desired.serial <= before.serial:
            raise Malformed(
                f"group {desired.group}: expected a serial above {before.serial}, got {desired.serial}"
            )
        if before is not None and desired.family != before.family:
            raise Malformed(
                f"group {desired.group}: runs {before.family}, expected no model of {desired.family}"
            )
        if desired.issued_at > self._now() + _CLOCK_SLACK:
            raise Malformed(f"group {desired.group}: expected a state that was not issued in the future")
        if desired.expires_at <= self._now():
            raise Malformed(f"group {desired.group}: expected a state that has not expired already")
        if desired.expires_at - self._now() > self._lifetimes.channels + _CLOCK_SLACK:
            days = self._lifetimes.channels / timedelta(days=1)
            raise Malformed(f"group {desired.group}: expected a state that expires within {days:g} days")
        order_bytes = len(canonical_json(desired.to_json()))
        if order_bytes > _LARGEST_ORDER_BYTES:
            raise TooLarge(
                f"group {desired.group}: an order of {order_bytes} bytes, devices take {_LARGEST_ORDER_BYTES}; "
                "expected a smaller policy"
            )
        models = self._models(live, desired.family)
        for pin in (desired.champion, desired.candidate):
            if pin is not None:
                models.get(pin)

    def _desired(self, live: Live, group: str) -> DesiredState | None:
        target = channel_target(group)
        entry = live.roles[CHANNELS].signed.targets.get(target)
        if entry is None:
            return None
        path = self.public / TARGET_FILES / file_of(target, entry.hashes["sha256"])
        try:
            return DesiredState.from_json(json.loads(path.read_bytes()))
        except (OSError, ValueError) as error:
            raise StoreCorrupt(f"release repository: {path.name} is missing or damaged ({error})") from error

    def _models(self, live: Live, family: str) -> ModelsRole:
        found = live.roles.get(models_role(family))
        if found is None:
            known = ", ".join(families_of(live)) or "none"
            raise NotFound(f"no family {family!r:.80} here; there are: {known}")
        return ModelsRole.copy_of(family, found.signed)

    def _due_dates(self) -> tuple[datetime, datetime]:
        return self._now() + self._lifetimes.root, self._now() + self._lifetimes.targets

    @contextmanager
    def _changing(self) -> Iterator[Live]:
        """The live state, for who is going to change it: whole, and nothing waits."""
        with self._locked():
            live, staged = self.live(), Staged.find(self._staged)
            if staged is not None:
                self._finish(live, staged)
                live = self.live()
            yield live

    def _finish(self, live: Live, staged: Staged) -> None:
        """A change that was signed by all and then cut off is carried on."""
        if staged.is_published(live) or not staged.missing(live):
            self._publish_staged(live, staged)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            file = (self.folder / _LOCK).open("w")
        except FileNotFoundError as error:
            raise NotFound(
                f"no release repository at {self.folder}; `fovea release init` makes one"
            ) from error
        except OSError as error:
            raise BrokenError(f"{self.folder}: cannot be written ({error.strerror or error})") from error
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def compat_of(bundle: Bundle, device_classes: tuple[str, ...], arch: tuple[str, ...]) -> Compat:
    """Which devices a bundle is for, as far as its manifest says it."""
    manifest = bundle.manifest
    return Compat(
        arch=arch,
        runtime_min="0",
        min_agent=manifest.min_agent,
        input_hw=(manifest.input.height, manifest.input.width),
        device_classes=device_classes,
    )
