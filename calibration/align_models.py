"""Runs two bundles over the same frames and aligns them; makes the corrected bundle of the weaker one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from calibration.align import AlignSettings, align, corrected
from calibration.align_pairs import ModelAnswers, calibrated_boxes
from calibration.align_report import AlignmentReport
from calibration.truth import ScoredBoxes
from fovea.core.arrays import ImageArray
from fovea.core.errors import Malformed
from fovea.core.ports import Detector
from fovea.core.scores import ScoreCalibration
from fovea.runtime.bundle import Bundle
from fovea.runtime.manifest import ParentRef
from fovea.runtime.onnx_detector import OnnxDetector

ClipFrames = Iterable[tuple[str, ImageArray]]
"""The clip of each frame, and its pixels u8[H, W, 3] BGR."""


def align_bundles(
    weak: Bundle,
    strong: Bundle,
    frames: ClipFrames,
    settings: AlignSettings = AlignSettings(),
    device: str = "cpu",
    threads: int = 1,
    progress: Callable[[int], None] = lambda done: None,
) -> AlignmentReport:
    """Both look at every frame; see `calibration.align.align` for the rest. `progress` is told the frames seen.

    Raises what opening a bundle and `align` raise.
    """
    detectors = [OnnxDetector.open(weak, device, threads), OnnxDetector.open(strong, device, threads)]
    try:
        calibrations = (weak.calibration(), strong.calibration())
        seen = see_both((detectors[0], detectors[1]), calibrations, frames, settings.min_score, progress)
    finally:
        for detector in detectors:
            detector.close()
    return align(*seen, settings)


def see_both(
    detectors: tuple[Detector, Detector],
    calibrations: tuple[ScoreCalibration, ScoreCalibration],
    frames: ClipFrames,
    min_score: float,
    progress: Callable[[int], None] = lambda done: None,
) -> tuple[ModelAnswers, ModelAnswers]:
    """What both say about every frame, with calibrated scores down to `min_score`. Raises Malformed without one."""
    said: tuple[list[ScoredBoxes], list[ScoredBoxes]] = ([], [])
    groups: list[str] = []
    for group, pixels in frames:
        groups.append(group)
        for own, detector, calibration in zip(said, detectors, calibrations, strict=True):
            own.append(calibrated_boxes(detector.detect([pixels])[0], calibration, min_score))
        progress(len(groups))
    if not groups:
        raise Malformed("alignment: expected at least one frame, got none")
    weak, strong = (
        ModelAnswers(str(detector.ref), detector.labels, tuple(own), tuple(groups))
        for own, detector in zip(said, detectors, strict=True)
    )
    return weak, strong


def corrected_bundle(weak: Bundle, report: AlignmentReport, version: str) -> Bundle:
    """The weaker model with its scores mapped onto the stronger's, as a bundle of its own with the report's figures.

    Raises Malformed when the report has no correction, and for a version that is none.
    """
    if report.correction is None:
        raise Malformed(f"alignment of {weak.ref}: expected a report with a correction, got one without")
    figures = {
        "align.score_kl": report.score_kl,
        "align.held_out_score_kl": report.held_out_score_kl,
        "align.held_out_score_kl_after": report.held_out_score_kl_after,
    }
    return weak.with_calibration(
        corrected(weak.calibration(), report.correction),
        version=version,
        parent=ParentRef.of(weak.ref),
        report={**weak.manifest.report, **figures, "align.strong": report.strong},
    )
