"""The port through which frames come in, and what is asked of a source: an address, credentials, time limits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from edge_agent.capture.sources.url import SourceKind, hide_secrets, kind_of, split_credentials
from fovea.core.arrays import ImageArray
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from fovea.core.ports import Clock

SOFTWARE = "software"
PICTURES = "pictures"
LOWEST_FPS, HIGHEST_FPS = 0.01, 240.0


class Stream(StrEnum):
    """Which of a camera's two streams is read."""

    MAIN = "main"
    SUB = "sub"


class Decoding(StrEnum):
    """Who decodes video."""

    AUTO = "auto"
    """hardware where the decoder finds some, software else"""
    SOFTWARE = "software"


PICTURES = "pictures"


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """Where frames come from, and how long to wait for them.

    url             rtsp(s)://, http(s)://, N or /dev/videoN, a video file, a picture, a folder of pictures, sim://
    username, password  credentials; those in an address are moved here, so `url` never holds them
    sub_url, stream a second, smaller stream of the same camera, and which of the two is read
    fps             of a file or a simulated camera: frames per second it is played at; of a V4L2 device: what it
                    is asked for; None: what the source itself says
    size            of a V4L2 device: width and height in px that it is asked for
    open_timeout_s  longest wait for a connection and the first facts; `read_timeout_s` for each frame
    decode_threads  more than one decode faster and hand each frame out later, by one frame for each thread
    start, limit    of a file or a folder: frames passed over at the beginning, and frames read at most
    is_looped       a file or a folder begins again at its end
    """

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    sub_url: str | None = None
    stream: Stream = Stream.MAIN
    fps: float | None = None
    size: ImageSize | None = None
    open_timeout_s: float = 10.0
    read_timeout_s: float = 10.0
    decoding: Decoding = Decoding.AUTO
    decode_threads: int = 1
    start: int = 0
    limit: int | None = None
    is_looped: bool = False

    def __post_init__(self) -> None:
        self._move_credentials("url")
        if self.sub_url is not None:
            self._move_credentials("sub_url")
        elif self.stream is Stream.SUB:
            raise Malformed(f"source {hide_secrets(self.url)}: stream sub needs a sub_url")
        kind_of(self.chosen_url)
        if self.username is not None and ":" in self.username:
            raise Malformed("source username: expected a name without a colon")
        if self.password is not None and self.username is None:
            raise Malformed("source password: expected a username with it")
        for name, seconds in (
            ("open_timeout_s", self.open_timeout_s),
            ("read_timeout_s", self.read_timeout_s),
        ):
            if not 0.05 <= seconds <= 600:
                raise Malformed(f"source {name}: expected 0.05 to 600 s, got {seconds}")
        if self.fps is not None and sane_fps(self.fps) is None:
            raise Malformed(f"source fps: expected {LOWEST_FPS} to {HIGHEST_FPS:.0f}, got {self.fps}")
        if not 1 <= self.decode_threads <= 64:
            raise Malformed(f"source decode_threads: expected 1 to 64, got {self.decode_threads}")
        if self.start < 0 or (self.limit is not None and self.limit < 1):
            raise Malformed(f"source: expected start >= 0 and limit >= 1, got {self.start}, {self.limit}")

    def __repr__(self) -> str:
        secret = "" if self.username is None else f", username={self.username!r}, password=***"
        return f"SourceSpec({shown_url(self)!r}{secret})"

    @property
    def chosen_url(self) -> str:
        """The address that is read, without credentials."""
        return self.sub_url if self.stream is Stream.SUB and self.sub_url is not None else self.url

    @property
    def kind(self) -> SourceKind:
        return kind_of(self.chosen_url)

    def _move_credentials(self, name: str) -> None:
        split = split_credentials(getattr(self, name))
        if split.username is None:
            return
        given = (self.username, self.password)
        found = (split.username, split.password)
        if given != (None, None) and given != found:
            raise Malformed(
                f"source {hide_secrets(split.url)}: credentials stand both in the address and in the fields, "
                "and differ; expected them in the fields alone"
            )
        object.__setattr__(self, name, split.url)
        object.__setattr__(self, "username", split.username)
        object.__setattr__(self, "password", split.password)


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What an open source says about itself.

    codec is the decoder's four letters (h264, hevc, mjpg), or `pictures`; size that of its first frame where known;
    fps None where it says nothing that can be true; is_live: frames come by themselves and are gone when not read;
    decoder software, or what the hardware decoder is called.
    """

    kind: SourceKind
    codec: str | None
    size: ImageSize | None
    fps: float | None
    is_live: bool
    decoder: str = SOFTWARE


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """One picture u8[H, W, 3] BGR, its own memory, with the moment it was received: UTC and monotonic seconds.

    `name` is the file it came from, relative to the folder, where it came from a folder.
    """

    pixels: ImageArray
    captured_at: datetime
    captured_mono_s: float
    name: str | None = None


class FrameSource(Protocol):
    """An open source; used by one thread. Each frame is waited for with `advance`; only those that are wanted are
    made into pixels with `picture`, which costs more."""

    @property
    def facts(self) -> SourceFacts:
        """What it is; completed by the first picture where the source says little."""
        ...

    def advance(self) -> bool:
        """Waits for the next frame, as long as the read timeout; False: the source has ended, as it was bound to.

        Raises Unavailable when no frame came in time or the connection broke (close it and open another), Malformed
        for a file without a frame that can be decoded.
        """
        ...

    def picture(self) -> Captured:
        """The frame that `advance` came to, once. Raises Malformed or TooLarge when it cannot be used: the next
        `advance` goes on to the one after it."""
        ...

    def close(self) -> None:
        """Lets go of it; twice is fine."""
        ...


def open_source(spec: SourceSpec, clock: Clock) -> FrameSource:
    """Opens what `spec` names.

    Raises Unavailable (nothing there now, no answer in time), NotFound (no such file), Malformed (not a video, not
    a picture, not an address), TooLarge.
    """
    from edge_agent.capture.sources.opening import open_by_kind

    return open_by_kind(spec, clock)


def read_next(source: FrameSource) -> Captured | None:
    """The next frame of `source`, or None when it has ended; raises as `advance` and `picture` do."""
    return source.picture() if source.advance() else None


def shown_url(spec: SourceSpec) -> str:
    """The address that is read, fit for logs and screens: no credentials, also none from its query."""
    return hide_secrets(spec.chosen_url)


def described(facts: SourceFacts) -> str:
    """The facts in words, as far as they are known: `h264 1920x1080, 25 frames/s, decoded in software`."""
    words = [f"{facts.codec or facts.kind}" + ("" if facts.size is None else f" {facts.size}")]
    if facts.fps is not None:
        words.append(f"{facts.fps:.4g} frames/s")
    if facts.kind is not SourceKind.SIM and facts.codec != PICTURES:
        words.append("decoded in software" if facts.decoder == SOFTWARE else f"decoded by {facts.decoder}")
    return ", ".join(words)


def sane_fps(fps: float) -> float | None:
    """`fps` where a camera could mean it, else None: 0, NaN and time bases such as 90000 are reported as rates."""
    return float(fps) if math.isfinite(fps) and LOWEST_FPS <= fps <= HIGHEST_FPS else None
