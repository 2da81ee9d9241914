"""Fetching published models: what arrives is what was promised, or it is refused in a sentence and not kept."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fovea.cli import model_fetch
from fovea.cli.model_catalogue import TRIOS, PublishedModel, Trio, find_trio
from fovea.cli.model_fetch import DOWNLOADS, FetchLimits, download, fetch_trio
from fovea.cli.models import app
from fovea.cli.tier_probes import free_ports
from fovea.core.errors import (
    FoveaError,
    Incompatible,
    Malformed,
    NotFound,
    TooLarge,
    Unavailable,
    UntrustedRelease,
)
from fovea.core.labels import COCO_NAMES
from fovea.core.letterbox import Placement
from fovea.core.routing import Tier
from fovea.core.yolo import Layout
from fovea.runtime.bundle import Bundle
from tests.builders import tiny_onnx

HTML = b"<!DOCTYPE html><html><body>rate limited</body></html>"


@cache
def net() -> bytes:
    return tiny_onnx(Layout.YOLOX, classes=len(COCO_NAMES), input_hw=(128, 128))


class Hub:
    """A small web server whose answers the test chooses: path -> (status, declared length or None, body)."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, int | None, bytes]] = {}
        self.asked: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.asked.append(self.path)
                status, length, body = hub.answers.get(self.path, (404, 4, b"none"))
                self.send_response(status)
                if length is not None:
                    self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def put(self, path: str, body: bytes, status: int = 200) -> None:
        self.answers[path] = (status, len(body), body)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._server.server_port}{path}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def hub() -> Iterator[Hub]:
    made = Hub()
    yield made
    made.close()


def published(hub: Hub, tier: Tier = Tier.AGENT, **changes: object) -> PublishedModel:
    name = f"net-{tier.name.lower()}"
    made = PublishedModel(
        name, tier, (hub.url(f"/{name}.onnx"),), "Apache-2.0", hashlib.sha256(net()).hexdigest(), len(net())
    )
    return replace(made, **changes)


def trio_on(hub: Hub, **changes: object) -> Trio:
    models = tuple(published(hub, tier, **changes) for tier in Tier)
    for model in models:
        hub.put(f"/{model.file_name}", net())
    return Trio("nets", "Apache-2.0", "small nets", models)


def test_a_trio_becomes_a_bundle_for_each_tier_that_says_its_licence(hub: Hub, tmp_path: Path) -> None:
    seen: dict[str, int] = {}
    paths = fetch_trio(trio_on(hub), tmp_path, progress=lambda name, done, every: seen.update({name: done}))
    assert [path.name for path in paths] == ["agent.fovea", "edge.fovea", "cloud.fovea"]
    for path in paths:
        manifest = Bundle.open(path).manifest
        assert manifest.licence == "Apache-2.0"
        assert manifest.labels == COCO_NAMES
        assert manifest.output.layout is Layout.YOLOX
        assert manifest.input.placement is Placement.TOP_LEFT
    assert set(seen.values()) == {len(net())}
    assert not list(tmp_path.rglob("*.part"))


def test_what_lies_there_already_is_not_fetched_again_unless_it_was_damaged(hub: Hub, tmp_path: Path) -> None:
    trio = trio_on(hub)
    kept = tmp_path / DOWNLOADS
    kept.mkdir()
    (kept / "net-agent.onnx").write_bytes(net())
    (kept / "net-edge.onnx").write_bytes(net()[:-1] + b"x")
    fetch_trio(trio, tmp_path)
    assert hub.asked == ["/net-edge.onnx", "/net-cloud.onnx"]


def test_files_that_a_person_brought_are_taken_without_any_network(hub: Hub, tmp_path: Path) -> None:
    trio = trio_on(hub)
    source = tmp_path / "stick"
    source.mkdir()
    for model in trio.models:
        (source / model.file_name).write_bytes(net())
    assert len(fetch_trio(trio, tmp_path / "out", source)) == 3
    assert hub.asked == []
    (source / "net-cloud.onnx").unlink()
    with pytest.raises(NotFound, match=r"no net-cloud\.onnx in"):
        fetch_trio(trio, tmp_path / "out", source)
    (source / "net-agent.onnx").write_bytes(net() + b"x")
    with pytest.raises(UntrustedRelease, match=r"net-agent\.onnx"):
        fetch_trio(trio, tmp_path / "out", source)


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        ((404, 4, b"none"), NotFound, "404"),
        ((503, 4, b"busy"), Unavailable, "503"),
        ((200, len(HTML), HTML), Malformed, "HTML"),
        ((200, 0, b""), Malformed, "empty file"),
        ((200, 100_000, b"onnx" * 10), Unavailable, "cannot be reached|broken off"),
        ((200, 9, b"not a net"), UntrustedRelease, "sha256"),
        ((200, 10**10, b"x"), TooLarge, "expected about"),
    ],
    ids=["404", "503", "page", "empty", "broken off", "other file", "huge"],
)
def test_what_is_not_the_file_is_refused_by_name_and_not_kept(
    hub: Hub, tmp_path: Path, answer: tuple[int, int, bytes], error: type[FoveaError], words: str
) -> None:
    hub.answers["/net.onnx"] = answer
    path = tmp_path / "net.onnx"
    with pytest.raises(error, match=words):
        download(hub.url("/net.onnx"), path, len(net()), hashlib.sha256(net()).hexdigest())
    assert list(tmp_path.iterdir()) == []


def test_an_endless_answer_without_a_length_ends_at_the_limit(hub: Hub, tmp_path: Path) -> None:
    hub.answers["/net.onnx"] = (200, None, bytes(3_000_000))
    with pytest.raises(TooLarge):
        download(hub.url("/net.onnx"), tmp_path / "net.onnx", 1000, None)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/net.onnx"
        with pytest.raises(Unavailable, match="timed out"):
            download(url, tmp_path / "net.onnx", 1000, None, FetchLimits(silent_s=0.2))


def test_a_trickle_is_given_up_after_the_time_for_a_whole_file(hub: Hub, tmp_path: Path) -> None:
    hub.put("/net.onnx", bytes(500_000))
    with pytest.raises(Unavailable, match="too slow"):
        download(hub.url("/net.onnx"), tmp_path / "net.onnx", 10**6, None, FetchLimits(whole_s=-1))


def test_only_web_addresses_are_fetched(tmp_path: Path) -> None:
    with pytest.raises(Malformed, match="http"):
        download("file:///etc/hostname", tmp_path / "x", 1000, None)


def test_nobody_reachable_says_how_to_go_on_without_a_network(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    model = PublishedModel("a", Tier.AGENT, (f"http://127.0.0.1:{port}/a.onnx",), "MIT", None, 10)
    trio = Trio("t", "MIT", "", tuple(replace(model, tier=tier) for tier in Tier))
    with pytest.raises(Unavailable, match=r"cannot be reached.*a\.onnx.*--from"):
        fetch_trio(trio, tmp_path)


def test_a_second_address_is_taken_where_the_first_fails(hub: Hub, tmp_path: Path) -> None:
    trio = trio_on(hub)
    models = tuple(
        replace(model, urls=(hub.url(f"/gone/{model.file_name}"), *model.urls)) for model in trio.models
    )
    assert len(fetch_trio(replace(trio, models=models), tmp_path)) == 3


def test_weights_without_the_training_set_are_refused_before_anything_is_fetched(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Incompatible, match="training set"):
        fetch_trio(find_trio("yolo11"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_catalogue_states_terms_and_digests_and_has_a_trio_without_agpl() -> None:
    assert any("AGPL" not in trio.licence and not trio.needs_torch for trio in TRIOS)
    assert any("AGPL" in trio.licence for trio in TRIOS)
    for trio in TRIOS:
        for model in trio.models:
            assert model.licence == trio.licence
            assert model.sha256 is not None
            assert all(url.startswith("https://") for url in model.urls)
    with pytest.raises(NotFound, match="yolox"):
        find_trio("resnet")


def test_a_catalogue_entry_that_cannot_be_right_is_refused(hub: Hub) -> None:
    with pytest.raises(Malformed, match="sha256"):
        published(hub, sha256="abc")
    with pytest.raises(Malformed, match="one file"):
        published(hub, urls=("https://a/x.onnx", "https://b/y.onnx"))
    with pytest.raises(Malformed, match="agent, edge and cloud"):
        Trio("t", "MIT", "", (published(hub),))


def test_the_command_lists_licences_and_fetches(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = CliRunner().invoke(app, ["list"], env={"COLUMNS": "200"})
    assert listing.exit_code == 0
    assert "Apache-2.0" in listing.output
    assert "AGPL-3.0-or-later" in listing.output
    narrow = CliRunner().invoke(app, ["list"], env={"COLUMNS": "80"}).output
    assert "…" not in narrow, "addresses are whole"
    trio = trio_on(hub)
    monkeypatch.setattr("fovea.cli.models.find_trio", lambda name: trio)
    result = CliRunner().invoke(app, ["fetch", "nets", "--out", str(tmp_path / "m")], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "Apache-2.0" in result.output
    assert (tmp_path / "m" / "cloud.fovea").is_file()
    assert model_fetch.DOWNLOADS in {path.name for path in (tmp_path / "m").iterdir()}
