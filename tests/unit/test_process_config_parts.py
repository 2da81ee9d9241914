"""What configurations of all tiers share: addresses, certificates, bundles, the word of systemd."""

from __future__ import annotations

import io
import json
import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import structlog
from pydantic import ValidationError

from fovea.core.errors import Malformed, NotFound
from fovea.process import notify
from fovea.process.config_parts import (
    Address,
    BundleName,
    Device,
    LogConfig,
    Part,
    PeerAddress,
    TlsConfig,
    bundle_path,
    read_pems,
    resolved_bundle,
)
from fovea.process.logs import configure_logs
from protos.tls import Pems

PEM = b"-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"


class Sample(Part):
    """One of each."""

    listen: Address = "127.0.0.1:1"
    """where"""
    peer: PeerAddress = "unix:/run/fovea.sock"
    """whom"""
    device: Device = "cpu"
    """on what"""
    bundle: BundleName = "zoo:x"
    """which"""


@pytest.mark.parametrize(
    "peer", ["edge:50051", "10.0.0.1:1", "[::1]:65535", "unix:/tmp/edge.sock", "unix:edge"]
)
def test_somebody_else_is_found_by_host_and_port_or_by_a_unix_socket(peer: str) -> None:
    assert Sample(peer=peer).peer == peer


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("listen", "unix:/tmp/x", "expected host:port with a port of 0 to 65535"),
        ("listen", "localhost", "expected host:port"),
        ("peer", "unix:", "expected host:port with a port of 0 to 65535, or unix:PATH"),
        ("peer", "http://edge:1", "expected host:port"),
        ("device", "tpu", "expected auto, cpu or cuda:N"),
        ("bundle", "zoo:", "expected a .fovea file or zoo:NAME"),
        ("colour", "red", "Extra inputs are not permitted"),
    ],
)
def test_what_does_not_fit_is_a_mistake(key: str, value: str, told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        Sample.model_validate({key: value})


def test_bundles_are_files_or_names_of_the_zoo(tmp_path: Path) -> None:
    assert bundle_path("/models/m.fovea") == Path("/models/m.fovea")
    assert resolved_bundle("m.fovea", tmp_path) == str(tmp_path / "m.fovea")
    assert resolved_bundle("zoo:street-edge", tmp_path) == "zoo:street-edge"
    with pytest.raises(NotFound, match="bundled model 'nothing'"):
        bundle_path("zoo:nothing")


def test_certificates_are_read_as_one_and_the_key_is_never_shown(tmp_path: Path) -> None:
    for name in ("ca", "cert"):
        (tmp_path / name).write_bytes(PEM)
    (tmp_path / "key").write_bytes(PEM + b"SECRET")
    pems = read_pems(TlsConfig(ca="ca", cert="cert", key="key").resolved(tmp_path))
    assert (pems.ca, pems.key) == (PEM, PEM + b"SECRET")
    assert "SECRET" not in repr(pems)


@pytest.mark.parametrize("missing", ["ca", "cert", "key"])
def test_a_certificate_that_is_not_there_is_told_by_the_key_that_names_it(
    tmp_path: Path, missing: str
) -> None:
    for name in {"ca", "cert", "key"} - {missing}:
        (tmp_path / name).write_bytes(PEM)
    config = TlsConfig(ca="ca", cert="cert", key="key").resolved(tmp_path)
    with pytest.raises(NotFound, match=rf"^cloud\.tls\.{missing}: no file "):
        read_pems(config, "cloud.tls")
    (tmp_path / missing).write_bytes(b"<html>")
    with pytest.raises(Malformed, match=rf"^tls\.{missing}: expected a PEM file"):
        read_pems(config)


def test_bytes_that_are_no_certificate_never_become_one() -> None:
    with pytest.raises(Malformed, match=r"^tls cert: expected the bytes of a PEM file, got 4 other bytes"):
        Pems(PEM, b"html", PEM)


def test_systemd_is_told_what_happens_and_its_absence_is_none_of_our_business(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify.alive()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        notify.ready("two cameras")
        notify.alive()
        notify.stopping()
        heard = [systemd.recv(1000).decode() for _ in range(3)]
    assert heard == ["READY=1\nSTATUS=two cameras", "WATCHDOG=1", "STOPPING=1"]


@pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux alone")
def test_systemd_may_listen_at_an_abstract_address_or_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"fovea-test-{os.getpid()}"
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    notify.alive()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + name)
        systemd.settimeout(5)
        notify.alive()
        assert systemd.recv(1000) == b"WATCHDOG=1"


@contextmanager
def logs_of(config: LogConfig, monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What is said while it holds; the logging of the test run is put back afterwards."""
    handlers, level, said = logging.root.handlers, logging.root.level, io.StringIO()
    monkeypatch.setattr("sys.stderr", said)
    try:
        configure_logs(config)
        yield said
    finally:
        logging.root.handlers, logging.root.level = handlers, level
        structlog.reset_defaults()


def test_libraries_and_programs_log_through_one_formatter(monkeypatch: pytest.MonkeyPatch) -> None:
    with logs_of(LogConfig(format="json"), monkeypatch) as said:
        logging.getLogger("alembic.runtime").info("a library's inner life")
        logging.getLogger("fovea.link").warning("the %s is lost", "cloud")
        structlog.get_logger("edge_server").info("serving", address="127.0.0.1:1")
        structlog.get_logger("edge_server").debug("not at this level")
    first, second = (json.loads(line) for line in said.getvalue().splitlines())
    assert (first["event"], first["level"], first["logger"]) == ("the cloud is lost", "warning", "fovea.link")
    assert (second["event"], second["address"], second["level"]) == ("serving", "127.0.0.1:1", "info")
    assert first["at"].endswith("Z") and second["at"].endswith("Z")
