"""The link shaper, with a server that says everything back."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from fovea.core.errors import Malformed
from fovea.sim.link_shaper import HOLE, OPEN, Shape, shaped_link

_LIVENESS_S = 30.0


@pytest.fixture
def echo_port() -> Iterator[int]:
    server = socket.create_server(("127.0.0.1", 0))

    def say_back(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(65_536):
                connection.sendall(data)

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=say_back, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield server.getsockname()[1]
    server.close()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), _LIVENESS_S)


def there_and_back_s(connection: socket.socket, data: bytes) -> float:
    begun_s = time.monotonic()
    threading.Thread(target=connection.sendall, args=(data,), daemon=True).start()
    back = b""
    while len(back) < len(data):
        back += connection.recv(65_536)
    assert back == data
    return time.monotonic() - begun_s


def test_everything_gets_through_as_it_was(echo_port: int) -> None:
    with shaped_link(echo_port) as link, connected(link.port) as connection:
        there_and_back_s(connection, bytes(range(256)) * 2000)


def test_a_delay_is_waited_for_in_each_direction(echo_port: int) -> None:
    with shaped_link(echo_port, Shape(delay_s=0.1)) as link, connected(link.port) as connection:
        assert there_and_back_s(connection, b"x") >= 0.2


def test_a_rate_takes_its_time_over_many_bytes(echo_port: int) -> None:
    with shaped_link(echo_port, Shape(bytes_per_s=1_000_000)) as link, connected(link.port) as connection:
        assert there_and_back_s(connection, bytes(300_000)) >= 0.3


def test_a_shape_holds_from_when_it_is_told_also_for_connections_of_before(echo_port: int) -> None:
    with shaped_link(echo_port) as link, connected(link.port) as connection:
        there_and_back_s(connection, b"x")
        link.becomes(Shape(delay_s=0.15))
        assert there_and_back_s(connection, b"x") >= 0.3


def test_a_hole_swallows_all_and_new_connections_get_through_after_it(echo_port: int) -> None:
    with shaped_link(echo_port) as link, connected(link.port) as old:
        there_and_back_s(old, b"x")
        link.becomes(HOLE)
        old.sendall(b"lost")
        old.settimeout(0.3)
        with pytest.raises(TimeoutError):
            old.recv(1)
        link.becomes(OPEN)
        with connected(link.port) as new:
            there_and_back_s(new, b"x")


def test_a_cut_ends_every_connection(echo_port: int) -> None:
    with shaped_link(echo_port) as link, connected(link.port) as connection:
        there_and_back_s(connection, b"x")
        link.cut()
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1) == b""


@pytest.mark.parametrize("wrong", [{"delay_s": -1.0}, {"bytes_per_s": 0.0}, {"delay_s": float("nan")}])
def test_a_shape_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(Malformed, match="link shape: expected"):
        Shape(**wrong)  # type: ignore[arg-type]
