"""What a replay is given and what comes of it, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from fovea.core.errors import Malformed
from fovea.core.gate import Opinion


class Mode(StrEnum):
    """Who answers: one tier alone, or all together as the gates decide."""

    AGENT = "agent"
    EDGE = "edge"
    CLOUD = "cloud"
    HYBRID = "hybrid"


class Said(StrEnum):
    """Whose answer it is; the last two are merged."""

    NOTHING = "nothing"
    CAMERA = "camera"
    EDGE = "edge"
    CLOUD = "cloud"
    CAMERA_EDGE = "camera_edge"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class ReplayFrame:
    """A frame as the replay needs it. `opinion` is the camera's gate's, `second` that of the edge's gate after it
    has looked; frames are given by time."""

    captured_s: float
    jpeg_bytes: int
    opinion: Opinion
    second: Opinion
    camera: int = 0


@dataclass(frozen=True, slots=True)
class TierTimes:
    """What each step takes, in seconds, as measured; frames take them in turn. `camera_s`: from pixels to decision.
    `edge_s`, `cloud_s`: from question to answer without a network. CPU seconds are means per frame."""

    camera_s: tuple[float, ...]
    encode_s: tuple[float, ...]
    edge_s: tuple[float, ...]
    cloud_s: tuple[float, ...]
    camera_cpu_s: float
    encode_cpu_s: float
    edge_cpu_s: float
    cloud_cpu_s: float
    question_bytes: float = 3000.0
    """what a question has beside its picture"""
    answer_bytes: float = 6000.0

    def __post_init__(self) -> None:
        for name in ("camera_s", "encode_s", "edge_s", "cloud_s"):
            times = getattr(self, name)
            if not times or min(times) < 0:
                raise Malformed(f"tier times {name}: expected at least one time of 0 or more, got {times}")


@dataclass(slots=True)
class Outcome:
    """What came of one frame: its answers with their times, in order; later ones are better."""

    captured_s: float
    answers: list[tuple[float, Said]] = field(default_factory=list)
    sent_bytes: float = 0.0
    wide_bytes: float = 0.0
    is_asked: bool = False
    is_forwarded: bool = False
    edge_looks: int = 0
    cloud_looks: int = 0

    @property
    def best(self) -> Said:
        return self.answers[-1][1] if self.answers else Said.NOTHING

    @property
    def latency_s(self) -> float | None:
        """Of the best answer; None without one."""
        return self.answers[-1][0] - self.captured_s if self.answers else None

    @property
    def first_s(self) -> float | None:
        """Of the first answer; None without one."""
        return self.answers[0][0] - self.captured_s if self.answers else None

    def known_at(self, at_s: float) -> Said:
        """The best answer that was there at that time."""
        return next((said for there_s, said in reversed(self.answers) if there_s <= at_s), Said.NOTHING)
