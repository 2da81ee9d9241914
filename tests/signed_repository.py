"""A small TUF repository with all its keys, for tests of devices: files by path, as a web server would have them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

from securesystemslib.signer import CryptoSigner
from tuf.api._payload import (
    DelegatedRole,
    Delegations,
    MetaFile,
    Root,
    Snapshot,
    TargetFile,
    Targets,
    Timestamp,
)
from tuf.api.metadata import Metadata

from fovea.core.release import (
    Compat,
    DesiredState,
    ModelPin,
    Probation,
    Stage,
    TargetFacts,
    channel_target,
)
from fovea.runtime.bundle import Bundle

BUILT_AT = datetime(2026, 3, 1, tzinfo=UTC)
NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
GROUP, FAMILY = "north", "street"
MODELS = f"models-{FAMILY}"
ANY_COMPAT = Compat(("aarch64", "x86_64"), "1.27", "0.1", (64, 64), ("camera",))


def pin_of(bundle: Bundle) -> ModelPin:
    ref = bundle.ref
    return ModelPin(f"models/{FAMILY}/{ref.name}-{ref.version}.fovea", ref.name, ref.version, ref.sha256)


def desired_state(
    serial: int, champion: Bundle, candidate: Bundle | None = None, **changes: Any
) -> DesiredState:
    fields: dict[str, Any] = {
        "group": GROUP,
        "family": FAMILY,
        "serial": serial,
        "issued_at": NOW - timedelta(hours=100 - serial),
        "expires_at": NOW + timedelta(days=6),
        "champion": pin_of(champion),
        "candidate": None if candidate is None else pin_of(candidate),
        "stage": Stage.IDLE if candidate is None else Stage.ALL,
        "shadow_share": 0.0,
        "run_share": 0.0 if candidate is None else 1.0,
        "salt": "salt",
        "probation": Probation(10, 5.0, 100.0),
    }
    return DesiredState(**(fields | changes))


class SignedRepository:
    """`files` is what is served; `publish` signs what has been changed since."""

    def __init__(self, lifetime: timedelta = timedelta(days=30)) -> None:
        self.files: dict[str, bytes] = {}
        self.signers = {
            role: [CryptoSigner.generate_ed25519() for _ in range(3 if role == "root" else 1)]
            for role in ("root", "targets", "snapshot", "timestamp", MODELS, "channels")
        }
        expires = NOW + lifetime
        self.root = Metadata(Root(expires=expires, consistent_snapshot=True))
        for role in ("root", "targets", "snapshot", "timestamp"):
            for signer in self.signers[role]:
                self.root.signed.add_key(signer.public_key, role)
        self.root.signed.roles["root"].threshold = 2
        self.targets = Metadata(Targets(expires=expires))
        self.targets.signed.delegations = Delegations(
            {key.keyid: key for key in (self._public(MODELS), self._public("channels"))},
            {
                name: DelegatedRole(name, [self._public(name).keyid], 1, True, paths=[pattern])
                for name, pattern in ((MODELS, f"models/{FAMILY}/*"), ("channels", "channels/*"))
            },
        )
        self.delegated = {name: Metadata(Targets(expires=expires)) for name in (MODELS, "channels")}
        self.snapshot = Metadata(Snapshot(expires=expires))
        self.timestamp = Metadata(Timestamp(expires=expires))
        self.sign_root()
        self.pinned_root = self.files["metadata/1.root.json"]

    def _public(self, role: str) -> Any:
        return self.signers[role][0].public_key

    def sign_root(self) -> None:
        self._put("root", self.root, self.signers["root"][:2])

    def add_model(self, bundle: Bundle, counter: int, role: str = MODELS, **changes: Any) -> ModelPin:
        """Lists a bundle in `role`; `changes` are fields of its TargetFacts."""
        pin, data = pin_of(bundle), bundle.to_bytes()
        fields: dict[str, Any] = {"pin": pin, "counter": counter, "released_at": NOW, "compat": ANY_COMPAT}
        self._list(role, pin.target, data, TargetFacts(**(fields | changes)).to_json())
        return pin

    def order(self, desired: DesiredState) -> None:
        self._list("channels", channel_target(desired.group), json.dumps(desired.to_json()).encode())

    def _list(self, role: str, path: str, data: bytes, custom: Any = None) -> None:
        info = TargetFile.from_data(path, data, ["sha256"])
        if custom is not None:
            info.unrecognized_fields["custom"] = custom
        (self.targets if role == "targets" else self.delegated[role]).signed.targets[path] = info
        self.files[target_file(path, data)] = data

    def publish(self, roles: Sequence[str] = (MODELS, "channels")) -> None:
        """Signs `roles` anew, then snapshot and timestamp, each with the next version."""
        for role in roles:
            metadata = self.targets if role == "targets" else self.delegated[role]
            metadata.signed.version += 1
        for role, metadata in (("targets", self.targets), *self.delegated.items()):
            data = self._put(role, metadata, self.signers[role])
            self.snapshot.signed.meta[f"{role}.json"] = MetaFile(
                metadata.signed.version, len(data), {"sha256": hashlib.sha256(data).hexdigest()}
            )
        self.publish_snapshot()

    def publish_snapshot(self) -> None:
        self.snapshot.signed.version += 1
        self._put("snapshot", self.snapshot, self.signers["snapshot"])
        self.publish_timestamp()

    def publish_timestamp(self) -> None:
        self.timestamp.signed.version += 1
        self.timestamp.signed.snapshot_meta = MetaFile(self.snapshot.signed.version)
        self._put("timestamp", self.timestamp, self.signers["timestamp"])

    def _put(self, role: str, metadata: Metadata[Any], signers: Sequence[CryptoSigner]) -> bytes:
        metadata.signatures.clear()
        for signer in signers:
            metadata.sign(signer, append=True)
        data = metadata.to_bytes()
        self.files[metadata_file(role, metadata)] = data
        return data

    def copy_of_files(self) -> dict[str, bytes]:
        return dict(self.files)

    def fork(self) -> SignedRepository:
        """The same repository with the same keys, to be changed on its own."""
        fork = SignedRepository.__new__(SignedRepository)
        fork.__dict__.update(self.__dict__)
        fork.files = dict(self.files)
        for name in ("root", "targets", "delegated", "snapshot", "timestamp"):
            setattr(fork, name, deepcopy(getattr(self, name)))
        return fork


def metadata_file(role: str, metadata: Metadata[Any]) -> str:
    return (
        "metadata/timestamp.json"
        if role == "timestamp"
        else f"metadata/{metadata.signed.version}.{role}.json"
    )


def target_file(path: str, data: bytes) -> str:
    folder, _, name = path.rpartition("/")
    return f"targets/{folder}/{hashlib.sha256(data).hexdigest()}.{name}"
