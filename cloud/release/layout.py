"""What stands where in a release repository, what its roles are called, and how long each of them is believed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from fovea.core.errors import Malformed
from fovea.core.release import check_name

ROOT: Final = "root"
TARGETS: Final = "targets"
SNAPSHOT: Final = "snapshot"
TIMESTAMP: Final = "timestamp"
CHANNELS: Final = "channels"

OFFLINE_ROLES: Final = (ROOT, TARGETS)
METADATA: Final = "metadata"
"""below the address that devices know: who says what, signed"""
TARGET_FILES: Final = "targets"
"""below the same address: bundles and desired states, each under the digest of its bytes"""

ROOT_KEYS: Final = 3
ROOT_THRESHOLD: Final = 2

_MODELS: Final = "models-"


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long what a role signs is believed. Short where the key is online and a machine signs again by itself."""

    root: timedelta = timedelta(days=365)
    targets: timedelta = timedelta(days=365)
    models: timedelta = timedelta(days=90)
    channels: timedelta = timedelta(days=7)
    snapshot: timedelta = timedelta(days=7)
    timestamp: timedelta = timedelta(days=1)

    def __post_init__(self) -> None:
        for name in (ROOT, TARGETS, "models", CHANNELS, SNAPSHOT, TIMESTAMP):
            if getattr(self, name) < timedelta(seconds=2):
                raise Malformed(f"lifetime of {name}: expected 2 s or more, got {getattr(self, name)}")

    def of(self, role: str) -> timedelta:
        """That of `role`."""
        life: timedelta = getattr(self, "models" if role.startswith(_MODELS) else role)
        return life


def models_role(family: str) -> str:
    """The role that signs the models of a family. Raises Malformed for a name that cannot stand in a path."""
    check_name("family", family)
    return f"{_MODELS}{family}"


def family_of(role: str) -> str | None:
    """The family whose models `role` signs; None for all other roles."""
    return role.removeprefix(_MODELS) if role.startswith(_MODELS) else None


def models_paths(family: str) -> str:
    """The target paths that a family's role may speak of, as a pattern."""
    return f"models/{family}/*"


def bundle_target(family: str, file_name: str) -> str:
    """The TUF path of a bundle."""
    return f"models/{family}/{file_name}"


def metadata_name(role: str, version: int | None) -> str:
    """The file of a role's metadata: only that of timestamp has no version in its name."""
    return f"{role}.json" if version is None else f"{version}.{role}.json"


def file_of(target: str, sha256: str) -> str:
    """Where the bytes of a target lie, below `targets/`."""
    folder, _, name = target.rpartition("/")
    return f"{folder}/{sha256}.{name}"
