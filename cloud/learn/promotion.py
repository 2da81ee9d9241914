"""Whether a candidate may take the champion's place: a verdict with its reasons, from measurements of both.

Truth is what people labelled (the golden frames), never a teacher's answer: a student that learnt its teacher's
mistakes looks perfect to its teacher. Both models are measured as they would ship, the INT8 artefacts with their own
score calibration and gate, on the same frames; differences are paired bootstrap intervals over groups of frames.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from calibration.evaluate import Interval, compare, report
from calibration.matching import MatchTable
from fovea.core.errors import Malformed


class Verdict(StrEnum):
    """What follows. SHADOW_ONLY: there is no truth to judge by yet, so the candidate may watch and not answer."""

    PROMOTE = "promote"
    REFUSE = "refuse"
    SHADOW_ONLY = "shadow_only"


@dataclass(frozen=True, slots=True)
class PromotionSettings:
    """How much worse is still as good. Points are hundredths of AP, 0 to 100."""

    min_golden_frames: int = 100
    min_new_frames: int = 30
    """golden frames of the new condition at least"""
    worse_points: float = 1.0
    """the interval of the golden difference must lie above minus this"""
    floor_points: float = 3.0
    """no class and no past condition may lose more than this where the loss is more than chance"""
    min_class_boxes: int = 20
    """true boxes of a class below which its AP is chance"""
    false_boxes_per_frame: float = 0.1
    """more boxes on each empty frame than the champion has, at most"""
    calibration_error: float = 0.03
    """more D-ECE than the champion has, at most"""
    asked_ratio: float = 1.2
    """times the champion's asked rate on the same frames, at most"""
    asked_slack: float = 0.05
    """or so much more of all frames, whichever allows more"""
    latency_ratio: float = 1.15
    """times the champion's, measured in the same run, at most"""
    max_bundle_bytes: int = 20_000_000
    resamples: int = 1000
    """draws of each bootstrap"""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value >= 0:
                raise Malformed(f"promotion: {name}: expected a number of 0 or more, got {value}")


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """One model on the golden frames, as it would ship.

    golden: the matches of all golden frames, in groups of frames that resemble each other (a clip, a minute of a
    camera). false_boxes_per_frame: boxes that people would be told of, on golden frames in which nothing is.
    calibration_error: D-ECE on the golden frames. asked_rate: share of them that its gate would ask about.
    latency_ms: of a frame, in CPU time of one thread, so that what else runs on the machine does not decide.
    """

    golden: MatchTable
    false_boxes_per_frame: float
    calibration_error: float
    asked_rate: float
    latency_ms: float
    bundle_bytes: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One question, its answer in a sentence, and the interval where there is one (AP points)."""

    name: str
    passed: bool
    said: str
    points: Interval | None = None


@dataclass(frozen=True, slots=True)
class Promotion:
    """The verdict and everything that was asked for it."""

    verdict: Verdict
    findings: tuple[Finding, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """What speaks against it, or that nothing does."""
        against = tuple(finding.said for finding in self.findings if not finding.passed)
        return against or ("every check passed",)

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict.value,
            "reasons": list(self.reasons),
            "findings": [asdict(finding) for finding in self.findings],
        }


def judge(
    candidate: Measured,
    champion: Measured,
    condition_of: Mapping[str, str],
    new_condition: str | None,
    settings: PromotionSettings = PromotionSettings(),
) -> Promotion:
    """condition_of: the condition of each group of the golden frames. new_condition: what the round was to teach, or
    None where it was to teach nothing in particular.

    Raises Malformed when the two were not measured on the same groups, or a group has no condition.
    """
    if candidate.golden.groups != champion.golden.groups:
        raise Malformed("promotion: expected both models measured on the same golden frames")
    unknown = sorted(set(candidate.golden.groups) - set(condition_of))
    if unknown:
        raise Malformed(f"promotion: expected a condition for every group, {unknown[:5]} have none")
    lack = _lack_of_truth(champion.golden, condition_of, new_condition, settings)
    if lack is not None:
        return Promotion(Verdict.SHADOW_ONLY, (Finding("golden frames", False, lack),))
    findings = (
        _not_worse(candidate, champion, settings),
        *_new_condition(candidate, champion, condition_of, new_condition, settings),
        *_past_conditions(candidate, champion, condition_of, new_condition, settings),
        *_classes(candidate, champion, settings),
        *_behaviour(candidate, champion, settings),
    )
    passed = all(finding.passed for finding in findings)
    return Promotion(Verdict.PROMOTE if passed else Verdict.REFUSE, findings)


def _lack_of_truth(
    golden: MatchTable,
    condition_of: Mapping[str, str],
    new_condition: str | None,
    settings: PromotionSettings,
) -> str | None:
    frames = int(golden.frames.sum())
    if frames < settings.min_golden_frames or not _boxes(golden):
        return f"{frames} golden frames are labelled, {settings.min_golden_frames} are needed to judge"
    if new_condition is None:
        return None
    new = sum(
        int(count)
        for group, count in zip(golden.groups, golden.frames, strict=True)
        if condition_of[group] == new_condition
    )
    if new < settings.min_new_frames:
        return f"{new} golden frames show {new_condition}, {settings.min_new_frames} are needed to judge"
    return None


def _not_worse(candidate: Measured, champion: Measured, settings: PromotionSettings) -> Finding:
    points = _difference(candidate.golden, champion.golden, settings)
    passed = points.low > -settings.worse_points
    return Finding("golden frames", passed, f"all golden frames: {_told(points)}", points)


def _new_condition(
    candidate: Measured,
    champion: Measured,
    condition_of: Mapping[str, str],
    new_condition: str | None,
    settings: PromotionSettings,
) -> Iterator[Finding]:
    if new_condition is None:
        return
    groups = [group for group in champion.golden.groups if condition_of[group] == new_condition]
    points = _difference(candidate.golden, champion.golden, settings, groups)
    said = f"{new_condition}, which is new: {_told(points)}"
    yield Finding(f"new condition {new_condition}", points.low > 0, said, points)


def _past_conditions(
    candidate: Measured,
    champion: Measured,
    condition_of: Mapping[str, str],
    new_condition: str | None,
    settings: PromotionSettings,
) -> Iterator[Finding]:
    for condition in sorted(set(condition_of.values()) - {new_condition}):
        groups = [group for group in champion.golden.groups if condition_of[group] == condition]
        if not groups or not _boxes(champion.golden, groups):
            continue
        points = _difference(candidate.golden, champion.golden, settings, groups)
        said = f"{condition}: {_told(points)}"
        yield Finding(f"condition {condition}", _holds(points, settings), said, points)


def _classes(candidate: Measured, champion: Measured, settings: PromotionSettings) -> Iterator[Finding]:
    for class_id in champion.golden.class_ids:
        ours, theirs = (_of_class(each.golden, class_id) for each in (candidate, champion))
        if _boxes(theirs) < settings.min_class_boxes:
            continue
        points = _difference(ours, theirs, settings)
        said = f"class {class_id}: {_told(points)}"
        yield Finding(f"class {class_id}", _holds(points, settings), said, points)


def _behaviour(candidate: Measured, champion: Measured, settings: PromotionSettings) -> Iterator[Finding]:
    """What people, the link and the board would notice beside the boxes."""
    asked = max(champion.asked_rate * settings.asked_ratio, champion.asked_rate + settings.asked_slack)
    limits = (
        ("false boxes on empty frames", candidate.false_boxes_per_frame,
         champion.false_boxes_per_frame + settings.false_boxes_per_frame, "per frame"),
        ("calibration error", candidate.calibration_error,
         champion.calibration_error + settings.calibration_error, "D-ECE"),
        ("asked rate", candidate.asked_rate, asked, "of all frames"),
        ("latency", candidate.latency_ms, champion.latency_ms * settings.latency_ratio, "ms"),
        ("size", candidate.bundle_bytes, settings.max_bundle_bytes, "bytes"),
    )  # fmt: skip
    for name, value, limit, unit in limits:
        # A NaN is no measurement and passes nothing.
        yield Finding(name, value <= limit, f"{name}: {value:.4g} {unit}, allowed {limit:.4g}")


def _holds(points: Interval, settings: PromotionSettings) -> bool:
    """Not down beyond chance by more than the margin, and by the best estimate not far down unless by chance."""
    is_far_down = points.value < -settings.floor_points and points.high < 0
    return not is_far_down and points.high >= -settings.worse_points


def _difference(
    ours: MatchTable, theirs: MatchTable, settings: PromotionSettings, groups: Collection[str] | None = None
) -> Interval:
    """Candidate minus champion in AP points."""
    points = compare(ours, theirs, groups, settings.resamples)
    return Interval(100 * points.value, 100 * points.low, 100 * points.high)


def _of_class(table: MatchTable, class_id: int) -> MatchTable:
    matches = {key: found for key, found in table.matches.items() if key[0] == class_id}
    return MatchTable(table.groups, table.frames, (class_id,), matches)


def _boxes(table: MatchTable, groups: Collection[str] | None = None) -> int:
    try:
        return report(table, groups).boxes
    except Malformed:  # no true box at all
        return 0


def _told(points: Interval) -> str:
    return f"{points.value:+.1f} AP points ({points.low:+.1f} to {points.high:+.1f})"
