"""The certificates of one side of a connection, in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import grpc

from fovea.core.errors import Malformed

_PEM_MARK = b"-----BEGIN "


@dataclass(frozen=True, slots=True)
class Pems:
    """What PEM files hold: the authority that signs the other side, one's own certificate chain, and its key, which
    is never shown."""

    ca: bytes
    cert: bytes
    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        for name, data in (("ca", self.ca), ("cert", self.cert), ("key", self.key)):
            if _PEM_MARK not in data:
                raise Malformed(f"tls {name}: expected the bytes of a PEM file, got {len(data)} other bytes")


def server_credentials(pems: Pems) -> grpc.ServerCredentials:
    """For a server that answers only who shows a certificate of the same authority."""
    return grpc.ssl_server_credentials(
        [(pems.key, pems.cert)], root_certificates=pems.ca, require_client_auth=True
    )


def client_credentials(pems: Pems) -> grpc.ChannelCredentials:
    """For a client of such a server."""
    return grpc.ssl_channel_credentials(pems.ca, pems.key, pems.cert)
