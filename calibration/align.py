"""Do two models see the same things in the same way? What differs in distribution, and the map that takes it back.

Two tiers, or an old and a new student, look at the same frames. Their boxes are matched wherever they overlap,
whatever the class. Three things are measured on the pairs:

classes  KL divergence (nats) of the stronger's class distribution from the weaker's
scores   the same of their score histograms (ten bins), over pairs of one class; all together, and class by class
gap      mean squared difference of the two scores of a pair of one class

A KL divergence between samples is never 0. How large it gets by chance is measured, not assumed: each model's own
answers are cut at random into two halves by clip, many times, and the threshold is the 99 % quantile of what two
halves of one model differ by (the larger of both models' thresholds, and at least 0.002 nats: less is found on enough
frames and matters to nobody). Halves are smaller than the whole and show different scenes, so the threshold errs
towards calling models alike. All counts are smoothed by half a box per bin.

The correction is a rising map of the weaker's score onto the stronger's per class, with one for all classes as a
fallback (`calibration.score_curves`). It is judged on clips that it was not fitted on, a fifth at a time: when it
lowers both the gap and the divergence there, it is fitted on all and the report says `corrected`. A difference that
no map of scores takes back (other classes, or one model surer than the other without being wrong) is `reported`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.align_pairs import ModelAnswers, Pairs, matched_pairs
from calibration.align_report import AlignmentReport, ClassShift, Confusion, Verdict
from calibration.score_curves import Outcomes, fit_isotonic, fit_platt, joined, log_loss, prior_outcomes
from fovea.core.errors import Malformed
from fovea.core.scores import PiecewiseCurve, PlattCurve, ScoreCalibration, ScoreCurve

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_IDENTITY = PlattCurve(1.0, 0.0)
_KNOTS = np.concatenate(
    [np.geomspace(0.001, 0.05, 12), np.linspace(0.07, 0.93, 40), [0.95, 0.97, 0.985, 0.995]]
)
_FOLDS = 5
_RISE = 1e-5
"""Least rise from knot to knot of a composed curve: float32 can tell it apart everywhere in 0..1."""


@dataclass(frozen=True, slots=True)
class AlignSettings:
    """iou: of boxes that are one thing. min_score: of boxes that count. min_pairs: with fewer nothing is said.
    bins: of the score histograms. halvings, quantile, least_kl: of the threshold (see above). min_class_pairs: a
    class with fewer shares the map of all, and is not looked at by itself. confusion_share,
    confusion_pairs: a confusion is named when so many of the weaker's boxes of a class, and so many of them at least,
    are another class to the stronger."""

    iou: float = 0.5
    min_score: float = 0.05
    min_pairs: int = 50
    bins: int = 10
    halvings: int = 400
    quantile: float = 0.99
    least_kl: float = 0.002
    min_class_pairs: int = 40
    confusion_share: float = 0.1
    confusion_pairs: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("iou", "min_score", "quantile", "confusion_share"):
            if not 0 < getattr(self, name) < 1:
                raise Malformed(
                    f"align {name}: expected more than 0 and less than 1, got {getattr(self, name)}"
                )
        counts = (self.min_pairs, self.halvings, self.min_class_pairs, self.confusion_pairs)
        if min(counts) < 1 or self.bins < 2 or not self.least_kl >= 0:
            raise Malformed(f"align settings: expected counts of at least 1 and 2 bins, got {self}")


def align(
    weak: ModelAnswers, strong: ModelAnswers, settings: AlignSettings = AlignSettings()
) -> AlignmentReport:
    """Compares what both said about the same frames, and fits the correction of `weak` where one helps.

    Raises Malformed for no frames or not the same number of them, models without a class in common, scores or boxes
    that are no numbers, classes that a model's labels do not have, fewer matches than `min_pairs`, and fewer than
    four frames (clips, where there are some) to tell chance from difference.
    """
    pairs = matched_pairs(weak, strong, settings.iou, settings.min_score)
    if len(pairs) < settings.min_pairs:
        raise Malformed(
            f"alignment: expected at least {settings.min_pairs} boxes that both models see, got {len(pairs)} in "
            f"{len(weak.frames)} frames"
        )
    if pairs.group_count < 4:
        raise Malformed(
            f"alignment: expected boxes in at least 4 clips or frames, got them in {pairs.group_count}: chance "
            "cannot be told from difference"
        )
    same = pairs.rows(pairs.weak_class == pairs.strong_class)
    if len(same) < settings.min_pairs:
        raise Malformed(
            f"alignment: expected at least {settings.min_pairs} boxes of one class to both models, got {len(same)} "
            f"of {len(pairs)}: are the labels in the same order?"
        )
    rng = np.random.default_rng(settings.seed)
    class_kl, class_limit = _difference(
        _class_counts(pairs, pairs.weak_class), _class_counts(pairs, pairs.strong_class), settings, rng
    )
    weak_bins, strong_bins = (_score_counts(same, scores, settings) for scores in (same.weak, same.strong))
    score_kl, score_limit = _difference(weak_bins, strong_bins, settings, rng)
    shifts = _class_shifts(same, weak, settings, rng)
    scores_differ = score_kl > score_limit or any(shift.differs for shift in shifts)
    gap = float(np.mean((same.weak - same.strong) ** 2))
    correction, held_out = None, _HeldOut(score_kl, score_kl, gap, gap)
    if scores_differ:
        held_out = _held_out(same, settings, rng)
        correction = fit_correction(same, settings) if held_out.helps else None
    confusions = _confusions(pairs, weak, strong, settings)
    return AlignmentReport(
        weak=weak.name,
        strong=strong.name,
        frames=len(weak.frames),
        pairs=len(pairs),
        agreement=len(same) / len(pairs),
        class_kl=class_kl,
        class_kl_threshold=class_limit,
        score_kl=score_kl,
        score_kl_threshold=score_limit,
        class_shifts=shifts,
        held_out_score_kl=held_out.kl_before,
        held_out_score_kl_after=held_out.kl_after,
        held_out_gap=held_out.gap_before,
        held_out_gap_after=held_out.gap_after,
        verdict=_verdict(class_kl > class_limit, scores_differ, correction is not None),
        confusions=confusions,
        correction=correction,
    )


def fit_correction(pairs: Pairs, settings: AlignSettings = AlignSettings()) -> ScoreCalibration:
    """The weaker's score mapped onto the stronger's, from pairs of one class: one curve for all, and curves of their
    own, drawn towards it, for classes with enough pairs."""
    everything = _outcomes(pairs)
    fallback = _best_curve(everything, _IDENTITY)
    by_class: dict[int, ScoreCurve] = {}
    for class_id in np.unique(pairs.weak_class).tolist():
        chosen = pairs.weak_class == class_id
        if np.count_nonzero(chosen) >= settings.min_class_pairs:
            by_class[class_id] = _best_curve(everything.rows(chosen), fallback)
    return ScoreCalibration(fallback, by_class)


def corrected(calibration: ScoreCalibration, correction: ScoreCalibration) -> ScoreCalibration:
    """One calibration that does what both do one after the other, to be carried by the corrected model's bundle."""
    fallback = _composed(calibration.fallback, correction.fallback)
    class_ids = sorted({*calibration.by_class, *correction.by_class})
    return ScoreCalibration(
        fallback,
        {
            class_id: _composed(
                calibration.by_class.get(class_id, calibration.fallback),
                correction.by_class.get(class_id, correction.fallback),
            )
            for class_id in class_ids
        },
    )


def kl_divergence(p_counts: Floats, q_counts: Floats) -> Floats:
    """KL(p || q) in nats over the last axis of counts, half a count added to each bin."""
    p, q = p_counts + 0.5, q_counts + 0.5
    p = p / p.sum(axis=-1, keepdims=True)
    q = q / q.sum(axis=-1, keepdims=True)
    divergence: Floats = (p * np.log(p / q)).sum(axis=-1)
    return divergence


@dataclass(frozen=True, slots=True)
class _HeldOut:
    kl_before: float
    kl_after: float
    gap_before: float
    gap_after: float

    @property
    def helps(self) -> bool:
        return self.kl_after < self.kl_before and self.gap_after < self.gap_before


def _difference(
    weak: Floats, strong: Floats, settings: AlignSettings, rng: np.random.Generator
) -> tuple[float, float]:
    """KL divergence of the stronger's histogram from the weaker's, and what is chance; both f64[G, B] by group."""
    found = float(kl_divergence(strong.sum(axis=0), weak.sum(axis=0)))
    limits = [_chance(counts, settings, rng) for counts in (weak, strong)]
    return max(found, 0.0), max(*limits, settings.least_kl)


def _chance(counts: Floats, settings: AlignSettings, rng: np.random.Generator) -> float:
    """What two random halves of the groups differ by, at the quantile."""
    groups = len(counts)
    order = rng.random((settings.halvings, groups)).argsort(axis=1)
    first = (order < groups // 2).astype(np.float64) @ counts
    return float(np.quantile(kl_divergence(first, counts.sum(axis=0) - first), settings.quantile))


def _class_shifts(
    pairs: Pairs, weak: ModelAnswers, settings: AlignSettings, rng: np.random.Generator
) -> tuple[ClassShift, ...]:
    """The score histograms of each class with enough pairs, held against each other as those of all are."""
    shifts = []
    for class_id in np.unique(pairs.weak_class).tolist():
        own = pairs.rows(pairs.weak_class == class_id)
        if len(own) >= settings.min_class_pairs:
            weak_bins, strong_bins = (_score_counts(own, each, settings) for each in (own.weak, own.strong))
            kl, limit = _difference(weak_bins, strong_bins, settings, rng)
            shifts.append(ClassShift(weak.labels.find_name(class_id) or str(class_id), kl, limit, len(own)))
    return tuple(shifts)


def _class_counts(pairs: Pairs, classes: NDArray[np.int32]) -> Floats:
    """f64[G, C] over the classes that either model named."""
    known = np.union1d(pairs.weak_class, pairs.strong_class)
    counts = np.zeros((pairs.group_count, len(known)))
    np.add.at(counts, (pairs.group, np.searchsorted(known, classes)), 1)
    return counts


def _score_counts(pairs: Pairs, scores: Floats, settings: AlignSettings) -> Floats:
    """f64[G, bins]."""
    counts = np.zeros((pairs.group_count, settings.bins))
    bin_of = np.minimum((scores * settings.bins).astype(int), settings.bins - 1)
    np.add.at(counts, (pairs.group, bin_of), 1)
    return counts


def _held_out(pairs: Pairs, settings: AlignSettings, rng: np.random.Generator) -> _HeldOut:
    """Maps the pairs of each fifth of the groups by what was fitted on the others."""
    fold_of = (rng.permutation(pairs.group_count) % _FOLDS)[pairs.group]
    mapped = pairs.weak.copy()
    for fold in np.unique(fold_of):
        judged = fold_of == fold
        correction = fit_correction(pairs.rows(~judged), settings)
        mapped[judged] = apply_to(correction, pairs.weak[judged], pairs.weak_class[judged])
    strong = _score_counts(pairs, pairs.strong, settings).sum(axis=0)
    kl_before, kl_after = (
        float(kl_divergence(strong, _score_counts(pairs, scores, settings).sum(axis=0)))
        for scores in (pairs.weak, mapped)
    )
    gap_before, gap_after = (float(np.mean((scores - pairs.strong) ** 2)) for scores in (pairs.weak, mapped))
    return _HeldOut(kl_before, kl_after, gap_before, gap_after)


def apply_to(calibration: ScoreCalibration, scores: Floats, class_ids: NDArray[np.int32]) -> Floats:
    """Each score f64[N] through the curve of its class i32[N]."""
    mapped = calibration.fallback.apply(scores.astype(np.float32)).astype(np.float64)
    for class_id, curve in calibration.by_class.items():
        chosen = class_ids == class_id
        mapped[chosen] = curve.apply(scores[chosen].astype(np.float32))
    return mapped


def _outcomes(pairs: Pairs) -> Outcomes:
    return Outcomes(pairs.weak, pairs.strong, np.ones(len(pairs)), pairs.group)


def _best_curve(outcomes: Outcomes, prior: ScoreCurve) -> ScoreCurve:
    """Platt or isotonic, whichever explains the other half of the groups better."""
    made_up = prior_outcomes(prior)
    best: tuple[float, ScoreCurve] = (math.inf, prior)
    for fit in (fit_platt, fit_isotonic):
        loss = 0.0
        for side in (0, 1):
            is_judged = outcomes.group % 2 == side
            loss += log_loss(fit(joined([made_up, outcomes.rows(~is_judged)])), outcomes.rows(is_judged))
        if loss < best[0]:
            best = (loss, fit(joined([made_up, outcomes])))
    return best[1]


def _composed(first: ScoreCurve, second: ScoreCurve) -> PiecewiseCurve:
    x = np.concatenate([[0.0], _KNOTS, [1.0]])
    y = second.apply(first.apply(x.astype(np.float32))).astype(np.float64)
    steps = np.arange(len(x)) * _RISE
    # Flat where both curves are: lifted a little, so that the order of boxes stays.
    rising = np.maximum.accumulate(np.clip(y, 0, 1)) * (1 - steps[-1]) + steps
    return PiecewiseCurve(x.astype(np.float32), rising.astype(np.float32))


def _confusions(
    pairs: Pairs, weak: ModelAnswers, strong: ModelAnswers, settings: AlignSettings
) -> tuple[Confusion, ...]:
    """Most frequent first."""
    found = []
    for own in np.unique(pairs.weak_class).tolist():
        others = pairs.strong_class[pairs.weak_class == own]
        for other, count in zip(*np.unique(others, return_counts=True), strict=True):
            share = int(count) / len(others)
            is_named = share >= settings.confusion_share and count >= settings.confusion_pairs
            if int(other) != own and is_named:
                names = weak.labels.find_name(own), strong.labels.find_name(int(other))
                found.append(Confusion(names[0] or str(own), names[1] or str(other), int(count), share))
    return tuple(sorted(found, key=lambda each: (-each.count, each.weak_says, each.strong_says)))


def _verdict(classes_differ: bool, scores_differ: bool, is_corrected: bool) -> Verdict:
    if not classes_differ and not scores_differ:
        return Verdict.ALIKE
    return Verdict.CORRECTED if is_corrected and not classes_differ else Verdict.REPORTED
