"""The measurement: the same frames answered by the agent alone, the edge alone, the cloud alone, and by all together.

Every answer is inferred here and now: by the agent's own pieces in this process, and by whoever is asked for the
others, in the demo the running edge and cloud processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import groupby

from edge_agent.frame_walk import FrameWalk
from edge_agent.purse import Purse
from fovea.cli.demo_findings import Mode
from fovea.cli.demo_frames import STEP_S, DemoFrame
from fovea.core.deciding import Situation
from fovea.core.detections import TOLD_FROM, Detections
from fovea.core.errors import FoveaError, Incompatible
from fovea.core.frame import Frame, FrameId
from fovea.core.gate import Opinion
from fovea.core.routing import Tier
from fovea.runtime.images import encode_jpeg
from protos.calls import DetectAnswer, DetectQuestion

JPEG_QUALITY = 90
ASK_TIMEOUT_S = 20.0
"""A liveness limit: the measurement wants every answer, however slow the machine."""

_CLIP_GAP_S = 1000.0

Ask = Callable[[DetectQuestion, float], DetectAnswer]
"""Asks a tier, waiting for the seconds given at most; raises FoveaErrors."""
Progress = Callable[[Mode, int, int], None]


@dataclass(frozen=True, slots=True)
class Tiers:
    """Who can be asked.

    new_walk    makes the agent's pieces afresh, for each clip
    purse       what hybrid may spend, on the time of the frames one after another, 2 a second
    draw        gives numbers uniform in 0..1, for audits
    ask_edge    asks the edge that asks the cloud itself where it finds it worth it; ask_edge_alone one that does not
    cpu_s       tells the CPU seconds that each tier's process has used so far
    """

    new_walk: Callable[[], FrameWalk]
    purse: Purse
    draw: Callable[[], float]
    ask_edge: Ask
    ask_edge_alone: Ask
    ask_cloud: Ask
    cpu_s: Callable[[], Mapping[Tier, float]]


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """One frame answered in one mode: all boxes that are known of it, also those too weak to be told to people.
    `latency_ms` runs from the pixels to the best answer; `first_ms` to the first; `sent_bytes` left the camera."""

    detections: Detections
    latency_ms: float
    first_ms: float
    sent_bytes: int = 0
    is_asked: bool = False
    is_from_cloud: bool = False
    is_unanswered: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ModeRun:
    """All frames in one mode, in their order. CPU seconds are those of all frames together."""

    mode: Mode
    answers: Sequence[Answered]
    camera_cpu_s: float
    edge_cpu_s: float
    cloud_cpu_s: float


def measure(frames: Sequence[DemoFrame], mode: Mode, tiers: Tiers, progress: Progress) -> ModeRun:
    """Answers all frames in one mode. Raises FoveaErrors when edge only or cloud only cannot be asked; in hybrid the
    camera's answer stands where a question fails."""
    before, cpu_s = tiers.cpu_s(), time.thread_time()
    answers: list[Answered] = []
    for answered in _answers(frames, mode, tiers):
        answers.append(answered)
        progress(mode, len(answers), len(frames))
    camera_cpu_s, after = time.thread_time() - cpu_s, tiers.cpu_s()
    return ModeRun(
        mode,
        answers,
        camera_cpu_s,
        after.get(Tier.EDGE, 0.0) - before.get(Tier.EDGE, 0.0),
        after.get(Tier.CLOUD, 0.0) - before.get(Tier.CLOUD, 0.0),
    )


def _answers(frames: Sequence[DemoFrame], mode: Mode, tiers: Tiers) -> Iterator[Answered]:
    match mode:
        case Mode.EDGE:
            for frame in frames:
                yield _one_tier(frame, tiers.ask_edge_alone, Tier.EDGE)
        case Mode.CLOUD:
            for frame in frames:
                yield _one_tier(frame, tiers.ask_cloud, Tier.CLOUD)
        case Mode.AGENT | Mode.HYBRID:
            passed_s = 0.0
            for number, (_, clip) in enumerate(groupby(frames, key=lambda frame: frame.group)):
                shots = list(clip)
                yield from _clip(shots, number, passed_s, mode, tiers)
                passed_s += len(shots) * STEP_S


def _one_tier(frame: DemoFrame, ask: Ask, tier: Tier) -> Answered:
    """What the model of one tier alone says."""
    begun_s = time.monotonic()
    jpeg = encode_jpeg(frame.pixels, JPEG_QUALITY)
    answer = ask(DetectQuestion(jpeg), ASK_TIMEOUT_S)
    latency_ms = (time.monotonic() - begun_s) * 1000
    own = next((each.detections for each in answer.answers if each.tier is tier), None)
    if own is None and answer.answers:
        raise Incompatible(f"{tier.name.lower()} only: the server gave no answer of its own tier")
    detections = answer.detections if own is None else own
    return Answered(detections, latency_ms, latency_ms, len(jpeg), True, tier is Tier.CLOUD)


def _clip(
    clip: Sequence[DemoFrame], number: int, before_s: float, mode: Mode, tiers: Tiers
) -> Iterator[Answered]:
    """One clip as the agent would walk through it, on its own time; `before_s` is the time of the clips before."""
    walk, purse = tiers.new_walk(), tiers.purse
    for sequence, each in enumerate(clip):
        # A clock of its own for every clip: 2 frames a second, however fast they are answered here.
        at_s = number * _CLIP_GAP_S + each.at_s
        frame = Frame(FrameId("demo", f"clip-{number}", sequence), each.pixels, datetime.now(UTC), at_s)
        purse_s = before_s + sequence * STEP_S
        situation = None if mode is Mode.AGENT else partial(_situation, purse, purse_s)
        begun_s = time.monotonic()
        walked = walk.walk(frame, tiers.draw(), situation)
        own_ms = (time.monotonic() - begun_s) * 1000
        decision = walked.result.decision
        if mode is Mode.AGENT or not decision.is_asked:
            yield Answered(walked.own.detections, own_ms, own_ms)
            continue
        if not decision.is_audit:
            purse.spend_ask(purse_s)
        jpeg = encode_jpeg(each.pixels, JPEG_QUALITY)
        question = DetectQuestion(
            jpeg,
            frame_id=frame.id,
            captured_at=frame.captured_at,
            answers=(walked.own,),
            reasons=tuple(decision.reasons),
            send_probability=decision.send_probability,
        )
        purse.spend_bytes(purse_s, len(jpeg))
        try:
            answer = tiers.ask_edge(question, ASK_TIMEOUT_S)
        except FoveaError:
            latency_ms = (time.monotonic() - begun_s) * 1000
            yield Answered(
                walked.own.detections, latency_ms, own_ms, len(jpeg), is_asked=True, is_unanswered=True
            )
            continue
        latency_ms = (time.monotonic() - begun_s) * 1000
        is_from_cloud = answer.revision >= Tier.CLOUD
        told = answer.detections.above(TOLD_FROM)
        walk.carry(frame, told, Tier.CLOUD if is_from_cloud else Tier.EDGE)
        yield Answered(answer.detections, latency_ms, own_ms, len(jpeg), True, is_from_cloud)


def _situation(purse: Purse, now_s: float, opinion: Opinion, seen: Detections) -> Situation:
    return Situation(
        has_link=True,
        in_flight=0,
        max_in_flight=1,
        time_left_s=ASK_TIMEOUT_S,
        round_trip_s=0.0,
        budget_allows=purse.allows(opinion, now_s),
    )
