"""The edge's server of releases: what a camera gets there, whole or in parts, and what nobody gets."""

from __future__ import annotations

import hashlib
import http.client
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_server.mirror_http import served
from fovea.core.errors import Unavailable
from fovea.update.download import DownloadLimits, Wanted, fetch_file
from fovea.update.ports import Surroundings
from fovea.update.web import UrllibWeb, WebSettings
from tests.certificates import Authority
from tests.fakes import FakeClock

BODY = bytes(range(256)) * 1000
SHA256 = "ab" * 32
PATH = f"targets/models/street/{SHA256}.x-1.fovea"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "mirror"
    (folder / PATH).parent.mkdir(parents=True)
    (folder / PATH).write_bytes(BODY)
    (folder / "metadata").mkdir()
    (folder / "metadata" / "timestamp.json").write_text("{}")
    (tmp_path / "secret.json").write_text("key")
    return folder


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    with served(folder, "127.0.0.1:0") as address:
        yield address


def ask(address: str, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(address, timeout=30)
    connection._validate_path = lambda _path: None  # type: ignore[attr-defined]
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body


def test_files_come_whole(address: str) -> None:
    status, headers, body = ask(address, f"/{PATH}")
    assert (status, body) == (200, BODY) and headers["accept-ranges"] == "bytes"
    assert ask(address, "/metadata/timestamp.json")[1]["cache-control"] == "no-cache"
    told = ask(address, f"/{PATH}", "HEAD")
    assert told[2] == b"" and told[1]["content-length"] == str(len(BODY))


@pytest.mark.parametrize(
    ("wanted", "shown", "part"),
    [
        ("bytes=100-", f"bytes 100-{len(BODY) - 1}/{len(BODY)}", BODY[100:]),
        ("bytes=0-9", f"bytes 0-9/{len(BODY)}", BODY[:10]),
        (f"bytes={len(BODY) - 1}-999999999", f"bytes {len(BODY) - 1}-{len(BODY) - 1}/{len(BODY)}", BODY[-1:]),
    ],
)
def test_a_part_comes_from_the_byte_that_was_asked_for(
    address: str, wanted: str, shown: str, part: bytes
) -> None:
    status, headers, body = ask(address, f"/{PATH}", Range=wanted)
    assert (status, headers["content-range"], body) == (206, shown, part)


@pytest.mark.parametrize("wanted", [f"bytes={len(BODY)}-", "bytes=9-3"])
def test_a_part_that_is_not_there_is_refused(address: str, wanted: str) -> None:
    status, headers, _ = ask(address, f"/{PATH}", Range=wanted)
    assert status == 416 and headers["content-range"] == f"bytes */{len(BODY)}"


@pytest.mark.parametrize("wanted", ["bytes=-5", "bytes=1-2,5-6", "lines=1-2", "bytes=" + "9" * 40 + "-"])
def test_what_is_no_plain_range_is_answered_with_the_whole_file(address: str, wanted: str) -> None:
    status, _, body = ask(address, f"/{PATH}", Range=wanted)
    assert status == 200 and body == BODY


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/metadata/../../secret.json",
        "/../secret.json",
        "/metadata/%2e%2e/%2e%2e/secret.json",
        "//etc/passwd",
        "/metadata/timestamp.json.part",
        f"/{PATH}.part",
        "/metadata/absent.json",
    ],
)
def test_nothing_else_is_served(address: str, path: str) -> None:
    assert ask(address, path)[0] == 404


def test_nothing_can_be_written(address: str) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert ask(address, f"/{PATH}", method)[0] == 501


def test_a_taken_address_is_unavailable(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = served(folder, f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(Unavailable, match="for releases"), server:
            pass


def test_a_camera_resumes_its_download_over_tls_beside_one_that_never_shakes_hands(
    folder: Path, tmp_path: Path
) -> None:
    pems = Authority(tmp_path / "ca").pems()
    for name, pem in (("ca", pems.ca), ("cert", pems.cert), ("key", pems.key)):
        (tmp_path / f"{name}.pem").write_bytes(pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    clock = FakeClock()
    around = Surroundings(clock, lambda: 1.0, clock.advance, lambda _path: 10**10)
    target = tmp_path / "got.fovea"
    (tmp_path / "got.fovea.part").write_bytes(BODY[:5000])
    with served(folder, "127.0.0.1:0", context) as address:
        host, port = address.split(":")
        with socket.create_connection((host, int(port))):
            wanted = Wanted(f"https://{address}/{PATH}", len(BODY), hashlib.sha256(BODY).hexdigest())
            web = UrllibWeb(WebSettings(ca_file=tmp_path / "ca.pem"))
            fetch_file(web, wanted, target, DownloadLimits(tries=1), around)
    assert target.read_bytes() == BODY
