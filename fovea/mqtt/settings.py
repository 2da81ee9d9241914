"""How the broker is reached: a value, checked when it is made; a password never shows."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from fovea.core.errors import Malformed, NotFound

LARGEST_PAUSE_S = 30
"""Between two tries to connect; the first pause is one second, each is twice the one before."""


@dataclass(frozen=True, slots=True)
class MqttTls:
    """PEM files. Without `ca` the authorities of the system are trusted; `cert` and `key` go together and are needed
    where the broker wants to see a certificate."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise Malformed("mqtt tls: expected both cert and key or none of them, got one")

    def context(self) -> ssl.SSLContext:
        """A context that checks the broker's certificate and name. Raises NotFound and Malformed, naming the file."""
        for name, path in (("ca", self.ca), ("cert", self.cert), ("key", self.key)):
            if path is not None and not path.is_file():
                raise NotFound(f"mqtt tls {name}: no file {path}")
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except (ssl.SSLError, OSError) as error:
            raise Malformed(f"mqtt tls ca: expected a PEM file with certificates, got {self.ca}") from error
        if self.cert is not None:
            try:
                # An encrypted key would ask for its password on the terminal; an empty one makes it an error.
                context.load_cert_chain(self.cert, self.key, password="")
            except (ssl.SSLError, OSError) as error:
                raise Malformed(
                    f"mqtt tls cert and key: expected a PEM certificate with its key, not encrypted, "
                    f"got {self.cert}, {self.key}"
                ) from error
        return context


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """Where the broker is and how this device behaves towards it.

    max_events, max_results  messages that wait while the broker is away or slow; the oldest are dropped
    keepalive_s              silence after which either side looks whether the other is still there
    connect_timeout_s        how long one try to connect may take
    """

    host: str
    port: int = 1883
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: MqttTls | None = None
    max_events: int = 1000
    max_results: int = 200
    keepalive_s: int = 20
    connect_timeout_s: float = 3.0

    def __post_init__(self) -> None:
        if not self.host or not 1 <= self.port <= 65535:
            raise Malformed(
                f"mqtt: expected a host and a port of 1 to 65535, got {self.host!r:.100}, {self.port}"
            )
        if self.password is not None and self.username is None:
            raise Malformed("mqtt: expected a username with the password, got none")
        for name, room in (("max_events", self.max_events), ("max_results", self.max_results)):
            if room < 1:
                raise Malformed(f"mqtt {name}: expected 1 or more, got {room}")
        if not 1 <= self.keepalive_s <= 3600:
            raise Malformed(f"mqtt keepalive_s: expected 1 to 3600, got {self.keepalive_s}")
        if not 0 < self.connect_timeout_s <= 60:
            raise Malformed(
                f"mqtt connect_timeout_s: expected more than 0 up to 60, got {self.connect_timeout_s}"
            )

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"
