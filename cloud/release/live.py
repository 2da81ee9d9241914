"""What a release repository says at this moment: read from the timestamp on, as a device reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from securesystemslib.signer import Key
from tuf.api.metadata import Metadata, Role, Root, Snapshot, Targets, Timestamp
from tuf.api.serialization import DeserializationError

from cloud.release.layout import (
    CHANNELS,
    METADATA,
    ROOT,
    SNAPSHOT,
    TARGETS,
    TIMESTAMP,
    family_of,
    metadata_name,
)
from fovea.core.errors import NotFound, StoreCorrupt


@dataclass(frozen=True, slots=True, eq=False)
class Live:
    """The newest root, and all that the timestamp leads to: `roles` holds targets and every role it delegates to."""

    root: Metadata[Root]
    timestamp: Metadata[Timestamp]
    snapshot: Metadata[Snapshot]
    roles: Mapping[str, Metadata[Targets]]

    @property
    def targets(self) -> Metadata[Targets]:
        return self.roles[TARGETS]

    def all_roles(self) -> Iterator[tuple[str, Metadata[Any]]]:
        """Every role with what it signed, from the root down."""
        yield from ((ROOT, self.root), (TIMESTAMP, self.timestamp), (SNAPSHOT, self.snapshot))
        yield from sorted(self.roles.items(), key=lambda item: (item[0] != TARGETS, item[0]))

    def metadata_files(self) -> set[str]:
        """The names of all files that a reader of this moment may ask for, roots left out."""
        listed = {name.removesuffix(".json"): meta for name, meta in self.snapshot.signed.meta.items()}
        names = {metadata_name(role, meta.version) for role, meta in listed.items()}
        return names | {
            metadata_name(TIMESTAMP, None),
            metadata_name(SNAPSHOT, self.snapshot.signed.version),
        }


def signers_of(role: str, root: Root, targets: Targets) -> tuple[Role, dict[str, Key]]:
    """Who may sign `role`: its threshold, and the public keys by their id. Raises NotFound for an unknown role."""
    delegator: Root | Targets = root if role in root.roles else targets
    try:
        found = delegator.get_delegated_role(role)
    except ValueError as error:
        raise NotFound(
            f"no role {role!r:.80} here; there are: {', '.join(role_names(root, targets))}"
        ) from error
    return found, {keyid: delegator.get_key(keyid) for keyid in found.keyids}


def role_names(root: Root, targets: Targets) -> list[str]:
    """All roles, those of the root first."""
    return [*root.roles, *delegated_names(targets)]


def delegated_names(targets: Targets) -> list[str]:
    """The roles that `targets` speaks of: channels, and one for each family."""
    return list(targets.delegations.roles or ()) if targets.delegations else []


def families_of(live: Live) -> list[str]:
    """The families whose models are released here."""
    return sorted(family for family in map(family_of, live.roles) if family)


def groups_of(live: Live) -> list[str]:
    """The groups that are told what to run."""
    names = live.roles[CHANNELS].signed.targets
    return sorted(name.removeprefix("channels/").removesuffix(".json") for name in names)


def is_there(public: Path) -> bool:
    """Whether a repository was made here, to the end."""
    return (public / METADATA / metadata_name(TIMESTAMP, None)).is_file()


def read_live(public: Path) -> Live:
    """Raises NotFound where there is no repository, and StoreCorrupt where one is not whole."""
    folder = public / METADATA
    if not is_there(public):
        raise NotFound(f"no release repository at {public.parent}; `fovea release init` makes one")
    root: Metadata[Root] = _read(folder / metadata_name(ROOT, newest_root(public)))
    timestamp: Metadata[Timestamp] = _read(folder / metadata_name(TIMESTAMP, None))
    snapshot: Metadata[Snapshot] = _read(
        folder / metadata_name(SNAPSHOT, timestamp.signed.snapshot_meta.version)
    )
    roles: dict[str, Metadata[Targets]] = {
        name.removesuffix(".json"): _read(folder / metadata_name(name.removesuffix(".json"), meta.version))
        for name, meta in snapshot.signed.meta.items()
    }
    return Live(root, timestamp, snapshot, roles)


def newest_root(public: Path) -> int:
    """Its version: as a reader finds it, one after the other."""
    version = 1
    while (public / METADATA / metadata_name(ROOT, version + 1)).is_file():
        version += 1
    return version


def _read(path: Path) -> Metadata[Any]:
    try:
        return Metadata.from_bytes(path.read_bytes())
    except (OSError, DeserializationError) as error:
        raise StoreCorrupt(f"release repository: {path.name} is missing or damaged ({error})") from error
