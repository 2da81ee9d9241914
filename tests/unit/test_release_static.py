"""Releases over HTTP: whole, in parts for who resumes, and nothing but releases."""

from __future__ import annotations

import hashlib
import http.client
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn
from tuf.ngclient import Updater

from cloud.release.static import listening, release_app
from fovea.core.errors import Malformed, NotFound, Unavailable
from tests.certificates import Authority
from tests.unit.release_site import FAMILY, Site, made_site

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return made_site(tmp_path_factory.mktemp("served"))


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """Sends paths as they are: nothing is made harmless on the way."""

    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, path: str, method: str = "GET", **headers: str) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        connection._validate_path = lambda _path: None  # type: ignore[attr-defined]
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=sent)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        reply = Reply(answer.status, found, answer.read())
        connection.close()
        return reply


@contextmanager
def asked(public: Path) -> Iterator[Client]:
    config = uvicorn.Config(release_app(public), lifespan="off", log_level="critical")
    server = uvicorn.Server(config)
    with listening("127.0.0.1:0") as door:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [door]}, daemon=True)
        thread.start()
        yield Client(door.getsockname()[1])
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def client(site: Site) -> Iterator[Client]:
    with asked(site.public) as client:
        yield client


@pytest.fixture
def model(site: Site) -> Path:
    (path,) = (site.public / "targets" / "models" / FAMILY).iterdir()
    return path


def test_metadata_come_whole_and_the_timestamp_is_asked_for_anew(client: Client, site: Site) -> None:
    answer = client.ask("/metadata/timestamp.json")
    assert answer.body == (site.public / "metadata" / "timestamp.json").read_bytes()
    assert answer.headers["cache-control"] == "no-cache"
    assert "immutable" in client.ask("/metadata/1.root.json").headers["cache-control"]
    assert client.ask("/metadata/2.root.json").status == 404


def test_a_device_that_has_the_newest_timestamp_is_told_so_in_a_few_bytes(client: Client) -> None:
    tag = client.ask("/metadata/timestamp.json").headers["etag"]
    again = client.ask("/metadata/timestamp.json", If_None_Match=f'W/"x", {tag}')
    assert again.status == 304 and not again.body
    assert client.ask("/metadata/timestamp.json", If_None_Match='"x"').status == 200


def test_a_download_goes_on_where_it_broke_off(client: Client, site: Site, model: Path) -> None:
    data, url = model.read_bytes(), f"/{model.relative_to(site.public)}"
    rest = client.ask(url, Range="bytes=100-")
    assert rest.status == 206
    assert rest.headers["content-range"] == f"bytes 100-{len(data) - 1}/{len(data)}"
    assert data[:100] + rest.body == data
    assert client.ask(url, Range=f"bytes={len(data)}-").status == 416
    whole = client.ask(url)
    assert whole.body == data and whole.headers["accept-ranges"] == "bytes"
    assert client.ask(url, "HEAD").headers["content-length"] == str(len(data))


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/metadata/",
        "/metadata",
        "/targets/models",
        "/../lock",
        "/metadata/../../lock",
        "/metadata/%2e%2e/%2e%2e/lock",
        "/metadata/..%2f..%2flock",
        "/..%2f..%2fonline%2ftimestamp.pem",
        "//etc/passwd",
        "/metadata/timestamp.json.part",
        "/targets/models/street/x.fovea",
        "/metadata/%00.json",
        "/" + "a" * 5000,
    ],
)
def test_nothing_but_releases_is_served(client: Client, path: str) -> None:
    assert client.ask(path).status in (400, 404)


def test_a_link_that_leads_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    public = tmp_path / "public"
    (public / "metadata").mkdir(parents=True)
    (tmp_path / "secret").write_text("key")
    (public / "metadata" / "1.root.json").symlink_to(tmp_path / "secret")
    with asked(public) as client:
        assert client.ask("/metadata/1.root.json").status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_written(client: Client, model: Path, site: Site, method: str) -> None:
    for url in ("/metadata/timestamp.json", f"/{model.relative_to(site.public)}"):
        assert client.ask(url, method).status == 405


def test_a_folder_without_a_repository_is_not_served(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no release repository"):
        release_app(tmp_path / "public")


@pytest.mark.parametrize("address", ["", "here", "1.2.3.4", "1.2.3.4:x", "1.2.3.4:99999"])
def test_an_address_has_a_host_and_a_port(address: str) -> None:
    with pytest.raises(Malformed, match="HOST:PORT"):
        listening(address)


def test_a_taken_address_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(Unavailable, match="cannot listen"):
        listening(f"127.0.0.1:{taken.getsockname()[1]}")


def test_a_real_server_serves_a_plain_client_and_stops_when_told(site: Site, tmp_path: Path) -> None:
    with served(site) as url:
        root = (site.public / "metadata" / "1.root.json").read_bytes()
        (tmp_path / "t").mkdir()
        updater = Updater(
            str(tmp_path), f"{url}metadata/", str(tmp_path / "t"), f"{url}targets/", bootstrap=root
        )
        info = updater.get_targetinfo(f"models/{FAMILY}/street-student-1.fovea")
        assert info is not None
        data = Path(updater.download_target(info)).read_bytes()
        assert hashlib.sha256(data).hexdigest() == info.hashes["sha256"]


def test_over_tls_with_known_devices_only(site: Site, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    server, device = authority.pems(), authority.pems()
    files = {}
    for name, pem in (
        ("ca", server.ca),
        ("cert", server.cert),
        ("key", server.key),
        ("dc", device.cert),
        ("dk", device.key),
    ):
        files[name] = tmp_path / f"{name}.pem"
        files[name].write_bytes(pem)
    tls = ("--cert", files["cert"], "--key", files["key"], "--client-ca", files["ca"])
    with served(site, *map(str, tls)) as url:
        assert url.startswith("https://")
        context = ssl.create_default_context(cafile=str(files["ca"]))
        with pytest.raises((urllib.error.URLError, OSError)):
            urllib.request.urlopen(f"{url}metadata/timestamp.json", context=context, timeout=20)
        context.load_cert_chain(files["dc"], files["dk"])
        with urllib.request.urlopen(f"{url}metadata/timestamp.json", context=context, timeout=20) as answer:
            assert answer.status == 200


@contextmanager
def served(site: Site, *words: str) -> Iterator[str]:
    """`fovea release serve` as a process; its address."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "fovea.cli.main", "release", "serve"),
            *("--folder", str(site.folder / "repository"), "--listen", "127.0.0.1:0", *words),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
