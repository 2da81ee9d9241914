"""Hard cases for tests of the cloud: small pictures with something in them, and what tiers say about them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np

from fovea.core.detections import Detections
from fovea.core.frame import FrameId, ImageSize
from fovea.core.hard_case import HardCase, TierAnswer
from fovea.core.labels import LabelSet
from fovea.core.routing import Tier
from fovea.runtime.images import encode_jpeg
from tests.builders import model_ref, scene

CAPTURED_AT = datetime(2025, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
LABELS = LabelSet.from_names(["person", "car", "scooter"])
SIZE = ImageSize(64, 48)


def picture(seed: int = 0, quality: int = 90) -> bytes:
    return encode_jpeg(scene(SIZE.height, SIZE.width, seed), quality)


def tier_answer(
    tier: Tier,
    boxes: list[list[float]] | None = None,
    *,
    scores: list[float] | None = None,
    channels: list[int] | None = None,
    size: ImageSize = SIZE,
    labels: LabelSet = LABELS,
) -> TierAnswer:
    """Two boxes, of channels 0 and 2, if nothing else is said."""
    boxes = [[4, 5, 20.25, 30.5], [30, 1.1, 60, 40]] if boxes is None else boxes
    scores = [0.9 / (1 + place) for place in range(len(boxes))] if scores is None else scores
    channels = [(2 * place) % len(labels) for place in range(len(boxes))] if channels is None else channels
    ids = np.array([labels.ids[channel] for channel in channels], np.int32)
    found = Detections(
        np.array(boxes, np.float32).reshape(-1, 4),
        np.array(scores, np.float32),
        ids,
        size,
        model_ref(f"m{tier}"),
    )
    return TierAnswer(tier, found, labels)


def hard_case(
    seed: int = 0,
    *,
    jpeg: bytes | None = None,
    camera: str = "gate",
    sequence: int | None = None,
    captured_at: datetime | None = None,
    tiers: tuple[Tier, ...] = (Tier.AGENT,),
    answers: tuple[TierAnswer, ...] | None = None,
    reasons: tuple[str, ...] = ("uncertain_boxes",),
    send_probability: float = 1.0,
) -> HardCase:
    """A case of which picture, sequence and instant follow from `seed`."""
    return HardCase(
        jpeg=picture(seed) if jpeg is None else jpeg,
        frame_id=FrameId(camera, "boot-1", seed if sequence is None else sequence),
        captured_at=CAPTURED_AT + timedelta(seconds=seed) if captured_at is None else captured_at,
        answers=tuple(tier_answer(tier) for tier in tiers) if answers is None else answers,
        reasons=reasons,
        send_probability=send_probability,
    )


def assert_same_answer(found: TierAnswer, given: TierAnswer) -> None:
    """Equal to the last bit."""
    assert (found.tier, found.labels) == (given.tier, given.labels)
    a, b = found.detections, given.detections
    assert (a.image_size, a.model) == (b.image_size, b.model)
    np.testing.assert_array_equal(a.boxes_xyxy, b.boxes_xyxy)
    np.testing.assert_array_equal(a.scores, b.scores)
    np.testing.assert_array_equal(a.class_ids, b.class_ids)
