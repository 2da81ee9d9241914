"""Findings of a second act that was never played: what the report is tried on."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from calibration.evaluate import Interval
from fovea.cli.demo_findings import PictureCell, PictureRow
from fovea.cli.demo_loop_findings import (
    Asked,
    LoopFindings,
    Mark,
    Moment,
    Quality,
    RolloutFindings,
    RoundFindings,
    StepFindings,
)
from fovea.runtime.images import encode_jpeg


def moments() -> list[Moment]:
    """Ten minutes: night falls in the second, the new student comes device by device from the seventh on."""
    found = []
    for second in range(0, 600, 5):
        asked = 0.4 if second < 120 else 0.63 if second < 420 else 0.25
        on_new = 0.0 if second < 420 else min((second - 390) // 30 / 3, 1.0)
        found.append(Moment(float(second), math.nan if second < 10 else asked, on_new, second // 2))
    return found


def good() -> LoopFindings:
    """All went as it should."""
    picture = encode_jpeg(np.full((54, 96, 3), 90, np.uint8), 80)
    cells = [PictureCell(name, picture) for name in ("truth: 3 objects", "before: 1 boxes", "after: 3 boxes")]
    return LoopFindings(
        made_at=datetime(2026, 5, 1, 12, tzinfo=UTC),
        seconds=1000.0,
        devices=3,
        cameras=6,
        moments=moments(),
        marks=[Mark(0, "day"), Mark(120, "night falls"), Mark(200, "round begins"), Mark(420, "canary", "<b>")],
        qualities=[
            Quality("day", 48, Interval(0.17, 0.15, 0.2), Interval(0.172, 0.15, 0.2), Interval(0.002, -0.01, 0.015)),
            Quality(
                "night", 48, Interval(0.02, 0.01, 0.03), Interval(0.09, 0.07, 0.11), Interval(0.07, 0.05, 0.09),
                asked_old=0.63, asked_new=0.3,
            ),
        ],
        asked=Asked(0.4, 0.63, 0.25),
        round=RoundFindings("promote", ["every check passed"], [StepFindings("distil", 240.0, "trained")], 96),
        rollout=RolloutFindings("done", "idle", [Mark(400, "shadow", "begun"), Mark(520, "idle", "all")]),
        cases={"day": 90, "night": 310},
        golden={"day": 80, "night": 80},
        bytes_up=12.5e6,
        bytes_down=1.7e6,
        teacher="street-cloud@1.2.0",
        students=("old@1", "new@2"),
        pictures=[PictureRow("night, night/test/1", cells)],
        machine={"processor": "a small one", "cores": "2"},
        steps={"day": 75.0},
        settings={
            "stage at least": "25 s", "worse by at most": "0.2", "slower by at most": "10 times", "audits": "25%",
        },
    )  # fmt: skip


def refused() -> LoopFindings:
    """The new student was not better."""
    found = good()
    return replace(
        found,
        round=RoundFindings(
            "refuse", ["day: -6.0 AP points (-9.0 to -3.0)"], [StepFindings("judge", 9.0, "no")]
        ),
        rollout=None,
        qualities=[replace(each, new=None, gain=None) for each in found.qualities],
        moments=[replace(each, on_new=0.0) for each in found.moments],
        asked=Asked(0.4, 0.3),
        bytes_down=0.0,
        pictures=(),
    )
