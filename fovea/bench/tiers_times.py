"""What each step of answering a frame takes on this machine: measured one at a time, with nothing else to do."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from edge_agent.capture.motion import MotionGate
from edge_agent.frame_walk import FrameWalk, Judging, Walked
from edge_agent.track.tracker import Tracker
from fovea.bench.cascade_recording import JPEG_QUALITY
from fovea.bench.children import Child
from fovea.bench.tiers_outcome import TierTimes
from fovea.core.arrays import ImageArray
from fovea.core.deciding import DecideSettings, Situation
from fovea.core.detections import Detections
from fovea.core.errors import Malformed
from fovea.core.frame import Frame, FrameId
from fovea.core.gate import Gate, Opinion
from fovea.link.remote_detector import RemoteDetector, RemoteSettings
from fovea.process.clock import SystemClock
from fovea.runtime.bundle import Bundle
from fovea.runtime.images import encode_jpeg
from fovea.runtime.onnx_detector import OnnxDetector
from protos.calls import DetectAnswer, DetectQuestion
from protos.codec import answer_to_bytes, question_to_bytes

ASK_WITHIN_S = 20.0
"""A liveness limit: measuring wants every answer, however slow the machine."""
_WARM_UP = 4
_BUSY = Situation(
    has_link=True, in_flight=0, max_in_flight=1, time_left_s=1.0, round_trip_s=0.0, budget_allows=True
)


@dataclass(frozen=True, slots=True)
class Asked:
    """One server as it was measured: the time of each answer, and CPU seconds for each."""

    times_s: tuple[float, ...]
    cpu_s: float
    answers: tuple[DetectAnswer, ...]


def measure_times(
    pixels: Sequence[ImageArray],
    camera: Path,
    gate: Gate,
    edge: tuple[Child, str],
    cloud: tuple[Child, str],
    note: Callable[[str], None],
) -> TierTimes:
    """Times of all steps on the same frames u8[H, W, 3]; `edge` is one without a cloud, each server with its
    address. Raises Malformed for fewer than 5 frames, and what a server raises that does not answer."""
    if len(pixels) <= _WARM_UP:
        raise Malformed(f"tier times: expected more than {_WARM_UP} frames, got {len(pixels)}")
    note(f"measuring each tier on {len(pixels)} frames")
    walked, camera_s, camera_cpu_s = _walk(pixels, camera, gate)
    encode_s, encode_cpu_s, pictures = _encode(pixels)
    questions = [
        DetectQuestion(jpeg, frame_id=each.frame.id, answers=(each.own,))
        for jpeg, each in zip(pictures, walked, strict=True)
    ]
    beside = [len(question_to_bytes(each)) - len(each.image) for each in questions]
    by_edge = _ask(edge, questions)
    by_cloud = _ask(cloud, questions)
    return TierTimes(
        camera_s=camera_s,
        encode_s=encode_s,
        edge_s=by_edge.times_s,
        cloud_s=by_cloud.times_s,
        camera_cpu_s=camera_cpu_s,
        encode_cpu_s=encode_cpu_s,
        edge_cpu_s=by_edge.cpu_s,
        cloud_cpu_s=by_cloud.cpu_s,
        question_bytes=statistics.fmean(beside),
        answer_bytes=statistics.fmean(len(answer_to_bytes(each)) for each in by_cloud.answers),
    )


def _walk(
    pixels: Sequence[ImageArray], bundle: Path, gate: Gate
) -> tuple[list[Walked], tuple[float, ...], float]:
    clock, opened = SystemClock(), Bundle.open(bundle)
    detector = OnnxDetector.open(opened, "cpu", threads=1)
    walk = FrameWalk(detector, MotionGate(), Tracker(), Judging(gate, DecideSettings()), clock)

    def situation(opinion: Opinion, seen: Detections) -> Situation:
        return _BUSY

    walked, times_s, cpu_s = [], [], []
    try:
        for number, each in enumerate(pixels):
            frame = Frame(FrameId("bench", "times", number), each, datetime.now(UTC), clock.monotonic_s())
            begun_s, begun_cpu_s = time.perf_counter(), time.thread_time()
            walked.append(walk.walk(frame, 1.0, situation))
            cpu_s.append(time.thread_time() - begun_cpu_s)
            times_s.append(time.perf_counter() - begun_s)
    finally:
        detector.close()
    # A frame that nobody looked at took no time worth telling.
    looked = [i for i in range(_WARM_UP, len(walked)) if walked[i].decide_wall_s is not None]
    return walked, tuple(times_s[i] for i in looked), statistics.fmean(cpu_s[i] for i in looked)


def _encode(pixels: Sequence[ImageArray]) -> tuple[tuple[float, ...], float, list[bytes]]:
    pictures, times_s, cpu_s = [], [], time.thread_time()
    for each in pixels:
        begun_s = time.perf_counter()
        pictures.append(encode_jpeg(np.ascontiguousarray(each), JPEG_QUALITY))
        times_s.append(time.perf_counter() - begun_s)
    return tuple(times_s), (time.thread_time() - cpu_s) / len(pixels), pictures


def _ask(server: tuple[Child, str], questions: Sequence[DetectQuestion]) -> Asked:
    child, address = server
    remote = RemoteDetector.connect(address, RemoteSettings(timeout_s=ASK_WITHIN_S))
    try:
        for question in questions[:_WARM_UP]:
            remote.ask(question, ASK_WITHIN_S)
        answers, times_s, cpu_s = [], [], child.cpu_s()
        for question in questions:
            begun_s = time.perf_counter()
            answers.append(remote.ask(question, ASK_WITHIN_S))
            times_s.append(time.perf_counter() - begun_s)
        return Asked(tuple(times_s), (child.cpu_s() - cpu_s) / len(questions), tuple(answers))
    finally:
        remote.close()
