"""Pictures with boxes on disk: a video for what was a video, pictures for what were pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import cv2

from fovea.core.arrays import ImageArray
from fovea.core.errors import BrokenError
from fovea.runtime.images import encode_jpeg

_QUALITY = 88


class VideoWriter(Protocol):
    """The part of cv2.VideoWriter that is used."""

    def write(self, image: ImageArray, /) -> object: ...

    def release(self) -> object: ...


VideoMaker = Callable[[Path, float, tuple[int, int]], VideoWriter | None]
"""From a path, frames per second and (width, height); None where nothing here can encode."""


def mp4_writer(path: Path, fps: float, size: tuple[int, int]) -> VideoWriter | None:
    """MPEG-4 in an .mp4, which OpenCV's FFmpeg encodes wherever it comes with one."""
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"mp4v"), fps, size)
    if writer.isOpened():
        made: VideoWriter = writer
        return made
    path.unlink(missing_ok=True)
    return None


class AnnotatedOutput:
    """Writes into `folder`, which is made if it is not there; `written` names what a person opens first."""

    def __init__(self, folder: Path, fps: float, open_video: VideoMaker = mp4_writer) -> None:
        """Raises BrokenError when the folder cannot be made."""
        self._folder, self._fps, self._open_video = folder, min(max(fps, 1.0), 120.0), open_video
        self._video: VideoWriter | None = None
        self._video_size = (0, 0)
        self._videos = 0
        self._has_encoder = True
        self._busiest: tuple[float, ImageArray] | None = None
        self._pictures: set[Path] = set()
        self.written: list[Path] = []
        _made(folder)

    def add(self, drawn: ImageArray, name: str | None, index: int, worth: float) -> None:
        """One annotated frame; `name` where it came from a picture file, `worth` how much there is to see in it.
        Raises BrokenError (disk full)."""
        if name is not None:
            self._write_picture(self._free_path(name), drawn)
            return
        if self._busiest is None or worth > self._busiest[0]:
            self._busiest = worth, drawn
        if not self._write_to_video(drawn):
            self._write_picture(self._folder / "frames" / f"{index:06d}.jpg", drawn)

    def close(self) -> None:
        """Finishes the video; twice is fine."""
        if self._video is not None:
            self._video.release()
            self._video = None
        if self._busiest is not None:
            path = self._folder / "busiest.jpg"
            _write(path, encode_jpeg(self._busiest[1], _QUALITY))
            self.written.append(path)
            self._busiest = None

    def _write_to_video(self, drawn: ImageArray) -> bool:
        size = (drawn.shape[1], drawn.shape[0])
        if self._has_encoder and (self._video is None or size != self._video_size):
            self._begin_video(size)
        if self._video is None:
            return False
        self._video.write(drawn)
        return True

    def _begin_video(self, size: tuple[int, int]) -> None:
        """The first video, or one more where the resolution changed."""
        if self._video is not None:
            self._video.release()
        self._videos += 1
        path = self._folder / ("annotated.mp4" if self._videos == 1 else f"annotated-{self._videos}.mp4")
        self._video, self._video_size = self._open_video(path, self._fps, size), size
        if self._video is None:
            self._has_encoder = False
        else:
            self.written.append(path)

    def _free_path(self, name: str) -> Path:
        """`name` as .jpg; with its old suffix kept where two pictures differ in nothing else."""
        path = self._folder / Path(name).with_suffix(".jpg")
        if path in self._pictures:
            path = self._folder / f"{name}.jpg"
        self._pictures.add(path)
        return path

    def _write_picture(self, path: Path, drawn: ImageArray) -> None:
        _made(path.parent)
        _write(path, encode_jpeg(drawn, _QUALITY))
        if path.parent not in self.written:
            self.written.append(path.parent)


def _made(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BrokenError(f"cannot make the folder {folder}: {error.strerror or error}") from error


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise BrokenError(f"cannot write {path}: {error.strerror or error}") from error
