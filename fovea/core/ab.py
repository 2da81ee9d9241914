"""Two policies side by side on live cameras: which frame is whose, and what came of each, with intervals.

Frames of one minute resemble each other, so that what is counted is counted by blocks of time, and the intervals are
those of a ratio of two sums over blocks (Cochran 1977, ratio estimator).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fovea.core.errors import Malformed

BLOCK_S = 30.0
_SIGMAS = 1.96
_LEAST_BLOCKS = 5
"""Of fewer blocks no interval is told."""


class Arm(StrEnum):
    """One side of a comparison."""

    A = "a"
    B = "b"


class AbUnit(StrEnum):
    """What is given to an arm as a whole: each frame, each stretch of time of a camera, or each camera for good.
    Budgets and what is seen in a row stay together in slices and cameras; frames give the narrowest intervals."""

    FRAME = "frame"
    SLICE = "slice"
    CAMERA = "camera"


@dataclass(frozen=True, slots=True)
class AbPlan:
    """Policies `a` and `b` by name; `share_b` (0 to 1) of the units is for b. `slice_s`: how long a slice is. `salt`
    makes one comparison independent of the one before."""

    a: str
    b: str
    share_b: float = 0.5
    by: AbUnit = AbUnit.SLICE
    slice_s: float = 60.0
    salt: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.share_b < 1:
            raise Malformed(f"ab share_b: expected more than 0 and less than 1, got {self.share_b}")
        if not 0 < self.slice_s < math.inf:
            raise Malformed(f"ab slice_s: expected a finite number above 0, got {self.slice_s}")
        if self.a == self.b:
            raise Malformed(f"ab: expected two different policies, got {self.a} twice")

    def name_of(self, arm: Arm) -> str:
        return self.a if arm is Arm.A else self.b

    def share_of(self, arm: Arm) -> float:
        return self.share_b if arm is Arm.B else 1 - self.share_b

    def arm_of(self, camera: str, sequence: int, at: datetime) -> Arm:
        """Whose the frame is; the same on every machine, whenever it is asked."""
        match self.by:
            case AbUnit.FRAME:
                unit = f"{camera}/{sequence}"
            case AbUnit.SLICE:
                unit = f"{camera}/{math.floor(at.timestamp() / self.slice_s)}"
            case AbUnit.CAMERA:
                unit = camera
        digest = hashlib.sha256(f"{self.salt}/{unit}".encode()).digest()
        return Arm.B if int.from_bytes(digest[:7]) / (1 << 56) < self.share_b else Arm.A


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean, its standard error (None: of too few blocks to say), and of how many it is."""

    value: float
    error: float | None
    count: float

    @property
    def low(self) -> float | None:
        return None if self.error is None else self.value - _SIGMAS * self.error

    @property
    def high(self) -> float | None:
        return None if self.error is None else self.value + _SIGMAS * self.error

    def minus(self, other: Estimate) -> Estimate:
        """The difference of two that do not depend on each other."""
        error = None if self.error is None or other.error is None else math.hypot(self.error, other.error)
        return Estimate(self.value - other.value, error, min(self.count, other.count))


class BlockedMean:
    """Mean of a sum over a count, both growing over time. Times may step back by a little: they then count for the
    newest block. For one thread."""

    def __init__(self, block_s: float = BLOCK_S) -> None:
        self._block_s = block_s
        self._block = -math.inf
        self._x = self._n = 0.0
        self._blocks = 0
        self._sums = dict.fromkeys(("x", "n", "xx", "xn", "nn"), 0.0)

    def add(self, at_s: float, x: float, n: float = 0.0) -> None:
        """`x` more in the sum and `n` more in the count."""
        block = math.floor(at_s / self._block_s)
        if block > self._block:
            self._close()
            self._block = block
        self._x += x
        self._n += n

    def estimate(self) -> Estimate | None:
        """None before anything was counted."""
        sums, blocks = dict(self._sums), self._blocks
        if self._x or self._n:
            sums, blocks = _with(sums, self._x, self._n), blocks + 1
        if sums["n"] <= 0:
            return None
        ratio = sums["x"] / sums["n"]
        error = None
        if blocks >= _LEAST_BLOCKS:
            spread = max(sums["xx"] - 2 * ratio * sums["xn"] + ratio**2 * sums["nn"], 0.0)
            error = math.sqrt(spread * blocks / (blocks - 1)) / sums["n"]
        return Estimate(ratio, error, sums["n"])

    def _close(self) -> None:
        if self._x or self._n:
            self._sums = _with(self._sums, self._x, self._n)
            self._blocks += 1
            self._x = self._n = 0.0


def _with(sums: Mapping[str, float], x: float, n: float) -> dict[str, float]:
    block = {"x": x, "n": n, "xx": x * x, "xn": x * n, "nn": n * n}
    return {name: value + block[name] for name, value in sums.items()}


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """What came of one arm since the start. `frames` were looked at; `asked`: by the rule, `audited`: at random.

    asked_share     of the frames looked at
    agreement       of the final answers with the upper tier: 1 where it was asked, as the audits say where it was not
    latency_ms      from capture to the final answer
    bytes_per_frame of pictures, for each frame looked at; audits do not count
    """

    policy: str
    frames: int
    asked: int
    audited: int
    asked_share: Estimate | None
    agreement: Estimate | None
    latency_ms: Estimate | None
    bytes_per_frame: Estimate | None


def pooled(of: Sequence[Estimate]) -> Estimate | None:
    """The mean over several sites that do not depend on each other, each counting by its frames; None without one."""
    count = math.fsum(each.count for each in of)
    if count <= 0:
        return None
    error = None
    if all(each.error is not None for each in of):
        error = math.hypot(*(each.count * (each.error or 0.0) for each in of)) / count
    return Estimate(math.fsum(each.count * each.value for each in of) / count, error, count)


COMPARED = ("asked_share", "agreement", "latency_ms", "bytes_per_frame")
"""The estimates of an arm that are compared."""


def final_agreement(asked_share: Estimate | None, audits: Estimate | None) -> Estimate | None:
    """Agreement of final answers with the upper tier: frames that were asked agree by definition, the others as much
    as the audits among them. None without an audit."""
    if asked_share is None or audits is None:
        return None
    kept = 1 - asked_share.value
    error = None
    if asked_share.error is not None and audits.error is not None:
        error = math.hypot(kept * audits.error, (1 - audits.value) * asked_share.error)
    return Estimate(asked_share.value + kept * audits.value, error, audits.count)
