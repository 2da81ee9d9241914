"""Which builder makes which class of vehicle."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fovea.sim.bus import bus
from fovea.sim.car import car
from fovea.sim.mesh import Mesh
from fovea.sim.truck import truck

BUILDERS: dict[int, Callable[[np.random.Generator], Mesh]] = {2: car, 5: bus, 7: truck}
