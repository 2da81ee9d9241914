"""Score calibration of a bundle: fitted on frames that neither trained nor judge it; how far off it was before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from calibration.fit_scores import fit_scores_of
from calibration.matching import BoxSize, MatchTable, match
from calibration.predict import LabelledFrame, see
from calibration.reliability import Reliability, reliability
from fovea.bench.gate_fit import FIRST_UNTRAINED_CLIP
from fovea.bench.street_frames import SUITE, labelled
from fovea.core.scores import ScoreCalibration
from fovea.runtime.bundle import Bundle
from fovea.runtime.onnx_detector import OnnxDetector
from fovea.sim.conditions import CONDITIONS
from fovea.sim.suite import load_suite


@dataclass(frozen=True, slots=True, eq=False)
class FittedScores:
    """A calibration, and the reliability of raw, present and new scores on frames that it was not fitted on."""

    calibration: ScoreCalibration
    raw: Reliability
    present: Reliability
    after: Reliability

    @property
    def figures(self) -> dict[str, float]:
        """As they are published; `before` is of raw scores, `carried` of those that the bundle gave so far."""
        return {
            "d_ece_before": self.raw.d_ece,
            "d_ece_after": self.after.d_ece,
            "la_ece_before": self.raw.la_ece,
            "la_ece_after": self.after.la_ece,
            "d_ece_carried": self.present.d_ece,
            "la_ece_carried": self.present.la_ece,
        }


def fit_bundle_scores(
    bundle: Bundle, fit: Iterable[LabelledFrame], judge: Iterable[LabelledFrame], threads: int = 1
) -> FittedScores:
    """Fits on `fit`, measures on `judge`. Raises Malformed where nothing can be learned from the frames."""
    detector = OnnxDetector.open(bundle, "cpu", threads)
    try:
        fitted_on, judged_on = _matched(detector, fit), _matched(detector, judge)
    finally:
        detector.close()
    return fit_matched_scores(bundle, fitted_on, judged_on)


def fit_matched_scores(bundle: Bundle, fit: MatchTable, judge: MatchTable) -> FittedScores:
    """The same of what the bundle's model saw, with raw scores, against the truth. Raises Malformed as above."""
    calibration = fit_scores_of(fit)
    return FittedScores(
        calibration,
        reliability(judge),
        reliability(judge, bundle.calibration()),
        reliability(judge, calibration),
    )


def street_frames_of(split: str, clips: int, per_clip: int = 3) -> Iterator[LabelledFrame]:
    """Frames of `clips` clips of each condition; of the training split those that no model was trained on."""
    suite = load_suite(SUITE)
    start = FIRST_UNTRAINED_CLIP if split == "train" else 0
    for number in range(clips):
        for condition in CONDITIONS:
            clip = suite.clip(split, condition, start + number)
            step = (clip.frame_count - clip.fps) // per_clip
            yield from (labelled(clip.frame(clip.fps // 2 + k * step)) for k in range(per_clip))


def _matched(detector: OnnxDetector, frames: Iterable[LabelledFrame]) -> MatchTable:
    return match(list(see(detector, frames)), detector.labels.ids, (BoxSize.ALL,))
