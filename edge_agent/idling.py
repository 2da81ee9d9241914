"""A camera that does less while nothing moves: its sense of motion sets the pace, its model follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from edge_agent.idle import IdleStepper, Pace
from fovea.core.arrays import ImageArray
from fovea.core.detections import Inference, ModelRef
from fovea.core.labels import LabelSet
from fovea.core.ports import Detector

if TYPE_CHECKING:
    from edge_agent.capture.motion import Motion
    from edge_agent.frame_walk import MotionSense


class Idling:
    """A MotionSense that tells a stepper of every frame, and the camera how many frames to take from then on. For the
    thread that looks; `pace` may be read by any.

    What moves, and another scene (a lamp goes on), is activity. What stands still in view is not: a parked car would
    keep the camera awake for ever.
    """

    def __init__(self, motion: MotionSense, stepper: IdleStepper, set_fps: Callable[[float], None]) -> None:
        self._motion = motion
        self._stepper = stepper
        self._set_fps = set_fps
        self._pace = Pace(0, stepper.usual_fps, 0)
        self._wanted_fps: float | None = None

    @property
    def pace(self) -> Pace:
        return self._pace

    def look(self, pixels: ImageArray, at_mono_s: float) -> Motion:
        wanted_fps, self._wanted_fps = self._wanted_fps, None
        if wanted_fps is not None:
            self._stepper.set_usual_fps(wanted_fps)
            self._pace = Pace(0, wanted_fps, 0)
        motion = self._motion.look(pixels, at_mono_s)
        self._go(self._stepper.look(motion.is_moving or motion.is_new_scene, at_mono_s))
        return motion

    def set_usual_fps(self, fps: float) -> None:
        """Somebody wants another rate: it holds at once, and is stepped down from. From any thread. Raises what
        `set_fps` raises."""
        self._set_fps(fps)
        self._wanted_fps = fps

    def _go(self, pace: Pace) -> None:
        before, self._pace = self._pace, pace
        if pace.fps != before.fps:
            self._set_fps(pace.fps)


class SteppedDetector:
    """A Detector that looks with the model which the pace of a camera asks for. It owns none of them."""

    def __init__(self, models: Sequence[Detector], idling: Idling) -> None:
        """`models`: the usual one first, then cheaper ones."""
        self._models = tuple(models)
        self._idling = idling

    @property
    def ref(self) -> ModelRef:
        return self._now.ref

    @property
    def labels(self) -> LabelSet:
        return self._now.labels

    def detect(self, frames: Sequence[ImageArray]) -> list[Inference]:
        return self._now.detect(frames)

    def close(self) -> None:
        """Nothing: whoever opened the models closes them."""

    @property
    def _now(self) -> Detector:
        return self._models[min(self._idling.pace.model, len(self._models) - 1)]
