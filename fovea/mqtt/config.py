"""How a configuration names a broker: a part that agents and the cloud have in common. Reads secret files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, SecretStr, model_validator

from fovea.mqtt.settings import MqttSettings, MqttTls
from fovea.process.config_parts import FilePath, Part
from fovea.process.secret_file import read_secret


class BrokerTls(Part):
    """Certificates towards the broker."""

    ca: FilePath | None = None
    """the PEM file of the authority that signs the broker; those of the system when it is left out"""
    cert: FilePath | None = None
    """the PEM file of this side's certificate, where the broker wants one"""
    key: FilePath | None = None
    """the PEM file of its private key"""


class BrokerConfig(Part):
    """The broker. With `tls: {}` its certificate is checked against the authorities of the system."""

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """its name or address"""
    port: Annotated[int, Field(ge=1, le=65535)] = 1883
    """its port"""
    username: str | None = None
    """who logs in"""
    password: SecretStr | None = None
    """its password; better in a file of its own, see password_file"""
    password_file: FilePath | None = None
    """a file whose first line is the password"""
    tls: BrokerTls | None = None
    """certificates; plain text when it is left out"""
    max_events: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """events that wait while the broker is away; the oldest are dropped"""
    max_results: Annotated[int, Field(ge=1, le=100_000)] = 200
    """results that wait while the broker is away; the oldest are dropped"""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.password is not None and self.password_file is not None:
            raise ValueError("expected password or password_file, got both")
        if self.username is None and (self.password is not None or self.password_file is not None):
            raise ValueError("expected a username with the password")
        if self.tls is not None and (self.tls.cert is None) != (self.tls.key is None):
            raise ValueError("expected both tls.cert and tls.key, or none of them")
        return self

    def resolved(self, folder: Path) -> Self:
        """The same with paths that do not depend on the current folder."""

        def file(path: str | None) -> str | None:
            return path and str(folder / path)

        tls = self.tls and BrokerTls(ca=file(self.tls.ca), cert=file(self.tls.cert), key=file(self.tls.key))
        return self.model_copy(update={"tls": tls, "password_file": file(self.password_file)})

    def settings(self) -> MqttSettings:
        """What a link takes. Raises NotFound and Malformed for a password file."""
        tls = None if self.tls is None else MqttTls(*map(_path, (self.tls.ca, self.tls.cert, self.tls.key)))
        password = None if self.password is None else self.password.get_secret_value()
        if self.password_file is not None:
            password = read_secret("mqtt.password_file", Path(self.password_file))
        return MqttSettings(
            host=self.host,
            port=self.port,
            username=self.username,
            password=password,
            tls=tls,
            max_events=self.max_events,
            max_results=self.max_results,
        )


def _path(path: str | None) -> Path | None:
    return None if path is None else Path(path)
