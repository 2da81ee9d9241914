"""The parts that configurations of all tiers are made of; the only place that reads the environment."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from fovea import zoo
from fovea.core.errors import Malformed, NotFound
from fovea.runtime.ort import checked_device
from protos.tls import Pems

ZOO = "zoo:"
UNIX = "unix:"


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if (
        not host
        or not re.fullmatch(r"[\w.:\[\]-]+", host)
        or not re.fullmatch(r"\d{1,5}", port)
        or int(port) > 65535
    ):
        raise ValueError("expected host:port with a port of 0 to 65535")
    return text


def _peer(text: str) -> str:
    if text.startswith(UNIX) and text != UNIX:
        return text
    try:
        return _address(text)
    except ValueError as error:
        raise ValueError("expected host:port with a port of 0 to 65535, or unix:PATH") from error


def _device(text: str) -> str:
    try:
        return checked_device(text)
    except Malformed as error:
        raise ValueError("expected auto, cpu or cuda:N") from error


def _bundle(text: str) -> str:
    if not text.removeprefix(ZOO):
        raise ValueError("expected a .fovea file or zoo:NAME")
    return text


Address = Annotated[str, AfterValidator(_address)]
"""Where this process listens: host:port."""
PeerAddress = Annotated[str, AfterValidator(_peer)]
"""Where somebody else listens: host:port, or unix:PATH on the same machine."""
Device = Annotated[str, AfterValidator(_device)]
BundleName = Annotated[str, AfterValidator(_bundle)]
FilePath = Annotated[str, Field(min_length=1)]


class Part(BaseModel):
    """A configuration, or a part of one: unknown keys are mistakes, and so are values of another type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class LogConfig(Part):
    """What is said while it runs, on the standard error output."""

    format: Literal["auto", "json", "console"] = "auto"
    """json, console, or auto: console on a terminal, else json"""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """the least important that is said"""


class TlsConfig(Part):
    """Both sides show a certificate of the same authority; all three files are needed."""

    ca: FilePath
    """the PEM file of the authority that signs the other side"""
    cert: FilePath
    """the PEM file of this side's certificate chain"""
    key: FilePath
    """the PEM file of this side's private key"""

    def resolved(self, folder: Path) -> TlsConfig:
        """The same with paths that do not depend on the current folder."""
        return TlsConfig(ca=str(folder / self.ca), cert=str(folder / self.cert), key=str(folder / self.key))


class StopConfig(Part):
    """How it ends when it is told to."""

    notice_s: Annotated[float, Field(ge=0, le=60)] = 0.0
    """how long calls are still taken after its readiness is withdrawn, for balancers to notice"""
    grace_s: Annotated[float, Field(ge=0, le=60)] = 3.0
    """how long it then waits for the calls under way"""


def bundle_path(bundle: str) -> Path:
    """Where a bundle lies: a .fovea file, or zoo:NAME. Raises NotFound for a name the zoo does not know."""
    return zoo.path_of(bundle.removeprefix(ZOO)) if bundle.startswith(ZOO) else Path(bundle)


def resolved_bundle(bundle: str, folder: Path) -> str:
    """`bundle` with a path that does not depend on the current folder; names of the zoo stay."""
    return bundle if bundle.startswith(ZOO) else str(folder / bundle)


def read_pems(config: TlsConfig, key: str = "tls") -> Pems:
    """The three files of `config`, which stands under `key`. Raises NotFound and Malformed, naming key and file."""
    return Pems(
        read_pem(f"{key}.ca", config.ca),
        read_pem(f"{key}.cert", config.cert),
        read_pem(f"{key}.key", config.key),
    )


def read_pem(name: str, path: str) -> bytes:
    """The bytes of the PEM file that the configuration calls `name`. Raises NotFound and Malformed."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError as error:
        raise NotFound(f"{name}: no file {path}") from error
    except OSError as error:
        raise Malformed(f"{name}: cannot read {path}: {error.strerror}") from error
    if b"-----BEGIN " not in data:
        raise Malformed(f"{name}: expected a PEM file, got {path}")
    return data


def watchdog_every_s() -> float | None:
    """How often systemd wants to hear that all is well, halved; None when it does not care (WatchdogSec=)."""
    interval_us = os.environ.get("WATCHDOG_USEC", "")
    is_meant = os.environ.get("WATCHDOG_PID") in (None, str(os.getpid()))
    return int(interval_us) / 2e6 if interval_us.isdecimal() and int(interval_us) and is_meant else None


def notify_socket() -> str | None:
    """Where systemd wants to be told how the process fares (NOTIFY_SOCKET); None when it does not."""
    return os.environ.get("NOTIFY_SOCKET") or None
