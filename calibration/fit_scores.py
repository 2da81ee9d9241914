"""Fits the score calibration of one model artefact: which raw score is right how often.

Fit it on the artefact that will run (the INT8 file, not its FP32 parent: quantization moves scores) and on a split
that neither trained the model nor judges it. Every class with enough boxes gets its own curve, drawn towards the
curve of all classes by a small prior; the others share that one. Platt or isotonic is chosen by likelihood on
held-out clips.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from calibration.matching import BoxSize, MatchTable, match
from calibration.score_curves import Outcomes, fit_isotonic, fit_platt, joined, log_loss, prior_outcomes
from calibration.truth import EvaluatedFrame
from fovea.core.errors import Malformed
from fovea.core.scores import PlattCurve, ScoreCalibration, ScoreCurve

MIN_HITS_PER_CLASS = 20
"""A class with fewer right boxes in the split uses the curve of all classes."""
_FOLDS = 5
_IOU_50 = 0
_FITS: tuple[Callable[[Outcomes], ScoreCurve], ...] = (fit_platt, fit_isotonic)


def fit_scores(frames: Sequence[EvaluatedFrame], class_ids: Iterable[int]) -> ScoreCalibration:
    """The calibration of the model that saw `frames` (its candidates, with raw scores).

    Raises Malformed when no box of it is right at IoU 0.5: there is nothing to learn from.
    """
    return fit_scores_of(match(frames, class_ids, sizes=(BoxSize.ALL,)))


def fit_scores_of(table: MatchTable) -> ScoreCalibration:
    """The same from a match table."""
    by_class = {class_id: _outcomes(table, class_id) for class_id in table.class_ids}
    together = joined(list(by_class.values()))
    if not together.correct.any():
        raise Malformed("score calibration: no box of the split is right, so nothing can be fitted")
    fallback = _best_curve(together, PlattCurve(1.0, 0.0))
    return ScoreCalibration(
        fallback,
        {
            class_id: _best_curve(outcomes, fallback)
            for class_id, outcomes in by_class.items()
            if outcomes.correct.sum() >= MIN_HITS_PER_CLASS
        },
    )


def _outcomes(table: MatchTable, class_id: int) -> Outcomes:
    matches = table.matches[class_id, BoxSize.ALL]
    counted = ~matches.ignored[_IOU_50]
    scores = matches.scores[counted].astype(np.float64)
    return Outcomes(
        scores,
        matches.correct[_IOU_50][counted].astype(np.float64),
        np.ones(len(scores)),
        matches.group[counted].astype(np.intp),
    )


def _best_curve(outcomes: Outcomes, prior: ScoreCurve) -> ScoreCurve:
    """The kind of curve that explains held-out groups best, fitted on all of them."""
    made_up = prior_outcomes(prior)
    losses = [
        sum(
            log_loss(
                fit(joined([made_up, outcomes.rows(outcomes.group % _FOLDS != fold)])),
                outcomes.rows(outcomes.group % _FOLDS == fold),
            )
            for fold in range(_FOLDS)
        )
        for fit in _FITS
    ]
    return _FITS[int(np.argmin(losses))](joined([made_up, outcomes]))
