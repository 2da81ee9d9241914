"""Findings of a demo that never ran: what the report is tried on."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from calibration.evaluate import Interval
from fovea.cli.demo_findings import (
    CameraFindings,
    DemoFindings,
    Latency,
    LiveFindings,
    LiveMoment,
    Mode,
    ModeFindings,
    ModelFacts,
    PictureCell,
    PictureRow,
    ProcessFindings,
)
from fovea.core.energy import EnergyConstants, FrameWork, energy_of
from fovea.core.routing import Tier
from fovea.runtime.images import encode_jpeg


def mode_findings(
    mode: Mode, ap: float, gain: Interval | None, kb: float, ms: float, asked: float
) -> ModeFindings:
    return ModeFindings(
        mode=mode,
        frames=216,
        ap=Interval(ap, ap - 0.02, ap + 0.025),
        ap50=ap * 1.8,
        agreement=None,
        hybrid_gain=gain,
        latency=Latency(ms, ms * 0.9, ms * 1.7),
        bytes_per_frame=1000 * kb,
        asked_share=asked,
        cloud_share=asked / 3,
        energy=energy_of(FrameWork(0.006, 1000 * kb, asked * 0.03, 300 * kb, asked * 0.07)),
        ap_by_condition={"day": ap + 0.03, "night": ap - 0.05},
    )


def sample(has_truth: bool = True) -> DemoFindings:
    modes = [
        mode_findings(Mode.AGENT, 0.16, Interval(0.045, 0.03, 0.06), 0, 6, 0),
        mode_findings(Mode.EDGE, 0.21, Interval(0.004, -0.008, 0.012), 95, 40, 1),
        mode_findings(Mode.CLOUD, 0.30, Interval(-0.09, -0.11, -0.07), 95, 230, 1),
        mode_findings(Mode.HYBRID, 0.21, None, 31, 45, 0.33),
    ]
    if not has_truth:
        shared = {Mode.AGENT: 0.5, Mode.EDGE: 0.6, Mode.CLOUD: 1.0, Mode.HYBRID: 0.63}
        modes = [
            replace(
                mode, ap=None, ap50=None, hybrid_gain=None, agreement=shared[mode.mode], ap_by_condition={}
            )
            for mode in modes
        ]
    rng = np.random.default_rng(0)
    picture = encode_jpeg(rng.integers(0, 255, (54, 96, 3), np.uint8), 80)
    moments = [
        LiveMoment(float(second), {Tier.AGENT: 9, Tier.EDGE: second % 4, Tier.CLOUD: second % 2}, 90_000.0)
        for second in range(40)
    ]
    cameras = [
        CameraFindings(
            name,
            f"sim://street-v1/{name}",
            200,
            4.9,
            {Tier.AGENT: 140, Tier.EDGE: 40, Tier.CLOUD: 20},
            0.3,
            Latency(20, 18, 40),
            5e6,
            {"replaced_by_newer": 2} if name == "day" else {},
            260,
        )
        for name in ("day", "night")
    ]
    return DemoFindings(
        made_at=datetime(2026, 5, 1, 12, 0, tzinfo=UTC),
        source="216 test frames of street-v1",
        has_truth=has_truth,
        machine={"processor": "a <small> CPU", "cores": "2"},
        models=[
            ModelFacts(tier, f"street-{tier.name.lower()}", "1", "ab" * 32, "AGPL-3.0-or-later", 1.7, 953_639, 5)
            for tier in Tier
        ],
        live=LiveFindings(
            40,
            cameras,
            moments,
            {
                Tier.AGENT: rng.gamma(4, 4, 200).tolist(),
                Tier.EDGE: rng.gamma(6, 12, 80).tolist(),
                Tier.CLOUD: rng.gamma(8, 40, 40).tolist(),
            },
            [ProcessFindings("agent", 9.1, 140.0), ProcessFindings("cloud", 12.0, 260.0)],
        ),
        modes=modes,
        pictures=[
            PictureRow(
                "night, frame 60",
                [PictureCell(f"{who}: 3 boxes", picture) for who in ("truth", "camera", "edge", "cloud", "hybrid")],
            )
        ],
        constants=EnergyConstants().table(),
        steps={"live": 40.0, "measurement": 90.0},
        notes=("Scored on the boxes as they were answered.",),
    )  # fmt: skip
