"""Is a tier ready? Asked from outside, the way each of them says it: gRPC health, HTTP health, an MQTT handshake."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from contextlib import ExitStack, closing

_PROBE_TIMEOUT_S = 2.0

# The smallest MQTT 3.1.1 CONNECT: clean session, keep alive of 10 s, client id "fovea-probe".
_CLIENT_ID = b"fovea-probe"
_CONNECT = (
    bytes([0x10, 12 + len(_CLIENT_ID)])
    + b"\x00\x04MQTT\x04\x02\x00\x0a\x00"
    + bytes([len(_CLIENT_ID)])
    + _CLIENT_ID
)
_DISCONNECT = b"\xe0\x00"
_CONNACK = 0x20


def grpc_unready(address: str) -> str | None:
    """None when the server at host:port says SERVING (grpc.health.v1), else why it does not."""
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with grpc.insecure_channel(address) as channel:
        try:
            stub = health_pb2_grpc.HealthStub(channel)
            answer = stub.Check(health_pb2.HealthCheckRequest(service=""), timeout=_PROBE_TIMEOUT_S)
        except grpc.RpcError as error:
            details = error.details() if isinstance(error, grpc.Call) else str(error)
            return f"nobody answers at {address} ({details or 'no details'})"
    if answer.status == health_pb2.HealthCheckResponse.SERVING:
        return None
    return f"{address} says {health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)}"


def http_unready(url: str) -> str | None:
    """None when `url` answers with status 200, else why it does not."""
    try:
        with urllib.request.urlopen(url, timeout=_PROBE_TIMEOUT_S) as answer:
            answer.read(1)
            return None
    except urllib.error.HTTPError as error:
        with closing(error):
            return f"{url} answers {error.code} ({_short(error.read(500))})"
    except OSError as error:
        return f"nobody answers at {url} ({error})"


def tcp_unready(host: str, port: int) -> str | None:
    """None when somebody listens at host:port, else why it cannot be reached."""
    try:
        socket.create_connection((host, port), _PROBE_TIMEOUT_S).close()
        return None
    except OSError as error:
        return f"nobody listens at {host}:{port} ({error})"


def mqtt_unready(host: str, port: int) -> str | None:
    """None when a broker at host:port answers a CONNECT, whatever it thinks of the client; else why not."""
    try:
        with ExitStack() as open_now:
            link = open_now.enter_context(socket.create_connection((host, port), _PROBE_TIMEOUT_S))
            link.sendall(_CONNECT)
            answer = link.recv(4)
            if answer[:1] == bytes([_CONNACK]):
                link.sendall(_DISCONNECT)
                return None
            return f"{host}:{port} does not speak MQTT ({answer[:4]!r})"
    except OSError as error:
        return f"no broker answers at {host}:{port} ({error})"


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """`count` different TCP ports that nobody listens on now."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((host, 0))
        return [int(each.getsockname()[1]) for each in sockets]


def _short(body: bytes) -> str:
    text = body.decode("utf-8", "replace")
    try:
        return json.dumps(json.loads(text), separators=(",", ":"))[:200]
    except ValueError:
        return text[:200]
