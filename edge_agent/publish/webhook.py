"""Posts events to a URL: one JSON object each, from a thread of its own, with patience but never without bound."""

from __future__ import annotations

import http.client
import logging
import re
import threading
import time
import urllib.error
import urllib.request
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import IO
from urllib.parse import urlsplit

from edge_agent.publish.messages import event_message
from edge_agent.publish.publishing import NullPublisher, ObjectEvent
from fovea.core.errors import Malformed

log = logging.getLogger(__name__)

_LONGEST_PAUSE_S = 30.0
_TOKEN = re.compile(r"[\x21-\x7e][\x20-\x7e]*")
_HEADER = re.compile(r"[A-Za-z0-9-]+")
_AGAIN = frozenset({408, 425, 429})
"""Refusals of the class "your fault" that pass with time."""


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Where events are posted to.

    token          goes into the header as it is; for `Authorization` write `Bearer ...` yourself. Never shown
    timeout_s      for each step of one POST (connect, answer)
    max_events     that wait; the oldest are dropped
    max_age_s      an event that could not be delivered for so long is given up
    first_pause_s  after a failure; each further pause is twice as long, up to 30 s
    """

    url: str
    token: str | None = field(default=None, repr=False)
    token_header: str = "Authorization"
    timeout_s: float = 5.0
    max_events: int = 200
    max_age_s: float = 600.0
    first_pause_s: float = 1.0

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            is_sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_sound = False
        if not is_sound or "@" in parts.netloc or not self.url.isascii() or not self.url.isprintable():
            # A wrong one may hold a password: it is not shown.
            raise Malformed("webhook url: expected http(s)://host/path, ASCII, without credentials")
        if " " in self.url:
            raise Malformed("webhook url: expected no spaces")
        if self.token is not None and not _TOKEN.fullmatch(self.token):
            raise Malformed("webhook token: expected printable ASCII in one line")
        if not _HEADER.fullmatch(self.token_header):
            raise Malformed(
                f"webhook token_header: expected letters, digits and -, got {self.token_header!r:.80}"
            )
        for name in ("timeout_s", "max_events", "max_age_s", "first_pause_s"):
            if not getattr(self, name) > 0:
                raise Malformed(f"webhook {name}: expected more than 0, got {getattr(self, name)}")

    @property
    def shown_url(self) -> str:
        """Without path and query: that is where many services have their tokens."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}/..."

    def __repr__(self) -> str:
        return f"WebhookSettings({self.shown_url!r})"


class _Outcome(StrEnum):
    """How one POST ended."""

    DELIVERED = "delivered"
    REFUSED = "refused"
    """trying again is pointless"""
    FAILED = "failed"
    """it may succeed later"""


@dataclass(frozen=True, slots=True)
class _Waiting:
    event: ObjectEvent
    since_mono_s: float


class Webhook(NullPublisher):
    """The Publisher that tells events alone. An answer of 2xx is a delivery; 408, 425, 429, 5xx and whatever the
    network does are tried again in order, the rest is refused and counted. Redirections are not followed (they would
    carry the token elsewhere), nor is a proxy of the environment used."""

    def __init__(self, settings: WebhookSettings, device: str) -> None:
        self._settings = settings
        self._device = device
        self._changed = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._counts: Counter[str] = Counter()
        self._end_mono_s: float | None = None
        self._is_down = False
        self._is_started = False
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())
        self._thread = threading.Thread(target=self._post_for_ever, name="webhook", daemon=True)

    def start(self) -> None:
        with self._changed:
            if self._is_started or self._end_mono_s is not None:
                return
            self._is_started = True
        self._thread.start()

    def publish_events(self, camera: str, events: Sequence[ObjectEvent]) -> None:
        now_mono_s = time.monotonic()
        with self._changed:
            for event in events:
                self._waiting.append(_Waiting(event, now_mono_s))
            while len(self._waiting) > self._settings.max_events:
                self._waiting.popleft()
                self._counts["dropped"] += 1
            self._changed.notify_all()

    @property
    def counts(self) -> Mapping[str, int]:
        """webhook_ + delivered, refused (by the other side, for good), failed (tries), dropped (no room), expired,
        waiting."""
        with self._changed:
            names = (*(outcome.value for outcome in _Outcome), "dropped", "expired")
            counted = {f"webhook_{name}": self._counts[name] for name in names}
            return counted | {"webhook_waiting": len(self._waiting)}

    @property
    def is_connected(self) -> bool:
        """Whether the last POST reached somebody; True before the first."""
        return not self._is_down

    def stop(self, timeout_s: float) -> None:
        with self._changed:
            self._end_mono_s = time.monotonic() + timeout_s
            self._changed.notify_all()
        if self._is_started:
            self._thread.join(timeout_s)

    def _post_for_ever(self) -> None:
        pause_s = self._settings.first_pause_s
        while (waiting := self._next()) is not None:
            try:
                outcome, why = self._post(event_message(self._device, waiting.event))
            except Exception:  # one event that cannot be said must not silence all that come after it
                log.exception("webhook: an event cannot be posted")
                outcome, why = _Outcome.REFUSED, "it cannot be said"
            self._note(outcome, why)
            if outcome is not _Outcome.FAILED:
                pause_s = self._settings.first_pause_s
            elif not self._keep(waiting, pause_s):
                return
            else:
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _next(self) -> _Waiting | None:
        """The oldest that is not too old; waits for one. None when it is time to end."""
        with self._changed:
            while True:
                oldest_mono_s = time.monotonic() - self._settings.max_age_s
                while self._waiting and self._waiting[0].since_mono_s < oldest_mono_s:
                    self._waiting.popleft()
                    self._counts["expired"] += 1
                if self._end_mono_s is not None and (
                    not self._waiting or time.monotonic() >= self._end_mono_s
                ):
                    return None
                if self._waiting:
                    return self._waiting.popleft()
                self._changed.wait()

    def _keep(self, waiting: _Waiting, pause_s: float) -> bool:
        """Puts an event back in front, where there is room, and pauses; False when it is time to end."""
        with self._changed:
            if len(self._waiting) < self._settings.max_events:
                self._waiting.appendleft(waiting)
            else:
                self._counts["dropped"] += 1
            self._changed.wait_for(lambda: self._end_mono_s is not None, pause_s)
            # While it ends there is no second try: somebody waits.
            return self._end_mono_s is None

    def _post(self, body: bytes) -> tuple[_Outcome, str]:
        settings = self._settings
        headers = {"Content-Type": "application/json", "User-Agent": "fovea"}
        if settings.token is not None:
            headers[settings.token_header] = settings.token
        request = urllib.request.Request(settings.url, body, headers, method="POST")
        try:
            with self._opener.open(request, timeout=settings.timeout_s) as response:
                return _Outcome.DELIVERED, f"status {response.status}"
        except urllib.error.HTTPError as error:
            error.close()
            is_passing = error.code >= 500 or error.code in _AGAIN
            return _Outcome.FAILED if is_passing else _Outcome.REFUSED, f"status {error.code}"
        except (OSError, http.client.HTTPException) as error:
            return _Outcome.FAILED, str(getattr(error, "reason", error))

    def _note(self, outcome: _Outcome, why: str) -> None:
        with self._changed:
            self._counts[outcome.value] += 1
        is_down = outcome is not _Outcome.DELIVERED
        if is_down and not self._is_down:
            log.warning("webhook: %s does not take events: %s", self._settings.shown_url, why)
        elif self._is_down and not is_down:
            log.info("webhook: %s takes events again", self._settings.shown_url)
        self._is_down = is_down


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Makes a redirection the answer itself, an error with its status."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> None:
        return None
