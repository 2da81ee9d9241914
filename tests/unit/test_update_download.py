"""The downloader: resumed after every break, whole or not there, and never with the patience of a saint."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fovea.core.errors import (
    BrokenError,
    Cancelled,
    DeadlineExceeded,
    FoveaError,
    NotFound,
    TooLarge,
    Unavailable,
    UntrustedRelease,
)
from fovea.update.download import DownloadLimits, Wanted, fetch_file
from fovea.update.pace import Pace, paced
from fovea.update.ports import Surroundings
from tests.fakes import FakeClock

DATA = random.Random(1).randbytes(5000)


class ScriptedAnswer:
    def __init__(self, status: int, headers: dict[str, str], pieces: list[bytes | Exception]) -> None:
        self.status, self.headers, self._pieces = status, headers, pieces
        self.is_closed = False

    def chunks(self) -> Iterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    def close(self) -> None:
        self.is_closed = True


class ScriptedWeb:
    """Serves DATA with ranges, `per_answer` bytes of it before the line breaks; `script` goes first."""

    def __init__(self, per_answer: int = 10**9) -> None:
        self.per_answer = per_answer
        self.script: list[ScriptedAnswer | Exception] = []
        self.starts: list[int] = []
        self.given: list[ScriptedAnswer] = []

    def get(self, url: str, start_byte: int = 0) -> ScriptedAnswer:
        self.starts.append(start_byte)
        if self.script:
            said = self.script.pop(0)
            if isinstance(said, Exception):
                raise said
        else:
            said = self._usual(start_byte)
        self.given.append(said)
        return said

    def _usual(self, start: int) -> ScriptedAnswer:
        rest = DATA[start:]
        pieces: list[bytes | Exception] = [rest[: self.per_answer]]
        if len(rest) > self.per_answer:
            pieces.append(Unavailable("the line broke"))
        if start:
            return ScriptedAnswer(
                206, {"content-range": f"bytes {start}-{len(DATA) - 1}/{len(DATA)}"}, pieces
            )
        return ScriptedAnswer(200, {"content-length": str(len(DATA))}, pieces)


class Download:
    def __init__(self, folder: Path, web: ScriptedWeb, **limits: float) -> None:
        self.web, self.target = web, folder / "model.fovea"
        self.part = folder / "model.fovea.part"
        self.clock, self.pauses, self.free = FakeClock(), [], 10**9
        self.limits = DownloadLimits(**({"tries": 4, "spare_bytes": 100} | limits))  # type: ignore[arg-type]

    def run(self, sha256: str = hashlib.sha256(DATA).hexdigest()) -> None:
        def pause(seconds: float) -> None:
            self.pauses.append(seconds)
            self.clock.advance(seconds)

        wanted = Wanted("http://x/model", len(DATA), sha256)
        around = Surroundings(self.clock, lambda: 1.0, pause, lambda _: self.free)
        fetch_file(self.web, wanted, self.target, self.limits, around)


@pytest.fixture
def web() -> ScriptedWeb:
    return ScriptedWeb()


@pytest.fixture
def download(tmp_path: Path, web: ScriptedWeb) -> Download:
    return Download(tmp_path, web)


def test_a_file_comes_whole_and_a_second_call_asks_for_nothing(download: Download) -> None:
    download.run()
    assert download.target.read_bytes() == DATA
    assert not download.part.exists()
    download.run()
    assert download.web.starts == [0]
    assert all(answer.is_closed for answer in download.web.given)


def test_a_target_that_was_spoilt_is_fetched_again(download: Download) -> None:
    download.target.write_bytes(DATA[:-1] + b"!")
    download.run()
    assert download.target.read_bytes() == DATA


def test_every_break_goes_on_where_the_last_one_was_with_longer_pauses(download: Download) -> None:
    download.web.per_answer = 1500
    download.run()
    assert download.web.starts == [0, 1500, 3000, 4500]
    assert download.pauses == [1.0, 2.0, 4.0]
    assert download.target.read_bytes() == DATA


def test_what_came_is_kept_for_the_next_call_when_the_tries_are_used_up(download: Download) -> None:
    download.web.per_answer = 1000
    with pytest.raises(Unavailable, match="the line broke"):
        download.run()
    assert download.part.read_bytes() == DATA[:4000]
    download.run()
    assert download.target.read_bytes() == DATA


@settings(max_examples=40, deadline=None)
@given(have=st.integers(0, len(DATA)), is_spoilt=st.booleans(), per_answer=st.integers(1300, 6000))
def test_whatever_a_kill_left_behind_the_file_is_whole_in_the_end(
    have: int, is_spoilt: bool, per_answer: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    download = Download(tmp_path_factory.mktemp("kill"), ScriptedWeb(per_answer), tries=5)
    download.part.write_bytes(bytes(have) if is_spoilt else DATA[:have])
    download.run()
    assert download.target.read_bytes() == DATA
    assert not download.part.exists()


def test_a_part_longer_than_the_file_is_thrown_away(download: Download) -> None:
    download.part.write_bytes(DATA + b"more")
    download.run()
    assert download.web.starts == [0]
    assert download.target.read_bytes() == DATA


def test_too_little_room_is_said_before_anything_is_asked_for(download: Download) -> None:
    download.free = len(DATA) + 99
    with pytest.raises(TooLarge, match=r"needs 5000 bytes and 100 have to stay free, 5099 are free"):
        download.run()
    assert download.web.starts == []
    download.part.write_bytes(DATA[:1])
    download.run()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 302])
def test_a_refusal_is_final(download: Download, status: int) -> None:
    download.web.script = [ScriptedAnswer(status, {}, [])]
    with pytest.raises(NotFound, match=f"status {status}"):
        download.run()
    assert download.web.starts == [0]


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_trouble_of_the_server_is_waited_for(download: Download, status: int) -> None:
    download.web.script = [ScriptedAnswer(status, {}, []), Unavailable("nobody there")]
    download.run()
    assert download.web.starts == [0, 0, 0]


def test_an_answer_of_another_length_is_refused_before_its_body(download: Download) -> None:
    download.web.script = [ScriptedAnswer(200, {"content-length": "9999999"}, [AssertionError("was read")])]
    with pytest.raises(UntrustedRelease, match="has 9999999 bytes, signed are 5000"):
        download.run()


def test_more_than_the_signed_length_is_endless_data(download: Download) -> None:
    download.web.script = [ScriptedAnswer(200, {}, [DATA, b"!", AssertionError("was read")])]
    with pytest.raises(UntrustedRelease, match=r"endless data: .* sends more than the signed 5000 bytes"):
        download.run()
    assert not download.part.exists()


def test_other_bytes_of_the_right_length_are_refused_and_not_kept(download: Download) -> None:
    with pytest.raises(UntrustedRelease, match="altered: "):
        download.run(sha256="0" * 64)
    assert not download.part.exists() and not download.target.exists()
    assert download.web.starts == [0]


@pytest.mark.parametrize(
    "said", ["bytes 0-4999/5000", "bytes 2000-4998/5000", "bytes 2000-4999/*", "lines 1-2", ""]
)
def test_a_range_that_was_not_asked_for_starts_anew(download: Download, said: str) -> None:
    download.part.write_bytes(DATA[:2000])
    download.web.script = [ScriptedAnswer(206, {"content-range": said}, [b"wrong"])]
    download.run()
    assert download.web.starts == [2000, 0]
    assert download.target.read_bytes() == DATA


def test_a_server_that_knows_no_ranges_starts_anew(download: Download) -> None:
    download.part.write_bytes(b"x" * 2000)
    download.web.script = [ScriptedAnswer(200, {"content-length": "5000"}, [DATA])]
    download.run()
    assert download.web.starts == [2000]
    assert download.target.read_bytes() == DATA


def test_416_starts_anew(download: Download) -> None:
    download.part.write_bytes(DATA[:2000])
    download.web.script = [ScriptedAnswer(416, {}, [])]
    download.run()
    assert download.web.starts == [2000, 0]


def test_the_deadline_counts_over_all_tries(tmp_path: Path, web: ScriptedWeb) -> None:
    download = Download(tmp_path, web, tries=50, deadline_s=100.0)
    web.script = [ScriptedAnswer(503, {}, []) for _ in range(50)]
    with pytest.raises(DeadlineExceeded, match="not complete after 100 s"):
        download.run()
    assert sum(download.pauses) < 100


def test_a_pause_that_is_cancelled_ends_the_download_and_keeps_what_came(tmp_path: Path) -> None:
    download = Download(tmp_path, ScriptedWeb(1000))

    def cancelled(_: float) -> None:
        raise Cancelled("updates end")

    wanted = Wanted("http://x/model", len(DATA), hashlib.sha256(DATA).hexdigest())
    around = Surroundings(download.clock, lambda: 1.0, cancelled, lambda _: 10**9)
    with pytest.raises(Cancelled):
        fetch_file(download.web, wanted, download.target, download.limits, around)
    assert download.part.read_bytes() == DATA[:1000]


def test_a_folder_that_is_gone_is_a_broken_device(tmp_path: Path, web: ScriptedWeb) -> None:
    with pytest.raises(BrokenError, match="cannot write"):
        Download(tmp_path / "gone", web).run()


def _drip(clock: FakeClock, size: int, every_s: float, count: int) -> Iterator[bytes]:
    for _ in range(count):
        clock.advance(every_s)
        yield b"x" * size


@pytest.mark.parametrize(
    ("size", "every_s", "count", "error", "said"),
    [
        (1, 1.0, 1000, Unavailable, "too slow, 1 bytes/s and at least 100"),
        (500, 1.0, 1000, DeadlineExceeded, "not complete after 60 s"),
        (500, 1.0, 50, None, ""),
        (100_000, 50.0, 1, None, ""),
    ],
)
def test_a_body_has_to_come_fast_enough_and_in_time(
    size: int, every_s: float, count: int, error: type[FoveaError] | None, said: str
) -> None:
    clock = FakeClock()
    body = paced(_drip(clock, size, every_s, count), Pace(60.0, 100.0), clock, "file")
    if error is None:
        assert sum(map(len, body)) == size * count
        return
    with pytest.raises(error, match=said):
        list(body)
