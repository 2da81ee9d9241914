"""Stand-ins for what surrounds the agent's loop: cameras, the tier above, a shelf for cases, a publisher."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from edge_agent.capture.motion import Motion
from edge_agent.observing import AnswerSeen, ErrandSeen, FrameSeen
from edge_agent.publish.publishing import (
    CameraStatus,
    Feature,
    NullPublisher,
    ObjectCounts,
    ObjectEvent,
    Setting,
)
from edge_agent.track.tracking import Tracking
from fovea.core.arrays import ImageArray
from fovea.core.deciding import Situation
from fovea.core.errors import FoveaError
from fovea.core.features import FrameFeatures
from fovea.core.frame import Frame, FrameId
from fovea.core.gate import Opinion
from fovea.core.hard_case import HardCase, TierAnswer
from fovea.core.result import FrameResult
from fovea.core.routing import Reason, Tier
from fovea.link.link import LinkState, LinkStatus, Listener
from protos.calls import DeliveryReceipt, DetectAnswer, DetectQuestion
from tests.builders import model_ref
from tests.fakes import FakeClock, FakeDetector

CAN_ASK = Situation(True, 0, 4, 1.0, 0.0, True)
NO_LINK = Situation(False, 0, 4, 1.0, 0.0, True)
EDGE_REF = model_ref("edge", "1", "e")


def frame(
    clock: FakeClock,
    sequence: int = 0,
    camera: str = "front",
    box: tuple[int, int, int, int] = (8, 8, 24, 24),
) -> Frame:
    """A dark picture with one bright box, captured now."""
    pixels = np.zeros((48, 64, 3), np.uint8)
    x1, y1, x2, y2 = box
    pixels[y1:y2, x1:x2] = 255
    return Frame(FrameId(camera, "boot", sequence), pixels, clock.now(), clock.monotonic_s())


class FakeMotion:
    """Says what it is told to."""

    def __init__(self, is_moving: bool = True, is_forced: bool = False) -> None:
        self.is_moving = is_moving
        self.is_forced = is_forced
        self.is_new_scene = False

    def look(self, pixels: ImageArray, at_mono_s: float) -> Motion:
        boxes = np.empty((0, 4), np.float32)
        return Motion(self.is_moving, 0.1 * self.is_moving, boxes, self.is_forced, self.is_new_scene)


class FakeGate:
    """Wants to ask about everything, or nothing."""

    def __init__(self, p_ask: float = 1.0, reasons: tuple[Reason, ...] = (Reason.UNCERTAIN_BOXES,)) -> None:
        self.p_ask = p_ask
        self.reasons = reasons
        self.judged: list[FrameFeatures] = []

    def judge(self, features: FrameFeatures) -> Opinion:
        self.judged.append(features)
        return Opinion(self.p_ask, None, self.reasons if self.p_ask else (Reason.SURE,))


class FakeCamera:
    """Frames are put in by hand."""

    def __init__(self) -> None:
        self.frames: deque[Frame] = deque()
        self.is_finished = False
        self.fps: float | None = None

    def take(self) -> Frame | None:
        return self.frames.popleft() if self.frames else None

    def set_fps(self, fps: float) -> None:
        self.fps = fps


class FakeLink:
    """A tier above that answers what `say` gives, when `gate` is open; what it was asked is kept."""

    def __init__(self, say: Callable[[DetectQuestion], DetectAnswer | FoveaError]) -> None:
        self.say = say
        self.may_ask = True
        self.status = LinkStatus.UP
        self.is_busy = False
        self.takes_mosaics = False
        self.round_trip_ms: float | None = 1.0
        self.open = threading.Event()
        self.open.set()
        self.asked: list[DetectQuestion] = []
        self.timeouts_s: list[float] = []
        self.is_closed = False
        self.encodes_jpeg = False

    @property
    def state(self) -> LinkState:
        return LinkState(self.status, 0.0, "told so")

    def encode(self, pixels: ImageArray) -> bytes | ImageArray:
        return b"\xff\xd8 jpeg" if self.encodes_jpeg else pixels

    def ask(self, question: DetectQuestion, timeout_s: float) -> DetectAnswer:
        self.asked.append(question)
        self.timeouts_s.append(timeout_s)
        assert self.open.wait(30)
        said = self.say(question)
        if isinstance(said, FoveaError):
            raise said
        return said

    def deliver(self, case: HardCase, timeout_s: float) -> DeliveryReceipt:
        return DeliveryReceipt(case.id, True)

    def listen(self, listener: Listener) -> None:
        return

    def close(self) -> None:
        self.is_closed = True
        self.open.set()


def edge_answer(question: DetectQuestion, revision: int = 1) -> DetectAnswer:
    """What the edge says: the camera's own boxes, by sharper eyes."""
    own = question.answers[0]
    seen = FakeDetector(ref=EDGE_REF).detect([_pixels(question)])[0].detections
    above = TierAnswer(Tier(revision), seen, own.labels)
    return DetectAnswer(seen, EDGE_REF, own.labels, revision=revision, answers=(own, above))


def _pixels(question: DetectQuestion) -> ImageArray:
    assert not isinstance(question.image, bytes)
    return question.image


class FakeShelf:
    """Keeps cases in a list."""

    def __init__(self, has_room: bool = True) -> None:
        self.has_room = has_room
        self.cases: list[HardCase] = []

    def put(self, case: HardCase) -> bool:
        if self.has_room:
            self.cases.append(case)
        return self.has_room


@dataclass
class FakePublisher(NullPublisher):
    """Remembers all that it is told."""

    results: list[FrameResult] = field(default_factory=list)
    trackings: list[Tracking] = field(default_factory=list)
    events: list[tuple[str, ObjectEvent]] = field(default_factory=list)
    states: list[tuple[str, Feature, Setting]] = field(default_factory=list)
    statuses: list[tuple[str, CameraStatus]] = field(default_factory=list)
    object_counts: list[tuple[str, ObjectCounts]] = field(default_factory=list)
    fail_with: Exception | None = None

    def publish_result(self, camera: str, result: FrameResult, tracking: Tracking) -> None:
        if self.fail_with is not None:
            raise self.fail_with
        self.results.append(result)
        self.trackings.append(tracking)

    def publish_events(self, camera: str, events: Sequence[ObjectEvent]) -> None:
        self.events += [(camera, event) for event in events]

    def publish_counts(self, camera: str, counts: ObjectCounts) -> None:
        self.object_counts.append((camera, counts))

    def publish_status(self, camera: str, status: CameraStatus) -> None:
        self.statuses.append((camera, status))

    def publish_state(self, camera: str, feature: Feature, value: Setting) -> None:
        self.states.append((camera, feature, value))

    @property
    def told(self) -> list[tuple[str, int, int]]:
        """camera, sequence and revision of each result, in order."""
        return [(each.frame_id.camera, each.frame_id.sequence, each.revision) for each in self.results]


@dataclass
class FakeObserver:
    """Remembers all that it sees."""

    frames: list[FrameSeen] = field(default_factory=list)
    answers: list[AnswerSeen] = field(default_factory=list)
    errands: list[ErrandSeen] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def frame_seen(self, seen: FrameSeen) -> None:
        self.frames.append(seen)

    def answer_seen(self, seen: AnswerSeen) -> None:
        self.answers.append(seen)

    def frame_failed(self, camera: str) -> None:
        self.failed.append(camera)

    def errand_seen(self, seen: ErrandSeen) -> None:
        self.errands.append(seen)
