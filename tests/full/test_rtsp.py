"""A camera as most are: H.264 over RTSP, from a server that is none of ours (GStreamer's).

Needs an interpreter with gi and GstRtspServer; on Debian: apt-get install gir1.2-gst-rtsp-server-1.0 python3-gi
gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-plugins-ugly
"""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from edge_agent.capture.camera import Camera, CameraPhase, CameraSettings
from edge_agent.capture.camera_trial import try_source
from edge_agent.capture.source import SourceSpec
from fovea.core.errors import Unavailable
from fovea.core.frame import Frame, ImageSize
from fovea.process.clock import SystemClock

PYTHON = "/usr/bin/python3"
SERVER = Path(__file__).with_name("gst_camera.py")
LIVENESS_S = 60.0
USER, PASSWORD = "viewer 1", "p@ss/w:rd#?"


def _has_gstreamer() -> bool:
    code = (
        "import gi; gi.require_version('Gst', '1.0'); gi.require_version('GstRtspServer', '1.0');"
        "from gi.repository import Gst, GstRtspServer; Gst.init(None);"
        "assert Gst.ElementFactory.find('x264enc')"
    )
    try:
        return subprocess.run([PYTHON, "-c", code], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


pytestmark = pytest.mark.skipif(
    not _has_gstreamer(),
    reason=f"{PYTHON} has no GStreamer RTSP server with x264enc (see the top of this file)",
)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def gst_camera(port: int, size: tuple[int, int], user: str = "", password: str = "") -> Iterator[None]:
    """A camera at rtsp://127.0.0.1:PORT/main; it is killed at the end, as by a power cut."""
    command = [PYTHON, str(SERVER), str(port), str(size[0]), str(size[1]), user, password]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield
    finally:
        process.kill()
        process.wait()


def spec(port: int, **changes: object) -> SourceSpec:
    usual = SourceSpec(f"rtsp://127.0.0.1:{port}/main", open_timeout_s=20, read_timeout_s=3)
    return replace(usual, **changes)  # type: ignore[arg-type]


def eventually(is_so: Callable[[], object], what: str) -> None:
    until_s = time.monotonic() + LIVENESS_S
    while not is_so():
        assert time.monotonic() < until_s, f"never: {what}"
        time.sleep(0.01)


def test_what_an_h264_camera_is_gets_told() -> None:
    port = free_port()
    with gst_camera(port, (320, 240)):
        trial = try_source(spec(port), SystemClock(), measure_s=3.0)
    assert (trial.facts.codec, trial.facts.size, trial.facts.is_live) == ("h264", ImageSize(320, 240), True)
    assert trial.facts.fps == pytest.approx(15, rel=0.2)
    assert trial.measured_fps is not None and trial.measured_fps > 5
    assert trial.pixels.max() > 200, "a white ball"


def test_credentials_of_any_letters_pass_a_real_server() -> None:
    port = free_port()
    with gst_camera(port, (320, 240), USER, PASSWORD):
        trial = try_source(spec(port, username=USER, password=PASSWORD), SystemClock(), measure_s=0)
        assert trial.facts.size == ImageSize(320, 240)
        with pytest.raises(Unavailable, match="username and password") as caught:
            try_source(spec(port, username=USER, password="wrong one"), SystemClock())
        assert "wrong one" not in str(caught.value)


def test_a_camera_that_loses_power_is_back_with_another_resolution() -> None:
    port = free_port()
    ready = threading.Event()
    settings = CameraSettings(first_retry_s=0.2, longest_retry_s=1.0)
    camera = Camera(
        "yard", spec(port), settings, SystemClock(), "boot", lambda _: ready.set(), lambda _: ready.set()
    )

    def frame_of(size: ImageSize) -> None:
        def came() -> bool:
            frame: Frame | None = camera.take()
            return frame is not None and frame.size == size

        eventually(came, f"a frame of {size}")

    camera.start()
    try:
        with gst_camera(port, (320, 240)):
            frame_of(ImageSize(320, 240))
        eventually(lambda: camera.state.phase is CameraPhase.LOST, "lost")
        with gst_camera(port, (640, 360)):
            frame_of(ImageSize(640, 360))
    finally:
        assert camera.stop(LIVENESS_S)
