"""Old and new student on held-out clips, and the same frames as both see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from calibration.evaluate import Interval, compare, interval
from calibration.matching import MatchTable
from calibration.predict import LabelledFrame
from cloud.learn.looked_at import FLOOR, features_of, gate_of
from fovea.bench.loop_street import CameraFrame
from fovea.bench.loop_test import TestClips, groups_of
from fovea.cli.demo_findings import PictureCell, PictureRow
from fovea.cli.demo_loop_findings import Quality
from fovea.cli.demo_pictures import picture_cell
from fovea.core.answering import answer
from fovea.core.detections import TOLD_FROM, Detections
from fovea.core.features import FeatureSettings
from fovea.core.labels import LabelSet
from fovea.core.learned_gate import LearnedGate
from fovea.runtime.bundle import Bundle
from fovea.runtime.drawing import draw_boxes, draw_detections
from fovea.runtime.images import decode_image
from fovea.runtime.onnx_detector import OnnxDetector


def asked_share(bundle: Bundle, frames: Sequence[LabelledFrame], ask_from: float) -> float:
    """Share of the frames about which the model's own gate is at least so sure that asking pays. Each frame stands
    alone: no tracks, no motion."""
    gate, calibration = gate_of(bundle), bundle.calibration()
    weights = gate.class_weights if isinstance(gate, LearnedGate) else None
    settings = FeatureSettings(class_weights=weights or None)
    detector = OnnxDetector.open(bundle, "cpu")
    try:
        asked = 0
        for frame in frames:
            [seen] = detector.detect([frame.pixels])
            weak = answer(seen.candidates, calibration, FLOOR, bundle.ref).detections
            told = seen.detections.above(TOLD_FROM)
            opinion = gate.judge(features_of(seen.candidates, told, weak, frame.pixels, settings))
            asked += opinion.p_ask >= ask_from
        return asked / len(frames)
    finally:
        detector.close()


def with_asked(
    qualities: Sequence[Quality], clips: TestClips, old: Bundle, new: Bundle | None, ask_from: float
) -> list[Quality]:
    """The same with what the gates of both students would ask about."""
    found = []
    for each in qualities:
        frames = clips.frames[each.condition]
        after = None if new is None else asked_share(new, frames, ask_from)
        found.append(replace(each, asked_old=asked_share(old, frames, ask_from), asked_new=after))
    return found


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
