"""Who may use the labelling page: judged from the headers of a request alone.

A page of another origin can make a browser send requests here, so cookies prove nothing by themselves: what changes
something has to come from our own page, which says so by its origin and by a token that only it was given.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

from fovea.core.errors import Malformed

SAFE_METHODS = frozenset({"GET", "HEAD"})
PAGE_HEADER = "x-fovea-page"


@dataclass(frozen=True, slots=True)
class Asked:
    """The headers of a request that count; None: not sent."""

    method: str
    host: str | None
    origin: str | None
    session: str | None
    page: str | None


@dataclass(frozen=True, slots=True)
class Access:
    """`hosts` are the values of Host that are served, in lower case (a name that was pointed here by somebody else
    is none of them); empty: any. `scheme` is how the page is reached."""

    token: str = field(repr=False)
    hosts: frozenset[str]
    scheme: str = "http"

    def __post_init__(self) -> None:
        if len(self.token) < 16:
            raise Malformed("console token: expected 16 characters or more")

    @classmethod
    def to(cls, host: str, port: int, scheme: str = "http") -> Access:
        """A new token for a server that listens at `host`; on loopback only its own names are served."""
        hosts = (
            {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")} if is_loopback(host) else set()
        )
        return cls(secrets.token_urlsafe(24), frozenset(hosts), scheme)

    @property
    def session(self) -> str:
        """What the browser's cookie holds."""
        return self._derived("session")

    @property
    def page(self) -> str:
        """What our own page shows with everything that changes something."""
        return self._derived("page")

    def admits(self, token: str | None) -> bool:
        """Whether this is the token."""
        return token is not None and _is_same(token, self.token)

    def serves(self, host: str | None) -> bool:
        """Whether this is a name that we go by."""
        return host is not None and (not self.hosts or host.lower() in self.hosts)

    def find_refusal(self, asked: Asked) -> str | None:
        """Why a request is refused, or None: it is fine."""
        if not self.serves(asked.host):
            return "this page is not served under that name"
        if asked.session is None or not _is_same(asked.session, self.session):
            return "sign in first: open the URL that was printed when the page was started"
        if asked.method in SAFE_METHODS:
            return None
        if asked.origin is None or asked.origin.lower() != f"{self.scheme}://{asked.host}".lower():
            return "this came from another page"
        if asked.page is None or not _is_same(asked.page, self.page):
            return "this page is of an earlier run: load it again"
        return None

    def _derived(self, what: str) -> str:
        return hmac.new(self.token.encode(), what.encode(), hashlib.sha256).hexdigest()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server there."""
    return host in ("localhost", "::1", "[::1]") or host.startswith("127.")


def _is_same(a: str, b: str) -> bool:
    return hmac.compare_digest(a.encode(), b.encode())
