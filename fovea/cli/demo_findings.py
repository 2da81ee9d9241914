"""What a demo found out, as plain values: what the report shows, and nothing that it has to work out itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from calibration.evaluate import Interval
from fovea.core.energy import Constant, Energy
from fovea.core.routing import Tier

NOT_DUE = "not_due"
"""What an agent calls frames that came faster than it was told to look."""


class Mode(StrEnum):
    """Who answers the frames of the measurement."""

    AGENT = "agent only"
    EDGE = "edge only"
    CLOUD = "cloud only"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds from a frame to its answer."""

    mean_ms: float
    p50_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True)
class ModeFindings:
    """One way to answer all frames, measured.

    ap, ap50        AP50-95 with its interval and AP50, 0..1; None without ground truth
    agreement       share of boxes it has in common with the cloud's answers (F1 at IoU 0.5), where there is no truth
    hybrid_gain     AP of hybrid minus AP of this mode, paired by clip; None for hybrid itself and without truth
    bytes_per_frame that left the camera, on the average over all frames
    asked_share     of frames that somebody above the camera looked at, cloud_share: that the cloud looked at
    unanswered      frames whose question failed or came too late, answered by the tier below
    """

    mode: Mode
    frames: int
    ap: Interval | None
    ap50: float | None
    agreement: float | None
    hybrid_gain: Interval | None
    latency: Latency
    bytes_per_frame: float
    asked_share: float
    cloud_share: float
    energy: Energy
    unanswered: int = 0
    ap_by_condition: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CameraFindings:
    """One camera of the live part. `answers` counts published answers by tier, `drops` frames by cause."""

    name: str
    source: str
    frames: int
    fps: float
    answers: Mapping[Tier, int]
    asked_share: float
    latency: Latency | None
    bytes_sent: float
    drops: Mapping[str, int]
    messages: int

    @property
    def lost(self) -> dict[str, int]:
        """Frames that were due and were not answered, by cause. What came between two due ones was never wanted."""
        return {cause: count for cause, count in self.drops.items() if cause != NOT_DUE}


@dataclass(frozen=True, slots=True)
class LiveMoment:
    """One second of the live part: answers by tier that arrived over MQTT, and bytes sent up within it."""

    at_s: float
    answers: Mapping[Tier, int]
    bytes_sent: float


@dataclass(frozen=True, slots=True)
class ProcessFindings:
    """One process of the live part: CPU seconds it used meanwhile, and resident memory at its end."""

    name: str
    cpu_s: float
    rss_mb: float


@dataclass(frozen=True, slots=True)
class LiveFindings:
    """What ran live: `latencies_ms` from capture to the message's arrival, by the tier that answered."""

    seconds: float
    cameras: Sequence[CameraFindings]
    moments: Sequence[LiveMoment]
    latencies_ms: Mapping[Tier, Sequence[float]]
    processes: Sequence[ProcessFindings]


@dataclass(frozen=True, slots=True)
class PictureCell:
    """One annotated picture (JPEG bytes) under a caption."""

    caption: str
    jpeg: bytes


@dataclass(frozen=True, slots=True)
class PictureRow:
    """The same frame side by side as several tiers see it."""

    title: str
    cells: Sequence[PictureCell]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Which model a tier ran."""

    tier: Tier
    name: str
    version: str
    digest: str
    licence: str
    megabytes: float
    parameters: int | None
    labels: int


@dataclass(frozen=True, slots=True)
class DemoFindings:
    """All of one run. `facts` and `notes` are shown as they are; `source` says what was looked at."""

    made_at: datetime
    source: str
    has_truth: bool
    machine: Mapping[str, str]
    models: Sequence[ModelFacts]
    live: LiveFindings
    modes: Sequence[ModeFindings]
    pictures: Sequence[PictureRow]
    constants: Sequence[Constant]
    steps: Mapping[str, float]
    notes: Sequence[str] = ()

    def of(self, mode: Mode) -> ModeFindings | None:
        """The findings of one mode, None where it was not measured."""
        return next((found for found in self.modes if found.mode is mode), None)


def verdicts(findings: DemoFindings) -> list[str]:
    """What the figures say, in sentences: first what hybrid gains and saves, and as plainly where it is worse."""
    hybrid = findings.of(Mode.HYBRID)
    if hybrid is None:
        return []
    said = []
    for mode in (Mode.AGENT, Mode.EDGE, Mode.CLOUD):
        other = findings.of(mode)
        if other is not None:
            said.append(f"Hybrid against {mode}: {_quality(other, hybrid)}; {_cost(other, hybrid)}.")
    if hybrid.unanswered:
        said.append(
            f"{hybrid.unanswered} of the questions of hybrid failed or came late: the camera's answer stood."
        )
    return said


def _quality(other: ModeFindings, hybrid: ModeFindings) -> str:
    gain = other.hybrid_gain
    if gain is not None:
        if gain.low > 0:
            return f"better by {100 * gain.value:.1f} points of AP ({100 * gain.low:.1f} to {100 * gain.high:.1f})"
        if gain.high < 0:
            return f"worse by {-100 * gain.value:.1f} points of AP ({-100 * gain.high:.1f} to {-100 * gain.low:.1f})"
        spread = f"{100 * gain.low:+.1f} to {100 * gain.high:+.1f}"
        return f"no clear difference, {100 * gain.value:+.1f} points of AP ({spread})"
    if other.agreement is None or hybrid.agreement is None:
        return "quality was not measured"
    if other.mode is Mode.CLOUD:
        return f"shares {100 * hybrid.agreement:.0f} % of its boxes"
    word = "better" if hybrid.agreement > other.agreement else "worse"
    return (
        f"{word}, {100 * hybrid.agreement:.0f} % of boxes in common with the cloud "
        f"against {100 * other.agreement:.0f} %"
    )


def _cost(other: ModeFindings, hybrid: ModeFindings) -> str:
    parts = []
    if other.bytes_per_frame > 0:
        parts.append(f"{100 * hybrid.bytes_per_frame / other.bytes_per_frame:.0f} % of its bytes")
    else:
        parts.append(f"{hybrid.bytes_per_frame / 1000:.1f} kB a frame against none")
    parts.append(f"mean answer after {hybrid.latency.mean_ms:.0f} ms against {other.latency.mean_ms:.0f} ms")
    if other.energy.total_j > 0:
        parts.append(f"{hybrid.energy.total_j / other.energy.total_j:.2f} times its modelled energy")
    return ", ".join(parts)
