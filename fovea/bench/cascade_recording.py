"""Street clips as the camera, the edge and the cloud see them, recorded frame by frame: what gates are fitted on and
measured with.

Each clip is walked as an agent walks it: the motion gate sees every frame, the tracker follows what the camera's
model answers, and the twelve features are those that the gate would have had. Answers are kept down to a calibrated
score of `FLOOR`, far below what is published, because merging and AP need the weak ones, too.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import pickle
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from calibration.truth import GroundTruth
from edge_agent.capture.motion import MotionGate
from edge_agent.track.tracker import Tracker
from edge_server.second_gate import second_features
from fovea import zoo
from fovea.bench.street_frames import SUITE, truth_of
from fovea.core.answering import answer
from fovea.core.arrays import FloatArray, ImageArray
from fovea.core.detections import TOLD_FROM, Candidates, Detections, Inference
from fovea.core.errors import Malformed
from fovea.core.features import FrameFeatures, SceneFacts, contrast_of, frame_features
from fovea.core.hard_case import TierAnswer
from fovea.core.labels import LabelSet
from fovea.core.merging import merge_answers
from fovea.core.routing import Tier
from fovea.core.scores import ScoreCalibration
from fovea.runtime.bundle import CALIBRATION, Bundle
from fovea.runtime.images import encode_jpeg
from fovea.runtime.onnx_detector import OnnxDetector
from fovea.sim.suite import load_suite

RECORDING = 3
"""Rises when what is recorded changes, so that recordings of before are not taken for new ones."""
FLOOR = 0.01
"""Calibrated score from which on a box is kept."""
JPEG_QUALITY = 90


@dataclass(frozen=True, slots=True)
class Trio:
    """The three bundles, by path."""

    camera: Path
    edge: Path
    cloud: Path

    @classmethod
    def street(cls) -> Trio:
        """The bundled models."""
        return cls(
            zoo.path_of("street-student-int8"), zoo.path_of("street-edge"), zoo.path_of("street-cloud")
        )


@dataclass(frozen=True, slots=True)
class ClipSpan:
    """Which frames of which clip: the camera walks `count` frames at `fps`, beginning half a second in; the last of
    every `every` of them is looked at by all tiers and recorded."""

    split: str
    condition: str
    index: int
    count: int = 8
    fps: float = 2.0
    every: int = 4

    def __post_init__(self) -> None:
        if not (self.every >= 1 and self.count >= self.every and self.fps > 0):
            raise Malformed(f"clip span: expected at least one frame to record, got {self}")

    @property
    def lasts_s(self) -> float:
        """Seconds that the walk takes."""
        return self.count / self.fps


@dataclass(frozen=True, slots=True, eq=False)
class RecordedFrame:
    """One frame as all tiers saw it, each alone. `features` are what the camera's gate sees, `edge_features` what the
    edge's gate sees when it is asked; `jpeg_bytes` is what a question about the frame weighs. `clip_index` is the
    clip's number within its condition, `at_s` the time since the walk began."""

    clip: str
    condition: str
    clip_index: int
    at_s: float
    truth: GroundTruth
    features: FrameFeatures
    edge_features: FrameFeatures
    camera: Detections
    edge: Detections
    cloud: Detections
    jpeg_bytes: int

    def labels_of(self, tier: Tier) -> LabelSet:
        """What the model of a tier knows."""
        return _STREET_LABELS

    def merged(self, *tiers: Tier) -> Detections:
        """What these tiers say together."""
        own = {Tier.AGENT: self.camera, Tier.EDGE: self.edge, Tier.CLOUD: self.cloud}
        return merge_answers(
            [TierAnswer(tier, own[tier], self.labels_of(tier)) for tier in tiers], own[max(tiers)].model
        )


@dataclass(frozen=True, slots=True, eq=False)
class RecordedPhotograph(RecordedFrame):
    """A frame of which the models need not know the street's classes; `known` is what each tier's model knows."""

    known: Mapping[Tier, LabelSet]

    def labels_of(self, tier: Tier) -> LabelSet:
        return self.known[tier]


_STREET_LABELS = LabelSet.from_names(["person", "bicycle", "car", "bus", "truck"])


def record_clips(
    spans: Sequence[ClipSpan], trio: Trio, folder: Path, workers: int, progress: Callable[[int, int], None]
) -> list[RecordedFrame]:
    """Records the clips in `workers` processes; what lies in `folder` already is not recorded again.

    `progress(done, all)` counts clips. A recording belongs to exactly these graphs and score calibrations: others get
    files of their own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    models = "-".join(_fingerprint(path) for path in (trio.camera, trio.edge, trio.cloud))
    jobs = [(span, trio, folder / f"{_name(span, models)}.pickle") for span in spans]
    missing = [job for job in jobs if not job[2].exists()]
    progress(len(jobs) - len(missing), len(jobs))
    if missing:
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            for done, _ in enumerate(pool.map(_record, missing), start=1):
                progress(len(jobs) - len(missing) + done, len(jobs))
    frames: list[RecordedFrame] = []
    for _, _, path in jobs:
        frames += pickle.loads(path.read_bytes())
    return frames


def _name(span: ClipSpan, models: str) -> str:
    which = f"{span.split}-{span.condition}-{span.index}-{span.count}of{span.every}x{span.fps:g}"
    return f"{which}-{models}-{RECORDING}"


def _fingerprint(path: Path) -> str:
    """Of what decides a model's answers; a gate does not."""
    bundle = Bundle.open(path)
    deciding = bundle.model + bundle.parts.get(CALIBRATION, b"")
    return hashlib.sha256(deciding).hexdigest()[:6]


def _record(job: tuple[ClipSpan, Trio, Path]) -> None:
    span, trio, path = job
    cv2.setNumThreads(1)
    frames = _walk(span, *(_Eye.open(each) for each in (trio.camera, trio.edge, trio.cloud)))
    partial = path.with_suffix(".part")
    partial.write_bytes(pickle.dumps(frames))
    partial.replace(path)


def _walk(span: ClipSpan, camera: _Eye, edge: _Eye, cloud: _Eye) -> list[RecordedFrame]:
    clip = load_suite(SUITE).clip(span.split, span.condition, span.index)
    motion, tracker = MotionGate(), Tracker()
    features: FrameFeatures | None = None
    frames = []
    for number in range(span.count):
        at_s = 0.5 + number / span.fps
        frame = clip.frame(round(at_s * clip.fps))
        moved = motion.look(frame.pixels, at_s)
        seen, answered = camera.look(frame.pixels)
        published = answered.above(TOLD_FROM)
        tracking = tracker.update(published, at_s)
        scene = SceneFacts(len(tracking.vanished), moved.boxes_xyxy, contrast_of(frame.pixels))
        features = frame_features(seen, published, scene, features)
        if (number + 1) % span.every:
            continue
        edge_saw, edge_answered = edge.look(frame.pixels)
        below = TierAnswer(Tier.AGENT, answered, _STREET_LABELS)
        frames.append(
            RecordedFrame(
                frame.clip_id,
                span.condition,
                span.index,
                number / span.fps,
                truth_of(frame),
                features,
                second_features(Inference(edge_answered, edge_saw), edge_saw.labels, [below], frame.pixels),
                answered,
                edge_answered,
                cloud.look(frame.pixels)[1],
                len(encode_jpeg(frame.pixels, JPEG_QUALITY)),
            )
        )
    return frames


@dataclass(frozen=True, slots=True, eq=False)
class _Eye:
    detector: OnnxDetector
    calibration: ScoreCalibration

    @classmethod
    def open(cls, path: Path) -> _Eye:
        bundle = Bundle.open(path)
        return cls(OnnxDetector.open(bundle, "cpu", threads=1), bundle.calibration())

    def look(self, pixels: ImageArray) -> tuple[Candidates, Detections]:
        seen = self.detector.detect([pixels])[0].candidates
        return seen, answer(seen, self.calibration, FLOOR, self.detector.ref).detections


def vectors(frames: Sequence[RecordedFrame]) -> FloatArray:
    """f32[F, 12]: the features of the frames."""
    return np.stack([frame.features.vector for frame in frames])
