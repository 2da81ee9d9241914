"""Private keys as files: one folder for each place that holds keys, and who may open them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from securesystemslib.signer import CryptoSigner, Key, SSlibKey

from fovea.core.errors import BrokenError, Malformed, NotAllowed, NotFound
from fovea.runtime.atomic_file import sync_folder

Passphrase = Callable[[str], bytes | None]
"""Told what a passphrase is for, gives it; None: there is none."""

_SHORT_ID = 16
_OTHERS = 0o077
_ENCRYPTED = b"ENCRYPTED"


def no_passphrase(_purpose: str) -> bytes | None:
    """Keys lie open, guarded by their folder alone."""
    return None


def passphrase_from(path: Path) -> Passphrase:
    """The first line of the file at `path`, read when it is first needed."""

    def read(purpose: str) -> bytes:
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise NotFound(f"passphrase file {path}: {error.strerror or error}") from error
        if not lines or not lines[0]:
            raise Malformed(
                f"passphrase file {path}: expected the passphrase in its first line, for {purpose}"
            )
        return lines[0]

    return read


class KeyFolder:
    """Ed25519 keys in files `ROLE.KEYID.pem` (PKCS 8, mode 0600), encrypted where a passphrase is given."""

    def __init__(self, path: Path, passphrase: Passphrase = no_passphrase) -> None:
        """Reads nothing yet."""
        self.path = path
        self._passphrase = passphrase
        self._opened: dict[Path, CryptoSigner] = {}

    def __repr__(self) -> str:
        return f"KeyFolder({str(self.path)!r})"

    def make(self, role: str) -> SSlibKey:
        """A new key for `role`, on disk when this returns. Raises BrokenError where it cannot be written."""
        private = Ed25519PrivateKey.generate()
        public = SSlibKey.from_crypto(private.public_key())
        path = self._path_of(role, public.keyid)
        secret = self._passphrase(f"the new key {path.name}")
        lock: KeySerializationEncryption = BestAvailableEncryption(secret) if secret else NoEncryption()
        _write_private(path, private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock))
        self._opened[path] = CryptoSigner(private, public)
        return public

    def find(self, role: str, key: Key) -> CryptoSigner | None:
        """Who signs with `key`; None when its file is not here. Raises NotAllowed (wrong passphrase, a file without
        one that others can read) and Malformed (another key, or no key)."""
        path = self._path_of(role, key.keyid)
        if path not in self._opened:
            pem = _read_private(path)
            if pem is None:
                return None
            self._opened[path] = self._signer(path, pem, key)
        return self._opened[path]

    def has(self, role: str, keyid: str) -> bool:
        """Whether the file of a key is here."""
        return self._path_of(role, keyid).is_file()

    def keep_only(self, role: str, keyids: Iterable[str]) -> None:
        """Removes the files of keys of `role` that are of no use any more."""
        wanted = {self._path_of(role, keyid) for keyid in keyids}
        name = re.compile(rf"{re.escape(role)}\.[0-9a-f]{{{_SHORT_ID}}}\.pem")
        for path in list(self.path.glob("*.pem")):
            if name.fullmatch(path.name) and path not in wanted:
                self._opened.pop(path, None)
                path.unlink(missing_ok=True)

    def _path_of(self, role: str, keyid: str) -> Path:
        return self.path / f"{role}.{keyid[:_SHORT_ID]}.pem"

    def _signer(self, path: Path, pem: bytes, key: Key) -> CryptoSigner:
        secret = self._passphrase(f"the key {path.name}") if _ENCRYPTED in pem else None
        if _ENCRYPTED in pem and not secret:
            raise NotAllowed(f"key {path.name}: expected a passphrase, as the file is encrypted")
        try:
            private = load_pem_private_key(pem, secret)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            if secret:
                raise NotAllowed(f"key {path.name}: the passphrase does not open it") from error
            raise Malformed(f"key {path.name}: expected a private key in PEM") from error
        if not isinstance(private, Ed25519PrivateKey):
            raise Malformed(f"key {path.name}: expected an ed25519 key")
        public = SSlibKey.from_crypto(private.public_key(), key.keyid)
        if public.keyval != key.keyval:
            raise Malformed(f"key {path.name}: another key than its name says")
        return CryptoSigner(private, public)


class Keys:
    """All folders that are at hand: `online` is always there, the `offline` ones when somebody brings them."""

    def __init__(self, online: KeyFolder, offline: Sequence[KeyFolder] = ()) -> None:
        self.online = online
        self.offline = tuple(offline)

    def find(self, role: str, key: Key) -> CryptoSigner | None:
        """See KeyFolder.find; the first folder that has it."""
        for folder in (self.online, *self.offline):
            signer = folder.find(role, key)
            if signer is not None:
                return signer
        return None

    def offline_folder(self) -> KeyFolder:
        """Where new keys of root and targets go. Raises NotFound."""
        if not self.offline:
            raise NotFound("the offline keys are not here: expected --offline FOLDER")
        return self.offline[0]


def _read_private(path: Path) -> bytes | None:
    try:
        pem = path.read_bytes()
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotAllowed(f"key {path}: cannot be read ({error.strerror or error})") from error
    # An encrypted key may lie on a stick whose file system knows no owners.
    if mode & _OTHERS and _ENCRYPTED not in pem:
        raise NotAllowed(f"key {path}: others can read it; run chmod 600 on it, or encrypt it")
    return pem


def _write_private(path: Path, pem: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(path.parent)
    except OSError as error:
        raise BrokenError(f"key {path}: cannot be written ({error.strerror or error})") from error
