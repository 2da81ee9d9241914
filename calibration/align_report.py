"""The report of an alignment: what was found, and what was done about it, as a value that travels as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from fovea.core.scores import ScoreCalibration
from fovea.runtime.calibration_file import calibration_to_json


class Verdict(StrEnum):
    """alike: no more different than chance. corrected: scores differ, and the correction takes it back. reported:
    they differ in a way that no map of scores takes back; somebody has to decide."""

    ALIKE = "alike"
    CORRECTED = "corrected"
    REPORTED = "reported"


@dataclass(frozen=True, slots=True)
class Confusion:
    """`share` of the boxes that the weaker calls `weak_says`, `count` of them, are `strong_says` to the stronger."""

    weak_says: str
    strong_says: str
    count: int
    share: float


@dataclass(frozen=True, slots=True)
class ClassShift:
    """How far the score histograms of one class are apart, over `pairs` of it, with the threshold of chance."""

    label: str
    score_kl: float
    threshold: float
    pairs: int

    @property
    def differs(self) -> bool:
        return self.score_kl > self.threshold


@dataclass(frozen=True, slots=True)
class AlignmentReport:
    """Divergences in nats with the threshold of chance; agreement is the share of pairs of one class. held_out_*:
    before and after a correction that was fitted on other clips (equal where none was tried; gap: mean squared
    difference of scores). `correction` maps the weaker's scores onto the stronger's; None when there is
    no difference or no map that helps."""

    weak: str
    strong: str
    frames: int
    pairs: int
    agreement: float
    class_kl: float
    class_kl_threshold: float
    score_kl: float
    score_kl_threshold: float
    class_shifts: tuple[ClassShift, ...]
    held_out_score_kl: float
    held_out_score_kl_after: float
    held_out_gap: float
    held_out_gap_after: float
    verdict: Verdict
    confusions: tuple[Confusion, ...]
    correction: ScoreCalibration | None

    @property
    def classes_differ(self) -> bool:
        return self.class_kl > self.class_kl_threshold

    @property
    def scores_differ(self) -> bool:
        """All together, or those of a class."""
        return self.score_kl > self.score_kl_threshold or any(shift.differs for shift in self.class_shifts)

    def to_json(self) -> dict[str, Any]:
        """Plain values; `correction` in the form of a bundle's calibration.json."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            **plain,
            "verdict": self.verdict.value,
            "classes_differ": self.classes_differ,
            "scores_differ": self.scores_differ,
            "summary": self.summary,
            "class_shifts": [_plain(each) for each in self.class_shifts],
            "confusions": [_plain(each) for each in self.confusions],
            "correction": None
            if self.correction is None
            else json.loads(calibration_to_json(self.correction)),
        }

    @property
    def summary(self) -> str:
        """For people, in one or two sentences."""
        looked_at = [
            ("classes", self.class_kl, self.class_kl_threshold),
            ("scores", self.score_kl, self.score_kl_threshold),
            *((f"scores of {each.label}", each.score_kl, each.threshold) for each in self.class_shifts),
        ]
        differing = [
            f"{name} (KL {kl:.4f}, by chance {limit:.4f})" for name, kl, limit in looked_at if kl > limit
        ]
        if not differing:
            return f"{self.weak} and {self.strong} answer alike."
        said = f"{self.weak} and {self.strong} differ in {', '.join(differing)}."
        if self.correction is not None:
            return (
                f"{said} A correction of scores lowers the divergence of scores on other clips from "
                f"{self.held_out_score_kl:.4f} to {self.held_out_score_kl_after:.4f}."
            )
        return f"{said} No correction of scores takes it back."


def _plain(part: ClassShift | Confusion) -> dict[str, Any]:
    return {field.name: getattr(part, field.name) for field in fields(part)}
