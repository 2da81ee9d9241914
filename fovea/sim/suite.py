"""Named sets of clips, split so that no two splits can share a street."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from fovea.core.errors import Malformed, NotFound
from fovea.sim.conditions import CONDITIONS as CONDITIONS  # part of what a suite offers
from fovea.sim.frame import StreetFrame
from fovea.sim.render import ClipRenderer

SPLITS: tuple[str, ...] = ("train", "val", "test")
CLIPS_PER_CONDITION: dict[str, int] = {"val": 12, "test": 24}
EVALUATION_SPACING_S = 2.0

# SHA-256 of `Suite.fingerprint`. Pixels pass through float arithmetic and JPEG coding, so another build of
# OpenCV or a CPU with other vector units may differ in the last bit of some pixels and so in this value;
# labels do not pass through JPEG, but polygon edges may move by one quarter pixel in the same way.
FROZEN_FINGERPRINT: dict[str, str] = {
    "street-v1": "d6194e3ef91dcf98e2946d57f5ebed1b3d0ca8ba76ae998c0b4a987248c2f1fc",
}


def clip_seed(suite: str, split: str, condition: str, index: int) -> int:
    """The seed of a clip: 63 bits of SHA-256 over its full name."""
    digest = hashlib.sha256(f"{suite}/{split}/{condition}/{index}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


@dataclass(slots=True, eq=False)
class Clip:
    """A fixed camera over one street for `duration_s`; any frame can be asked for in any order.

    The standing scene is drawn at the first frame and kept until `release` is called.
    """

    id: str
    condition: str
    seed: int
    frame_size: tuple[int, int] = (960, 540)
    fps: int = 10
    duration_s: int = 30
    _renderer: ClipRenderer | None = field(default=None, repr=False)

    @property
    def frame_count(self) -> int:
        """How many frames the clip has."""
        return self.fps * self.duration_s

    @property
    def renderer(self) -> ClipRenderer:
        """The clip's renderer, built on first use."""
        if self._renderer is None:
            self._renderer = ClipRenderer(self.condition, self.seed, self.frame_size, float(self.duration_s))
        return self._renderer

    def frame(self, i: int) -> StreetFrame:
        """Frame `i` of the clip; Malformed when there is no such frame."""
        if not 0 <= i < self.frame_count:
            raise Malformed(f"clip {self.id} has frames 0 to {self.frame_count - 1}, not {i}")
        time_s = i / self.fps
        pixels, objects = self.renderer.draw(i, time_s)
        return StreetFrame(self.id, i, time_s, pixels, objects)

    def frames(self, start: int = 0, count: int | None = None, stride: int = 1) -> Iterator[StreetFrame]:
        """Frames from `start`, every `stride`-th, at most `count`, within the clip."""
        if stride < 1:
            raise Malformed(f"stride has to be 1 or more, not {stride}")
        indices = range(start, self.frame_count, stride)
        for i in indices if count is None else indices[: max(count, 0)]:
            yield self.frame(i)

    def release(self) -> None:
        """Forget the drawn scene; the next frame draws it again."""
        self._renderer = None


@dataclass(frozen=True, slots=True)
class Suite:
    """A named, frozen set of clips."""

    name: str
    frame_size: tuple[int, int] = (960, 540)

    def clip(self, split: str, condition: str, index: int) -> Clip:
        """One clip; train is open-ended, val has 12 and test 24 clips per condition."""
        _check(split, SPLITS, "split")
        _check(condition, CONDITIONS, "condition")
        limit = CLIPS_PER_CONDITION.get(split)
        if index < 0 or (limit is not None and index >= limit):
            raise Malformed(
                f"{self.name} {split}/{condition} has clips from 0"
                + (f" to {limit - 1}" if limit is not None else "")
                + f", not {index}"
            )
        return self._make(split, condition, index)

    def camera_clip(self, condition: str, seed: int, index: int) -> Clip:
        """The `index`-th clip of a simulated camera; never a clip of any split."""
        _check(condition, CONDITIONS, "condition")
        return self._make(f"camera-{seed}", condition, index)

    def _make(self, split: str, condition: str, index: int) -> Clip:
        name = f"{self.name}/{split}/{condition}/{index:03d}"
        return Clip(name, condition, clip_seed(self.name, split, condition, index), self.frame_size)

    def clips(self, split: str, condition: str) -> Iterator[Clip]:
        """All clips of a bounded split (val or test) for one condition."""
        _check(split, tuple(CLIPS_PER_CONDITION), "split with an end")
        for index in range(CLIPS_PER_CONDITION[split]):
            yield self.clip(split, condition, index)

    def evaluation_frames(self, split: str, condition: str, per_clip: int) -> Iterator[StreetFrame]:
        """`per_clip` frames of every clip, evenly spaced and at least 2 s apart."""
        for clip in self.clips(split, condition):
            most = int((clip.duration_s - 1) / EVALUATION_SPACING_S)
            if not 1 <= per_clip <= most:
                raise Malformed(f"per_clip has to be 1 to {most}, not {per_clip}")
            step = (clip.frame_count - clip.fps) // per_clip
            for k in range(per_clip):
                yield clip.frame(clip.fps // 2 + k * step)
            clip.release()

    def fingerprint(self) -> str:
        """SHA-256 over pixels and labels of fixed frames of every split and condition."""
        digest = hashlib.sha256()
        for split in SPLITS:
            for condition in CONDITIONS:
                clip = self.clip(split, condition, 1)
                for i in (37, 211):
                    frame = clip.frame(i)
                    digest.update(np.ascontiguousarray(frame.pixels).tobytes())
                    digest.update(repr(frame.objects).encode())
        return digest.hexdigest()


def _check(value: str, allowed: tuple[str, ...], what: str) -> None:
    if value not in allowed:
        raise NotFound(f"no {what} {value!r}; there are {', '.join(allowed)}")


SUITES: tuple[str, ...] = ("street-v1",)


def load_suite(name: str) -> Suite:
    """The suite of that name; NotFound naming those that exist otherwise."""
    _check(name, SUITES, "suite")
    return Suite(name)
