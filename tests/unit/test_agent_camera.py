"""A camera's thread: what it hands out, what it drops and for which cause, and how it comes back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from edge_agent.capture.camera import (
    Camera,
    CameraPhase,
    CameraSettings,
    CameraState,
    Delivery,
    DropCause,
    stop_all,
)
from edge_agent.capture.mask import Polygon
from edge_agent.capture.source import FrameSource, SourceSpec
from edge_agent.capture.sources.url import SourceKind
from fovea.core.errors import FoveaError, Malformed, NotFound, Unavailable
from fovea.core.frame import Frame, ImageSize
from fovea.core.ports import Clock
from fovea.process.clock import SystemClock
from tests.fake_sources import FakeSource, Step, flat
from tests.unit.test_agent_sources import write_picture, write_video

LIVENESS_S = 20.0
LIVE = SourceSpec("rtsp://cam/main")
FILE = SourceSpec("clip.mp4")
QUICK = CameraSettings(first_retry_s=0.01, longest_retry_s=0.05, is_realtime=False)

Maker = Callable[[], FrameSource]


def eventually(is_so: Callable[[], object], what: str) -> None:
    until_s = time.monotonic() + LIVENESS_S
    while not is_so():
        assert time.monotonic() < until_s, f"never: {what}"
        time.sleep(0.002)


class Rig:
    """A camera on fake sources, made in turn by `makers` (the last one for ever), with all that it said."""

    def __init__(
        self, makers: Sequence[Maker | FoveaError], spec: SourceSpec = FILE, settings: CameraSettings = QUICK
    ) -> None:
        self._makers = list(makers)
        self.opened: list[FrameSource] = []
        self.states: list[CameraState] = []
        self.ready = threading.Semaphore(0)
        self.camera = Camera(
            "yard",
            spec,
            settings,
            SystemClock(),
            "boot",
            lambda _: self.ready.release(),
            self.states.append,
            self._open,
        )

    def _open(self, spec: SourceSpec, clock: Clock) -> FrameSource:
        maker = self._makers.pop(0) if len(self._makers) > 1 else self._makers[0]
        if isinstance(maker, FoveaError):
            raise maker
        self.opened.append(maker())
        return self.opened[-1]

    @property
    def phases(self) -> list[CameraPhase]:
        return [state.phase for state in self.states]

    def taken_to_the_end(self) -> list[Frame]:
        frames: list[Frame] = []

        def is_at_end() -> bool:
            frame = self.camera.take()
            if frame is not None:
                frames.append(frame)
            return frame is None and self.camera.is_finished

        eventually(is_at_end, "the end of the source")
        return frames


@pytest.fixture
def rigs() -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(*makers: Maker | FoveaError, **kinds: object) -> Rig:
        made.append(Rig(makers, **kinds))  # type: ignore[arg-type]
        made[-1].camera.start()
        return made[-1]

    yield make
    for rig in made:
        for source in rig.opened:
            source.close()
        rig.camera.stop(5.0)


def steps(*given: Step, kind: SourceKind = SourceKind.FILE, fps: float | None = None) -> Maker:
    return lambda: FakeSource(given, SystemClock(), kind, fps)


def level(frame: Frame) -> int:
    return int(frame.pixels[0, 0, 0])


def assert_all_accounted(rig: Rig) -> None:
    """Every frame that came in was taken or dropped for a cause; to be called when none lies ready."""
    counts = rig.camera.counts
    assert counts.frames == counts.taken + sum(counts.drops.values())


def test_each_frame_of_a_source_with_an_end_is_handed_out_once_in_order(rigs: Callable[..., Rig]) -> None:
    rig = rigs(steps(*(flat(number) for number in range(50))))
    frames = rig.taken_to_the_end()
    assert [level(frame) for frame in frames] == list(range(50))
    assert [frame.id.sequence for frame in frames] == list(range(50))
    assert {(frame.id.camera, frame.id.boot_id) for frame in frames} == {("yard", "boot")}
    assert rig.phases == [CameraPhase.ONLINE, CameraPhase.FINISHED]
    assert rig.states[-1].reason is None
    assert rig.opened[0].closed.is_set()  # type: ignore[attr-defined]
    assert_all_accounted(rig)


def test_of_a_live_source_the_newest_frame_wins_and_the_others_are_counted(rigs: Callable[..., Rig]) -> None:
    rig = rigs(steps(*(flat(number) for number in range(20)), kind=SourceKind.RTSP), spec=LIVE)
    eventually(lambda: rig.camera.counts.frames == 20, "all frames read")
    frame = rig.camera.take()
    assert frame is not None and level(frame) == 19
    assert rig.camera.take() is None
    assert rig.camera.drops[DropCause.REPLACED_BY_NEWER] == 19
    assert_all_accounted(rig)


def test_who_takes_is_told_when_a_frame_lies_ready(rigs: Callable[..., Rig]) -> None:
    rig = rigs(steps(flat(1), flat(2), flat(3)))
    for expected in (1, 2, 3):
        assert rig.ready.acquire(timeout=LIVENESS_S)
        frame = rig.camera.take()
        assert frame is not None and level(frame) == expected


def test_a_file_can_be_made_to_behave_like_a_live_camera(rigs: Callable[..., Rig]) -> None:
    settings = CameraSettings(is_realtime=False, delivery=Delivery.NEWEST)
    rig = rigs(steps(*(flat(number) for number in range(9))), settings=settings)
    eventually(lambda: rig.camera.counts.frames == 9, "all frames read")
    frames = rig.taken_to_the_end()
    assert [level(frame) for frame in frames] == [8]
    assert rig.camera.drops[DropCause.REPLACED_BY_NEWER] == 8


def test_a_file_in_real_time_is_thinned_by_its_own_time_and_never_made_into_pictures_for_nothing(
    rigs: Callable[..., Rig],
) -> None:
    settings = CameraSettings(fps=50)
    rig = rigs(steps(*(flat(number) for number in range(40)), fps=200), settings=settings)
    frames = rig.taken_to_the_end()
    assert [level(frame) for frame in frames] == list(range(0, 40, 4))
    assert rig.camera.drops[DropCause.NOT_DUE] == 30
    assert rig.opened[0].pictures == 10  # type: ignore[attr-defined]
    assert_all_accounted(rig)


def test_the_rate_can_be_changed_while_it_runs(rigs: Callable[..., Rig]) -> None:
    rig = rigs(steps(*(flat(number) for number in range(60)), fps=200), settings=CameraSettings(fps=1.0))
    assert rig.ready.acquire(timeout=LIVENESS_S)
    rig.camera.set_fps(None)
    assert len(rig.taken_to_the_end()) > 5
    with pytest.raises(Malformed, match="fps"):
        rig.camera.set_fps(0)


def test_an_undecodable_frame_is_counted_and_passed_over(rigs: Callable[..., Rig]) -> None:
    rig = rigs(steps(flat(1), Malformed("half a picture"), flat(3)))
    assert [level(frame) for frame in rig.taken_to_the_end()] == [1, 3]
    assert rig.camera.drops[DropCause.UNDECODABLE] == 1
    assert_all_accounted(rig)


def test_a_lost_camera_is_tried_again_until_it_is_back_and_both_are_said_once(
    rigs: Callable[..., Rig], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "edge_agent.capture.camera")
    gone = Unavailable("rtsp://cam/main: no stream")
    back = steps(flat(7), kind=SourceKind.RTSP)
    breaks = steps(flat(5), Unavailable("no frame for 3.0 s"), kind=SourceKind.RTSP)
    rig = rigs(gone, gone, gone, breaks, gone, gone, back, spec=LIVE)
    eventually(lambda: rig.camera.counts.connections == 2, "the second connection")
    assert rig.phases == [CameraPhase.LOST, CameraPhase.ONLINE, CameraPhase.LOST, CameraPhase.ONLINE]
    assert rig.states[2].reason == "no frame for 3.0 s"
    assert rig.camera.counts.attempts == 7
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 4
    assert "lost" in said[0] and "online again after" in said[1]
    assert rig.opened[0].closed.is_set()  # type: ignore[attr-defined]


def test_a_camera_that_is_refused_is_tried_again_but_a_file_is_not(rigs: Callable[..., Rig]) -> None:
    wrong = Malformed("cannot be decoded")
    camera = rigs(wrong, wrong, steps(flat(7), kind=SourceKind.RTSP), spec=LIVE)
    eventually(lambda: camera.camera.state.phase is CameraPhase.ONLINE, "the camera is back")
    file = rigs(NotFound("clip.mp4: no such file"))
    eventually(lambda: file.camera.is_finished, "the file is given up")
    assert file.camera.state.reason == "clip.mp4: no such file"
    assert file.camera.counts.attempts == 1


def test_an_unexpected_error_costs_a_reconnect_and_not_the_camera(
    rigs: Callable[..., Rig], caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> FrameSource:
        raise ZeroDivisionError("a bug of a driver")

    rig = rigs(broken, steps(flat(7), kind=SourceKind.RTSP), spec=LIVE)
    eventually(lambda: rig.camera.state.phase is CameraPhase.ONLINE, "the camera is back")
    assert rig.states[0].reason == "unexpected error: ZeroDivisionError"
    assert any(record.exc_info for record in caplog.records)


def test_a_change_of_resolution_is_told_and_does_no_harm(rigs: Callable[..., Rig]) -> None:
    first = steps(flat(1, 24, 32), flat(2, 48, 64), Unavailable("gone"), kind=SourceKind.RTSP)
    second = steps(flat(3, 90, 30), kind=SourceKind.RTSP)
    rig = rigs(first, second, spec=LIVE)
    eventually(lambda: rig.camera.counts.connections == 2, "the second connection")
    sizes = [state.facts.size for state in rig.states if state.facts is not None]
    assert sizes == [ImageSize(32, 24), ImageSize(64, 48), ImageSize(30, 90)]
    since = [state.since_mono_s for state in rig.states[:2]]
    assert since[0] == since[1], "online since then, whatever the size"


def test_a_frozen_camera_is_lost_until_its_picture_changes(rigs: Callable[..., Rig]) -> None:
    is_moving = threading.Event()

    def hangs() -> FrameSource:
        pictures = [flat(9)] * 20 if not is_moving.is_set() else [flat(number) for number in range(100, 140)]
        return FakeSource(pictures, SystemClock(), SourceKind.RTSP, before=lambda _: time.sleep(0.01))

    settings = CameraSettings(frozen_after_s=0.015, first_retry_s=0.01, longest_retry_s=0.02)
    rig = rigs(hangs, spec=LIVE, settings=settings)
    for source_number in range(3):
        eventually(lambda n=source_number: len(rig.opened) > n, "another try")  # type: ignore[misc]
        if source_number == 0:
            eventually(lambda: rig.camera.state.phase is CameraPhase.LOST, "frozen")
            assert "frozen" in (rig.camera.state.reason or "")
    assert rig.camera.drops[DropCause.FROZEN] >= 1
    assert rig.phases == [CameraPhase.ONLINE, CameraPhase.LOST], "no flapping while it hangs"
    is_moving.set()
    for source in list(rig.opened):
        source.close()
    eventually(lambda: rig.camera.state.phase is CameraPhase.ONLINE, "it moves again")


def test_masked_parts_are_black_in_every_frame_that_leaves(rigs: Callable[..., Rig]) -> None:
    half = Polygon(((0, 0), (0.5, 0), (0.5, 1), (0, 1)))
    settings = CameraSettings(masks=(half,), is_realtime=False)
    rig = rigs(steps(flat(200), flat(100, 30, 50)), settings=settings)
    for frame in rig.taken_to_the_end():
        middle = frame.pixels.shape[1] // 2
        assert not frame.pixels[:, :middle].any()
        assert (frame.pixels[:, middle + 2 :] >= 100).all()


def test_stopping_takes_no_longer_than_it_may_although_the_thread_sits_in_a_read(
    rigs: Callable[..., Rig],
) -> None:
    rig = rigs(steps(flat(1), kind=SourceKind.RTSP), spec=LIVE)
    eventually(lambda: rig.camera.state.phase is CameraPhase.ONLINE, "online")
    begun_s = time.monotonic()
    assert rig.camera.stop(0.1) is False
    assert time.monotonic() - begun_s < 4
    assert rig.camera.state.phase is CameraPhase.STOPPED
    assert rig.camera.take() is None
    rig.opened[0].close()
    eventually(lambda: rig.camera.stop(0.1), "the thread ends")
    assert rig.phases == [CameraPhase.ONLINE, CameraPhase.STOPPED]
    assert rig.camera.drops[DropCause.STOPPED] == 1
    assert_all_accounted(rig)


def test_stopping_ends_a_reader_that_waits_for_its_frame_to_be_taken(rigs: Callable[..., Rig]) -> None:
    rig = rigs(steps(flat(1), flat(2), flat(3)))
    eventually(lambda: rig.camera.counts.frames == 2, "the second frame waits for the first to be taken")
    assert rig.camera.stop(LIVENESS_S)
    assert rig.camera.drops[DropCause.STOPPED] == 2
    assert_all_accounted(rig)


def test_stopping_ends_the_pause_between_attempts(rigs: Callable[..., Rig]) -> None:
    settings = CameraSettings(first_retry_s=3600, longest_retry_s=3600)
    rig = rigs(Unavailable("gone"), spec=LIVE, settings=settings)
    eventually(lambda: rig.camera.state.phase is CameraPhase.LOST, "lost")
    assert rig.camera.stop(LIVENESS_S)


def test_a_picture_folder_with_broken_files_is_read_to_its_end(tmp_path: Path) -> None:
    write_picture(tmp_path / "1.png", 10)
    (tmp_path / "2.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    write_picture(tmp_path / "3.png", 30)
    rig = Rig([NotFound("unused")])
    camera = Camera(
        "f", SourceSpec(str(tmp_path)), QUICK, SystemClock(), "b", lambda _: None, rig.states.append
    )
    rig.camera = camera
    camera.start()
    assert [level(frame) for frame in rig.taken_to_the_end()] == [10, 30]
    assert camera.drops[DropCause.UNDECODABLE] == 1


def test_twenty_files_are_played_in_one_process_and_stop_cleanly(tmp_path: Path) -> None:
    video = write_video(tmp_path / "clip.mp4", 8, fps=20)
    before = threading.active_count()
    settings = CameraSettings(fps=5, delivery=Delivery.NEWEST)
    ready = threading.Semaphore(0)
    cameras = [
        Camera(
            f"c{number}",
            SourceSpec(str(video), is_looped=True),
            settings,
            SystemClock(),
            "b",
            lambda _: ready.release(),
            lambda _: None,
        )
        for number in range(20)
    ]
    seen = dict.fromkeys((camera.name for camera in cameras), 0)
    for camera in cameras:
        camera.start()

    def each_gave_three() -> bool:
        for camera in cameras:
            frame = camera.take()
            if frame is not None:
                assert frame.pixels.shape == (48, 64, 3)
                seen[frame.id.camera] += 1
        return min(seen.values()) >= 3

    eventually(each_gave_three, "three frames of each camera")
    assert stop_all(cameras, LIVENESS_S) == []
    for camera in cameras:
        counts = camera.counts
        assert counts.frames == counts.taken + sum(counts.drops.values())
        assert camera.state.phase is CameraPhase.STOPPED
    eventually(lambda: threading.active_count() <= before, "all threads ended")


@pytest.mark.parametrize(
    "wrong",
    [
        {"fps": 0.0},
        {"fps": float("nan")},
        {"frozen_after_s": 0.0},
        {"first_retry_s": 5, "longest_retry_s": 1},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(Malformed, match="expected"):
        CameraSettings(**wrong)  # type: ignore[arg-type]


def test_a_camera_shows_no_password_in_its_repr() -> None:
    rig = Rig([Unavailable("x")], spec=SourceSpec("rtsp://u:hunter2@cam/s?pwd=hunter2"))
    assert "hunter2" not in repr(rig.camera) + repr(rig.camera.spec) + repr(rig.camera.state)


def test_a_frames_pixels_cannot_be_written_to(rigs: Callable[..., Rig]) -> None:
    rig = rigs(steps(flat(1)))
    (frame,) = rig.taken_to_the_end()
    with pytest.raises(ValueError, match="read-only"):
        np.add(frame.pixels, 1, out=frame.pixels)
