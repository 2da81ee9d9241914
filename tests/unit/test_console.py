"""The labelling page: who may use it, what it shows, what it takes; over real HTTP on this machine."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from cloud.console.access import Access, Asked, is_loopback
from cloud.console.desk import Desk, golden_desk, review_desk
from cloud.console.serve import Listening, Opened, serve
from cloud.golden.golden_set import GoldenSet, GoldenSettings
from cloud.golden.start import start
from cloud.labels.teacher import Teacher
from fovea.core.errors import Malformed, NotFound, Unavailable
from fovea.core.routing import Tier
from tests.fakes import FakeDetector
from tests.unit.hard_cases import LABELS, hard_case, picture, tier_answer
from tests.unit.labelled_cases import Stores, stores_in

WAIT_S = 60.0
BOX = (4.0, 5.0, 20.25, 30.5)
HOST = "127.0.0.1:81"
ACCESS = Access("t" * 24, frozenset({HOST}))
FINE = Asked("PUT", HOST, f"http://{HOST}", ACCESS.session, ACCESS.page)


def test_our_own_page_is_let_in() -> None:
    assert ACCESS.find_refusal(FINE) is None
    assert ACCESS.find_refusal(Asked("GET", HOST, None, ACCESS.session, None)) is None


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"host": "evil.example"}, "not served under that name"),
        ({"host": None}, "not served under that name"),
        ({"session": None}, "sign in first"),
        ({"session": ACCESS.page}, "sign in first"),
        ({"session": "\u00e9"}, "sign in first"),
        ({"origin": None}, "another page"),
        ({"origin": "null"}, "another page"),
        ({"origin": "http://evil.example"}, "another page"),
        ({"origin": f"https://{HOST}"}, "another page"),
        ({"origin": "http://127.0.0.1:82"}, "another page"),
        ({"page": None}, "earlier run"),
        ({"page": ACCESS.session}, "earlier run"),
        ({"page": Access("u" * 24, frozenset()).page}, "earlier run"),
    ],
)
@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
def test_every_way_around_the_door_is_closed(changed: dict[str, Any], told: str, method: str) -> None:
    refusal = ACCESS.find_refusal(replace(FINE, method=method, **changed))
    assert refusal is not None and told in refusal


def test_reading_needs_a_session_too() -> None:
    assert ACCESS.find_refusal(Asked("GET", HOST, None, None, ACCESS.page)) is not None


def test_the_token_is_not_shown_and_not_short() -> None:
    assert "t" * 24 not in repr(ACCESS)
    assert ACCESS.token not in (ACCESS.session, ACCESS.page)
    with pytest.raises(Malformed, match="16 characters"):
        Access("short", frozenset())
    assert Access.to("127.0.0.1", 1).token != Access.to("127.0.0.1", 1).token


def test_loopback_goes_by_its_own_names_only() -> None:
    here = Access.to("127.0.0.1", 8080)
    assert here.serves("LOCALHOST:8080") and here.serves("127.0.0.1:8080")
    assert not here.serves("rebound.example:8080") and not here.serves("localhost:80")
    assert Access.to("0.0.0.0", 8080).serves("box.lan:8080")
    assert [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "10.0.0.1")] == [
        True
    ] * 3 + [False] * 2


class Browser:
    """What a browser sends, signed in by the URL that was printed."""

    def __init__(self, opened: Opened) -> None:
        url = urlsplit(opened.url)
        self.host = url.netloc
        self.cookie = ""
        self.page = ""
        status, headers, _ = self.raw("GET", f"/?{url.query}")
        assert (status, headers["Location"]) == (303, "/")
        self.cookie = headers["Set-Cookie"].split(";")[0]
        assert "HttpOnly" in headers["Set-Cookie"] and "SameSite=strict" in headers["Set-Cookie"]
        html = self.raw("GET", "/")[2].decode()
        self.page = html.split('name="fovea-page" content="')[1].split('"')[0]

    def raw(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        connection = http.client.HTTPConnection(self.host, timeout=WAIT_S)
        usual = {"Cookie": self.cookie, "Origin": f"http://{self.host}", "X-Fovea-Page": self.page}
        if body is not None:
            usual["Content-Type"] = "application/json"
        connection.request(method, path, body, usual | (headers or {}))
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, answer.headers, data

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        status, _, said = self.raw(method, path, data)
        return status, json.loads(said)


@contextmanager
def served(desk: Desk) -> Iterator[Opened]:
    opened: list[Opened] = []
    is_open = threading.Event()

    def say(told: Opened) -> None:
        opened.append(told)
        is_open.set()

    thread = threading.Thread(target=serve, args=(desk, Listening(), say), daemon=True)
    thread.start()
    assert is_open.wait(WAIT_S)
    try:
        yield opened[0]
    finally:
        opened[0].stop()
        thread.join(WAIT_S)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with stores_in(tmp_path_factory.mktemp("console") / "kept") as opened:
        yield opened


@pytest.fixture(scope="module")
def ids(stores: Stores) -> list[str]:
    """Four golden frames of a camera with a bad name, filled in by a teacher; the agent saw one thing more."""
    seen = tier_answer(Tier.AGENT, [list(BOX), [30, 1, 60, 40]], scores=[0.9, 0.8], channels=[0, 1])
    stores.add(*(hard_case(seed, camera="<b>gate", answers=(seen,)) for seed in range(4)))
    stores.add(hard_case(9, camera="lane"))
    detector = FakeDetector(lambda _pixels: [(BOX, 0.9, 0)], LABELS)
    Teacher(detector, stores.cases, stores.labels).label_all(stores.cases.walk())
    golden = GoldenSet(stores.labels, settings=GoldenSettings(4, 1))
    return [case.id for case in start(stores.cases, golden, "default")]


@pytest.fixture(scope="module")
def browser(stores: Stores, ids: list[str]) -> Iterator[Browser]:
    desk = golden_desk(stores.reviews, stores.labels, GoldenSet(stores.labels), "default", "ada")
    assert ids
    with served(desk) as opened:
        assert opened.is_private
        yield Browser(opened)


def test_the_page_has_all_that_it_needs_and_asks_nobody_else(browser: Browser) -> None:
    status, headers, html = browser.raw("GET", "/")
    assert status == 200
    text = html.decode()
    assert "golden frames of default" in text and 'value="ada"' in text
    assert 'data-label="scooter"' in text
    assert "://" not in text
    policy = headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy
    for name in ("label.css", "label.js", "sheet.js", "view.js", "icon.svg"):
        status, headers, data = browser.raw("GET", f"/static/{name}")
        assert status == 200 and data
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "http://" not in data.decode().replace("http://www.w3.org/2000/svg", "")


def test_a_frame_comes_with_its_boxes_and_what_others_saw(
    browser: Browser, ids: list[str], stores: Stores
) -> None:
    status, frames = browser.ask("GET", "/api/frames")
    assert status == 200
    assert {frame["id"] for frame in frames} == set(ids)
    ours = next(frame for frame in frames if frame["camera"] == "<b>gate")
    status, frame = browser.ask("GET", f"/api/frames/{ours['id']}")
    assert (status, frame["width"], frame["height"], frame["state"]) == (200, 64, 48, "wanted")
    assert frame["boxes"] == [
        {"box_xyxy": list(BOX), "label": "person", "ignore": False, "score": pytest.approx(0.9)}
    ]
    assert [(each["label"], each["by"]) for each in frame["suggestions"]] == [("car", "agent")]
    assert frame["prefilled_by"].startswith("fake@1")
    status, headers, data = browser.raw("GET", f"/api/frames/{ours['id']}/picture")
    assert (status, headers["content-type"]) == (200, "image/jpeg")
    assert data == picture(stores.case(ours["id"]).frame_id.sequence)


def test_what_is_saved_is_a_persons_word(browser: Browser, ids: list[str], stores: Stores) -> None:
    boxes = [{"box_xyxy": [1, 2, 30, 40], "label": "car", "ignore": True}]
    status, said = browser.ask("PUT", f"/api/frames/{ids[0]}", {"boxes": boxes, "by": "bo"})
    assert (status, said) == (200, {"id": ids[0], "state": "done", "is_new": True})
    label = stores.labels.find_person(ids[0])
    assert label is not None
    assert (label.said_by, label.came_by) == ("bo", "console")
    assert label.drawn.to_json() == [{"box_xyxy": [1.0, 2.0, 30.0, 40.0], "label": "car", "ignore": True}]
    _, frame = browser.ask("GET", f"/api/frames/{ids[0]}")
    assert (frame["said_by"], frame["state"], frame["suggestions"]) == ("bo", "done", [])
    status, said = browser.ask("PUT", f"/api/frames/{ids[0]}", {"boxes": boxes, "by": ""})
    assert said["is_new"] is False


def test_a_frame_can_be_refused_and_the_name_is_the_desks_where_none_is_said(
    browser: Browser, ids: list[str], stores: Stores
) -> None:
    status, said = browser.ask("POST", f"/api/frames/{ids[1]}/refuse", {"by": " "})
    assert status == 422 and "who labels" in said["told"]
    status, said = browser.ask("POST", f"/api/frames/{ids[1]}/refuse", {})
    assert (status, said["state"]) == (200, "unusable")
    label = stores.labels.find_person(ids[1])
    assert label is not None and (label.is_usable, label.said_by) == (False, "ada")


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({"boxes": [{"box_xyxy": [0, 0, 5], "label": "car"}]}, 422, "box 1: box_xyxy"),
        ({"boxes": None}, 422, "boxes: expected a list"),
        ({"boxes": [], "by": 3}, 422, "by: expected a name"),
        ({"boxes": [], "more": 1}, 422, "expected an object with boxes and by"),
        ([], 422, "expected an object"),
        ({"boxes": [{"box_xyxy": [90, 0, 99, 9], "label": "car"}]}, 422, "inside the picture"),
        ({"boxes": ["x" * 1_000_000]}, 413, "at most 1000000 bytes"),
    ],
)
def test_what_makes_no_sense_is_told_and_not_kept(
    browser: Browser, ids: list[str], stores: Stores, body: object, status: int, told: str
) -> None:
    found, said = browser.ask("PUT", f"/api/frames/{ids[2]}", body)
    assert found == status
    assert told in said["told"]
    assert stores.labels.find_person(ids[2]) is None


def test_frames_that_are_not_on_the_desk_are_not_given_out(
    browser: Browser, ids: list[str], stores: Stores
) -> None:
    stray = next(case.id for case in stores.cases.walk() if case.id not in ids)
    for method, path, body in (
        ("GET", "", None),
        ("GET", "/picture", None),
        ("PUT", "", {"boxes": []}),
        ("POST", "/refuse", {}),
    ):
        status, said = browser.ask(method, f"/api/frames/{stray}{path}", body)
        assert (status, "not on this desk" in said["told"]) == (404, True)


@pytest.mark.parametrize(
    "headers",
    [
        {"Cookie": ""},
        {"Origin": "http://evil.example"},
        {"X-Fovea-Page": ""},
        {"Host": "evil.example"},
    ],
)
def test_other_pages_change_nothing(
    browser: Browser, ids: list[str], stores: Stores, headers: dict[str, str]
) -> None:
    body = json.dumps({"boxes": []}).encode()
    status, _, data = browser.raw("PUT", f"/api/frames/{ids[2]}", body, headers)
    assert status == 403 and json.loads(data)["told"]
    assert stores.labels.find_person(ids[2]) is None


@pytest.mark.parametrize("path", ["/", "/api/frames", "/static/label.js", "/docs", "/openapi.json"])
def test_nothing_is_shown_to_who_has_not_signed_in(browser: Browser, path: str) -> None:
    assert browser.raw("GET", path, headers={"Cookie": ""})[0] == 403


def test_a_wrong_token_opens_nothing(browser: Browser) -> None:
    status, headers, _ = browser.raw("GET", "/?token=" + "x" * 32, headers={"Cookie": ""})
    assert status == 401
    assert "Set-Cookie" not in headers


def test_a_body_of_unknown_length_is_refused(browser: Browser, ids: list[str]) -> None:
    connection = http.client.HTTPConnection(browser.host, timeout=WAIT_S)
    usual = {"Cookie": browser.cookie, "Origin": f"http://{browser.host}", "X-Fovea-Page": browser.page}
    connection.request("PUT", f"/api/frames/{ids[2]}", iter([b"{}"]), usual, encode_chunked=True)
    assert connection.getresponse().status == 411
    connection.close()


def test_the_review_desk_holds_what_is_doubted_and_what_was_said_to_it(tmp_path: Path) -> None:
    with stores_in(tmp_path / "kept") as stores:
        case_ids = stores.add(*(hard_case(seed, answers=()) for seed in (1, 2)))
        detector = FakeDetector(lambda _pixels: [(BOX, 0.55, 0)], LABELS)
        Teacher(detector, stores.cases, stores.labels).label_all(stores.cases.walk())
        desk = review_desk(stores.reviews, stores.labels, "ada")
        assert {entry["note"] for entry in desk.entries()} == {"little agreement"}
        desk.save(case_ids[0], [], "")
        assert [(entry["id"], entry["state"]) for entry in desk.entries()] == [
            (case_ids[1], "wanted"),
            (case_ids[0], "done"),
        ]
        desk.refuse(case_ids[1], "bo")
        assert [entry["state"] for entry in desk.entries()] == ["unusable", "done"]
        with pytest.raises(NotFound, match="there are default"):
            golden_desk(stores.reviews, stores.labels, GoldenSet(stores.labels), "cellar", "ada")


def test_an_address_that_is_none_or_taken_is_told(browser: Browser) -> None:
    desk = object()
    for wrong in ("here", "127.0.0.1:x", "127.0.0.1:99999"):
        with pytest.raises(Malformed, match="expected host:port"):
            serve(desk, Listening(wrong), lambda _opened: None)  # type: ignore[arg-type]
    with pytest.raises(Unavailable, match="cannot listen"):
        serve(desk, Listening(browser.host), lambda _opened: None)  # type: ignore[arg-type]
    with pytest.raises(Malformed, match="a certificate and its key"):
        Listening(cert=Path("x"))
    with pytest.raises(NotFound, match="no file"):
        Listening(cert=Path("x"), key=Path("y"))
