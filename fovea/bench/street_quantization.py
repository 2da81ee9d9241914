"""Quantizes a street model and fits its scores, each on frames of its own that no test looks at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from calibration.calibration_error import detection_calibration_error
from calibration.evaluate import MatchTable, match
from calibration.fit_scores import fit_scores_of
from calibration.matching import BoxSize
from calibration.predict import LabelledFrame, ap_score, see
from calibration.quant_search import SearchSettings, Trial
from calibration.quantize import Quantized, quantize_bundle
from fovea.bench.street_frames import CLASS_IDS, StoredFrames, Wanted, stored_frames
from fovea.runtime.bundle import Bundle
from fovea.runtime.onnx_detector import OnnxDetector


@dataclass(frozen=True, slots=True)
class StreetSplits:
    """Training frames set the ranges of activations; of the validation clips, those with an even number choose the
    recipe and those with an odd number fit the scores."""

    ranges: Wanted = field(default_factory=lambda: Wanted("train", per_clip=3, clips=5))
    validation: Wanted = field(default_factory=lambda: Wanted("val", per_clip=3))


@dataclass(frozen=True, slots=True, eq=False)
class FittedScores:
    """A bundle with its score calibration, and its detection calibration error before and after, on clips that did
    not fit it."""

    bundle: Bundle
    error_before: float
    error_after: float


def quantize_on_street(
    bundle: Bundle,
    folder: Path,
    splits: StreetSplits = StreetSplits(),
    settings: SearchSettings = SearchSettings(),
    progress: Callable[[Trial], None] = lambda trial: None,
    name: str | None = None,
    workers: int = 2,
) -> tuple[FittedScores, Quantized]:
    """The INT8 bundle with scores fitted on the INT8 artefact itself. Frames are rendered into `folder`."""
    ranges = stored_frames(folder / "ranges", splits.ranges, workers, _quiet)
    validation = stored_frames(folder / "validation", splits.validation, workers, _quiet)
    quantized = quantize_bundle(
        bundle,
        (frame.pixels for frame in ranges),
        ap_score(_clips_with(validation, parity=0), CLASS_IDS),
        settings,
        progress,
        name,
    )
    return fit_scores_on_street(quantized.bundle, folder, splits, workers), quantized


def fit_scores_on_street(
    bundle: Bundle, folder: Path, splits: StreetSplits = StreetSplits(), workers: int = 2
) -> FittedScores:
    """The bundle with the score calibration of its own artefact, and the errors in its report."""
    validation = stored_frames(folder / "validation", splits.validation, workers, _quiet)
    detector = OnnxDetector.open(bundle, "cpu")
    judged, fitted = (_matched(detector, _clips_with(validation, parity)) for parity in (0, 1))
    detector.close()
    calibration = fit_scores_of(fitted)
    before = detection_calibration_error(judged)
    after = detection_calibration_error(judged, calibration)
    report = {**bundle.manifest.report, "d_ece.before": round(before, 5), "d_ece.after": round(after, 5)}
    return FittedScores(bundle.with_calibration(calibration, report=report), before, after)


def search_table(quantized: Quantized) -> str:
    """The search as a Markdown table."""
    lines = [
        "| recipe | AP | points below FP32 | times FP32's speed, 1 thread | QLinearConv | KiB |",
        "|---|---|---|---|---|---|",
        f"| FP32 | {quantized.fp32_score:.4f} | | 1 | 0 | |",
    ]
    for trial in quantized.search.trials:
        mark = "**" if trial is quantized.search.best else ""
        drop = 100 * (quantized.fp32_score - trial.score)
        lines.append(
            f"| {mark}{trial.label}{mark} | {trial.score:.4f} | {drop:.2f} | {trial.speedup:.2f} "
            f"| {trial.qlinear_convs} | {len(trial.model) / 1024:.0f} |"
        )
    return "\n".join(lines)


def _matched(detector: OnnxDetector, frames: list[LabelledFrame]) -> MatchTable:
    return match(list(see(detector, frames)), CLASS_IDS, (BoxSize.ALL,))


def _clips_with(frames: StoredFrames, parity: int) -> list[LabelledFrame]:
    """The frames of clips whose number in their condition is even (0) or odd (1)."""
    return [frame for frame in frames if int(frame.group.rpartition("/")[2]) % 2 == parity]


def _quiet(done: int, every: int) -> None:
    """Rendering is announced by the caller as a whole."""
