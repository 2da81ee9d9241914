"""Addresses: what kind of source they name, and no credentials anywhere but in their own fields."""

from __future__ import annotations

from urllib.parse import quote, unquote, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edge_agent.capture.source import SourceSpec, Stream, shown_url
from edge_agent.capture.sources.url import (
    HIDDEN,
    SourceKind,
    device_of,
    hide_secrets,
    join_credentials,
    kind_of,
    split_credentials,
)
from fovea.core.errors import Malformed

SECRET = "h0rse-battery"


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("rtsp://cam/1", SourceKind.RTSP),
        ("RTSPS://cam:322/1", SourceKind.RTSP),
        ("http://cam/video", SourceKind.HTTP),
        ("https://cam/live.m3u8", SourceKind.HTTP),
        ("0", SourceKind.V4L2),
        ("/dev/video2", SourceKind.V4L2),
        ("v4l2:///dev/video12", SourceKind.V4L2),
        ("clip.mp4", SourceKind.FILE),
        ("file:///data/clip.mp4", SourceKind.FILE),
        ("a@b/c:d.mp4", SourceKind.FILE),
        ("sim://street-v1/day", SourceKind.SIM),
    ],
)
def test_the_kind_of_a_source_follows_from_its_address(url: str, kind: SourceKind) -> None:
    assert kind_of(url) is kind


@pytest.mark.parametrize("url", ["", "  ", "ftp://cam/x", "concat://a|b", "v4l2://front"])
def test_an_address_of_no_known_kind_is_refused_by_name(url: str) -> None:
    with pytest.raises(Malformed, match="expected"):
        kind_of(url)


def test_the_number_of_a_device_is_read_from_every_spelling() -> None:
    assert [device_of(text) for text in ("3", "/dev/video3", "v4l2://3", "v4l2:///dev/video3")] == [3] * 4
    with pytest.raises(Malformed):
        device_of("/dev/sda")


@pytest.mark.parametrize(
    ("url", "bare", "username", "password"),
    [
        ("rtsp://u:p@cam:554/s", "rtsp://cam:554/s", "u", "p"),
        ("rtsp://u@cam/s", "rtsp://cam/s", "u", None),
        ("rtsp://u:@cam/s", "rtsp://cam/s", "u", ""),
        ("rtsp://u:p%40%2Fx@cam/s", "rtsp://cam/s", "u", "p@/x"),
        ("rtsp://u:p@x@cam/s", "rtsp://cam/s", "u", "p@x"),
        ("rtsp://u:a/b@cam/s", "rtsp://cam/s", "u", "a/b"),
        ("rtsp://u:a#b?c@cam/s", "rtsp://cam/s", "u", "a#b?c"),
        ("http://[::1]:80/s", "http://[::1]:80/s", None, None),
        ("http://cam:80/s@2", "http://cam:80/s@2", None, None),
        ("http://cam/s?mail=a@b", "http://cam/s?mail=a@b", None, None),
    ],
)
def test_credentials_are_taken_out_of_an_address(
    url: str, bare: str, username: str | None, password: str | None
) -> None:
    split = split_credentials(url)
    assert (split.url, split.username, split.password) == (bare, username, password)


def test_an_address_that_can_be_read_in_two_ways_is_refused_and_not_shown() -> None:
    with pytest.raises(Malformed, match="own fields") as caught:
        split_credentials(f"rtsp://u:{SECRET}@x/y@cam/s")
    assert SECRET not in str(caught.value)


@given(username=st.text(min_size=1).filter(lambda text: ":" not in text), password=st.text())
def test_credentials_survive_the_way_into_the_decoders_address_and_back(username: str, password: str) -> None:
    try:
        (username + password).encode()
    except UnicodeEncodeError:
        return
    joined = join_credentials("rtsp://cam:554/s", username, password)
    parts = urlsplit(joined)
    assert (parts.hostname, parts.port, parts.path) == ("cam", 554, "/s")
    assert (unquote(parts.username or ""), unquote(parts.password or "")) == (username, password)
    split = split_credentials(joined)
    assert (split.url, split.username, split.password) == ("rtsp://cam:554/s", username, password)


@given(password=st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=6))
@example("00000?")
@example("554/st")
def test_no_password_in_an_address_is_ever_shown(password: str) -> None:
    marked = f"<{password}>"
    for url in (
        f"rtsp://admin:{password}>@camera.local:554/stream?channel=1",
        f"rtsp://admin:{marked}@camera.local:554/stream?channel=1",
        f"http://camera.local/stream?channel=1&pwd={quote(marked)}",
        f"http://admin@camera.local/stream?pwd={quote(marked, safe='@')}&channel=1",
    ):
        shown = hide_secrets(url)
        assert HIDDEN in shown
        assert ">" not in shown and quote(">") not in shown, shown


def test_a_spec_keeps_credentials_in_their_fields_and_out_of_every_text() -> None:
    spec = SourceSpec(
        f"rtsp://admin:{SECRET}@cam/main?token={SECRET}", sub_url=f"rtsp://admin:{SECRET}@cam/sub"
    )
    assert (spec.username, spec.password) == ("admin", SECRET)
    assert spec.url == f"rtsp://cam/main?token={SECRET}"
    assert spec.sub_url == "rtsp://cam/sub"
    assert shown_url(spec) == "rtsp://cam/main?token=***"
    for text in (
        repr(spec),
        str(spec),
        f"{spec}",
        repr([spec]),
        repr(split_credentials(f"rtsp://u:{SECRET}@c")),
    ):
        assert SECRET not in text


def test_the_sub_stream_is_read_when_it_is_asked_for() -> None:
    spec = SourceSpec("rtsp://cam/main", sub_url="rtsp://cam/sub", stream=Stream.SUB)
    assert spec.chosen_url == shown_url(spec) == "rtsp://cam/sub"
    assert SourceSpec("rtsp://cam/main", sub_url="rtsp://cam/sub").chosen_url == "rtsp://cam/main"
    with pytest.raises(Malformed, match="sub_url"):
        SourceSpec("rtsp://cam/main", stream=Stream.SUB)


@pytest.mark.parametrize(
    "wrong",
    [
        {"username": "a:b"},
        {"password": SECRET},
        {"open_timeout_s": 0.0},
        {"read_timeout_s": float("nan")},
        {"fps": float("nan")},
        {"fps": 90000.0},
        {"decode_threads": 0},
        {"start": -1},
        {"limit": 0},
        {"url": f"rtsp://x:{SECRET}@cam/s", "username": "y", "password": "z"},
    ],
)
def test_a_spec_that_cannot_work_is_refused_without_its_password(wrong: dict[str, object]) -> None:
    with pytest.raises(Malformed) as caught:
        SourceSpec(**{"url": "rtsp://cam/s", **wrong})  # type: ignore[arg-type]
    assert SECRET not in str(caught.value)
