"""Measures the champion and a candidate side by side on golden frames, both as they would ship."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import thread_time
from typing import Any

import numpy as np

from calibration.calibration_error import detection_calibration_error
from calibration.evaluate import match, report
from calibration.matching import BoxSize, MatchTable
from cloud.learn.looked_at import KnownFrame, Seen, gate_of, is_asked, look
from cloud.learn.promotion import Measured
from fovea.core.errors import Malformed
from fovea.runtime.bundle import Bundle
from fovea.runtime.images import decode_image
from fovea.runtime.onnx_detector import OnnxDetector

_TIMED_FRAMES, _TIMED_ROUNDS = 6, 8


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Both models on the same frames."""

    candidate: Measured
    champion: Measured


def measure_pair(candidate: Bundle, champion: Bundle, frames: Sequence[KnownFrame]) -> Pair:
    """Raises Malformed without frames, or where the two do not see the same classes."""
    if not frames:
        raise Malformed("measuring: expected at least one golden frame, got none")
    if set(candidate.manifest.label_set.ids) != set(champion.manifest.label_set.ids):
        raise Malformed("measuring: expected a candidate with the classes of the champion")
    bundles = (candidate, champion)
    detectors = [OnnxDetector.open(bundle, "cpu", threads=1) for bundle in bundles]
    try:
        times_ms = _times_ms(detectors, frames)
        measured = [
            measured_on(list(look(detector, bundle, frames)), bundle, time_ms)
            for detector, bundle, time_ms in zip(detectors, bundles, times_ms, strict=True)
        ]
    finally:
        for detector in detectors:
            detector.close()
    return Pair(*measured)


def measured_on(seen: Sequence[Seen], bundle: Bundle, latency_ms: float) -> Measured:
    """What promotion asks of a model, from what it saw."""
    table = match([each.evaluated for each in seen], bundle.manifest.label_set.ids, (BoxSize.ALL,))
    gate = gate_of(bundle)
    asked = [is_asked(each.opinion, gate, len(each.frame.jpeg)) for each in seen]
    empty = [len(each.told) for each in seen if not len(each.frame.truth)]
    return Measured(
        golden=table,
        false_boxes_per_frame=float(np.mean(empty)) if empty else 0.0,
        calibration_error=_calibration_error(table, bundle),
        asked_rate=float(np.mean(asked)),
        latency_ms=latency_ms,
        bundle_bytes=len(bundle.to_bytes()),
    )


def figures_of(measured: Measured) -> dict[str, Any]:
    """The figures of a model, for people and for later looks."""
    try:
        found = report(measured.golden)
        ap: dict[str, Any] = {"ap": round(found.ap, 4), "ap50": round(found.ap50, 4)}
    except Malformed:  # no true box at all
        ap = {}
    return {
        **ap,
        "golden_frames": int(measured.golden.frames.sum()),
        "false_boxes_per_frame": round(measured.false_boxes_per_frame, 4),
        "calibration_error": round(measured.calibration_error, 4),
        "asked_rate": round(measured.asked_rate, 4),
        "latency_ms": round(measured.latency_ms, 2),
        "bundle_bytes": measured.bundle_bytes,
    }


def _calibration_error(table: MatchTable, bundle: Bundle) -> float:
    try:
        return detection_calibration_error(table, bundle.calibration())
    except Malformed:  # it saw nothing: what it did not say cannot be off
        return 0.0


def _times_ms(detectors: Sequence[OnnxDetector], frames: Sequence[KnownFrame]) -> list[float]:
    """Median time of one frame of each, taken in turns so that a busy machine slows all alike."""
    pixels = [decode_image(frame.jpeg) for frame in frames[:_TIMED_FRAMES]]
    spent: list[list[float]] = [[] for _ in detectors]
    for turn in range(_TIMED_ROUNDS + 1):
        for image in pixels:
            for times, detector in zip(spent, detectors, strict=True):
                begun = thread_time()
                detector.detect([image])
                if turn:  # the first turn warms up
                    times.append(1000 * (thread_time() - begun))
    return [float(np.median(times)) for times in spent]
