"""Fetches one large file whose length and digest are known: resumed after every break, whole or not there at all."""

from __future__ import annotations

import errno
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fovea.core.errors import (
    BrokenError,
    DeadlineExceeded,
    NotFound,
    RetryableError,
    TooLarge,
    Unavailable,
    UntrustedRelease,
)
from fovea.runtime.atomic_file import sync_folder
from fovea.update.pace import Pace, paced
from fovea.update.ports import Answer, Surroundings, Web

_PART: Final = ".part"
_READ_BYTES: Final = 1 << 20
_WAIT_STATUSES: Final = (408, 425, 429)
_RANGE: Final = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file on the web and what it has to be; `length` in bytes."""

    url: str
    length: int
    sha256: str


@dataclass(frozen=True, slots=True)
class DownloadLimits:
    """tries: how often one call starts (again); what has come so far is kept for the next. deadline_s: for all tries
    together. spare_bytes: what has to stay free on the disk."""

    tries: int = 5
    first_pause_s: float = 1.0
    longest_pause_s: float = 60.0
    deadline_s: float = 3600.0
    min_bytes_per_s: float = 1000.0
    spare_bytes: int = 32 << 20


def fetch_file(
    web: Web, wanted: Wanted, target: Path, limits: DownloadLimits, surroundings: Surroundings
) -> None:
    """Puts the file at `target`; one that is there and whole is left alone. Killed at any moment, the next call goes
    on where this one was.

    Raises Unavailable and DeadlineExceeded (what came is kept), NotFound (the server refuses), TooLarge (the disk has
    no room; nothing was asked for yet), UntrustedRelease (it is not the signed file; nothing is kept), BrokenError.
    """
    fetch = _Fetch(web, wanted, target, limits, surroundings)
    try:
        fetch.run()
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise TooLarge(f"{target.name}: the disk is full") from error
        raise BrokenError(f"cannot write {target}: {error.strerror or error}") from error


class _Fetch:
    def __init__(
        self, web: Web, wanted: Wanted, target: Path, limits: DownloadLimits, surroundings: Surroundings
    ) -> None:
        self._web = web
        self._wanted = wanted
        self._target = target
        self._part = target.with_name(target.name + _PART)
        self._limits = limits
        self._surroundings = surroundings
        self._began_s = surroundings.clock.monotonic_s()
        self._is_resumed = False

    def run(self) -> None:
        if self._target.exists() and _digest(self._target) == self._wanted.sha256:
            return
        if self._have() > self._wanted.length:
            self._part.unlink()
        self._check_room()
        self._is_resumed = self._have() > 0
        self._fetch_all()
        if self._digest_holds():
            self._keep()
            return
        self._part.unlink()
        if (
            self._is_resumed
        ):  # what lay there from before may have been damaged by a power cut: once more, all anew
            self._is_resumed = False
            self._fetch_all()
            if self._digest_holds():
                self._keep()
                return
            self._part.unlink()
        raise UntrustedRelease(
            f"altered: {self._wanted.url} is not the file that was signed (its digest differs)"
        )

    def _check_room(self) -> None:
        missing = self._wanted.length - self._have()
        free = self._surroundings.free_bytes(self._target.parent)
        if missing + self._limits.spare_bytes > free:
            raise TooLarge(
                f"too little disk: {self._target.name} needs {missing} bytes and {self._limits.spare_bytes} have to "
                f"stay free, {free} are free"
            )

    def _fetch_all(self) -> None:
        for attempt in range(self._limits.tries):
            try:
                self._fetch_rest()
                if self._have() == self._wanted.length:
                    return
                raise Unavailable(f"{self._wanted.url}: broke off after {self._have()} bytes")
            except DeadlineExceeded:
                raise
            except RetryableError:
                if attempt + 1 == self._limits.tries:
                    raise
            self._wait(attempt)

    def _wait(self, attempt: int) -> None:
        """Twice as long each time, with chance in it: a thousand devices must not come back at the same moment."""
        longest_s = min(self._limits.first_pause_s * 2**attempt, self._limits.longest_pause_s)
        pause_s = longest_s * (0.5 + 0.5 * self._surroundings.draw())
        if pause_s >= self._left_s():
            raise DeadlineExceeded(f"{self._wanted.url}: not complete after {self._limits.deadline_s:g} s")
        self._surroundings.pause(pause_s)

    def _left_s(self) -> float:
        return self._limits.deadline_s - (self._surroundings.clock.monotonic_s() - self._began_s)

    def _fetch_rest(self) -> None:
        have = self._have()
        if have == self._wanted.length:
            return
        answer = self._web.get(self._wanted.url, have)
        try:
            self._write(answer, self._first_byte(answer, have))
        finally:
            answer.close()

    def _first_byte(self, answer: Answer, have: int) -> int:
        """Where in the file this answer begins. Raises for an answer that is not this file."""
        status, wanted = answer.status, self._wanted
        if status == 416 or (status == 206 and not have):
            self._part.unlink(missing_ok=True)
            raise Unavailable(f"{wanted.url}: does not give the range that was asked for")
        if status == 206:
            said = answer.headers.get("content-range", "")
            match = _RANGE.fullmatch(said.strip())
            if match is None or tuple(map(int, match.groups())) != (have, wanted.length - 1, wanted.length):
                self._part.unlink(missing_ok=True)
                raise Unavailable(
                    f"{wanted.url}: expected bytes {have}-{wanted.length - 1}/{wanted.length}, got {said!r:.80}"
                )
            return have
        if status == 200:
            said = answer.headers.get("content-length", str(wanted.length))
            if said != str(wanted.length):
                raise UntrustedRelease(
                    f"altered: {wanted.url} has {said:.40} bytes, signed are {wanted.length}"
                )
            return 0
        if 300 <= status < 500 and status not in _WAIT_STATUSES:
            raise NotFound(f"{wanted.url}: the server refuses it with status {status}")
        raise Unavailable(f"{wanted.url}: the server answers with status {status}")

    def _write(self, answer: Answer, start: int) -> None:
        pace = Pace(max(self._left_s(), 0.0), self._limits.min_bytes_per_s)
        with self._part.open("r+b" if start else "wb") as file:
            file.seek(start)
            for chunk in paced(answer.chunks(), pace, self._surroundings.clock, self._wanted.url):
                if file.tell() + len(chunk) > self._wanted.length:
                    self._part.unlink()
                    raise UntrustedRelease(
                        f"endless data: {self._wanted.url} sends more than the signed {self._wanted.length} bytes"
                    )
                file.write(chunk)

    def _have(self) -> int:
        try:
            return self._part.stat().st_size
        except FileNotFoundError:
            return 0

    def _digest_holds(self) -> bool:
        return _digest(self._part) == self._wanted.sha256

    def _keep(self) -> None:
        with self._part.open("rb") as file:
            os.fsync(file.fileno())
        self._part.replace(self._target)
        sync_folder(self._target.parent)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(_READ_BYTES):
            digest.update(data)
    return digest.hexdigest()
