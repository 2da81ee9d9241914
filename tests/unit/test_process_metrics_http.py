"""The small server beside a process: metrics, health, and nothing else."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry, Counter

from fovea.core.errors import Unavailable
from fovea.process.metrics_http import Health, exposed

WAIT_S = 10.0


def counting() -> CollectorRegistry:
    registry = CollectorRegistry()
    Counter("frames", "Frames.", registry=registry).inc(3)
    return registry


def fetched(address: str | None, path: str) -> tuple[int, str, str]:
    """Status, kind of content, and the content."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=WAIT_S) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.headers["Content-Type"], refused.read().decode()


def test_metrics_are_told_at_a_free_port() -> None:
    with exposed(counting(), "127.0.0.1:0") as address:
        status, kind, text = fetched(address, "/metrics?name[]=all")
    assert (status, kind.partition(";")[0]) == (200, "text/plain")
    assert "frames_total 3.0" in text


def test_nothing_listens_without_an_address() -> None:
    with exposed(counting(), None) as address:
        assert address is None


def failing() -> Health:
    raise KeyError("unforeseen")


@pytest.mark.parametrize(
    ("health", "status", "facts"),
    [
        (None, 200, {"healthy": True}),
        (lambda: Health(True, {"cameras": 2}), 200, {"healthy": True, "cameras": 2}),
        (lambda: Health(False, {"state": "stuck"}), 503, {"healthy": False, "state": "stuck"}),
        (failing, 503, {"healthy": False, "error": "KeyError('unforeseen')"}),
    ],
)
def test_health_is_a_status_with_the_facts_behind_it(
    health: Callable[[], Health] | None, status: int, facts: dict[str, object]
) -> None:
    with exposed(counting(), "127.0.0.1:0", health) as address:
        answer = fetched(address, "/healthz")
    assert (answer[0], answer[1], json.loads(answer[2])) == (status, "application/json", facts)


def test_other_paths_are_told_what_there_is() -> None:
    with exposed(counting(), "127.0.0.1:0") as address:
        status, _, text = fetched(address, "/admin")
    assert (status, text) == (404, "expected /metrics or /healthz\n")


def test_a_client_that_says_nothing_keeps_nobody_waiting() -> None:
    with exposed(counting(), "127.0.0.1:0") as address:
        assert address is not None
        host, port = address.split(":")
        with socket.create_connection((host, int(port))):
            assert fetched(address, "/metrics")[0] == 200


def test_an_address_that_is_taken_is_told_and_free_again_afterwards() -> None:
    with (
        exposed(counting(), "127.0.0.1:0") as address,
        pytest.raises(Unavailable, match=f"cannot listen on {address} for metrics"),
        exposed(counting(), address),
    ):
        pass
    with exposed(counting(), address) as again:
        assert again == address


def test_ipv6_is_listened_on_where_there_is_any() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        with exposed(counting(), "[::1]:0") as address:
            assert fetched(address, "/metrics")[0] == 200
    except Unavailable:
        pytest.skip("no IPv6 loopback here")
