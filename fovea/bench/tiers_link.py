"""A link as arithmetic: how long a message takes over a wire of some delay, rate and loss, one after the other.

Left out, all to the favour of whoever sends much: the slow start of TCP, and what others send meanwhile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fovea.core.errors import Malformed

SEGMENT_BYTES = 1448
"""What one TCP segment carries over Ethernet."""
_LEAST_TIMEOUT_S = 0.2
"""Linux never waits less before it sends again what was not acknowledged (RFC 6298 has 1 s)."""
_SEEN_BY_LATER = 3
"""So many segments after a lost one, and the sender hears of the loss after one round trip (RFC 5681)."""


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """round_trip_s: there and back for something small. bits_per_s: in each direction. loss: share of the segments
    that have to be sent again."""

    round_trip_s: float
    bits_per_s: float
    loss: float = 0.0

    def __post_init__(self) -> None:
        if not (self.round_trip_s >= 0 and self.bits_per_s > 0 and 0 <= self.loss < 1):
            raise Malformed(f"link: expected a delay, a rate above 0 and a loss within 0 to 1, got {self}")

    @property
    def bytes_per_s(self) -> float:
        return self.bits_per_s / 8


LAN = LinkSpec(0.001, 100e6)
WAN = LinkSpec(0.040, 10e6)
LTE = LinkSpec(0.060, 4e6, 0.01)


@dataclass(frozen=True, slots=True)
class Outage:
    """From `begin_s` until `end_s` nothing gets through, and what is on its way then is lost."""

    begin_s: float
    end_s: float

    def __post_init__(self) -> None:
        if not self.begin_s <= self.end_s:
            raise Malformed(f"outage: expected an end after its begin, got {self}")

    def hits(self, from_s: float, until_s: float) -> bool:
        """Whether it touches that stretch of time."""
        return from_s < self.end_s and until_s >= self.begin_s


class Way:
    """One direction of a link: first in, first out, as over one connection. Messages are given in the order of their
    times. The draws of lost segments depend on `seed` and the sizes before alone, so that two links of the same
    loss lose the same."""

    def __init__(self, spec: LinkSpec, outage: Outage | None = None, seed: int = 0) -> None:
        self._spec = spec
        self._outage = outage
        self._draws = np.random.default_rng(seed)
        self._free_s = -math.inf
        self._last_s = -math.inf

    def send(self, at_s: float, size_bytes: float) -> float | None:
        """When all of it has arrived; None: it never does."""
        spec = self._spec
        resent_s = self._resent_s(size_bytes)
        sent_s = max(at_s, self._free_s) + size_bytes / spec.bytes_per_s
        there_s = max(sent_s + spec.round_trip_s / 2 + resent_s, self._last_s)
        if self._outage is not None and self._outage.hits(at_s, there_s):
            return None
        self._free_s, self._last_s = sent_s, there_s
        return there_s

    def _resent_s(self, size_bytes: float) -> float:
        """What the slowest of the lost segments adds."""
        count = max(math.ceil(size_bytes / SEGMENT_BYTES), 1)
        draws = self._draws.random(count)
        if self._spec.loss <= 0:
            return 0.0
        timeout_s = max(_LEAST_TIMEOUT_S, 2 * self._spec.round_trip_s)
        worst_s = 0.0
        for place in np.flatnonzero(draws < self._spec.loss).tolist():
            is_seen = count - 1 - place >= _SEEN_BY_LATER
            delay_s = self._spec.round_trip_s if is_seen else timeout_s
            # One draw for all its fates: below loss**n it was lost n times in a row.
            again = int(math.log(max(draws[place], 1e-12)) / math.log(self._spec.loss)) - 1
            worst_s = max(worst_s, delay_s + timeout_s * (2**again - 1))
        return worst_s
