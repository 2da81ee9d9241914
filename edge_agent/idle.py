"""What a camera does while nothing happens: fewer frames and a smaller model, in steps, and all again at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from fovea.core.errors import Malformed


@dataclass(frozen=True, slots=True)
class IdleStep:
    """after_s: of quiet, from then on this step holds. fps_share: of the usual frames per second, above 0 to 1.
    model: which of the models at hand looks, 0 the usual one, higher ones cheaper."""

    after_s: float
    fps_share: float
    model: int = 0

    def __post_init__(self) -> None:
        if not (self.after_s > 0 and math.isfinite(self.after_s)):
            raise Malformed(f"idle step after_s: expected a finite number above 0, got {self.after_s}")
        if not 0 < self.fps_share <= 1:
            raise Malformed(f"idle step fps_share: expected more than 0 up to 1, got {self.fps_share}")
        if self.model < 0:
            raise Malformed(f"idle step model: expected 0 or more, got {self.model}")


USUAL_STEPS = (IdleStep(10.0, 0.5, 0), IdleStep(60.0, 0.25, 1))
"""Half the frames after 10 s of quiet, a quarter and a cheaper model after a minute."""


@dataclass(frozen=True, slots=True)
class IdleSettings:
    """steps: later ones cost less. least_fps: however quiet it is, so many frames per second are taken, so that what
    appears is seen within 1 / least_fps seconds. models: how many there are to choose from."""

    steps: tuple[IdleStep, ...] = USUAL_STEPS
    least_fps: float = 1.0
    models: int = 1

    def __post_init__(self) -> None:
        if not (self.least_fps > 0 and math.isfinite(self.least_fps)):
            raise Malformed(f"idle least_fps: expected a finite number above 0, got {self.least_fps}")
        if self.models < 1:
            raise Malformed(f"idle models: expected at least 1, got {self.models}")
        for before, after in zip(self.steps, self.steps[1:], strict=False):
            if not (
                after.after_s > before.after_s
                and after.fps_share <= before.fps_share
                and after.model >= before.model
            ):
                raise Malformed(
                    "idle steps: expected each to come later than the one before and to cost no more"
                )


class Pace(NamedTuple):
    """level: 0 is the usual pace, n the n-th step. fps: frames per second to take from now on. model: which of the
    models looks at this very frame."""

    level: int
    fps: float
    model: int


class IdleStepper:
    """Of one camera. Tell it of every frame before the model looks; it looks at no clock."""

    def __init__(self, usual_fps: float, settings: IdleSettings = IdleSettings()) -> None:
        self.usual_fps = _checked_fps(usual_fps)
        self._settings = settings
        self._active_mono_s: float | None = None

    def set_usual_fps(self, fps: float) -> None:
        """Another usual rate; the quiet is counted anew, from the next frame on. Raises Malformed."""
        self.usual_fps = _checked_fps(fps)
        self._active_mono_s = None

    def look(self, is_active: bool, at_mono_s: float) -> Pace:
        """The pace from this frame on. An active frame (something moves, or what was in view is still followed) is
        itself looked at by the usual model, and the frames after it come at the usual rate. After a clock that steps
        back the quiet is counted anew."""
        if is_active or self._active_mono_s is None or at_mono_s < self._active_mono_s:
            self._active_mono_s = at_mono_s
        return self._pace(at_mono_s - self._active_mono_s)

    def _pace(self, quiet_s: float) -> Pace:
        settings = self._settings
        level = sum(quiet_s >= step.after_s for step in settings.steps)
        if level == 0:
            return Pace(0, self.usual_fps, 0)
        step = settings.steps[level - 1]
        least_fps = min(settings.least_fps, self.usual_fps)
        return Pace(
            level, max(self.usual_fps * step.fps_share, least_fps), min(step.model, settings.models - 1)
        )


def _checked_fps(fps: float) -> float:
    if not (fps > 0 and math.isfinite(fps)):
        raise Malformed(f"idle usual_fps: expected a finite number above 0, got {fps}")
    return fps
