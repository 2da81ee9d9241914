"""Annotated frames for the report: the same frame as the truth has it and as each tier sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import cv2
import numpy as np

from fovea.cli.demo_findings import Mode, PictureCell, PictureRow
from fovea.cli.demo_frames import DemoFrame
from fovea.cli.demo_measure import ModeRun
from fovea.core.arrays import ImageArray
from fovea.core.detections import TOLD_FROM
from fovea.core.labels import LabelSet
from fovea.runtime.drawing import draw_boxes, draw_detections
from fovea.runtime.images import encode_jpeg

_WIDTH_PX = 720
_JPEG_QUALITY = 82
_NAMES = {Mode.AGENT: "camera", Mode.EDGE: "edge", Mode.CLOUD: "cloud", Mode.HYBRID: "hybrid"}


def picture_rows(
    frames: Sequence[DemoFrame], runs: Mapping[Mode, ModeRun], labels: LabelSet, most: int = 6
) -> list[PictureRow]:
    """One row for each condition (or for frames evenly spread, where there are none), at most `most`: of each, the
    frame about which camera and cloud differ most, among those that hybrid asked about where there are any."""
    rows = []
    for title, indices in _choices(frames, most):
        asked = [i for i in indices if Mode.HYBRID in runs and runs[Mode.HYBRID].answers[i].is_asked]
        index = max(asked or indices, key=lambda i: _difference(runs, i))
        rows.append(_row(title, frames[index], index, runs, labels))
    return rows


def _choices(frames: Sequence[DemoFrame], most: int) -> list[tuple[str, list[int]]]:
    conditions = list(dict.fromkeys(frame.condition for frame in frames if frame.condition))
    if conditions:
        return [
            (name, [i for i, frame in enumerate(frames) if frame.condition == name])
            for name in conditions[:most]
        ]
    parts = np.array_split(np.arange(len(frames)), min(most, len(frames)))
    return [(f"{frames[int(part[0])].group}", [int(i) for i in part]) for part in parts if len(part)]


def _difference(runs: Mapping[Mode, ModeRun], index: int) -> int:
    if Mode.AGENT not in runs or Mode.CLOUD not in runs:
        return 0
    camera, cloud = runs[Mode.AGENT].answers[index], runs[Mode.CLOUD].answers[index]
    return len(cloud.detections.above(TOLD_FROM)) - len(camera.detections.above(TOLD_FROM))


def _row(
    title: str, frame: DemoFrame, index: int, runs: Mapping[Mode, ModeRun], labels: LabelSet
) -> PictureRow:
    cells = []
    if frame.truth is not None:
        wanted = ~frame.truth.ignore
        names = [labels.find_name(int(class_id)) or "" for class_id in frame.truth.class_ids[wanted]]
        drawn = draw_boxes(frame.pixels, frame.truth.boxes_xyxy[wanted], names)
        cells.append(picture_cell(f"truth: {len(names)} objects", drawn))
    for mode, name in _NAMES.items():
        if mode not in runs:
            continue
        answer = runs[mode].answers[index]
        who = ""
        if mode is Mode.HYBRID:
            who = (
                "not asked" if not answer.is_asked else "with cloud" if answer.is_from_cloud else "with edge"
            )
            who = f" ({who})"
        shown = answer.detections.above(TOLD_FROM)
        caption = f"{name}{who}: {len(shown)} boxes, {answer.latency_ms:.0f} ms"
        cells.append(picture_cell(caption, draw_detections(frame.pixels, shown, labels)))
    where = frame.group if title == frame.group else f"{title}, {frame.group}"
    return PictureRow(f"{where} at {frame.at_s:.1f} s", cells)


def picture_cell(caption: str, pixels: ImageArray) -> PictureCell:
    """A frame as the report shows it."""
    height = max(round(pixels.shape[0] * _WIDTH_PX / pixels.shape[1]), 1)
    small = cv2.resize(pixels, (_WIDTH_PX, height), interpolation=cv2.INTER_AREA)
    return PictureCell(caption, encode_jpeg(np.asarray(small, np.uint8), _JPEG_QUALITY))
