"""What is asked and answered over the wire, as plain values: users of the wire never touch a message."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum

import numpy as np

from fovea.core.arrays import FloatArray, ImageArray, frozen_boxes
from fovea.core.detections import Candidates, Detections, ModelRef
from fovea.core.errors import Malformed
from fovea.core.frame import FrameId, checked_pixels
from fovea.core.labels import LabelSet


class Priority(IntEnum):
    """Who goes first when not all can go at once."""

    LOW = 1
    NORMAL = 2
    HIGH = 3


@dataclass(frozen=True, slots=True, eq=False)
class DetectQuestion:
    """One picture to look at, and what is known about it.

    image            an image file (bytes: JPEG, PNG, WebP), or pixels u8[H, W, 3] BGR
    captured_mono_s  seconds on the camera's monotonic clock
    regions_xyxy     f32[R, 4] px of the original frame: where to look; none means everywhere
    camera_answer    what the camera saw itself
    """

    image: bytes | ImageArray
    frame_id: FrameId | None = None
    captured_at: datetime | None = None
    captured_mono_s: float | None = None
    regions_xyxy: FloatArray = field(default_factory=lambda: np.empty((0, 4), np.float32))
    camera_answer: Detections | None = None
    wants_candidates: bool = False
    priority: Priority = Priority.NORMAL

    def __post_init__(self) -> None:
        if isinstance(self.image, bytes):
            if not self.image:
                raise Malformed("question image: expected an image file, got no bytes")
        else:
            object.__setattr__(self, "image", checked_pixels(self.image))
        if self.captured_at is not None and self.captured_at.tzinfo is None:
            raise Malformed("question captured_at: expected a time with a zone (UTC), got one without")
        if self.captured_mono_s is not None and not math.isfinite(self.captured_mono_s):
            raise Malformed(f"question captured_mono_s: expected a finite number, got {self.captured_mono_s}")
        object.__setattr__(self, "regions_xyxy", frozen_boxes("question regions_xyxy", self.regions_xyxy))


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the time of one answer went, in milliseconds on the server's clock."""

    queue_ms: float = 0.0
    decode_ms: float = 0.0
    infer_ms: float = 0.0

    def __post_init__(self) -> None:
        spent_ms = (self.queue_ms, self.decode_ms, self.infer_ms)
        if not all(math.isfinite(spent) and spent >= 0 for spent in spent_ms):
            raise Malformed(f"timings: expected finite milliseconds of 0 or more, got {spent_ms}")


@dataclass(frozen=True, slots=True, eq=False)
class DetectAnswer:
    """What the server saw. `revision` is 0 from a camera, 1 from an edge, 2 from the cloud; `model` is the one that
    looked and `labels` all it can see; `is_degraded` says that it was less than was asked for."""

    detections: Detections
    model: ModelRef
    labels: LabelSet
    candidates: Candidates | None = None
    revision: int = 0
    is_degraded: bool = False
    timings: Timings = field(default_factory=Timings)

    def __post_init__(self) -> None:
        if not 0 <= self.revision < 2**32:
            raise Malformed(f"answer revision: expected 0 or more, got {self.revision}")
        if self.candidates is not None and self.candidates.image_size != self.detections.image_size:
            raise Malformed(
                f"answer candidates: expected the image size of the detections, {self.detections.image_size}, "
                f"got {self.candidates.image_size}"
            )


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """What a server takes; anything longer or larger is TooLarge."""

    max_request_bytes: int = 16_000_000
    max_pixels: int = 64_000_000

    def __post_init__(self) -> None:
        if not (0 < self.max_request_bytes < 2**31 and 0 < self.max_pixels < 2**63):
            raise Malformed(f"service limits: expected numbers above 0, got {self}")


@dataclass(frozen=True, slots=True)
class Description:
    """Which model answers at a server, what it can see, and what the server takes."""

    model: ModelRef
    labels: LabelSet
    limits: ServiceLimits
