"""Video through OpenCV's FFmpeg: RTSP and HTTP cameras, and files."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol
from urllib.parse import urlsplit

import cv2
import numpy as np

from edge_agent.capture.source import (
    SOFTWARE,
    Captured,
    Decoding,
    SourceFacts,
    SourceSpec,
    sane_fps,
    shown_url,
)
from edge_agent.capture.sources.url import SourceKind, join_credentials
from edge_agent.capture.sources.vendor_env import prepare_opencv
from fovea.core.errors import Malformed, TooLarge, Unavailable
from fovea.core.frame import ImageSize, size_of
from fovea.core.ports import Clock
from fovea.runtime.images import pixels_from_array

LARGEST_FRAME_PX = 64_000_000

_PORTS = {"rtsp": 554, "rtsps": 322, "http": 80, "https": 443}
_HARDWARE = {
    cv2.VIDEO_ACCELERATION_VAAPI: "vaapi",
    cv2.VIDEO_ACCELERATION_MFX: "mfx",
    cv2.VIDEO_ACCELERATION_D3D11: "d3d11",
    cv2.VIDEO_ACCELERATION_DRM: "drm",
}


class Capture(Protocol):
    """The part of cv2.VideoCapture that is used."""

    def isOpened(self) -> bool: ...  # noqa: N802

    def grab(self) -> bool: ...

    def retrieve(self) -> tuple[bool, Any]: ...

    def get(self, prop: int, /) -> float: ...

    def release(self) -> None: ...


CaptureMaker = Callable[[str, Sequence[int]], Capture]


def ffmpeg_capture(target: str, params: Sequence[int]) -> Capture:
    """Opens `target`; OpenCV's own timeouts hold only when they are handed over here, with the backend named."""
    prepare_opencv()
    capture: Capture = cv2.VideoCapture(target, cv2.CAP_FFMPEG, list(params))
    return capture


class VideoStream:
    """A stream or a file that is open. RTSP goes over TCP, and over UDP where the camera refuses TCP.

    A resolution that changes within one connection does not show: OpenCV scales to the size that it saw first.
    """

    def __init__(
        self, spec: SourceSpec, clock: Clock, target: str, make: CaptureMaker = ffmpeg_capture
    ) -> None:
        """`target` is what the decoder is told, credentials included; raises as `open_source` does."""
        self._spec, self._clock, self._target, self._make = spec, clock, target, make
        self._is_live = spec.kind is not SourceKind.FILE
        self._name = shown_url(spec)
        self._frames = 0
        self._at, self._mono_s = clock.now(), clock.monotonic_s()
        self._decoding = spec.decoding
        self._capture = self._opened()
        self._facts = self._asked()

    @property
    def facts(self) -> SourceFacts:
        return self._facts

    def advance(self) -> bool:
        begun_s = self._clock.monotonic_s()
        if self._capture.grab() or self._grabbed_in_software():
            self._frames += 1
            self._at, self._mono_s = self._clock.now(), self._clock.monotonic_s()
            return True
        if not self._is_live:
            if not self._frames:
                raise Malformed(f"{self._name}: a video without a frame that can be decoded")
            return False
        waited_s = self._clock.monotonic_s() - begun_s
        if waited_s >= 0.9 * self._spec.read_timeout_s:
            raise Unavailable(f"{self._name}: no frame for {waited_s:.1f} s")
        raise Unavailable(f"{self._name}: the stream ended")

    def picture(self) -> Captured:
        is_there, picture = self._capture.retrieve()
        if not is_there or picture is None or not np.asarray(picture).size:
            raise Malformed(f"{self._name}: a frame that cannot be decoded")
        _check_size(self._name, picture.shape[1], picture.shape[0])
        pixels = pixels_from_array(picture)
        if self._facts.size is None:
            self._facts = replace(self._facts, size=size_of(pixels))
        return Captured(pixels, self._at, self._mono_s)

    def close(self) -> None:
        self._capture.release()

    def _grabbed_in_software(self) -> bool:
        """Tries again in software when a hardware decoder opened and gives nothing: some streams are beyond it."""
        if self._frames or self._facts.decoder == SOFTWARE:
            return False
        self._capture.release()
        self._decoding = Decoding.SOFTWARE
        self._capture = self._opened()
        self._facts = self._asked()
        return self._capture.grab()

    def _opened(self) -> Capture:
        begun_s = self._clock.monotonic_s()
        try:
            capture = self._make(self._target, self._params())
        except cv2.error as error:
            raise Malformed(f"{self._name}: cannot be opened as a video ({error.err})") from None
        if capture.isOpened():
            return capture
        capture.release()
        waited_s = self._clock.monotonic_s() - begun_s
        if not self._is_live:
            raise Malformed(f"{self._name}: not a video that FFmpeg can decode, or damaged")
        if waited_s >= 0.9 * self._spec.open_timeout_s:
            raise Unavailable(f"{self._name}: no stream within {waited_s:.1f} s")
        raise Unavailable(f"{self._name}: {why_refused(self._spec.chosen_url)}")

    def _params(self) -> list[int]:
        spec = self._spec
        wanted = [
            (cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, round(1000 * spec.open_timeout_s)),
            (cv2.CAP_PROP_READ_TIMEOUT_MSEC, round(1000 * spec.read_timeout_s)),
            (cv2.CAP_PROP_N_THREADS, spec.decode_threads),
        ]
        if self._decoding is Decoding.AUTO:
            wanted.append((cv2.CAP_PROP_HW_ACCELERATION, cv2.VIDEO_ACCELERATION_ANY))
        return [number for pair in wanted for number in pair]

    def _asked(self) -> SourceFacts:
        get = self._capture.get
        width, height = _whole(get(cv2.CAP_PROP_FRAME_WIDTH)), _whole(get(cv2.CAP_PROP_FRAME_HEIGHT))
        try:
            if width and height:
                _check_size(self._name, width, height)
        except TooLarge:
            self._capture.release()
            raise
        return SourceFacts(
            kind=self._spec.kind,
            codec=_codec(_whole(get(cv2.CAP_PROP_FOURCC))),
            size=ImageSize(width, height) if width and height else None,
            fps=sane_fps(get(cv2.CAP_PROP_FPS)) if self._is_live or not self._spec.fps else self._spec.fps,
            is_live=self._is_live,
            decoder=_HARDWARE.get(_whole(get(cv2.CAP_PROP_HW_ACCELERATION)), SOFTWARE),
        )


def open_stream(spec: SourceSpec, clock: Clock) -> VideoStream:
    """Connects to an RTSP or HTTP camera. Raises Unavailable with the reason, as far as it can be told."""
    return VideoStream(spec, clock, join_credentials(spec.chosen_url, spec.username, spec.password))


def why_refused(url: str, timeout_s: float = 2.0) -> str:
    """A sentence on why `url` (without credentials) gave no stream, after one more try to connect."""
    parts = urlsplit(url)
    try:
        host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme.lower(), 0)
    except ValueError:
        return "no stream; the port is not a number"
    try:
        socket.create_connection((host, port), timeout_s).close()
    except socket.gaierror:
        return f"no stream; there is no host {host!r}"
    except OSError as error:
        return f"no stream; {host}:{port} cannot be reached ({error.strerror or error})"
    return f"no stream; {host}:{port} can be reached, so look at the path, username and password"


def _check_size(name: str, width: int, height: int) -> None:
    if width * height > LARGEST_FRAME_PX:
        raise TooLarge(f"{name}: expected frames of at most {LARGEST_FRAME_PX} px, got {width}x{height}")


def _whole(value: float) -> int:
    return int(value) if math.isfinite(value) and value > 0 else 0


def _codec(fourcc: int) -> str | None:
    letters = (fourcc & 0xFFFFFFFF).to_bytes(4, "little").decode("ascii", "replace").strip("\0 ").lower()
    return letters if letters.isprintable() and letters else None
