"""A simulated camera as a live source; the street is drawn when a frame is read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edge_agent.capture.source import Captured, SourceFacts, SourceSpec
from edge_agent.capture.sources.url import SourceKind
from fovea.core.frame import size_of
from fovea.core.ports import Clock

if TYPE_CHECKING:
    from fovea.sim.source import SimSource


class SimCamera:
    """Not paced by itself: the capture thread reads it at `facts.fps`."""

    def __init__(self, source: SimSource, clock: Clock) -> None:
        self._source, self._clock = source, clock
        self._is_undrawn = False
        self._facts = SourceFacts(SourceKind.SIM, None, None, source.address.fps, is_live=True)

    @property
    def facts(self) -> SourceFacts:
        return self._facts

    def advance(self) -> bool:
        if self._is_undrawn:
            self._source.skip()
        self._is_undrawn = True
        return True

    def picture(self) -> Captured:
        self._is_undrawn = False
        pixels, _, _ = self._source.read()
        if self._facts.size is None:
            self._facts = replace(self._facts, size=size_of(pixels))
        return Captured(pixels, self._clock.now(), self._clock.monotonic_s())

    def close(self) -> None:
        self._source.close()


def open_sim(spec: SourceSpec, clock: Clock) -> SimCamera:
    """The camera behind a sim:// address; `spec.fps` goes before the rate in it. Raises Malformed, NotFound."""
    from fovea.sim.source import SimSource, parse_address

    address = parse_address(spec.chosen_url)
    if spec.fps is not None:
        address = replace(address, fps=spec.fps)
    return SimCamera(SimSource(address), clock)
