"""Modelled energy of looking at one frame: a few stated constants times what was measured.

Nothing here is a measurement of power. CPU seconds and bytes are measured; what a second and a byte cost is taken
from what is publicly known about such machines, to within the factor that `BAND` says. Only what a frame adds is
counted: what a board, an edge box and a server draw while idle is the same whoever answers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fovea.core.errors import Malformed

BAND = 0.5
"""Half width of the band around every modelled value, as a share of it."""


@dataclass(frozen=True, slots=True)
class Constant:
    """One constant as it is shown to people: `unit` as text, `source` one sentence on where the value comes from."""

    name: str
    value: float
    unit: str
    source: str


@dataclass(frozen=True, slots=True)
class EnergyConstants:
    """What a second of work and a byte on its way cost; all finite and 0 or more, see `table` for their sources.

    board_cpu_factor     seconds on a core of a camera board for each second on the core that was measured
    board_j_per_cpu_s    J for each second of one busy core of the board, above idle
    local_j_per_byte     J for each byte between camera and edge, both ends
    wide_j_per_byte      J for each byte between edge and cloud
    edge_j_per_cpu_s     J for each second of one busy core of the edge box
    cloud_j_per_cpu_s    J for each second of one busy core of the cloud server
    """

    board_cpu_factor: float = 4.0
    board_j_per_cpu_s: float = 1.1
    local_j_per_byte: float = 0.8e-6
    wide_j_per_byte: float = 20e-6
    edge_j_per_cpu_s: float = 10.0
    cloud_j_per_cpu_s: float = 12.0

    def __post_init__(self) -> None:
        for constant in self.table():
            if not (math.isfinite(constant.value) and constant.value >= 0):
                raise Malformed(
                    f"energy {constant.name}: expected a finite number of 0 or more, got {constant.value}"
                )

    def table(self) -> tuple[Constant, ...]:
        """Every constant with its unit and where it comes from."""
        return (
            Constant(
                "board_cpu_factor",
                self.board_cpu_factor,
                "s per s",
                "A core of a Pi 4 or Pi 5 class board does 2.5 to 6 times less per second than a core of a PC or "
                "server in common single-core benchmarks.",
            ),
            Constant(
                "board_j_per_cpu_s",
                self.board_j_per_cpu_s,
                "J per CPU-second",
                "Such boards draw about 3 W idle and 6 to 8 W with four busy cores: about 1.1 W a core.",
            ),
            Constant(
                "local_j_per_byte",
                self.local_j_per_byte,
                "J per byte",
                "Wi-Fi that sends 20 Mbit/s of payload draws about 1 W more, at either end; Ethernet needs less.",
            ),
            Constant(
                "wide_j_per_byte",
                self.wide_j_per_byte,
                "J per byte",
                "Estimates of access and core networks go from 0.005 to 0.06 kWh per GB and fall by the year; the "
                "low end is taken (0.0056).",
            ),
            Constant(
                "edge_j_per_cpu_s",
                self.edge_j_per_cpu_s,
                "J per CPU-second",
                "One busy core of a mini PC: 8 to 12 W above idle at the socket.",
            ),
            Constant(
                "cloud_j_per_cpu_s",
                self.cloud_j_per_cpu_s,
                "J per CPU-second",
                "A loaded server draws 7 to 10 W for each busy core; times 1.4 for cooling and conversion.",
            ),
        )


@dataclass(frozen=True, slots=True)
class FrameWork:
    """What was spent on one frame, or on the mean frame: CPU seconds of each process as measured here, and
    bytes on each of the two links. All finite and 0 or more."""

    camera_cpu_s: float = 0.0
    local_bytes: float = 0.0
    edge_cpu_s: float = 0.0
    wide_bytes: float = 0.0
    cloud_cpu_s: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            spent = getattr(self, name)
            if not (math.isfinite(spent) and spent >= 0):
                raise Malformed(f"frame work {name}: expected a finite number of 0 or more, got {spent}")


@dataclass(frozen=True, slots=True)
class Energy:
    """Modelled J for one frame, by where they are spent."""

    board_j: float
    local_link_j: float
    edge_j: float
    wide_link_j: float
    cloud_j: float

    @property
    def total_j(self) -> float:
        return self.board_j + self.local_link_j + self.edge_j + self.wide_link_j + self.cloud_j

    @property
    def low_j(self) -> float:
        """The lower end of the band."""
        return self.total_j * (1 - BAND)

    @property
    def high_j(self) -> float:
        """The upper end of the band."""
        return self.total_j * (1 + BAND)


def energy_of(work: FrameWork, constants: EnergyConstants = EnergyConstants()) -> Energy:
    """The modelled energy of a frame that took this much work."""
    return Energy(
        board_j=work.camera_cpu_s * constants.board_cpu_factor * constants.board_j_per_cpu_s,
        local_link_j=work.local_bytes * constants.local_j_per_byte,
        edge_j=work.edge_cpu_s * constants.edge_j_per_cpu_s,
        wide_link_j=work.wide_bytes * constants.wide_j_per_byte,
        cloud_j=work.cloud_cpu_s * constants.cloud_j_per_cpu_s,
    )
