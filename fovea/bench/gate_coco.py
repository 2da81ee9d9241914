"""Real photographs as frames that might be asked about: public detectors as camera and edge.

Scores are taken as they come. There are two pairs of answers: the strong model's *instead of* the weak one's, as
published rules are measured, and merged, as the product answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from calibration.predict import LabelledFrame
from fovea.bench.gate_set import AskFrame
from fovea.bench.real import load_coco_train, load_coco_val, open_model
from fovea.core.answering import answer
from fovea.core.detections import LOWEST_SCORE, TOLD_FROM, Candidates, Detections
from fovea.core.features import SceneFacts, contrast_of, frame_features
from fovea.core.hard_case import TierAnswer
from fovea.core.merging import merge_answers, merged_ref
from fovea.core.routing import Tier
from fovea.core.scores import ScoreCalibration
from fovea.runtime.images import encode_jpeg
from fovea.runtime.onnx_detector import OnnxDetector

WEAK, STRONG = "yolox_nano", "yolov8n_int8"
_JPEG_QUALITY = 90


@dataclass(frozen=True, slots=True, eq=False)
class CocoAsks:
    """The images of a split with the answer replaced, and the same with it merged; the classes of their truth."""

    replaced: list[AskFrame]
    merged: list[AskFrame]
    class_ids: list[int]


def coco_asks(data: Path, split: str, threads: int = 1) -> CocoAsks:
    """The images of `split` ("train" or "val"), one a second. Raises NotFound when data or a model is not there."""
    frames = load_coco_val(data) if split == "val" else load_coco_train(data)
    weak, strong = (open_model(data, name, threads) for name in (WEAK, STRONG))
    try:
        seen = [(frame, _seen(weak, frame), _seen(strong, frame)) for frame in frames]
    finally:
        weak.close()
        strong.close()
    refs = [weak.ref, strong.ref]
    replaced, merged = [], []
    for number, (frame, (candidates, own), (other_candidates, other)) in enumerate(seen):
        both = merge_answers(
            [
                TierAnswer(Tier.AGENT, own, candidates.labels),
                TierAnswer(Tier.EDGE, other, other_candidates.labels),
            ],
            merged_ref(refs),
        )
        replaced.append(_ask(number, frame, candidates, (own, other, other)))
        merged.append(_ask(number, frame, candidates, (own, both, other)))
    classes = sorted({int(each) for frame in frames for each in frame.truth.class_ids})
    return CocoAsks(replaced, merged, classes)


def _ask(
    number: int,
    frame: LabelledFrame,
    candidates: Candidates,
    answers: tuple[Detections, Detections, Detections],
) -> AskFrame:
    weak, asked, strong = answers
    scene = SceneFacts(contrast=contrast_of(frame.pixels))
    return AskFrame(
        frame.group,
        float(number),
        frame.truth,
        weak,
        asked,
        strong,
        frame_features(candidates, weak.above(TOLD_FROM), scene),
        weak,
        len(encode_jpeg(frame.pixels, _JPEG_QUALITY)),
    )


def _seen(detector: OnnxDetector, frame: LabelledFrame) -> tuple[Candidates, Detections]:
    candidates = detector.detect([frame.pixels])[0].candidates
    said = answer(candidates, ScoreCalibration.identity(), LOWEST_SCORE, detector.ref)
    return candidates, said.detections
