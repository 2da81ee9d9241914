"""From an address to the adapter that reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edge_agent.capture.source import FrameSource, SourceSpec
from edge_agent.capture.sources.image_folder import PICTURE_SUFFIXES, open_folder, open_picture
from edge_agent.capture.sources.sim import open_sim
from edge_agent.capture.sources.stretch import Stretch
from edge_agent.capture.sources.url import SourceKind
from edge_agent.capture.sources.v4l2 import V4l2Camera
from edge_agent.capture.sources.video_stream import VideoStream, open_stream
from fovea.core.errors import Malformed, NotFound, TooLarge
from fovea.core.ports import Clock
from fovea.runtime.image_header import read_header
from fovea.runtime.images import ImageLimits
from fovea.runtime.wrong_file import explain_wrong_file

_PICTURE_STARTS = (b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"BM")
_MOTION_JPEG_SUFFIXES = (".mjpg", ".mjpeg")
_GIF_STARTS = (b"GIF87a", b"GIF89a")


def open_by_kind(spec: SourceSpec, clock: Clock) -> FrameSource:
    """See `edge_agent.capture.source.open_source`."""
    match spec.kind:
        case SourceKind.RTSP | SourceKind.HTTP:
            return open_stream(spec, clock)
        case SourceKind.V4L2:
            return V4l2Camera(spec, clock)
        case SourceKind.SIM:
            return open_sim(spec, clock)
        case SourceKind.FILE:
            return Stretch(_file_opener(spec, clock), spec.start, spec.limit, spec.is_looped)


def _file_opener(spec: SourceSpec, clock: Clock) -> Callable[[], FrameSource]:
    path = Path(spec.chosen_url.removeprefix("file://")).expanduser()
    if path.is_dir():
        return lambda: open_folder(path, clock, spec.fps)
    if not path.exists():
        raise NotFound(f"{path}: no such file or folder")
    if not path.is_file():
        raise Malformed(f"{path}: expected a file or a folder")
    start = _first_bytes(path)
    if not start:
        raise Malformed(f"{path}: an empty file; expected a video, a picture or a folder")
    if _is_picture(path, start):
        return lambda: open_picture(path, clock, spec.fps)
    return lambda: _open_video(spec, clock, path, start)


def _open_video(spec: SourceSpec, clock: Clock, path: Path, start: bytes) -> VideoStream:
    if start.startswith(_GIF_STARTS):
        # Checked before FFmpeg sees it: it makes room for the whole declared canvas.
        declared = read_header(start)
        if declared.width * declared.height > ImageLimits().max_pixels:
            raise TooLarge(f"{path}: a GIF that declares {declared.width}x{declared.height} px")
    try:
        return VideoStream(spec, clock, str(path.resolve()))
    except Malformed as error:
        wrong = explain_wrong_file(start)
        raise (Malformed(f"{path}: expected a video, got {wrong}") if wrong else error) from None


def _is_picture(path: Path, start: bytes) -> bool:
    suffix = path.suffix.lower()
    if suffix in _MOTION_JPEG_SUFFIXES:
        return False
    is_webp = start.startswith(b"RIFF") and start[8:12] == b"WEBP"
    return suffix in PICTURE_SUFFIXES or start.startswith(_PICTURE_STARTS) or is_webp


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(4096)
    except OSError as error:
        raise Malformed(f"{path}: cannot be read ({error.strerror or error})") from error
