"""How light falls on one thing at one place, and how the air between veils it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fovea.sim.conditions import Atmosphere, Rgb

Colours = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Shading:
    """Light at one place: albedo colours (BGR, 0..255) in, seen colours out."""

    fill: Rgb  # from everywhere
    beam: Rgb  # from the sun, already zero in the shade
    direction: NDArray[np.float64]
    air_colour: Rgb  # 0..255
    veil: float  # share of the air's own colour in what is seen, 0..1
    snow_top: float = 0.0

    def faces(self, colours: Colours, normals: NDArray[np.float64]) -> Colours:
        """Seen colours [N,3] of faces with albedo [N,3] and unit normals [N,3]."""
        facing = (normals @ self.direction).clip(0.0)
        sky = 0.80 + 0.20 * normals[:, 2]
        if self.snow_top > 0:
            cover = (normals[:, 2] * 1.6 - 0.6).clip(0, 1)[:, None] * self.snow_top
            colours = colours * (1 - cover) + 236.0 * cover
        lit = colours * (sky[:, None] * self.fill + facing[:, None] * self.beam)
        return self.through_air(lit)

    def flat(self, colours: Colours, turn: float = 0.55) -> Colours:
        """Seen colours [N,3] of round things such as people; `turn` is how far they face the sun."""
        return self.through_air(colours * (self.fill + turn * self.beam))

    def through_air(self, lit: Colours) -> Colours:
        """Lit colours [N,3] veiled by the air."""
        out: Colours = (lit + (self.air_colour - lit) * self.veil).clip(0, 255)
        return out


@dataclass(frozen=True, slots=True, eq=False)
class Lamps:
    """Street lamps: ground positions [N,2] m, and the height of the light."""

    positions_m: NDArray[np.float64]
    height_m: float

    def strength(
        self, x_m: NDArray[np.float64], y_m: NDArray[np.float64], z_m: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Relative light at points of any equal shape; 1 straight under a lamp."""
        total = np.zeros_like(x_m)
        h2 = self.height_m**2
        for px, py in self.positions_m:
            d2 = (x_m - px) ** 2 + (y_m - py) ** 2 + (self.height_m - z_m) ** 2
            total += (h2 / (d2 + 1.0)) ** 1.5
        return total.clip(0, 1.6)

    def strength_at(self, x_m: float, y_m: float, z_m: float = 1.0) -> float:
        """`strength` for one point."""
        if not len(self.positions_m):
            return 0.0
        d = self.positions_m - (x_m, y_m)
        d2 = (d * d).sum(axis=1) + (self.height_m - z_m) ** 2
        return float(min(((self.height_m**2 / (d2 + 1.0)) ** 1.5).sum(), 1.6))


def shading_at(
    atmosphere: Atmosphere, lamp_strength: float, sunlit: float, distance_m: float, extra: float = 0.0
) -> Shading:
    """Light on a thing: `lamp_strength` from Lamps, `sunlit` 0..1, `extra` light from head lamps."""
    veil = 1.0 - float(np.exp(-atmosphere.extinction_per_m * distance_m))
    fill = atmosphere.ambient + atmosphere.lamp * (0.75 * lamp_strength) + np.array([0.85, 0.95, 1.0]) * extra
    return Shading(
        fill,
        atmosphere.sun * sunlit,
        atmosphere.sun_direction,
        atmosphere.air * 255.0,
        veil,
        atmosphere.snow_cover * 0.85,
    )
