"""Under which light a picture was taken, from what can be measured: a coarse word, to count and to balance by."""

from __future__ import annotations

from enum import StrEnum


class Condition(StrEnum):
    """day: none of the others. dusk, dawn: little light, after and before noon. night: hardly any. haze: light
    without contrast (fog, heavy rain or snow, a lens that is dirty or out of focus)."""

    DAY = "day"
    DUSK = "dusk"
    DAWN = "dawn"
    NIGHT = "night"
    HAZE = "haze"


NIGHT_BELOW = 45.0
"""Mean grey value, 0 to 255. Cameras brighten what is dark, so night is not black: lamps, walls, noise."""
DUSK_BELOW = 65.0
HAZE_BELOW = 25.0
"""Standard deviation of the grey values. A clear day has shadows and a sky: 30 and more."""
_DARK_HOURS = (22, 5)
"""From and until which local hour a dim picture is one of the night, lit by lamps. Summer evenings are long, so
that is all an hour can say without a place on the map."""


def condition_of(luminance: float, contrast: float, local_hour: float) -> Condition:
    """The word for a picture of this mean and standard deviation of its grey values (0 to 255, 0 to 128), captured at
    this hour (0 to 24, where the camera is).

    The limits were chosen on the simulated street. Rain and snow look like day or haze here: a site that knows better
    says so with tags.
    """
    if luminance < NIGHT_BELOW:
        return Condition.NIGHT
    if luminance < DUSK_BELOW:
        if local_hour >= _DARK_HOURS[0] or local_hour < _DARK_HOURS[1]:
            return Condition.NIGHT
        return Condition.DAWN if local_hour < 12 else Condition.DUSK
    return Condition.HAZE if contrast < HAZE_BELOW else Condition.DAY
