"""Tries a source once, for a person who wants to know whether it works and what it is."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edge_agent.capture.source import Captured, SourceFacts, SourceSpec, open_source
from edge_agent.capture.sources.url import SourceKind
from fovea.core.arrays import ImageArray
from fovea.core.errors import RejectedError, Unavailable
from fovea.core.frame import size_of
from fovea.core.ports import Clock


@dataclass(frozen=True, slots=True, eq=False)
class CameraTrial:
    """What was found: the facts with the size of the first frame, its pixels u8[H, W, 3] BGR, the time from the
    start to the first frame, and the rate at which frames came after it (None where it was not measured)."""

    facts: SourceFacts
    pixels: ImageArray
    first_frame_s: float
    frames: int
    measured_fps: float | None


def try_source(spec: SourceSpec, clock: Clock, measure_s: float = 2.0) -> CameraTrial:
    """Opens `spec`, waits for its first good frame, and then counts frames for `measure_s` where it is a camera.

    Raises as `open_source` and a source's `advance` do; the last Malformed where no frame was good.
    """
    begun_s = clock.monotonic_s()
    source = open_source(spec, clock)
    try:
        first: Captured | None = None
        refused: RejectedError | None = None
        while first is None and source.advance():
            try:
                first = source.picture()
            except RejectedError as error:
                refused = error
        if first is None:
            raise refused or Unavailable("the source ended before its first frame")
        first_s = clock.monotonic_s()
        frames, rate = 1, None
        if source.facts.kind in (SourceKind.RTSP, SourceKind.HTTP, SourceKind.V4L2):
            while (passed_s := clock.monotonic_s() - first_s) < measure_s and source.advance():
                frames += 1
            rate = (frames - 1) / passed_s if passed_s > 0 else None
        facts = replace(source.facts, size=size_of(first.pixels))
        return CameraTrial(facts, first.pixels, first_s - begun_s, frames, rate)
    finally:
        source.close()
