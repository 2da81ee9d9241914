"""What is published about a frame cannot be changed afterwards, nor be nonsense."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from fovea.core.detections import Detections, ModelRef
from fovea.core.errors import Malformed
from fovea.core.frame import FrameId, ImageSize
from fovea.core.result import FrameResult
from fovea.core.routing import Reason, Route, RouteDecision, Tier


def result(**changes: Any) -> FrameResult:
    usual: dict[str, Any] = {
        "frame_id": FrameId("door", "boot", 7),
        "revision": 0,
        "detections": Detections.empty(ImageSize(64, 48), ModelRef("m", "1", "ab" * 32)),
        "answered_by": Tier.AGENT,
        "decision": RouteDecision(Route.LOCAL, (Reason.SURE,)),
        "captured_at": datetime(2025, 1, 2, tzinfo=UTC),
        "captured_mono_s": 12.5,
    }
    return FrameResult(**(usual | changes))


def test_stages_are_the_results_own_and_cannot_be_written_to() -> None:
    stages = {"detect": 3.0}
    made = result(stage_ms=stages)
    stages["detect"] = 99.0
    assert made.stage_ms == {"detect": 3.0}
    with pytest.raises(TypeError):
        made.stage_ms["detect"] = 1.0  # type: ignore[index]


def test_a_full_answer_is_not_degraded() -> None:
    assert result().degraded is None
    assert result().stage_ms == {}
    assert result(degraded="edge_lost").degraded == "edge_lost"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"revision": -1}, "revision"),
        ({"captured_at": datetime(2025, 1, 2)}, "zone"),
        ({"stage_ms": {"detect": -0.1}}, "stage_ms"),
        ({"stage_ms": {"detect": math.nan}}, "stage_ms"),
    ],
)
def test_a_result_that_makes_no_sense_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(Malformed, match=message):
        result(**changes)
