"""A change of root or targets that waits for signatures: several people sign it, one after the other."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from securesystemslib.exceptions import UnverifiedSignatureError
from tuf.api.metadata import Metadata, Root, Targets
from tuf.api.serialization import DeserializationError

from cloud.release.keys import Keys
from cloud.release.layout import ROOT, TARGETS
from cloud.release.live import Live, signers_of
from cloud.release.publication import Signers, Write
from fovea.core.errors import StoreCorrupt

_FILE = "staged.json"


@dataclass(frozen=True, slots=True)
class Missing:
    """Signatures that a role still needs: `count` of the keys named here."""

    role: str
    count: int
    keyids: tuple[str, ...]

    def __str__(self) -> str:
        shown = ", ".join(keyid[:16] for keyid in self.keyids)
        return f"{self.count} of the {self.role} keys {shown}"


@dataclass(frozen=True, slots=True, eq=False)
class Staged:
    """The new root, the new targets, or both, with the signatures so far. `is_key_lost`: the old targets key cannot
    sign any more, so it need not."""

    why: str
    root: Metadata[Root] | None = None
    targets: Metadata[Targets] | None = None
    is_key_lost: bool = False

    @classmethod
    def find(cls, folder: Path) -> Self | None:
        """What waits in `folder`, if anything does. Raises StoreCorrupt."""
        path = folder / _FILE
        try:
            form = json.loads(path.read_bytes())
            return cls(form["why"], _from(form["root"]), _from(form["targets"]), form["is_key_lost"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, DeserializationError) as error:
            raise StoreCorrupt(
                f"{path}: the change that waits for signatures is damaged ({error})"
            ) from error

    def save(self, folder: Path, write: Write) -> None:
        """Raises BrokenError."""
        form = {
            "why": self.why,
            "root": self.root and self.root.to_dict(),
            "targets": self.targets and self.targets.to_dict(),
            "is_key_lost": self.is_key_lost,
        }
        write(folder / _FILE, json.dumps(form).encode())

    @staticmethod
    def drop(folder: Path) -> None:
        """Whether or not there is one."""
        (folder / _FILE).unlink(missing_ok=True)

    def sign(self, keys: Keys, live: Live) -> None:
        """Adds the signature of every key at hand. Raises what `Keys.find` raises."""
        for role, metadata in self._parts():
            for _needed, known in self._signers(role, live):
                for keyid, key in known.items():
                    signer = None if keyid in metadata.signatures else keys.find(role, key)
                    if signer is not None:
                        metadata.sign(signer, append=True)

    def missing(self, live: Live) -> list[Missing]:
        """What is still to be signed, by the old keys and by the new ones."""
        found = []
        for role, metadata in self._parts():
            for index, (needed, known) in enumerate(self._signers(role, live)):
                if index and self.is_key_lost and role == TARGETS:
                    continue
                left = tuple(keyid for keyid in known if not _holds(metadata, keyid, known))
                count = needed.threshold - (len(known) - len(left))
                each = Missing(role, count, left)
                if count > 0 and each not in found:
                    found.append(each)
        return found

    def is_published(self, live: Live) -> bool:
        """Whether readers see all of it already."""
        root = self.root is None or self.root.signed.version <= live.root.signed.version
        return root and self.fresh_targets(live) is None

    def fresh_targets(self, live: Live) -> Metadata[Targets] | None:
        """The new targets, unless they are published."""
        is_new = self.targets is not None and self.targets.signed.version > live.targets.signed.version
        return self.targets if is_new else None

    def _parts(self) -> list[tuple[str, Metadata[Any]]]:
        parts: list[tuple[str, Metadata[Any] | None]] = [(ROOT, self.root), (TARGETS, self.targets)]
        return [(role, metadata) for role, metadata in parts if metadata is not None]

    def _signers(self, role: str, live: Live) -> list[Signers]:
        """Who signs from now on, and who does until now, where that is somebody else."""
        new = signers_of(role, self.root.signed if self.root else live.root.signed, live.targets.signed)
        old = signers_of(role, live.root.signed, live.targets.signed)
        return [new] if set(new[1]) == set(old[1]) else [new, old]


def _holds(metadata: Metadata[Any], keyid: str, known: dict[str, Any]) -> bool:
    signature = metadata.signatures.get(keyid)
    if signature is None:
        return False
    try:
        known[keyid].verify_signature(signature, metadata.signed_bytes)
    except UnverifiedSignatureError as error:
        raise StoreCorrupt(
            f"the change that waits for signatures: a signature does not hold ({error})"
        ) from error
    return True


def _from(form: Any) -> Any:
    return None if form is None else Metadata.from_dict(form)
