"""What an agent is told about one camera; a part of its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from edge_agent.capture.sources.url import SourceKind, kind_of, split_credentials
from fovea.core.errors import Malformed
from fovea.core.qoe import QoeWeights
from fovea.process.config_parts import FilePath, Part

_FILE = "file://"
_LONGEST_NAME = 100


def _name(text: str) -> str:
    if not text.strip() or len(text) > _LONGEST_NAME or not text.isprintable():
        raise ValueError(f"expected 1 to {_LONGEST_NAME} printable characters")
    return text


def _device_number(given: object) -> object:
    """YAML reads the 0 of a V4L2 device as a number."""
    return str(given) if type(given) is int else given


def _url(text: str) -> str:
    try:
        kind_of(text)
        has_credentials = split_credentials(text).username is not None
    except Malformed as error:
        raise ValueError(str(error).partition(": ")[2]) from error
    if has_credentials:
        raise ValueError("expected no credentials in an address: they have fields of their own")
    return text


def _polygon(corners: list[list[float]]) -> list[list[float]]:
    if len(corners) < 3 or any(len(corner) != 2 for corner in corners):
        raise ValueError("expected at least 3 corners [x, y]")
    return corners


Name = Annotated[str, AfterValidator(_name)]
"""Of a device, camera or zone; topics and metrics escape what they cannot hold."""
SourceUrl = Annotated[str, BeforeValidator(_device_number), AfterValidator(_url)]
Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(ge=0.05, le=600)]
Fps = Annotated[float, Field(ge=0.01, le=240)]
Polygon = Annotated[list[list[Share]], AfterValidator(_polygon)]
"""Corners [x, y], each 0 to 1 of the width and the height of the picture."""


class MotionConfig(Part):
    """A frame in which nothing moves is not looked at."""

    enabled: bool = True
    """false: every frame is looked at"""
    min_share: Annotated[float, Field(gt=0, le=1)] = 0.0008
    """the share of the picture that has to move"""
    force_every_s: Annotated[float, Field(gt=0, le=3600)] = 5.0
    """a look at least this often, whether anything moves or not"""


class FilterConfig(Part):
    """Which tracks become events and counts; the answers themselves are published whole."""

    labels: list[str] | None = None
    """only these; all when it is left out"""
    min_score: Share = 0.5
    """a lower score does not count"""
    min_area: Share = 0.0
    """a smaller share of the picture does not count"""
    max_area: Share = 1.0
    """a larger share of the picture does not count"""


class ZoneConfig(Part):
    """A part of the picture with a name; an object is in it when the middle of its lower edge is."""

    name: Name
    """its name in events and counts"""
    corners: Polygon
    """at least 3 corners [x, y], each 0 to 1 of the picture"""
    labels: list[str] | None = None
    """only these; all when it is left out"""


class IdleConfig(Part):
    """What a camera costs while nothing moves: less in two steps, and all again with the first frame that moves."""

    after_s: Annotated[float, Field(gt=0, le=86_400)] = 10.0
    """of quiet, from which on fewer frames are taken"""
    fps_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """of its usual frames per second, then"""
    deep_after_s: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """of quiet, from which on still fewer are taken, and the idle_bundle looks, if there is one"""
    deep_fps_share: Annotated[float, Field(gt=0, le=1)] = 0.25
    """of its usual frames per second, then"""
    least_fps: Annotated[float, Field(ge=0.01, le=240)] = 1.0
    """however quiet it is; what appears is seen within 1 / least_fps seconds"""

    @model_validator(mode="after")
    def _steps_down(self) -> IdleConfig:
        if not (self.deep_after_s > self.after_s and self.deep_fps_share <= self.fps_share):
            raise ValueError("expected deep_after_s later than after_s, and deep_fps_share up to fps_share")
        return self


class QoeWeightsConfig(Part):
    """What each term of the quality of experience counts: together 1 (see `fovea.core.qoe`)."""

    latency: Share = QoeWeights().latency
    """of how soon there is an answer"""
    quality: Share = QoeWeights().quality
    """of the expected quality of the answer"""
    memory: Share = QoeWeights().memory
    """of how little of this machine's free memory a question takes"""
    priority: Share = QoeWeights().priority
    """of quality again, times the priority of the frame: what matters more gets the better look"""
    half_ms: Annotated[float, Field(gt=0, le=60_000)] = QoeWeights().half_ms
    """the latency at which an answer is worth half"""

    @model_validator(mode="after")
    def _adds_up(self) -> QoeWeightsConfig:
        try:
            self.weights()
        except Malformed as error:
            raise ValueError(str(error).partition(": ")[2]) from error
        return self

    def weights(self) -> QoeWeights:
        return QoeWeights(self.latency, self.quality, self.memory, self.priority, self.half_ms)


class CameraQoeConfig(Part):
    """What is different for this camera where tiers are weighed."""

    weights: QoeWeightsConfig | None = None
    """those of all cameras when they are left out"""
    priority: Share | None = None
    """of its frames, whatever is in them"""


class CameraConfig(Part):
    """One camera, or a file that stands for one."""

    name: Name
    """its name in topics, metrics and events"""
    url: SourceUrl
    """rtsp(s)://, http(s)://, N or /dev/videoN, a video file, a picture, an image folder, or sim://SUITE/CONDITION"""
    sub_url: SourceUrl | None = None
    """a second, smaller stream of the same camera"""
    stream: Literal["main", "sub"] = "main"
    """which of the two is read"""
    username: str | None = None
    """for cameras that ask who is there"""
    password: SecretStr | None = None
    """its password; better in a file of its own, see password_file"""
    password_file: FilePath | None = None
    """a file whose first line is the password"""
    fps: Fps | None = 5.0
    """frames per second that are looked at; null: all there are"""
    realtime: bool = True
    """files and simulated cameras keep to their pace; false: every frame, as fast as they are looked at"""
    open_timeout_s: Seconds = 10.0
    """how long opening may take"""
    read_timeout_s: Seconds = 10.0
    """how long a frame may stay away before the camera counts as lost"""
    decoding: Literal["auto", "software"] = "auto"
    """auto: in hardware where there is any"""
    start: Annotated[int, Field(ge=0)] = 0
    """frames of a file that are passed over at its beginning"""
    limit: Annotated[int, Field(ge=1)] | None = None
    """frames of a file that are read at most"""
    loop: bool = False
    """a file begins again at its end"""
    masks: list[Polygon] = Field(default_factory=list)
    """blacked out before anything else sees the picture"""
    motion: MotionConfig = MotionConfig()
    """a frame in which nothing moves is not looked at"""
    idle: IdleConfig | None = None
    """fewer frames while nothing moves; as many as ever when it is left out"""
    qoe: CameraQoeConfig = CameraQoeConfig()
    """what is different for this camera where tiers are weighed"""
    filters: FilterConfig = FilterConfig()
    """which tracks become events and counts"""
    zones: list[ZoneConfig] = Field(default_factory=list)
    """parts of the picture with a name"""

    @model_validator(mode="after")
    def _agrees(self) -> CameraConfig:
        if self.password is not None and self.password_file is not None:
            raise ValueError("expected password or password_file, got both")
        if self.username is None and (self.password is not None or self.password_file is not None):
            raise ValueError("expected a username with the password")
        if self.stream == "sub" and self.sub_url is None:
            raise ValueError("expected a sub_url for stream sub")
        if (self.start or self.limit is not None or self.loop) and kind_of(self.url) is not SourceKind.FILE:
            raise ValueError(
                "expected start, limit and loop for files and folders only; this camera has no end"
            )
        if self.idle is not None and not (self.motion.enabled and self.realtime and self.fps is not None):
            raise ValueError("expected idle only with motion.enabled, realtime and a number of fps")
        if self.filters.min_area > self.filters.max_area:
            raise ValueError("expected filters.min_area up to filters.max_area")
        names = [zone.name for zone in self.zones]
        if len(set(names)) < len(names):
            raise ValueError("expected each zone name once")
        return self

    def resolved(self, folder: Path) -> CameraConfig:
        """The same with paths that do not depend on the current folder."""
        return self.model_copy(
            update={
                "url": _resolved_url(self.url, folder),
                "sub_url": self.sub_url and _resolved_url(self.sub_url, folder),
                "password_file": self.password_file and str(folder / self.password_file),
            }
        )


def _resolved_url(url: str, folder: Path) -> str:
    is_path = kind_of(url) is SourceKind.FILE and not url.startswith(_FILE)
    return str(folder / url) if is_path else url
