"""A camera that idles: fewer frames and a cheaper model while nothing moves, all again with the first motion."""

from __future__ import annotations

import numpy as np
import pytest

from edge_agent.capture.motion import Motion, MotionGate, MotionSettings
from edge_agent.frame_walk import FrameWalk, Judging
from edge_agent.idle import IdleSettings, IdleStep, IdleStepper
from edge_agent.idling import Idling, SteppedDetector
from edge_agent.track.tracker import Tracker
from fovea.core.deciding import DecideSettings
from fovea.core.errors import Malformed
from fovea.core.frame import Frame
from tests.agent_fakes import CAN_ASK, FakeGate, FakeMotion, frame
from tests.builders import model_ref
from tests.fakes import FakeClock, FakeDetector

STEPS = (IdleStep(10.0, 0.5), IdleStep(60.0, 0.25, 1))
PIXELS = np.zeros((48, 64, 3), np.uint8)


class Quiet:
    """An idling sense of motion of a camera of 4 frames per second."""

    def __init__(self, models: int = 2) -> None:
        self.motion = FakeMotion(is_moving=False)
        self.told_fps: list[float] = []
        settings = IdleSettings(STEPS, least_fps=1.0, models=models)
        self.idling = Idling(self.motion, IdleStepper(4.0, settings), self.told_fps.append)

    def look(self, at_s: float, is_moving: bool = False) -> Motion:
        self.motion.is_moving = is_moving
        return self.idling.look(PIXELS, 1000.0 + at_s)


def test_the_camera_is_told_of_another_pace_once_and_what_moved_is_passed_on() -> None:
    quiet = Quiet()
    assert quiet.look(0, is_moving=True).is_moving
    for at_s in range(1, 120):
        assert not quiet.look(at_s).is_moving
    assert quiet.told_fps == [2.0, 1.0]
    assert quiet.idling.pace.level == 2 and quiet.idling.pace.model == 1


def test_the_first_frame_that_moves_wakes_it_at_once() -> None:
    quiet = Quiet()
    quiet.look(0)
    quiet.look(100)
    assert quiet.idling.pace.fps == 1.0
    quiet.look(101, is_moving=True)
    assert quiet.idling.pace == (0, 4.0, 0)
    assert quiet.told_fps[-1] == 4.0


def test_a_look_that_is_only_due_does_not_wake_it_but_another_scene_does() -> None:
    quiet = Quiet()
    quiet.look(0)
    quiet.motion.is_forced = True
    quiet.look(100)
    assert quiet.idling.pace.level == 2
    quiet.motion.is_new_scene = True
    quiet.look(101)
    assert quiet.idling.pace.level == 0


def test_the_sense_of_motion_tells_another_scene_from_a_look_that_is_due() -> None:
    gate = MotionGate(MotionSettings(scene_share=0.3))
    dark = np.full((90, 160, 3), 10, np.uint8)
    other = np.random.default_rng(1).integers(0, 256, dark.shape, np.uint8)
    assert gate.look(dark, 0.0).is_new_scene
    assert not gate.look(dark, 1.0).is_new_scene
    due = gate.look(dark, 30.0)
    assert due.is_forced and not due.is_new_scene
    assert gate.look(other, 31.0).is_new_scene


def test_another_rate_that_somebody_wants_holds_at_once_and_is_stepped_down_from() -> None:
    quiet = Quiet()
    quiet.look(0)
    quiet.look(100)
    quiet.idling.set_usual_fps(8.0)
    assert quiet.told_fps[-1] == 8.0
    quiet.look(101)
    assert quiet.idling.pace == (0, 8.0, 0)
    quiet.look(112)
    assert quiet.told_fps[-1] == quiet.idling.pace.fps == 4.0


def test_a_rate_that_the_camera_refuses_changes_nothing() -> None:
    def refuse(fps: float) -> None:
        raise Malformed("no such rate")

    idling = Idling(FakeMotion(), IdleStepper(4.0), refuse)
    with pytest.raises(Malformed):
        idling.set_usual_fps(1000.0)
    idling.look(PIXELS, 1000.0)
    assert idling.pace.fps == 4.0


def test_the_frame_that_moves_is_looked_at_by_the_usual_model_and_quiet_ones_by_the_cheaper() -> None:
    quiet, clock = Quiet(), FakeClock()
    usual, cheap = FakeDetector(), FakeDetector(ref=model_ref("cheap", "1", "c"))
    judging = Judging(FakeGate(0.0), DecideSettings(audit_share=0.0))
    walk = FrameWalk(SteppedDetector([usual, cheap], quiet.idling), quiet.idling, Tracker(), judging, clock)

    def seen_by(is_moving: bool, after_s: float) -> str:
        clock.advance(after_s)
        quiet.motion.is_moving, quiet.motion.is_forced = is_moving, not is_moving
        looked_at: Frame = frame(clock)
        result = walk.walk(looked_at, 0.999, lambda *_: CAN_ASK).result
        return result.detections.model.name

    assert seen_by(True, 0) == usual.ref.name
    assert seen_by(False, 59) == usual.ref.name
    assert seen_by(False, 5) == "cheap"
    assert seen_by(True, 1) == usual.ref.name
    assert (usual.batch_sizes, cheap.batch_sizes) == ([1, 1, 1], [1])


def test_where_there_is_one_model_it_looks_however_quiet_it_is() -> None:
    quiet, usual = Quiet(models=1), FakeDetector()
    detector = SteppedDetector([usual], quiet.idling)
    quiet.look(0)
    quiet.look(1000)
    assert quiet.idling.pace.level == 2
    assert detector.ref == usual.ref and detector.labels == usual.labels
    detector.close()
    assert not usual.is_closed
