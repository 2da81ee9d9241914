"""What is asked and answered over the wire, as plain values: users of the wire never touch a message."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum

from fovea.core.arrays import ImageArray
from fovea.core.detections import Candidates, Detections, ModelRef
from fovea.core.errors import Malformed
from fovea.core.frame import FrameId, ImageSize, checked_pixels, size_of
from fovea.core.hard_case import HardCase, TierAnswer
from fovea.core.labels import LabelSet
from fovea.core.mosaic import Mosaic

_DIGEST = re.compile(r"[0-9a-f]{64}")


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
    mosaic           what the picture shows, when that is not a whole frame. Boxes are those of the frame all the same
    answers          what tiers below saw, each at most once, about a picture of one size
    reasons          why it is asked: words of `fovea.core.routing.Reason`, or others
    send_probability the probability with which a frame like this one is asked about, more than 0 up to 1
    """

    image: bytes | ImageArray
    frame_id: FrameId | None = None
    captured_at: datetime | None = None
    captured_mono_s: float | None = None
    mosaic: Mosaic | None = None
    wants_candidates: bool = False
    priority: Priority = Priority.NORMAL
    answers: tuple[TierAnswer, ...] = ()
    reasons: tuple[str, ...] = ()
    send_probability: float | None = None

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
        picture_size = None if isinstance(self.image, bytes) else size_of(self.image)
        if self.mosaic is not None and picture_size not in (None, self.mosaic.size):
            raise Malformed(f"question image: expected a mosaic of {self.mosaic.size} px, got {picture_size}")
        frame_size = picture_size if self.mosaic is None else self.mosaic.frame_size
        _check_answers("question answers", self.answers, frame_size)
        if not all(self.reasons):
            raise Malformed("question reasons: expected words, got an empty one")
        if self.send_probability is not None and not 0 < self.send_probability <= 1:
            raise Malformed(
                f"question send_probability: expected more than 0 up to 1, got {self.send_probability}"
            )


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the time of one answer went, in milliseconds on the server's clock; `above_ms` is what it waited for the
    tier above it."""

    queue_ms: float = 0.0
    decode_ms: float = 0.0
    infer_ms: float = 0.0
    above_ms: float = 0.0

    def __post_init__(self) -> None:
        spent_ms = (self.queue_ms, self.decode_ms, self.infer_ms, self.above_ms)
        if not all(math.isfinite(spent) and spent >= 0 for spent in spent_ms):
            raise Malformed(f"timings: expected finite milliseconds of 0 or more, got {spent_ms}")

    @property
    def total_ms(self) -> float:
        """All of the server's time that is known."""
        return self.queue_ms + self.decode_ms + self.infer_ms + self.above_ms


@dataclass(frozen=True, slots=True, eq=False)
class DetectAnswer:
    """What was seen, by whom.

    detections   what all that answered say together
    model        the model of this server that looked; `labels` is all it can see
    revision     of the highest tier that answered: 0 a camera, 1 an edge, 2 the cloud
    is_degraded  it is less than was meant: who was to be asked, too, could not be had
    answers      what each tier alone saw, each at most once: those of the question, this server's own, and those from
                 further up. Who was asked about a mosaic says there that it has looked at parts only
    """

    detections: Detections
    model: ModelRef
    labels: LabelSet
    candidates: Candidates | None = None
    revision: int = 0
    is_degraded: bool = False
    timings: Timings = field(default_factory=Timings)
    answers: tuple[TierAnswer, ...] = ()

    def __post_init__(self) -> None:
        _check_answers("answer answers", self.answers, self.detections.image_size)
        if not 0 <= self.revision < 2**32:
            raise Malformed(f"answer revision: expected 0 or more, got {self.revision}")
        if self.candidates is not None and self.candidates.image_size != self.detections.image_size:
            raise Malformed(
                f"answer candidates: expected the image size of the detections, {self.detections.image_size}, "
                f"got {self.candidates.image_size}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """One case on its way up; sending it again changes nothing."""

    case: HardCase


@dataclass(frozen=True, slots=True)
class DeliveryReceipt:
    """The case `id` is safe on the other side's disk; `is_new` is False when it was known there already."""

    id: str
    is_new: bool

    def __post_init__(self) -> None:
        if not _DIGEST.fullmatch(self.id):
            raise Malformed(f"delivery receipt id: expected 64 hex digits, got {self.id!r:.80}")


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """What a server takes; anything longer or larger is TooLarge. takes_mosaics: pictures of parts of a frame,
    too."""

    max_request_bytes: int = 16_000_000
    max_pixels: int = 64_000_000
    takes_mosaics: bool = False

    def __post_init__(self) -> None:
        if not (0 < self.max_request_bytes < 2**31 and 0 < self.max_pixels < 2**63):
            raise Malformed(f"service limits: expected numbers above 0, got {self}")


@dataclass(frozen=True, slots=True)
class Description:
    """Which model answers at a server, what it can see, and what the server takes."""

    model: ModelRef
    labels: LabelSet
    limits: ServiceLimits


def _check_answers(name: str, answers: tuple[TierAnswer, ...], size: ImageSize | None) -> None:
    tiers = [answer.tier.value for answer in answers]
    if len(set(tiers)) != len(tiers):
        raise Malformed(f"{name}: expected one of each tier at most, got tiers {tiers}")
    sizes = {answer.detections.image_size for answer in answers} | ({size} - {None})
    if len(sizes) > 1:
        raise Malformed(f"{name}: expected one image size, got {sorted(map(str, sizes))}")
