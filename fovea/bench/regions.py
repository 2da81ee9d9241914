"""What a question costs and gains that shows the parts of a frame that hold the doubt, against whole frames.

Street clips are walked as an agent walks them. Every recorded frame is put to the edge's model in several ways, each
as the JPEG that would travel: as it is, as a mosaic of its doubtful parts where these are few (`fovea.core.regions`),
and, as what a mosaic has to be better than, shrunk to the size of the edge's input, and at a lower quality. Which
frames are asked about is the choice of the camera's own gate, the same for all ways.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np

from calibration.cascade import top_share
from calibration.evaluate import EvaluatedFrame, MatchTable, compare, match, report
from calibration.truth import GroundTruth
from edge_agent.capture.motion import MotionGate
from edge_agent.track.tracker import Tracker
from fovea import zoo
from fovea.bench.cascade_recording import FLOOR, JPEG_QUALITY, ClipSpan
from fovea.bench.result import BenchResult, Setting
from fovea.bench.street_frames import CLASS_IDS, SUITE, truth_of
from fovea.core.answering import answer
from fovea.core.arrays import FloatArray, ImageArray
from fovea.core.detections import TOLD_FROM, Detections, Inference
from fovea.core.errors import Malformed
from fovea.core.features import FeatureSettings, FrameFeatures, SceneFacts, contrast_of, frame_features
from fovea.core.frame import ImageSize
from fovea.core.hard_case import TierAnswer
from fovea.core.labels import LabelSet
from fovea.core.learned_gate import LearnedGate, gate_from_json
from fovea.core.merging import merge_answers
from fovea.core.mosaic import Mosaic
from fovea.core.regions import RegionSettings, plan_mosaic
from fovea.core.routing import Tier
from fovea.runtime.bundle import Bundle
from fovea.runtime.images import decode_image, encode_jpeg
from fovea.runtime.onnx_detector import OnnxDetector
from fovea.sim.conditions import CONDITIONS
from fovea.sim.suite import load_suite

WHOLE, MOSAIC, SHRUNK, COARSE = "whole", "mosaic", "shrunk", "coarse"
WAYS = (WHOLE, MOSAIC, SHRUNK, COARSE)
_COARSE_QUALITY = 75


@dataclass(frozen=True, slots=True)
class RegionsBenchSettings:
    """Which clips are walked, the share of frames that is asked about, in percent, and when regions are chosen. Of
    each clip 8 frames are walked and `per_clip` recorded."""

    split: str = "test"
    clips: int = 16
    per_clip: int = 2
    asked_pct: float = 30.0
    workers: int = 2
    regions: RegionSettings = field(default_factory=RegionSettings)

    def __post_init__(self) -> None:
        if not (self.clips >= 1 and self.per_clip in (1, 2, 4, 8) and self.workers >= 1):
            raise Malformed(f"regions bench: expected clips, and 1, 2, 4 or 8 frames of each, got {self}")
        if not 0 < self.asked_pct <= 100:
            raise Malformed(f"regions bench asked_pct: expected above 0 up to 100, got {self.asked_pct}")


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """One question as it travelled, and what came of it: `merged` is what camera and edge say together."""

    size_bytes: int
    edge_cpu_ms: float
    merged: Detections


@dataclass(frozen=True, slots=True, eq=False)
class RegionFrame:
    """One frame, asked about in all ways. `gain` is what the camera's gate expects of asking; `mosaic` is None where
    the frame has none, and its way is the whole frame then."""

    clip: str
    truth: GroundTruth
    camera: Detections
    gain: float
    sent: Mapping[str, Sent]
    mosaic: Mosaic | None


def run(
    settings: RegionsBenchSettings, progress: Callable[[int, int], None] = lambda a, b: None
) -> BenchResult:
    """Walks the clips and measures. `progress(done, all)` counts clips.

    With WAY in whole, mosaic, shrunk (whole, to the size of the edge's input) and coarse (whole, JPEG of quality 75):
    bytes_per_question.WAY, ap.merged.WAY with the asked share asked, bytes_per_ap_point.WAY (bytes per frame of the
    camera for each hundredth of AP above the camera's alone), edge_cpu_ms.WAY, and the same as all.FIGURE with every
    frame asked; all.ap.mosaic_minus.WAY with its interval over clips.
    """
    jobs = [
        (ClipSpan(settings.split, condition, number, every=8 // settings.per_clip), settings.regions)
        for number in range(settings.clips)
        for condition in CONDITIONS
    ]
    frames: list[RegionFrame] = []
    with ProcessPoolExecutor(settings.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done, of_clip in enumerate(pool.map(_record, jobs), start=1):
            frames += of_clip
            progress(done, len(jobs))
    said: dict[str, Setting] = {
        "split": settings.split,
        "frames": len(frames),
        "asked_pct": settings.asked_pct,
        "jpeg_quality": JPEG_QUALITY,
        "largest_share": settings.regions.largest_share,
    }
    return BenchResult.now("regions", said, figures_of(frames, settings.asked_pct))


def figures_of(frames: Sequence[RegionFrame], asked_pct: float) -> dict[str, float]:
    """The figures by name, see `run`. Raises Malformed without frames."""
    if not frames:
        raise Malformed("regions bench: expected at least one frame, got none")
    with_mosaic = [frame.mosaic for frame in frames if frame.mosaic is not None]
    camera = report(_matched(frames, [frame.camera for frame in frames])).ap
    figures = {"ap.camera": camera, "mosaics_pct": 100 * len(with_mosaic) / len(frames)}
    if with_mosaic:
        shares = [_pixels(m.size) / _pixels(m.frame_size) for m in with_mosaic]
        figures["mosaic_pixels_pct"] = 100 * float(np.mean(shares))
        figures["regions_per_mosaic"] = float(np.mean([len(m.tiles) for m in with_mosaic]))
    asked = top_share(np.array([frame.gain for frame in frames]), asked_pct / 100).ravel().astype(bool)
    for prefix, choice in (("", asked), ("all.", np.ones(len(frames), bool))):
        tables = {way: _answered(frames, choice, way) for way in WAYS}
        for way, table in tables.items():
            sent = [f.sent[way] for f, is_asked in zip(frames, choice, strict=True) if is_asked]
            ap, spent = report(table).ap, sum(each.size_bytes for each in sent)
            figures[f"{prefix}bytes_per_question.{way}"] = spent / len(sent)
            figures[f"{prefix}ap.merged.{way}"] = ap
            if ap > camera:
                figures[f"{prefix}bytes_per_ap_point.{way}"] = spent / len(frames) / (100 * (ap - camera))
            figures[f"{prefix}edge_cpu_ms.{way}"] = float(np.mean([each.edge_cpu_ms for each in sent]))
        for way in (WHOLE, SHRUNK, COARSE):
            found = compare(tables[MOSAIC], tables[way])
            figures[f"{prefix}ap.mosaic_minus.{way}"] = found.value
            figures[f"{prefix}ap.mosaic_minus_low.{way}"] = found.low
            figures[f"{prefix}ap.mosaic_minus_high.{way}"] = found.high
    return figures


def _answered(frames: Sequence[RegionFrame], asked: np.ndarray, way: str) -> MatchTable:
    answers = [
        frame.sent[way].merged if is_asked else frame.camera
        for frame, is_asked in zip(frames, asked, strict=True)
    ]
    return _matched(frames, answers)


def _matched(frames: Sequence[RegionFrame], answers: Sequence[Detections]) -> MatchTable:
    pairs = zip(frames, answers, strict=True)
    return match([EvaluatedFrame(frame.clip, frame.truth, said) for frame, said in pairs], CLASS_IDS)


def _pixels(size: ImageSize) -> int:
    return size.width * size.height


def _record(job: tuple[ClipSpan, RegionSettings]) -> list[RegionFrame]:
    span, settings = job
    cv2.setNumThreads(1)
    camera, edge = _Eye.open(zoo.path_of("street-student-int8")), _Eye.open(zoo.path_of("street-edge"))
    gate = camera.gate()
    seen_by = FeatureSettings(class_weights=gate.class_weights)
    clip = load_suite(SUITE).clip(span.split, span.condition, span.index)
    motion, tracker = MotionGate(), Tracker()
    features: FrameFeatures | None = None
    recorded = []
    for number in range(span.count):
        at_s = 0.5 + number / span.fps
        frame = clip.frame(round(at_s * clip.fps))
        moved = motion.look(frame.pixels, at_s)
        own = camera.look(frame.pixels)
        told = own.detections.above(TOLD_FROM)
        tracking = tracker.update(told, at_s)
        scene = SceneFacts(len(tracking.vanished), moved.boxes_xyxy, contrast_of(frame.pixels))
        features = frame_features(own.candidates, told, scene, features, seen_by, own.detections)
        if (number + 1) % span.every:
            continue
        lost = np.array([track.box_xyxy for track in tracking.vanished], np.float32).reshape(-1, 4)
        mosaic = plan_mosaic(own.detections, np.concatenate([lost, moved.boxes_xyxy]), settings)
        sent = _asked(edge, frame.pixels, TierAnswer(Tier.AGENT, own.detections, camera.labels), mosaic)
        opinion = gate.judge(features)
        gain = opinion.p_ask if opinion.expected_gain is None else opinion.expected_gain
        recorded.append(RegionFrame(frame.clip_id, truth_of(frame), own.detections, gain, sent, mosaic))
    return recorded


def _asked(edge: _Eye, pixels: ImageArray, own: TierAnswer, mosaic: Mosaic | None) -> dict[str, Sent]:
    size, model = own.detections.image_size, edge.input_size
    scale = min(model.width / size.width, model.height / size.height, 1.0)
    small = cv2.resize(
        pixels, (round(scale * size.width), round(scale * size.height)), interpolation=cv2.INTER_AREA
    )
    sent = {
        WHOLE: _sent(edge, pixels, JPEG_QUALITY, own),
        SHRUNK: _sent(edge, np.asarray(small, np.uint8), JPEG_QUALITY, own),
        COARSE: _sent(edge, pixels, _COARSE_QUALITY, own),
    }
    sent[MOSAIC] = (
        sent[WHOLE] if mosaic is None else _sent(edge, mosaic.cut(pixels), JPEG_QUALITY, own, mosaic)
    )
    return sent


def _sent(
    edge: _Eye, picture: ImageArray, quality: int, own: TierAnswer, mosaic: Mosaic | None = None
) -> Sent:
    jpeg = encode_jpeg(picture, quality)
    arrived = decode_image(jpeg)
    begun_s = time.thread_time()
    saw = edge.look(arrived)
    spent_s = time.thread_time() - begun_s
    if mosaic is not None:
        seen, looked_xyxy = mosaic.to_frame(saw).detections, mosaic.regions_xyxy
    else:
        seen, looked_xyxy = _of_size(saw.detections, own.detections.image_size), None
    theirs = TierAnswer(Tier.EDGE, seen, edge.labels, looked_xyxy)
    return Sent(len(jpeg), 1000 * spent_s, merge_answers([own, theirs], seen.model))


def _of_size(seen: Detections, size: ImageSize) -> Detections:
    """What was seen in a whole frame of another size."""
    grown = np.array(
        [size.width / seen.image_size.width, size.height / seen.image_size.height] * 2, np.float32
    )
    boxes: FloatArray = seen.boxes_xyxy * grown
    return Detections(boxes, seen.scores, seen.class_ids, size, seen.model)


@dataclass(frozen=True, slots=True, eq=False)
class _Eye:
    bundle: Bundle
    detector: OnnxDetector

    @classmethod
    def open(cls, path: Path) -> _Eye:
        bundle = Bundle.open(path)
        return cls(bundle, OnnxDetector.open(bundle, "cpu", threads=1))

    @property
    def labels(self) -> LabelSet:
        return self.detector.labels

    @property
    def input_size(self) -> ImageSize:
        wanted = self.bundle.manifest.input
        return ImageSize(wanted.width, wanted.height)

    def gate(self) -> LearnedGate:
        carried = self.bundle.find_gate()
        if carried is None:
            raise Malformed("regions bench: expected a camera's bundle with a gate, got one without")
        return gate_from_json(carried)

    def look(self, pixels: ImageArray) -> Inference:
        seen = self.detector.detect([pixels])[0].candidates
        return answer(seen, self.bundle.calibration(), FLOOR, self.detector.ref)
