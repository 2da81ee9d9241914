"""A Link that answers, fails and changes as a test tells it: the fake of `fovea.link.link.Link`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fovea.core.arrays import ImageArray
from fovea.core.detections import Detections
from fovea.core.errors import Cancelled, FoveaError, Unavailable
from fovea.core.frame import ImageSize
from fovea.core.hard_case import HardCase
from fovea.core.labels import LabelSet
from fovea.link.link import LinkState, LinkStatus, Listener
from protos.calls import DeliveryReceipt, DetectAnswer, DetectQuestion
from tests.fakes import FAKE_REF


def nothing_seen(_: DetectQuestion) -> DetectAnswer:
    return DetectAnswer(
        Detections.empty(ImageSize(8, 8), FAKE_REF), FAKE_REF, LabelSet.from_names(["person"]), revision=1
    )


class FakeLink:
    """Up from the start. `fail_with` is raised by calls while it is up; `set` changes the status and tells listeners
    on the calling thread."""

    def __init__(
        self,
        answer: Callable[[DetectQuestion], DetectAnswer] = nothing_seen,
        encode: Callable[[ImageArray], bytes | ImageArray] = lambda pixels: pixels,
        status: LinkStatus = LinkStatus.UP,
    ) -> None:
        self._answer = answer
        self._encode = encode
        self._state = LinkState(status, 0.0, "from the start")
        self._listeners: list[Listener] = []
        self.may_ask_now = True
        self.is_busy = False
        self.takes_mosaics = False
        self.round_trip_ms: float | None = None
        self.fail_with: FoveaError | None = None
        self.is_closed = False
        self.questions: list[tuple[DetectQuestion, float]] = []
        self.cases: dict[str, HardCase] = {}

    @property
    def state(self) -> LinkState:
        return self._state

    @property
    def may_ask(self) -> bool:
        return self._state.is_up and self.may_ask_now

    def set(self, status: LinkStatus, reason: str = "told so") -> None:
        self._state = LinkState(status, self._state.since_mono_s + 1, reason)
        for listener in self._listeners:
            listener(self._state)

    def now_says(self, reason: str) -> None:
        """Another reason for the same status, of which nobody is told."""
        self._state = replace(self._state, reason=reason)

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def encode(self, pixels: ImageArray) -> bytes | ImageArray:
        return self._encode(pixels)

    def ask(self, question: DetectQuestion, timeout_s: float) -> DetectAnswer:
        self._may_fail()
        self.questions.append((question, timeout_s))
        return self._answer(question)

    def deliver(self, case: HardCase, timeout_s: float) -> DeliveryReceipt:
        self._may_fail()
        is_new = case.id not in self.cases
        self.cases[case.id] = case
        return DeliveryReceipt(case.id, is_new)

    def close(self) -> None:
        self.is_closed = True

    def _may_fail(self) -> None:
        if self.is_closed:
            raise Cancelled("closed")
        if not self._state.is_up:
            raise Unavailable(self._state.reason)
        if self.fail_with is not None:
            raise self.fail_with
