"""Students on test clips that nothing in the loop reads, and what the published figures make of it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calibration.evaluate import compare, match, report
from calibration.matching import BoxSize, MatchTable
from calibration.predict import LabelledFrame, see
from fovea.bench.street_frames import CLASS_IDS
from fovea.runtime.bundle import Bundle
from fovea.runtime.onnx_detector import OnnxDetector

WORSE_POINTS = 0.5
"""Below the champion by more than this, beyond chance: cameras were served worse."""


@dataclass(frozen=True, slots=True, eq=False)
class TestClips:
    """The frames of each condition; their groups begin with its name."""

    frames: Mapping[str, Sequence[LabelledFrame]]

    def table(self, bundle: Bundle, conditions: Sequence[str]) -> MatchTable:
        """All matches of a model under these conditions."""
        detector = OnnxDetector.open(bundle, "cpu")
        try:
            frames = [frame for condition in conditions for frame in self.frames[condition]]
            return match(list(see(detector, frames)), CLASS_IDS, (BoxSize.ALL,))
        finally:
            detector.close()


def groups_of(table: MatchTable, condition: str) -> list[str]:
    return [group for group in table.groups if group.startswith(f"{condition}/")]


def ap_by_condition(table: MatchTable, conditions: Sequence[str]) -> dict[str, float]:
    """AP50-95 of each, 0..1."""
    return {condition: report(table, groups_of(table, condition)).ap for condition in conditions}


def is_worse(after: MatchTable, before: MatchTable, condition: str) -> bool:
    """Whether cameras were served worse than before, under all conditions so far or under the new one."""
    for groups in (None, groups_of(after, condition)):
        points = compare(after, before, groups)
        if 100 * points.value < -WORSE_POINTS and points.high < 0:
            return True
    return False


def gap_closed_pct(before: float, after: float, truth: float) -> float:
    """How much of what true labels would have given was gained, in percent; 100 where there was nothing to gain."""
    gap = truth - before
    return 100.0 if gap <= 0 else 100 * (after - before) / gap


def forgetting_points(history: Sequence[Mapping[str, float]]) -> float:
    """The most that any condition has lost since it was served best, in AP points; `history` has a row of AP for each
    champion, in order, with the conditions known by then."""
    worst = 0.0
    for number, row in enumerate(history):
        for condition, ap in row.items():
            best = max(
                (earlier[condition] for earlier in history[:number] if condition in earlier), default=ap
            )
            worst = max(worst, 100 * (best - ap))
    return worst


def figures_of(rounds: Sequence[Mapping[str, Any]], final: Mapping[str, float]) -> dict[str, float]:
    """The published figures from the rows of all rounds. `final`: AP50 of the last student and of the teacher on the
    held-out clips, and the bytes of their graphs."""
    clean = [row for row in rounds if not row["poison"]]
    poisoned = [row for row in rounds if row["poison"]]
    figures: dict[str, float] = {"rounds": float(len(rounds))}
    for row in clean:
        name = str(row["name"]).replace("+", "_")
        figures[f"gap_closed_pct.{name}"] = row["gap_closed_pct"]
        figures[f"ap_before.{name}"], figures[f"ap_after.{name}"] = row["ap_before"], row["ap_after"]
        figures[f"ap_true_labels.{name}"] = row["ap_truth"]
        figures[f"promoted.{name}"] = float(row["verdict"] == "promote")
        figures[f"asked_pct.{name}"] = 100 * row["asked_share"]
    beside = {row["name"] for row in poisoned}
    minutes = [row["minutes"] for row in rounds]
    pushed = sum(row["bytes_pushed"] for row in rounds)
    figures |= {
        "forgetting_points_max": forgetting_points(
            [clean[0]["ap_all_before"], *(r["ap_all"] for r in clean)]
        ),
        "served_worse_rounds": float(sum(row["is_worse"] for row in clean)),
        "poisoned_refused": float(sum(row["verdict"] != "promote" for row in poisoned)),
        "control_passed": float(sum(r["verdict"] == "promote" for r in clean if r["name"] in beside)),
        "student_over_teacher_ap50": final["student_ap50"] / final["teacher_ap50"],
        "student_over_teacher_bytes": final["student_bytes"] / final["teacher_bytes"],
        "minutes_per_round": statistics.mean(minutes),
        "minutes_per_round_max": max(minutes),
        "bytes_pushed_per_device": float(pushed),
        "kbps_equivalent": 8 * pushed / 1000 / (60 * sum(minutes)),
    }
    return {name: round(value, 4) for name, value in figures.items()}
