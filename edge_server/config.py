"""The configuration of an edge server: one YAML file, checked as a whole before anything starts."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from fovea.core.errors import Malformed
from fovea.runtime.config_file import read_config
from fovea.runtime.ort import checked_device

ZOO = "zoo:"


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
Device = Annotated[str, AfterValidator(_device)]
BundleName = Annotated[str, AfterValidator(_bundle)]
FilePath = Annotated[str, Field(min_length=1)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class QueueConfig(_Part):
    """What may wait for the model."""

    max_items: Annotated[int, Field(ge=1, le=100_000)] = 64
    """pictures that wait at most; more are refused with a time to come back"""
    max_bytes: Annotated[int, Field(ge=1_000_000)] = 512_000_000
    """memory of the pictures that wait, opened, at most"""
    aging_s: Annotated[float, Field(ge=0, le=60)] = 0.5
    """head start of each step of priority: a low one is overtaken by those at most that come this much later"""
    margin_ms: Annotated[float, Field(ge=0, le=10_000)] = 5.0
    """how long before its deadline a picture has to be expected to be done, or it is refused at once"""


class LimitsConfig(_Part):
    """What one request may be."""

    max_request_bytes: Annotated[int, Field(ge=1000, lt=2**30)] = 16_000_000
    """length of a request at most"""
    max_pixels: Annotated[int, Field(ge=1, le=10**9)] = 64_000_000
    """width times height of a picture at most"""


class LogConfig(_Part):
    """What is said while it runs, on the standard error output."""

    format: Literal["auto", "json", "console"] = "auto"
    """json, console, or auto: console on a terminal, else json"""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """the least important that is said"""


class TlsConfig(_Part):
    """Both sides show a certificate of the same authority; all three files are needed."""

    ca: FilePath
    """the PEM file of the authority that signs clients"""
    cert: FilePath
    """the PEM file of the server's certificate chain"""
    key: FilePath
    """the PEM file of the server's private key"""


class StopConfig(_Part):
    """How it ends when it is told to."""

    notice_s: Annotated[float, Field(ge=0, le=60)] = 0.0
    """how long calls are still taken after its readiness is withdrawn, for balancers to notice"""
    grace_s: Annotated[float, Field(ge=0, le=60)] = 3.0
    """how long it then waits for the calls under way"""


class EdgeConfig(_Part):
    """Everything an edge server is told. Relative paths are relative to the folder of the file."""

    listen: Address = "127.0.0.1:50051"
    """host:port for gRPC"""
    bundle: BundleName
    """the model: a .fovea file, or zoo:NAME for a bundled one"""
    device: Device = "auto"
    """auto, cpu or cuda:N; a named CUDA device that is not there is an error"""
    threads: Annotated[int, Field(ge=1, le=256)] = 1
    """CPU threads of the model"""
    open_threads: Annotated[int, Field(ge=1, le=64)] = 2
    """threads that decode pictures"""
    max_batch: Annotated[int, Field(ge=1, le=256)] = 8
    """pictures that are looked at together at most, where that is measured to save time (10 % or more)"""
    max_wait_ms: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """how long a picture waits for company while the model is free"""
    stuck_after_s: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """a batch that takes longer counts as hung: systemd's watchdog is not fed any more"""
    queue: QueueConfig = QueueConfig()
    """what may wait for the model"""
    limits: LimitsConfig = LimitsConfig()
    """what one request may be"""
    metrics: Address | None = None
    """host:port for Prometheus; nothing listens when it is left out"""
    log: LogConfig = LogConfig()
    """what is said while it runs"""
    tls: TlsConfig | None = None
    """certificates; plain text when it is left out"""
    stop: StopConfig = StopConfig()
    """how it ends when it is told to"""

    def resolved(self, folder: Path) -> EdgeConfig:
        """The same with paths that do not depend on the current folder."""
        tls = self.tls and TlsConfig(
            ca=str(folder / self.tls.ca), cert=str(folder / self.tls.cert), key=str(folder / self.tls.key)
        )
        bundle = self.bundle if self.bundle.startswith(ZOO) else str(folder / self.bundle)
        return self.model_copy(update={"bundle": bundle, "tls": tls})


def load_config(path: Path) -> EdgeConfig:
    """Raises NotFound, and Malformed with every mistake, its line and what was allowed."""
    return read_config(path, EdgeConfig).resolved(path.absolute().parent)


def watchdog_every_s() -> float | None:
    """How often systemd wants to hear that all is well, halved; None when it does not care (WatchdogSec=)."""
    interval_us = os.environ.get("WATCHDOG_USEC", "")
    is_meant = os.environ.get("WATCHDOG_PID") in (None, str(os.getpid()))
    return int(interval_us) / 2e6 if interval_us.isdecimal() and int(interval_us) and is_meant else None
