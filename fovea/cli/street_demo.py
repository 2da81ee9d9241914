"""The street seen by the camera's, the edge's and the cloud's model, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import cv2
import numpy as np

from fovea import zoo
from fovea.core.arrays import ImageArray
from fovea.core.detections import Detections
from fovea.core.geometry import iou_matrix
from fovea.runtime.drawing import draw_boxes, draw_detections, title
from fovea.runtime.onnx_detector import OnnxDetector
from fovea.sim.frame import StreetFrame
from fovea.sim.suite import CONDITIONS, load_suite

TIERS = {"camera": "street-student-int8", "edge": "street-edge", "cloud": "street-cloud"}
_FOUND_IOU = 0.5
_PANEL_WIDTH_PX = 640


@dataclass(frozen=True, slots=True)
class TierLook:
    """One model on all frames: objects found (right class, IoU of 0.5 or more), boxes on nothing, time per frame."""

    tier: str
    model: str
    objects: int
    found: int
    false_boxes: int
    median_ms: float


def run_demo(out: Path, per_condition: int, note: Callable[[str], None]) -> list[TierLook]:
    """Looks at `per_condition` validation frames of each condition with each model; writes `out/street.jpg`, one row
    for each condition: the truth, then each tier. Calls `note` before each step."""
    out.mkdir(parents=True, exist_ok=True)
    note(f"rendering {per_condition * len(CONDITIONS)} street frames")
    frames = list(_frames(per_condition))
    first_of_each = [index for index in range(len(frames)) if index % per_condition == 0]
    columns = [[title(_truth(frames[i]), f"{frames[i].clip_id}: truth") for i in first_of_each]]
    looks = []
    for tier, name in TIERS.items():
        note(f"{tier}: {name} looks at {len(frames)} frames")
        detector = OnnxDetector.open(zoo.path_of(name), device="cpu")
        answers, times_ms = _look(detector, [frame.pixels for frame in frames])
        looks.append(_count(tier, name, frames, answers, times_ms))
        drawn = [draw_detections(frames[i].pixels, answers[i], detector.labels) for i in first_of_each]
        columns.append([title(picture, f"{tier}: {name}") for picture in drawn])
        detector.close()
    cv2.imwrite(str(out / "street.jpg"), _grid(columns), [cv2.IMWRITE_JPEG_QUALITY, 88])
    return looks


def _frames(per_condition: int) -> Iterator[StreetFrame]:
    suite = load_suite("street-v1")
    for condition in CONDITIONS:
        for index in range(per_condition):
            yield suite.clip("val", condition, index).frame(100)


def _look(detector: OnnxDetector, pictures: Sequence[ImageArray]) -> tuple[list[Detections], list[float]]:
    answers, times_ms = [], []
    for pixels in pictures:
        begun = perf_counter()
        answers.append(detector.detect([pixels])[0].detections)
        times_ms.append(1000 * (perf_counter() - begun))
    return answers, times_ms


def _count(
    tier: str, name: str, frames: Sequence[StreetFrame], answers: Sequence[Detections], times_ms: list[float]
) -> TierLook:
    objects = found = false_boxes = 0
    for frame, answer in zip(frames, answers, strict=True):
        truth = np.array([o.box_xyxy for o in frame.objects], np.float32).reshape(-1, 4)
        is_asked = np.array([not o.ignore for o in frame.objects], bool)
        class_ids = np.array([o.class_id for o in frame.objects], np.int32)
        overlaps = iou_matrix(truth, answer.boxes_xyxy)
        is_match = (overlaps >= _FOUND_IOU) & (class_ids[:, None] == answer.class_ids[None, :])
        objects += int(is_asked.sum())
        found += int((is_match.any(axis=1) & is_asked).sum())
        # A box on an object too faint to be asked for is neither right nor wrong.
        near_any = (
            (overlaps >= _FOUND_IOU)[~is_asked].any(axis=0) if len(truth) else np.zeros(len(answer), bool)
        )
        false_boxes += int((~is_match.any(axis=0) & ~near_any).sum())
    return TierLook(tier, name, objects, found, false_boxes, float(np.median(times_ms)))


def _truth(frame: StreetFrame) -> ImageArray:
    asked = [o for o in frame.objects if not o.ignore]
    boxes = np.array([o.box_xyxy for o in asked], np.float32).reshape(-1, 4)
    return draw_boxes(frame.pixels, boxes, [o.label for o in asked])


def _grid(columns: Sequence[Sequence[ImageArray]]) -> ImageArray:
    rows = [np.hstack([_panel(picture) for picture in row]) for row in zip(*columns, strict=True)]
    return np.vstack(rows)


def _panel(pixels: ImageArray) -> ImageArray:
    height = round(pixels.shape[0] * _PANEL_WIDTH_PX / pixels.shape[1])
    return np.asarray(cv2.resize(pixels, (_PANEL_WIDTH_PX, height), interpolation=cv2.INTER_AREA), np.uint8)
