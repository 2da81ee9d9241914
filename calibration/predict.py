"""Runs a detector over labelled frames, and scores bundles by what their detectors see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from calibration.evaluate import evaluate
from calibration.truth import EvaluatedFrame, GroundTruth
from fovea.core.arrays import ImageArray
from fovea.core.errors import Malformed
from fovea.core.ports import Detector
from fovea.runtime.bundle import Bundle
from fovea.runtime.onnx_detector import OnnxDetector


@dataclass(frozen=True, slots=True, eq=False)
class LabelledFrame:
    """Pixels u8[H, W, 3] BGR with their truth; `group` is the clip, see `EvaluatedFrame`."""

    group: str
    pixels: ImageArray
    truth: GroundTruth


def see(detector: Detector, frames: Iterable[LabelledFrame]) -> Iterator[EvaluatedFrame]:
    """What the detector sees in each frame, as candidates with raw scores, one frame at a time."""
    for frame in frames:
        seen = detector.detect([frame.pixels])[0].candidates
        yield EvaluatedFrame(frame.group, frame.truth, seen)


def ap_score(frames: Sequence[LabelledFrame], class_ids: Sequence[int]) -> Callable[[Bundle], float]:
    """A score for bundles: their AP on these frames, on one CPU thread."""

    def score(bundle: Bundle) -> float:
        detector = OnnxDetector.open(bundle, "cpu", threads=1)
        try:
            return evaluate(list(see(detector, frames)), class_ids).ap
        finally:
            detector.close()

    return score


def labelled_by(detector: Detector, frames: Sequence[ImageArray]) -> list[LabelledFrame]:
    """Frames with the answers of `detector` taken for the truth: measures agreement where nobody labelled anything.

    Raises Malformed when it answers nothing on any of them, since everything would agree with that.
    """
    labelled = []
    for index, pixels in enumerate(frames):
        answer = detector.detect([pixels])[0].detections
        truth = GroundTruth(answer.boxes_xyxy, answer.class_ids, answer.scores < 0)
        labelled.append(LabelledFrame(f"image-{index}", pixels, truth))
    if not any(len(frame.truth) for frame in labelled):
        raise Malformed(f"agreement: {detector.ref} sees nothing in these {len(frames)} images")
    return labelled
