"""A case is known by its picture, and is never without a reason."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import pytest

from fovea.core.detections import Detections, ModelRef
from fovea.core.errors import Malformed
from fovea.core.frame import FrameId, ImageSize
from fovea.core.hard_case import HardCase, TierAnswer
from fovea.core.labels import LabelSet
from fovea.core.routing import Tier

NOTHING = Detections.empty(ImageSize(64, 48), ModelRef("m", "1", "ab" * 32))
LABELS = LabelSet.from_names(["person"])


def case(**changes: Any) -> HardCase:
    usual: dict[str, Any] = {
        "jpeg": b"picture",
        "frame_id": FrameId("door", "boot", 7),
        "captured_at": datetime(2025, 1, 2, tzinfo=UTC),
        "answers": (TierAnswer(Tier.AGENT, NOTHING, LABELS), TierAnswer(Tier.EDGE, NOTHING, LABELS)),
        "reasons": ("weak_boxes",),
    }
    return HardCase(**(usual | changes))


def test_the_same_picture_is_the_same_case_whatever_was_said_about_it() -> None:
    assert case().id == hashlib.sha256(b"picture").hexdigest()
    assert case().id == case(answers=(), reasons=("audit",), send_probability=0.01).id
    assert case().id != case(jpeg=b"another").id


def test_the_id_is_not_for_the_caller_to_choose() -> None:
    with pytest.raises(TypeError):
        case(id="0" * 64)


def test_reasons_from_elsewhere_are_kept() -> None:
    assert case(reasons=("a person pointed at it",)).reasons == ("a person pointed at it",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"jpeg": b""}, "no bytes"),
        ({"captured_at": datetime(2025, 1, 2)}, "zone"),
        ({"send_probability": 0}, "send_probability"),
        ({"send_probability": 1.5}, "send_probability"),
        ({"reasons": ()}, "at least one reason"),
        ({"answers": (TierAnswer(Tier.EDGE, NOTHING, LABELS),) * 2}, "one of each tier"),
    ],
)
def test_a_case_that_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(Malformed, match=message):
        case(**changes)
