"""What people sign: the first root and targets, new families, new keys, and the same again for another year."""

from __future__ import annotations

from copy import deepcopy
from datetime import datetime
from typing import Any

from securesystemslib.signer import Key
from tuf.api.metadata import DelegatedRole, Delegations, Metadata, Role, Root, Targets

from cloud.release.keys import KeyFolder, Keys
from cloud.release.layout import (
    CHANNELS,
    OFFLINE_ROLES,
    ROOT,
    ROOT_KEYS,
    ROOT_THRESHOLD,
    SNAPSHOT,
    TARGETS,
    TIMESTAMP,
    Lifetimes,
    models_paths,
    models_role,
)
from cloud.release.live import Live, signers_of
from cloud.release.staging import Staged
from fovea.core.errors import Malformed, NotFound


def first_metadata(
    keys: Keys, lifetimes: Lifetimes, now: datetime
) -> tuple[Metadata[Root], Metadata[Targets]]:
    """Makes every key, and with them the first root (signed by all its keys) and targets (with channels)."""
    offline, online = keys.offline_folder(), keys.online
    root = Root(1, expires=now + lifetimes.root, consistent_snapshot=True)
    root.roles = {name: Role([], 1) for name in (ROOT, TARGETS, SNAPSHOT, TIMESTAMP)}
    for role in (*[ROOT] * ROOT_KEYS, TARGETS, SNAPSHOT, TIMESTAMP):
        root.add_key((offline if role in OFFLINE_ROLES else online).make(role), role)
    root.roles[ROOT].threshold = ROOT_THRESHOLD
    targets = Targets(1, expires=now + lifetimes.targets, delegations=Delegations({}, {}))
    _delegate(targets, CHANNELS, "channels/*", online.make(CHANNELS))
    signed = Metadata(root), Metadata(targets)
    parts: list[tuple[str, Metadata[Any]]] = [(ROOT, signed[0]), (TARGETS, signed[1])]
    for role, metadata in parts:
        for key in signers_of(role, root, targets)[1].values():
            signer = keys.find(role, key)
            if signer is not None:
                metadata.sign(signer, append=True)
    return signed


def new_family(targets: Targets, family: str, key: Key) -> Targets:
    """`targets` with a family whose models `key` signs."""
    changed = deepcopy(targets)
    _delegate(changed, models_role(family), models_paths(family), key)
    return changed


def new_key(live: Live, keys: Keys, role: str, keyid: str | None) -> tuple[str, Root | None, Targets | None]:
    """Makes a key and puts it in the place of an old one: says what changes, the root and the targets that say so
    (None: unchanged). Raises NotFound (no such role or key) and Malformed (which of several is not said)."""
    _role, known = signers_of(role, live.root.signed, live.targets.signed)
    old = _one_key(role, list(known), keyid)
    key = _folder(keys, role).make(role)
    why = f"a new key for {role}: {key.keyid[:16]} in place of {old[:16]}"
    if role not in live.root.signed.roles:
        targets = deepcopy(live.targets.signed)
        targets.add_key(key, role)
        targets.revoke_key(old, role)
        return why, None, targets
    root = deepcopy(live.root.signed)
    root.add_key(key, role)
    root.revoke_key(old, role)
    # Targets that the new key has signed have to be there when the root says that it is the one.
    return why, root, live.targets.signed if role == TARGETS else None


def renewed(
    why: str,
    root: Root | None,
    targets: Targets | None,
    expires: tuple[datetime, datetime],
    is_key_lost: bool = False,
) -> Staged:
    """The next version of root and targets, to be signed; `expires` says when they do."""
    next_root = root and deepcopy(root)
    next_targets = targets and deepcopy(targets)
    for signed, expires_at in zip((next_root, next_targets), expires, strict=True):
        if signed is not None:
            signed.version += 1
            signed.expires = expires_at
    return Staged(
        why,
        Metadata(next_root) if next_root else None,
        Metadata(next_targets) if next_targets else None,
        is_key_lost,
    )


def _folder(keys: Keys, role: str) -> KeyFolder:
    return keys.offline_folder() if role in OFFLINE_ROLES else keys.online


def _one_key(role: str, known: list[str], wanted: str | None) -> str:
    fitting = [keyid for keyid in known if keyid.startswith(wanted or "")]
    shown = ", ".join(keyid[:16] for keyid in known)
    if not fitting:
        raise NotFound(f"{role} has no key {wanted!r:.80}; it has: {shown}")
    if len(fitting) > 1:
        raise Malformed(f"{role} has several keys: expected the id of the one to replace, of {shown}")
    return fitting[0]


def _delegate(targets: Targets, role: str, paths: str, key: Key) -> None:
    if targets.delegations is None or targets.delegations.roles is None:
        raise Malformed("targets: expected delegations by name")
    targets.delegations.roles[role] = DelegatedRole(role, [], 1, terminating=True, paths=[paths])
    targets.add_key(key, role)
