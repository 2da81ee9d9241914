"""Old and new student on held-out clips, and the same frames as both see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from calibration.evaluate import Interval, compare, interval
from calibration.matching import MatchTable
from fovea.bench.loop_street import CameraFrame
from fovea.bench.loop_test import TestClips, groups_of
from fovea.cli.demo_findings import PictureCell, PictureRow
from fovea.cli.demo_loop_findings import Quality
from fovea.cli.demo_pictures import picture_cell
from fovea.core.detections import TOLD_FROM, Detections
from fovea.core.labels import LabelSet
from fovea.runtime.bundle import Bundle
from fovea.runtime.drawing import draw_boxes, draw_detections
from fovea.runtime.images import decode_image
from fovea.runtime.onnx_detector import OnnxDetector


def qualities_of(clips: TestClips, old: MatchTable, new: MatchTable | None) -> list[Quality]:
    """Of each condition. Both tables are of the same clips."""
    return [_quality(name, len(frames), old, new) for name, frames in clips.frames.items()]


def picture_rows(
    frames: Mapping[str, Sequence[CameraFrame]], old: Bundle, new: Bundle, most: int = 2
) -> list[PictureRow]:
    """Of each condition the `most` frames, each of another clip, in which the numbers of boxes differ most."""
    labels = old.manifest.label_set
    rows = []
    for condition, known in frames.items():
        seen = [_told(bundle, known) for bundle in (old, new)]
        differs = [abs(len(a) - len(b)) for a, b in zip(*seen, strict=True)]
        taken: set[str] = set()
        for index in np.argsort(differs, kind="stable")[::-1].tolist():
            frame = known[index]
            if frame.group in taken or len(taken) == most:
                continue
            taken.add(frame.group)
            rows.append(
                PictureRow(
                    f"{condition}, {frame.group}", _cells(frame, seen[0][index], seen[1][index], labels)
                )
            )
    return rows


def _quality(condition: str, frames: int, old: MatchTable, new: MatchTable | None) -> Quality:
    groups = groups_of(old, condition)
    before = interval(old, groups)
    if new is None:
        return Quality(condition, frames, before)
    gain: Interval = compare(new, old, groups)
    return Quality(condition, frames, before, interval(new, groups), gain)


def _told(bundle: Bundle, frames: Sequence[CameraFrame]) -> list[Detections]:
    detector = OnnxDetector.open(bundle, "cpu")
    try:
        return [
            detector.detect([decode_image(frame.jpeg)])[0].detections.above(TOLD_FROM) for frame in frames
        ]
    finally:
        detector.close()


def _cells(frame: CameraFrame, old: Detections, new: Detections, labels: LabelSet) -> list[PictureCell]:
    pixels, truth = decode_image(frame.jpeg), frame.truth
    wanted = ~truth.ignore
    names = [labels.find_name(int(class_id)) or "" for class_id in truth.class_ids[wanted]]
    return [
        picture_cell(f"truth: {len(names)} objects", draw_boxes(pixels, truth.boxes_xyxy[wanted], names)),
        picture_cell(f"before: {len(old)} boxes", draw_detections(pixels, old, labels)),
        picture_cell(f"after: {len(new)} boxes", draw_detections(pixels, new, labels)),
    ]
