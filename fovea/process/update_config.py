"""The part of a configuration that says where a device gets its models from; the same for agent and edge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from fovea.process.config_parts import FilePath, Part

LowerName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
"""Groups and families: lower-case letters, digits, . _ and -."""


class UpdatesConfig(Part):
    """Signed models from a release repository, tried before they run. `bundle` is then the factory model: the one of
    the first start, and the last way back. `folder` has to outlive updates of the system."""

    url: Annotated[str, Field(pattern=r"^https?://[^@\s]+$")]
    """http(s)://, without credentials: where metadata/ and targets/ lie"""
    root: FilePath
    """the root metadata file that this device trusts from the start (1.root.json)"""
    folder: FilePath
    """models, metadata and what an update has come to; nobody else uses this folder"""
    group: LowerName
    """whose desired state this device follows"""
    family: LowerName
    """which models it takes"""
    device_class: str = ""
    """what kind of device this is; models may be meant for some kinds only"""
    poll_every_s: Annotated[float, Field(ge=1, le=86_400)] = 300.0
    """how often news are looked for, whether or not somebody hints at them"""
    poll_jitter: Annotated[float, Field(ge=0, le=0.5)] = 0.2
    """by how much of itself that varies, so that a fleet does not ask in step"""
    hint_spread_s: Annotated[float, Field(ge=0, le=3600)] = 5.0
    """a hint is followed within this time, at random"""
    ca: FilePath | None = None
    """the PEM file of the authority that signs the server; those of the system when it is left out"""
    cert: FilePath | None = None
    """the PEM file of this device's certificate, where the server wants one"""
    key: FilePath | None = None
    """the PEM file of its private key"""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if (self.cert is None) != (self.key is None):
            raise ValueError("expected both cert and key, or none of them")
        return self

    def resolved(self, folder: Path) -> Self:
        """The same with paths that do not depend on the current folder."""
        files = {name: getattr(self, name) for name in ("root", "folder", "ca", "cert", "key")}
        return self.model_copy(
            update={name: str(folder / path) for name, path in files.items() if path is not None}
        )
