"""What the address of a source says: its kind, and its credentials taken out of it so that it can be shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import parse_qsl, quote, unquote, urlencode

from fovea.core.errors import Malformed

HIDDEN = "***"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]*\]|[^:\[\]]*)(:\d*)?")
_SECRET_KEY = re.compile(r"pass|pwd|pw$|secret|token|key|auth|user|usr|login|sign|session", re.IGNORECASE)
_DEVICE = re.compile(r"(?:/dev/video|v4l2://(?:/dev/video)?)?(\d{1,3})")


class SourceKind(StrEnum):
    """What stands behind an address."""

    RTSP = "rtsp"
    HTTP = "http"
    V4L2 = "v4l2"
    FILE = "file"
    """a video file, a picture or a folder of pictures: what it is shows when it is opened"""
    SIM = "sim"


_SCHEMES = {
    "rtsp": SourceKind.RTSP,
    "rtsps": SourceKind.RTSP,
    "http": SourceKind.HTTP,
    "https": SourceKind.HTTP,
    "v4l2": SourceKind.V4L2,
    "file": SourceKind.FILE,
    "sim": SourceKind.SIM,
}


@dataclass(frozen=True, slots=True)
class SplitUrl:
    """An address without credentials, and the credentials that stood in it (decoded; None where there were none)."""

    url: str
    username: str | None
    password: str | None

    def __repr__(self) -> str:
        return f"SplitUrl({hide_secrets(self.url)!r})"


def kind_of(url: str) -> SourceKind:
    """The kind of source that `url` names. Raises Malformed for an empty address and an unknown scheme."""
    if not url.strip():
        raise Malformed("source: expected an address, a device number or a path, got an empty text")
    if _DEVICE.fullmatch(url):
        return SourceKind.V4L2
    scheme = _SCHEME.match(url)
    if scheme is None:
        return SourceKind.FILE
    kind = _SCHEMES.get(scheme[1].lower())
    if kind is None or kind is SourceKind.V4L2:
        shown = hide_secrets(split_credentials(url).url)
        raise Malformed(
            f"source {shown}: expected a path, a device number or one of "
            f"{', '.join(f'{name}://' for name in _SCHEMES)}"
        )
    return kind


def device_of(url: str) -> int:
    """N of a V4L2 address: N, /dev/videoN or v4l2://N. Raises Malformed for anything else."""
    found = _DEVICE.fullmatch(url)
    if found is None:
        raise Malformed(f"camera device: expected N or /dev/videoN, got {url!r:.80}")
    return int(found[1])


def split_credentials(url: str) -> SplitUrl:
    """Takes `user:password@` out of an address, also where the password holds a `/`, `?` or `#` that nobody encoded.

    Raises Malformed, without showing the address, where it can be read in two ways.
    """
    scheme = _SCHEME.match(url)
    if scheme is None or _SCHEMES.get(scheme[1].lower()) in (SourceKind.FILE, SourceKind.SIM):
        return SplitUrl(url, None, None)
    rest = url[scheme.end() :]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        at = authority.rindex("@")
        if "@" in rest[at + 1 :].partition("?")[0]:
            raise Malformed(
                f"source {scheme[0]}{HIDDEN}: there is an @ on both sides of a /, so nobody can tell where the "
                "password ends; give username and password in their own fields"
            )
    else:
        at = -1 if _HOST.fullmatch(authority) else rest.rfind("@")
    if at < 0:
        return SplitUrl(url, None, None)
    username, colon, password = rest[:at].partition(":")
    bare = scheme[0] + rest[at + 1 :]
    return SplitUrl(bare, unquote(username), unquote(password) if colon else None)


def join_credentials(url: str, username: str | None, password: str | None) -> str:
    """`url` with the credentials percent-encoded in it. For the decoder alone: never to be shown or kept."""
    scheme = _SCHEME.match(url)
    if scheme is None or username is None:
        return url
    userinfo = quote(username, safe="") + ("" if password is None else f":{quote(password, safe='')}")
    return f"{scheme[0]}{userinfo}@{url[scheme.end() :]}"


def hide_secrets(url: str) -> str:
    """`url` fit to be shown: *** for whatever stands before an @, and for values of its query that look like
    credentials. Never raises, and hides rather too much."""
    scheme = _SCHEME.match(url)
    if scheme is None or _SCHEMES.get(scheme[1].lower()) in (SourceKind.FILE, SourceKind.SIM):
        return url
    rest = url[scheme.end() :]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in rest:
        if rest.count("@") > 1 or _HOST.fullmatch(authority):
            return f"{scheme[0]}{HIDDEN}"  # nobody can tell what is a password here
        rest = f"{HIDDEN}@{rest.partition('@')[2]}"
    place, mark, query = rest.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    if any(_SECRET_KEY.search(key) for key, _ in pairs):
        hidden = [(key, HIDDEN if _SECRET_KEY.search(key) else value) for key, value in pairs]
        query = urlencode(hidden, safe="*/:,")
    return f"{scheme[0]}{place}{mark}{query}"
