"""Cameras over the network, for real: HTTP and RTSP servers that stop, hang, change and ask who is there."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from edge_agent.capture.camera import Camera, CameraPhase, CameraSettings, CameraState, DropCause, stop_all
from edge_agent.capture.source import SourceSpec, open_source, read_next
from fovea.core.errors import Unavailable
from fovea.core.frame import Frame, ImageSize
from fovea.process.clock import SystemClock
from tests.rtsp_camera import RtspCamera, rtsp_camera
from tests.stream_servers import motion_jpeg, numbered, silent_peer

LIVENESS_S = 40.0
USER, PASSWORD = "ad min", "p@ss/w:rd#?%&"
QUICK = CameraSettings(first_retry_s=0.05, longest_retry_s=0.2, frozen_after_s=None)


def spec(url: str, **changes: object) -> SourceSpec:
    usual = SourceSpec(url, open_timeout_s=5.0, read_timeout_s=2.0)
    return replace(usual, **changes)  # type: ignore[arg-type]


def eventually(is_so: Callable[[], object], what: str) -> None:
    until_s = time.monotonic() + LIVENESS_S
    while not is_so():
        assert time.monotonic() < until_s, f"never: {what}"
        time.sleep(0.005)


class Watched:
    """A running camera, and what it said."""

    def __init__(self, name: str, wanted: SourceSpec, settings: CameraSettings = QUICK) -> None:
        self.states: list[CameraState] = []
        self.camera = Camera(
            name, wanted, settings, SystemClock(), "boot", lambda _: None, self.states.append
        )
        self.camera.start()

    @property
    def phases(self) -> list[CameraPhase]:
        return [state.phase for state in self.states]

    def frame(self, is_right: Callable[[Frame], bool] = lambda frame: True) -> Frame:
        found: list[Frame] = []

        def came() -> bool:
            frame = self.camera.take()
            if frame is not None and is_right(frame):
                found.append(frame)
            return bool(found)

        eventually(came, "such a frame")
        return found[0]

    def phase(self, phase: CameraPhase) -> None:
        eventually(lambda: self.camera.state.phase is phase, f"{phase}; it is {self.camera.state}")


@pytest.fixture
def watch() -> Iterator[Callable[..., Watched]]:
    made: list[Watched] = []

    def start(*given: object, **more: object) -> Watched:
        made.append(Watched(f"c{len(made)}", *given, **more))  # type: ignore[arg-type]
        return made[-1]

    yield start
    stop_all([each.camera for each in made], LIVENESS_S)


def test_an_http_camera_gives_its_newest_frame(watch: Callable[..., Watched]) -> None:
    with motion_jpeg(numbered(80, 48)) as server:
        watched = watch(spec(server.url))
        first = watched.frame()
        assert first.size == ImageSize(80, 48)
        eventually(lambda: watched.camera.counts.frames >= 12, "more frames")
        behind = server.sent - watched.camera.counts.frames
        assert behind < 10, "frames do not queue up"
        newest = watched.frame()
        assert newest.id.sequence > first.id.sequence + 1
        assert watched.camera.drops[DropCause.REPLACED_BY_NEWER] > 0
        facts = watched.camera.state.facts
        assert facts is not None and facts.codec == "mjpg" and facts.is_live


def test_a_camera_that_went_away_is_back_by_itself_with_another_resolution(
    watch: Callable[..., Watched],
) -> None:
    with motion_jpeg(numbered(64, 48)) as server:
        watched = watch(spec(server.url))
        watched.frame(lambda frame: frame.size == ImageSize(64, 48))
        for size in (ImageSize(96, 32), ImageSize(48, 80)):
            server.stop()
            watched.phase(CameraPhase.LOST)
            tries = watched.camera.counts.attempts
            eventually(lambda n=tries: watched.camera.counts.attempts > n + 1, "more tries")  # type: ignore[misc]
            server.paint = numbered(size.width, size.height)
            server.start()
            watched.frame(lambda frame, size=size: frame.size == size)  # type: ignore[misc]
        assert watched.phases == [CameraPhase.ONLINE, CameraPhase.LOST] * 2 + [CameraPhase.ONLINE]
        assert watched.camera.counts.connections == 3


def test_a_change_of_resolution_within_one_connection_does_no_harm(watch: Callable[..., Watched]) -> None:
    """OpenCV scales what comes to the size that it saw first, until the next connection."""
    with motion_jpeg(lambda number: numbered(64, 48)(100)) as server:
        watched = watch(spec(server.url))
        watched.frame(lambda frame: int(frame.pixels.min()) > 0)
        server.paint = lambda number: numbered(32, 96)(0)
        frame = watched.frame(lambda frame: int(frame.pixels.max()) == 0)
        assert frame.size == ImageSize(64, 48)
        assert watched.camera.counts.connections == 1


def test_a_camera_that_hangs_with_its_connection_open_is_lost_and_back(watch: Callable[..., Watched]) -> None:
    with motion_jpeg(numbered()) as server:
        watched = watch(spec(server.url, read_timeout_s=0.5))
        watched.frame()
        server.mute.set()
        watched.phase(CameraPhase.LOST)
        assert "no frame for" in (watched.camera.state.reason or "")
        server.mute.clear()
        watched.phase(CameraPhase.ONLINE)


@pytest.mark.parametrize("scheme", ["rtsp", "http"])
def test_a_peer_that_accepts_and_never_answers_is_tried_again(
    watch: Callable[..., Watched], scheme: str
) -> None:
    with silent_peer() as (port, held):
        watched = watch(spec(f"{scheme}://127.0.0.1:{port}/s", open_timeout_s=0.4))
        eventually(lambda: watched.camera.counts.attempts >= 3, "three attempts")
        assert watched.phases == [CameraPhase.LOST]
        assert "no stream within 0.4 s" in (watched.camera.state.reason or "")
        assert len(held) >= 2


def test_silent_cameras_keep_no_other_camera_out(watch: Callable[..., Watched]) -> None:
    with silent_peer() as (port, held), motion_jpeg(numbered()) as server:
        for number in range(4):
            watch(spec(f"rtsp://127.0.0.1:{port}/{number}", open_timeout_s=600.0))
        eventually(lambda: len(held) == 4, "all of them connect at the same time")
        watch(spec(server.url)).frame()


@pytest.mark.parametrize("kind", ["http", "rtsp basic", "rtsp digest"])
def test_credentials_of_any_letters_let_us_in_and_are_never_told(
    watch: Callable[..., Watched],
    kind: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    server = (
        motion_jpeg(numbered(), f"{USER}:{PASSWORD}")
        if kind == "http"
        else rtsp_camera(RtspCamera(numbered(), (USER, PASSWORD), is_digest=kind.endswith("digest")))
    )
    with server as camera:
        right = watch(spec(camera.url, username=USER, password=PASSWORD))
        right.frame()
        wrong = watch(spec(camera.url, username=USER, password=f"not {PASSWORD}"))
        wrong.phase(CameraPhase.LOST)
        assert "username and password" in (wrong.camera.state.reason or "")
        told = [repr(right.camera), repr(wrong.states), repr(right.states), caplog.text, *capfd.readouterr()]
        for text in told:
            assert PASSWORD not in text and "p%40ss" not in text


def test_an_rtsp_camera_is_read_over_tcp(watch: Callable[..., Watched]) -> None:
    with rtsp_camera(RtspCamera(numbered(96, 64))) as camera:
        watched = watch(spec(camera.url))
        assert watched.frame().size == ImageSize(96, 64)
        eventually(lambda: watched.camera.counts.frames > 30, "more frames")
        assert [("TCP" in transport) for transport in camera.transports] == [True]


def test_an_rtsp_camera_that_refuses_tcp_is_read_over_udp(watch: Callable[..., Watched]) -> None:
    with rtsp_camera(RtspCamera(numbered(96, 64), refuses_tcp=True)) as camera:
        watched = watch(spec(camera.url))
        assert watched.frame().size == ImageSize(96, 64)
        assert [("TCP" in transport) for transport in camera.transports] == [True, False]


def test_an_rtsp_camera_that_hangs_stops_and_comes_back_with_another_resolution(
    watch: Callable[..., Watched],
) -> None:
    camera = RtspCamera(numbered(64, 48))
    with rtsp_camera(camera):
        watched = watch(spec(camera.url, read_timeout_s=0.7))
        watched.frame()
        camera.mute.set()
        watched.phase(CameraPhase.LOST)
        camera.mute.clear()
        watched.phase(CameraPhase.ONLINE)
    watched.phase(CameraPhase.LOST)
    camera.paint = numbered(32, 80)
    with rtsp_camera(camera):
        watched.frame(lambda frame: frame.size == ImageSize(32, 80))


def test_an_address_where_nothing_is_says_what_is_wrong() -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        open_source(spec("rtsp://127.0.0.1:1/s"), SystemClock())
    with pytest.raises(Unavailable, match="there is no host"):
        open_source(spec("http://nobody.invalid/s"), SystemClock())


def test_a_frozen_http_camera_is_noticed(watch: Callable[..., Watched]) -> None:
    with motion_jpeg(numbered()) as server:
        settings = replace(QUICK, frozen_after_s=0.5)
        watched = watch(spec(server.url), settings)
        watched.frame()
        moving, still = server.paint, numbered()(3)
        server.paint = lambda _: still
        watched.phase(CameraPhase.LOST)
        assert "frozen" in (watched.camera.state.reason or "")
        server.paint = moving
        watched.phase(CameraPhase.ONLINE)


_PROCESS = """
import signal, sys, threading
from edge_agent.capture.camera import Camera, CameraSettings, stop_all
from fovea.process.clock import SystemClock
from edge_agent.capture.source import SourceSpec
told = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: told.set())
cameras = [
    Camera(str(n), SourceSpec(sys.argv[1], open_timeout_s=600, read_timeout_s=600), CameraSettings(),
           SystemClock(), "boot", lambda _: None, lambda state: None)
    for n in range(3)
]
for camera in cameras:
    camera.start()
print("started", flush=True)
told.wait()
print(len(stop_all(cameras, 1.0)), flush=True)
"""


@pytest.mark.parametrize("sits_in", ["open", "read"])
def test_a_process_ends_in_time_although_its_cameras_sit_in_a_call_that_does_not_return(sits_in: str) -> None:
    with silent_peer() as (port, held), motion_jpeg(numbered()) as server:
        url = f"rtsp://127.0.0.1:{port}/s" if sits_in == "open" else server.url
        process = subprocess.Popen(
            [sys.executable, "-c", _PROCESS, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None and process.stdout.readline() == "started\n"
            if sits_in == "open":
                eventually(lambda: len(held) == 3, "all connected")
            else:
                eventually(lambda: server.sent > 60, "frames flow")
                server.mute.set()
                sent = -1

                def is_silent() -> bool:
                    nonlocal sent
                    before, sent = sent, server.sent
                    time.sleep(0.3)
                    return before == sent

                eventually(is_silent, "the server is silent")
            begun_s = time.monotonic()
            process.send_signal(signal.SIGTERM)
            output, errors = process.communicate(timeout=LIVENESS_S)
            assert (process.returncode, output) == (0, "3\n"), errors
            assert time.monotonic() - begun_s < 5.0
        finally:
            process.kill()
            process.wait()


def test_camera_test_says_what_it_found_and_no_password(tmp_path: Path) -> None:
    secret = "hunter2hunter2"
    password_file = tmp_path / "secret.txt"
    password_file.write_text(secret + "\n")
    fovea = [sys.executable, "-c", "from fovea.cli.main import main; main()", "camera", "test"]
    with rtsp_camera(RtspCamera(numbered(96, 64), ("admin", secret))) as camera:
        ways = [
            [camera.url, "--username", "admin", "--password-file", str(password_file)],
            [camera.url.replace("rtsp://", f"rtsp://admin:{secret}@")],
        ]
        for number, way in enumerate(ways):
            picture = tmp_path / f"first{number}.png"
            done = subprocess.run(
                [*fovea, *way, "--save", str(picture), "--measure", "0.5"], capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
            assert "mjpg 96x64" in done.stdout and "first frame after" in done.stdout
            assert secret not in done.stdout + done.stderr
            captured = read_next(open_source(SourceSpec(str(picture)), SystemClock()))
            assert captured is not None and captured.pixels.shape == (64, 96, 3)
        wrong = [
            camera.url.replace("rtsp://", f"rtsp://admin:no{secret}@"),
            "--save",
            str(tmp_path / "x.jpg"),
        ]
        done = subprocess.run([*fovea, *wrong], capture_output=True, text=True)
        assert done.returncode == 75
        assert "username and password" in done.stderr
        assert secret not in done.stdout + done.stderr
        assert not (tmp_path / "x.jpg").exists()
