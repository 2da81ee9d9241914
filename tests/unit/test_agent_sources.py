"""Files, folders and devices as sources: what is read, in which order, and what is refused by name."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from edge_agent.capture.source import (
    Decoding,
    FrameSource,
    SourceFacts,
    SourceSpec,
    described,
    open_source,
    read_next,
    sane_fps,
)
from edge_agent.capture.sources.url import SourceKind
from edge_agent.capture.sources.v4l2 import V4l2Camera
from edge_agent.capture.sources.vendor_env import prepare_opencv
from edge_agent.capture.sources.video_stream import VideoStream
from fovea.core.errors import FoveaError, Malformed, NotFound, TooLarge, Unavailable
from fovea.core.frame import ImageSize
from tests.builders import scene
from tests.fake_sources import FakeCapture, flat
from tests.fakes import FakeClock

CLOCK = FakeClock()
LEVEL_STEP = 20


def write_video(path: Path, frames: int, size: tuple[int, int] = (64, 48), fps: float = 10.0) -> Path:
    """Frame n is grey of level 20 n."""
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"mp4v"), fps, size)
    assert writer.isOpened()
    for number in range(frames):
        writer.write(flat(number * LEVEL_STEP, size[1], size[0]))
    writer.release()
    return path


def write_picture(path: Path, level: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), flat(level))
    return path


def levels(source: FrameSource) -> list[int]:
    """Every frame that is left, as the number that its grey stands for."""
    found = []
    while (captured := read_next(source)) is not None:
        found.append(round(float(captured.pixels.mean()) / LEVEL_STEP))
    source.close()
    return found


def spec(path: Path, **changes: object) -> SourceSpec:
    return replace(SourceSpec(str(path)), **changes)  # type: ignore[arg-type]


def test_a_video_gives_every_frame_once_and_says_what_it_is(tmp_path: Path) -> None:
    source = open_source(spec(write_video(tmp_path / "clip.mp4", 7)), CLOCK)
    assert (source.facts.kind, source.facts.size, source.facts.fps) == (
        SourceKind.FILE,
        ImageSize(64, 48),
        10.0,
    )
    assert source.facts.codec in ("mp4v", "fmp4", "mpeg4")
    assert not source.facts.is_live
    assert levels(source) == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"start": 2}, [2, 3, 4]),
        ({"limit": 2}, [0, 1]),
        ({"start": 1, "limit": 3}, [1, 2, 3]),
        ({"start": 9}, []),
        ({"limit": 99}, [0, 1, 2, 3, 4]),
    ],
)
@pytest.mark.parametrize("is_folder", [False, True])
def test_a_part_of_a_video_or_a_folder_can_be_read(
    tmp_path: Path, changes: dict[str, int], expected: list[int], is_folder: bool
) -> None:
    path = tmp_path / "source"
    if is_folder:
        for number in range(5):
            write_picture(path / f"{number}.png", number * LEVEL_STEP)
    else:
        path = write_video(tmp_path / "clip.mp4", 5)
    assert levels(open_source(spec(path, **changes), CLOCK)) == expected


def test_a_looped_file_begins_again_for_ever_and_each_round_has_the_same_frames(tmp_path: Path) -> None:
    video = write_video(tmp_path / "clip.mp4", 4)
    source = open_source(spec(video, is_looped=True, start=1, limit=2), CLOCK)
    seen = []
    for _ in range(7):
        captured = read_next(source)
        assert captured is not None
        seen.append(round(float(captured.pixels.mean()) / LEVEL_STEP))
    source.close()
    assert seen == [1, 2, 1, 2, 1, 2, 1]


def test_a_loop_over_nothing_ends(tmp_path: Path) -> None:
    video = write_video(tmp_path / "clip.mp4", 3)
    assert levels(open_source(spec(video, is_looped=True, start=50), CLOCK)) == []


def test_frames_passed_over_are_not_drawn_but_counted(tmp_path: Path) -> None:
    source = open_source(spec(write_video(tmp_path / "clip.mp4", 6)), CLOCK)
    assert source.advance() and source.advance() and source.advance()
    assert round(float(source.picture().pixels.mean()) / LEVEL_STEP) == 2
    source.close()


def test_pictures_come_by_number_from_all_folders_below_each_with_its_name(tmp_path: Path) -> None:
    for name, level in (
        ("b10.jpg", 80),
        ("b2.jpg", 60),
        ("a/1.png", 40),
        (".hidden.jpg", 0),
        ("a/2.bmp", 20),
    ):
        write_picture(tmp_path / name, level)
    (tmp_path / "labels.txt").write_text("not a picture")
    source = open_source(spec(tmp_path), CLOCK)
    names = []
    while (captured := read_next(source)) is not None:
        names.append(captured.name)
    assert names == ["a/1.png", "a/2.bmp", "b2.jpg", "b10.jpg"]


def test_a_broken_picture_in_a_folder_is_named_and_the_next_one_follows(tmp_path: Path) -> None:
    write_picture(tmp_path / "1.jpg", 0)
    whole = write_picture(tmp_path / "2.jpg", 100).read_bytes()
    (tmp_path / "2.jpg").write_bytes(whole[: len(whole) // 2])
    write_picture(tmp_path / "3.jpg", 40)
    source = open_source(spec(tmp_path), CLOCK)
    assert source.advance() and source.picture().name == "1.jpg"
    assert source.advance()
    with pytest.raises(Malformed, match=r"2\.jpg"):
        source.picture()
    assert source.advance() and source.picture().name == "3.jpg"
    assert not source.advance()


def test_the_orientation_in_a_pictures_exif_holds(tmp_path: Path) -> None:
    path = tmp_path / "portrait.jpg"
    data = cv2.imencode(".jpg", scene(40, 60))[1].tobytes()
    tiff = b"MM\0*\0\0\0\x08" + struct.pack(">HHHIHHI", 1, 0x0112, 3, 1, 6, 0, 0)
    exif = b"Exif\0\0" + tiff
    path.write_bytes(data[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + data[2:])
    captured = read_next(open_source(spec(path), CLOCK))
    assert captured is not None
    assert captured.pixels.shape == (60, 40, 3)


@pytest.mark.parametrize(
    ("name", "content", "error", "says"),
    [
        ("empty.mp4", b"", Malformed, "empty file"),
        ("page.mp4", b"<!DOCTYPE html><html>404</html>", Malformed, "HTML"),
        ("pointer.mp4", b"version https://git-lfs.github.com/spec/v1\n", Malformed, "LFS"),
        ("noise.mp4", bytes(range(256)) * 40, Malformed, "not a video"),
        ("text.jpg", b"no picture at all", Malformed, "expected JPEG"),
        ("bomb.gif", b"GIF89a\xff\xff\xff\xff\0\0\0;", TooLarge, "65535x65535"),
        ("cut.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0", Malformed, "cut short"),
    ],
)
def test_a_file_that_is_no_video_and_no_picture_is_refused_by_name(
    tmp_path: Path, name: str, content: bytes, error: type[FoveaError], says: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(error, match=says):
        read_next(open_source(spec(path), CLOCK))


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such file"):
        open_source(spec(tmp_path / "gone.mp4"), CLOCK)
    with pytest.raises(NotFound, match="no pictures"):
        open_source(spec(tmp_path), CLOCK)
    with pytest.raises(Malformed, match="file or a folder"):
        open_source(SourceSpec("/dev/null"), CLOCK)
    with pytest.raises(Unavailable, match="/dev/video97"):
        open_source(SourceSpec("/dev/video97"), CLOCK)


def test_a_simulated_camera_goes_on_where_frames_were_passed_over() -> None:
    address = "sim://street-v1/day?fps=5&size=96x54&seed=3"
    every = open_source(SourceSpec(address), CLOCK)
    pictures = [read_next(every) for _ in range(3)]
    some = open_source(SourceSpec(address), CLOCK)
    assert some.advance() and some.advance() and some.advance()
    third = some.picture()
    assert pictures[2] is not None and pictures[0] is not None
    assert np.array_equal(third.pixels, pictures[2].pixels)
    assert not np.array_equal(third.pixels, pictures[0].pixels)
    assert (some.facts.size, some.facts.fps, some.facts.is_live) == (ImageSize(96, 54), 5.0, True)


def test_the_rate_that_is_asked_for_goes_before_that_of_a_file_or_a_simulated_camera(tmp_path: Path) -> None:
    video = write_video(tmp_path / "clip.mp4", 3)
    assert open_source(spec(video, fps=3.0), CLOCK).facts.fps == 3.0
    assert open_source(SourceSpec("sim://street-v1/day?size=96x54", fps=4.0), CLOCK).facts.fps == 4.0


@pytest.mark.parametrize("fps", [0.0, -1.0, float("nan"), float("inf"), 90000.0, 1000.0])
def test_a_rate_that_no_camera_has_counts_as_unknown(fps: float) -> None:
    assert sane_fps(fps) is None
    stream = VideoStream(SourceSpec("rtsp://cam/s"), CLOCK, "x", lambda *_: FakeCapture(3, fps=fps))
    assert stream.facts.fps is None
    assert "frames/s" not in described(stream.facts)


class Makes:
    """A maker of captures that keeps what it was asked for."""

    def __init__(self, *captures: FakeCapture) -> None:
        self.captures, self.targets, self.params = list(captures), [], []

    def __call__(self, target: object, params: Sequence[int]) -> FakeCapture:
        self.targets.append(target)
        self.params.append(dict(zip(params[::2], params[1::2], strict=True)))
        return self.captures.pop(0)


def test_the_time_limits_reach_the_decoder_as_parameters() -> None:
    makes = Makes(FakeCapture(1))
    VideoStream(SourceSpec("rtsp://cam/s", open_timeout_s=2.5, read_timeout_s=1.25), CLOCK, "t", makes)
    assert makes.params[0][cv2.CAP_PROP_OPEN_TIMEOUT_MSEC] == 2500
    assert makes.params[0][cv2.CAP_PROP_READ_TIMEOUT_MSEC] == 1250
    assert makes.params[0][cv2.CAP_PROP_N_THREADS] == 1
    assert makes.params[0][cv2.CAP_PROP_HW_ACCELERATION] == cv2.VIDEO_ACCELERATION_ANY


def test_a_hardware_decoder_that_gives_nothing_is_given_up_for_software() -> None:
    silent = FakeCapture(0, hw_acceleration=float(cv2.VIDEO_ACCELERATION_VAAPI))
    makes = Makes(silent, FakeCapture(2))
    stream = VideoStream(SourceSpec("rtsp://cam/s"), CLOCK, "t", makes)
    assert stream.facts.decoder == "vaapi"
    assert read_next(stream) is not None
    assert stream.facts.decoder == "software"
    assert silent.is_released
    assert cv2.CAP_PROP_HW_ACCELERATION not in makes.params[1]


def test_software_decoding_is_used_where_it_is_asked_for() -> None:
    makes = Makes(FakeCapture(1))
    VideoStream(SourceSpec("rtsp://cam/s", decoding=Decoding.SOFTWARE), CLOCK, "t", makes)
    assert cv2.CAP_PROP_HW_ACCELERATION not in makes.params[0]


def test_a_live_stream_that_ends_is_lost_and_one_that_is_silent_says_for_how_long() -> None:
    stream = VideoStream(SourceSpec("rtsp://cam/s"), CLOCK, "t", Makes(FakeCapture(1)))
    assert read_next(stream) is not None
    with pytest.raises(Unavailable, match="the stream ended"):
        stream.advance()

    clock = FakeClock()
    silent = FakeCapture(0)
    stream = VideoStream(SourceSpec("rtsp://cam/s", read_timeout_s=3), clock, "t", Makes(silent))
    silent.grab = lambda: clock.advance(3.0)  # type: ignore[assignment,method-assign]
    with pytest.raises(Unavailable, match=r"no frame for 3\.0 s"):
        stream.advance()


def test_a_frame_that_is_too_large_or_not_there_is_refused_and_the_stream_goes_on() -> None:
    capture = FakeCapture(3)
    stream = VideoStream(SourceSpec("rtsp://cam/s"), CLOCK, "t", Makes(capture))
    capture.picture = None
    assert stream.advance()
    with pytest.raises(Malformed, match="cannot be decoded"):
        stream.picture()
    capture.picture = np.broadcast_to(np.uint8(0), (9000, 9000, 3))
    assert stream.advance()
    with pytest.raises(TooLarge, match="9000x9000"):
        stream.picture()
    capture.picture = flat(3)[..., 0]
    assert stream.advance()
    assert stream.picture().pixels.shape == (24, 32, 3)


def test_a_stream_that_declares_too_many_pixels_is_refused_before_a_frame_is_made() -> None:
    capture = FakeCapture(3, frame_width=40000, frame_height=40000)
    with pytest.raises(TooLarge, match="40000x40000"):
        VideoStream(SourceSpec("rtsp://cam/s"), CLOCK, "t", Makes(capture))
    assert capture.is_released


def test_a_device_is_asked_for_the_wanted_size_and_says_what_it_gives() -> None:
    mjpg = float(cv2.VideoWriter.fourcc(*"MJPG"))
    makes = Makes(FakeCapture(1, frame_width=640, frame_height=480, fps=30, fourcc=mjpg))
    camera = V4l2Camera(SourceSpec("2", size=ImageSize(800, 600), fps=15.0), CLOCK, makes)
    assert makes.targets == [2]
    assert makes.params[0][cv2.CAP_PROP_FRAME_WIDTH] == 800
    assert makes.params[0][cv2.CAP_PROP_FPS] == 15
    assert camera.facts == SourceFacts(SourceKind.V4L2, "mjpg", ImageSize(640, 480), 30.0, is_live=True)
    assert read_next(camera) is not None
    with pytest.raises(Unavailable, match="unplugged"):
        camera.advance()


def test_opencv_is_told_not_to_hold_its_lock_and_what_a_user_set_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENCV_FFMPEG_IS_THREAD_SAFE", "x")
    monkeypatch.delenv("OPENCV_FFMPEG_IS_THREAD_SAFE")
    monkeypatch.setenv("OPENCV_FFMPEG_LOGLEVEL", "16")
    prepare_opencv()
    assert os.environ["OPENCV_FFMPEG_IS_THREAD_SAFE"] == "1"
    assert os.environ["OPENCV_FFMPEG_LOGLEVEL"] == "16"
