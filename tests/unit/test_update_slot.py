"""A model is switched between two looks: none is cut short, none is lost, the old one is free afterwards."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from fovea.core.errors import DetectorFailed, Unavailable
from fovea.update.slot import ModelSlot
from tests.builders import model_ref
from tests.fakes import FakeDetector, Seen, bright_parts

LIVENESS_S = 20.0
FRAME = np.zeros((48, 64, 3), np.uint8)


def fake(digit: str) -> FakeDetector:
    return FakeDetector(ref=model_ref(digit=digit))


class Slow:
    """A look that takes until it is let go."""

    def __init__(self) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()
        self.detector = FakeDetector(look=self._look, ref=model_ref(digit="a"))

    def _look(self, pixels: np.ndarray) -> Seen:
        self.began.set()
        assert self.may_end.wait(LIVENESS_S)
        return bright_parts(pixels)


def test_the_next_look_is_by_the_new_model_and_the_old_one_comes_back_open() -> None:
    old, new = fake("a"), fake("b")
    slot = ModelSlot(old)
    assert slot.ref == old.ref
    assert slot.put(new, 1.0) is old and not old.is_closed
    assert slot.ref == new.ref and slot.labels == new.labels
    assert slot.detect([FRAME])[0].detections.model == new.ref
    slot.close()
    assert new.is_closed and not old.is_closed


def test_a_look_under_way_ends_by_the_model_that_began_it() -> None:
    slow, new = Slow(), fake("b")
    slot = ModelSlot(slow.detector)
    answers = []
    looking = threading.Thread(target=lambda: answers.extend(slot.detect([FRAME])))
    looking.start()
    assert slow.began.wait(LIVENESS_S)
    putting = threading.Thread(target=lambda: slot.put(new, LIVENESS_S).close())
    putting.start()
    assert slot.ref == slow.detector.ref, "not before the look has ended"
    slow.may_end.set()
    putting.join(LIVENESS_S)
    looking.join(LIVENESS_S)
    assert answers[0].detections.model == slow.detector.ref
    assert slot.ref == new.ref and slow.detector.is_closed


def test_a_look_that_hangs_leaves_the_old_model_in_its_place() -> None:
    slow, new = Slow(), fake("b")
    slot = ModelSlot(slow.detector)
    looking = threading.Thread(target=slot.detect, args=([FRAME],))
    looking.start()
    assert slow.began.wait(LIVENESS_S)
    with pytest.raises(Unavailable, match="did not end"):
        slot.put(new, 0.01)
    assert slot.ref == slow.detector.ref
    slow.may_end.set()
    looking.join(LIVENESS_S)


def test_a_model_that_breaks_does_not_block_the_way_to_the_next() -> None:
    old, new = fake("a"), fake("b")
    old.fail_with = DetectorFailed("no")
    slot = ModelSlot(old)
    with pytest.raises(DetectorFailed):
        slot.detect([FRAME])
    slot.put(new, 1.0)
    assert len(slot.detect([FRAME])) == 1
