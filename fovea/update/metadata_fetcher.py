"""Gives python-tuf its metadata through `Web`, with a limit on size, time and slowness."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import IO, Final

from tuf.api.exceptions import DownloadHTTPError, DownloadLengthMismatchError
from tuf.ngclient.fetcher import FetcherInterface

from fovea.core.errors import Unavailable
from fovea.core.ports import Clock
from fovea.update.pace import Pace, paced
from fovea.update.ports import Web

METADATA_PACE: Final = Pace(deadline_s=60.0, min_bytes_per_s=200.0)


class MetadataFetcher(FetcherInterface):
    """Raises DownloadHTTPError for a status that is not 200, and the RetryableErrors of `Web` as they are."""

    def __init__(self, web: Web, clock: Clock, pace: Pace = METADATA_PACE) -> None:
        self._web = web
        self._clock = clock
        self._pace = pace
        self.last_url = ""

    def _fetch(self, url: str) -> Iterator[bytes]:
        self.last_url = url
        answer = self._web.get(url)
        try:
            if answer.status != 200:
                raise DownloadHTTPError(f"{url} answers with status {answer.status}", answer.status)
            yield from paced(answer.chunks(), self._pace, self._clock, url)
        finally:
            answer.close()

    @contextmanager
    def download_file(self, url: str, max_length: int) -> Iterator[IO[bytes]]:
        """In memory: metadata are small, and on many boards the folder for temporary files is memory anyway."""
        body = BytesIO()
        for chunk in self.fetch(url):
            if body.tell() + len(chunk) > max_length:
                raise DownloadLengthMismatchError(f"{url} sends more than {max_length} bytes")
            body.write(chunk)
        body.seek(0)
        yield body

    def fetch_small(self, url: str, length: int) -> bytes:
        """A file of at most `length` bytes. Raises as `_fetch`, and Unavailable for another status."""
        try:
            return self.download_bytes(url, length)
        except DownloadHTTPError as error:
            raise Unavailable(str(error)) from error
