"""A simulated camera behind a sim:// address: an endless stream with the truth alongside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self
from urllib.parse import parse_qsl, urlsplit

import cv2

from fovea.core.errors import Malformed
from fovea.sim.canvas import Image
from fovea.sim.conditions import CONDITIONS
from fovea.sim.frame import StreetObject
from fovea.sim.suite import CLIPS_PER_CONDITION, Clip, Suite, load_suite

_KEYS = ("seed", "fps", "size", "start", "split")
_BETWEEN = 100_000  # noise of frames between the clip's own is drawn from here on


@dataclass(frozen=True, slots=True)
class SimAddress:
    """What a sim:// address asks for. `fps` is the street time between reads, not a pace to wait for."""

    suite: str
    condition: str
    seed: int = 0
    fps: float = 10.0
    size_px: tuple[int, int] | None = None
    start: int = 0
    split: str | None = None


def parse_address(address: str) -> SimAddress:
    """Parse sim://SUITE/CONDITION?seed=&fps=&size=WxH&start=&split=test|val; Malformed names what is wrong."""
    parts = urlsplit(address)
    if parts.scheme != "sim":
        raise Malformed(f"a simulated camera's address starts with sim://, not {address!r}")
    suite, condition = parts.netloc, parts.path.strip("/")
    if not suite or condition not in CONDITIONS:
        raise Malformed(f"{address!r} has to be sim://SUITE/CONDITION with one of {', '.join(CONDITIONS)}")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    values = dict(pairs)
    unknown = sorted(set(values) - set(_KEYS))
    if unknown:
        raise Malformed(f"{address!r}: unknown {', '.join(unknown)}; allowed are {', '.join(_KEYS)}")
    if len(values) != len(pairs):
        raise Malformed(f"{address!r} gives a key twice")
    split = values.get("split")
    if split is not None and split not in CLIPS_PER_CONDITION:
        raise Malformed(f"{address!r}: split is one of {', '.join(CLIPS_PER_CONDITION)}, not {split!r}")
    fps = _number(values.get("fps", "10"), "fps", address)
    if not 0.1 <= fps <= 120:
        raise Malformed(f"{address!r}: fps is 0.1 to 120, not {fps}")
    return SimAddress(
        suite,
        condition,
        _count(values.get("seed", "0"), "seed", address),
        fps,
        _size(values["size"], address) if "size" in values else None,
        _count(values.get("start", "0"), "start", address),
        split,
    )


def _number(text: str, key: str, address: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Malformed(f"{address!r}: {key} has to be a number, not {text!r}") from None


def _count(text: str, key: str, address: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise Malformed(f"{address!r}: {key} has to be a whole number from 0, not {text!r}")
    return int(text)


def _size(text: str, address: str) -> tuple[int, int]:
    width, cross, height = text.partition("x")
    if not cross:
        raise Malformed(f"{address!r}: size has to be WIDTHxHEIGHT, not {text!r}")
    size = _count(width, "size", address), _count(height, "size", address)
    if not (16 <= size[0] <= 4096 and 16 <= size[1] <= 4096):
        raise Malformed(f"{address!r}: size is 16x16 to 4096x4096, not {text!r}")
    return size


class SimSource:
    """An endless camera. Not paced: the caller reads as fast or as slowly as it wants street time to pass."""

    def __init__(self, address: str | SimAddress) -> None:
        self.address = parse_address(address) if isinstance(address, str) else address
        self._suite: Suite = load_suite(self.address.suite)
        self._reads = 0
        self._clip_number = -1
        self._clip: Clip | None = None

    def read(self) -> tuple[Image, tuple[StreetObject, ...], float]:
        """The next frame: pixels u8[h,w,3] BGR, objects, and street time in s since the first clip began."""
        first_s = self.address.start / 10.0
        time_s = first_s + self._reads / self.address.fps
        self._reads += 1
        length_s = 30.0
        number, within_s = int(time_s // length_s), time_s % length_s
        clip = self._clip_at(number)
        tick = within_s * clip.fps
        if abs(tick - round(tick)) < 1e-6:  # the clip's own frame, pixel for pixel
            pixels, objects = clip.renderer.draw(round(tick), round(tick) / clip.fps)
        else:
            pixels, objects = clip.renderer.draw(_BETWEEN + round(within_s * 1000), within_s)
        size = self.address.size_px
        if size is not None and size != self._suite.frame_size:
            pixels, objects = _resized(pixels, objects, size)
        return pixels, objects, time_s

    def skip(self) -> None:
        """Lets the time of one frame pass without drawing it."""
        self._reads += 1

    def __iter__(self) -> Iterator[tuple[Image, tuple[StreetObject, ...], float]]:
        while True:
            yield self.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the drawn scene."""
        self._clip = None
        self._clip_number = -1

    def _clip_at(self, number: int) -> Clip:
        if self._clip is None or number != self._clip_number:
            a = self.address
            if a.split is None:
                self._clip = self._suite.camera_clip(a.condition, a.seed, number)
            else:
                index = (a.seed + number) % CLIPS_PER_CONDITION[a.split]
                self._clip = self._suite.clip(a.split, a.condition, index)
            self._clip_number = number
        return self._clip


def _resized(
    pixels: Image, objects: tuple[StreetObject, ...], size_px: tuple[int, int]
) -> tuple[Image, tuple[StreetObject, ...]]:
    sx, sy = size_px[0] / pixels.shape[1], size_px[1] / pixels.shape[0]
    out = cv2.resize(pixels, size_px, interpolation=cv2.INTER_AREA if sx < 1 else cv2.INTER_LINEAR)
    moved = []
    for o in objects:
        x0, y0, x1, y1 = o.box_xyxy
        box = (x0 * sx, y0 * sy, x1 * sx, y1 * sy)
        moved.append(StreetObject(o.track_id, o.class_id, o.label, box, o.visible_fraction, o.ignore))
    return out, tuple(moved)
