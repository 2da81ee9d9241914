"""A camera on this machine (USB, CSI) through Video4Linux."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import cv2

from edge_agent.capture.source import Captured, SourceFacts, SourceSpec, sane_fps
from edge_agent.capture.sources.url import SourceKind, device_of
from edge_agent.capture.sources.video_stream import Capture
from fovea.core.errors import Malformed, Unavailable
from fovea.core.frame import ImageSize
from fovea.core.ports import Clock
from fovea.runtime.images import pixels_from_array


def v4l2_capture(device: int, params: Sequence[int]) -> Capture:
    """Opens /dev/videoN with OpenCV's own Video4Linux reader, which waits 10 s at most for a frame."""
    capture: Capture = cv2.VideoCapture(device, cv2.CAP_V4L2, list(params))
    return capture


class V4l2Camera:
    """An open device. Size and rate are wishes: the device takes the nearest it has, and `facts` says what came."""

    def __init__(
        self, spec: SourceSpec, clock: Clock, make: Callable[[int, Sequence[int]], Capture] = v4l2_capture
    ) -> None:
        device = device_of(spec.chosen_url)
        self._name, self._clock = f"/dev/video{device}", clock
        self._capture = make(device, _wishes(spec))
        if not self._capture.isOpened():
            self._capture.release()
            known = ", ".join(sorted(str(path) for path in Path("/dev").glob("video*"))) or "none"
            raise Unavailable(f"{self._name}: no camera there that can be opened; devices here: {known}")
        self._facts = self._asked()
        self._at, self._mono_s = clock.now(), clock.monotonic_s()

    @property
    def facts(self) -> SourceFacts:
        return self._facts

    def advance(self) -> bool:
        if not self._capture.grab():
            raise Unavailable(f"{self._name}: no frame from the device; unplugged, or in use elsewhere")
        self._at, self._mono_s = self._clock.now(), self._clock.monotonic_s()
        return True

    def picture(self) -> Captured:
        is_there, picture = self._capture.retrieve()
        if not is_there or picture is None:
            raise Malformed(f"{self._name}: a frame that cannot be decoded")
        return Captured(pixels_from_array(picture), self._at, self._mono_s)

    def close(self) -> None:
        self._capture.release()

    def _asked(self) -> SourceFacts:
        get = self._capture.get
        width, height = int(get(cv2.CAP_PROP_FRAME_WIDTH)), int(get(cv2.CAP_PROP_FRAME_HEIGHT))
        letters = int(get(cv2.CAP_PROP_FOURCC)) & 0xFFFFFFFF
        codec = letters.to_bytes(4, "little").decode("ascii", "replace").strip("\0 ").lower()
        return SourceFacts(
            SourceKind.V4L2,
            codec or None,
            ImageSize(width, height) if width > 0 and height > 0 else None,
            sane_fps(get(cv2.CAP_PROP_FPS)),
            is_live=True,
        )


def _wishes(spec: SourceSpec) -> list[int]:
    # Motion JPEG first: uncompressed frames of any size fill a USB 2 cable at a few frames per second.
    wanted = [(cv2.CAP_PROP_FOURCC, cv2.VideoWriter.fourcc(*"MJPG"))]
    if spec.size is not None:
        wanted += [
            (cv2.CAP_PROP_FRAME_WIDTH, spec.size.width),
            (cv2.CAP_PROP_FRAME_HEIGHT, spec.size.height),
        ]
    if spec.fps is not None:
        wanted.append((cv2.CAP_PROP_FPS, round(spec.fps)))
    wanted.append((cv2.CAP_PROP_BUFFERSIZE, 1))
    return [number for pair in wanted for number in pair]
