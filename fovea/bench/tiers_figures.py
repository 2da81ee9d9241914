"""All figures of the replay: every mode over every link, and what the budgets buy beside the cloud alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from calibration.evaluate import Interval
from fovea.bench.cascade_recording import RecordedFrame
from fovea.bench.tiers_link import LAN, LTE, WAN, LinkSpec, Outage
from fovea.bench.tiers_outcome import Mode, Outcome, ReplayFrame, TierTimes
from fovea.bench.tiers_policy import Gates
from fovea.bench.tiers_replay import Network, replay
from fovea.bench.tiers_scores import Answers, ap_ratios, qualities, run_figures
from fovea.core.energy import EnergyConstants

LINKS: Mapping[str, LinkSpec] = {"lan": LAN, "wan": WAN, "lte": LTE, "outage": WAN}
OUTAGE = "outage"
TOLD_OF = "wan"
"""The link that figures without one in their name are of."""
BUDGETS_PCT = (25, 40)


def replayed_figures(
    frames: Sequence[RecordedFrame],
    planned: Sequence[ReplayFrame],
    times: TierTimes,
    gates: Gates,
    fps: float,
    resamples: int,
    constants: EnergyConstants = EnergyConstants(),
) -> dict[str, float]:
    """Everything that the replay says; see `fovea.bench.tiers.run`."""
    usual, lasts_s = gates.policy(), len(planned) / fps
    networks = {name: Network(link, outage=_outage(name, planned)) for name, link in LINKS.items()}
    runs = {
        f"{name}.{mode}": replay(planned, mode, network, times, usual)
        for name, network in networks.items()
        for mode in Mode
    }
    budgets = {
        pct: replay(
            planned, Mode.HYBRID, networks[TOLD_OF], times, gates.policy_within(pct / 100, fps, lasts_s)
        )
        for pct in BUDGETS_PCT
    }
    answers = Answers(frames)
    by_run = {**runs, **{f"hybrid.{pct}": outcomes for pct, outcomes in budgets.items()}}
    found = qualities(answers, by_run, 1 / fps)
    figures: dict[str, float] = {}
    own = {}
    for name, outcomes in by_run.items():
        mode = Mode.HYBRID if name not in runs else Mode(name.partition(".")[2])
        own[name] = run_figures(mode, outcomes, found[name], times, constants)
    for name in runs:
        figures |= {f"{name}.{key}": value for key, value in own[name].items()}
    for name in LINKS:
        figures |= {f"{name}.hybrid.{key}": value for key, value in asking(runs[f"{name}.hybrid"]).items()}
    figures |= {f"hybrid.{key}": figures[f"{TOLD_OF}.hybrid.{key}"] for key in ("asked_pct", "forwarded_pct")}
    cloud = f"{TOLD_OF}.{Mode.CLOUD}"
    beside = {f"{TOLD_OF}.hybrid": "usual", **{f"hybrid.{pct}": str(pct) for pct in BUDGETS_PCT}}
    ratios = ap_ratios(answers, {name: by_run[name] for name in beside}, runs[cloud], resamples)
    for name, budget in beside.items():
        figures |= budget_figures(budget, own[name], own[cloud], ratios[name])
    for pct, outcomes in budgets.items():
        figures |= {
            f"hybrid.{key}.{pct}": value
            for key, value in asking(outcomes).items()
            if key in ("asked_pct", "forwarded_pct")
        }
    figures["first_answer_ms.lan"] = _first_ms(runs["lan.hybrid"], networks[OUTAGE].outage)
    figures["first_answer_ms.cut"] = _first_ms(runs[f"{OUTAGE}.hybrid"], networks[OUTAGE].outage)
    return figures


def budget_figures(
    budget: str, hybrid: Mapping[str, float], cloud: Mapping[str, float], ratio: Interval
) -> dict[str, float]:
    """The hybrid of one budget beside the cloud alone."""
    return {
        f"hybrid.ap.{budget}": hybrid["ap"],
        f"hybrid.ap_over_cloud.{budget}": ratio.value,
        f"hybrid.ap_over_cloud_low.{budget}": ratio.low,
        f"hybrid.ap_over_cloud_high.{budget}": ratio.high,
        f"hybrid.latency_over_cloud.{budget}": hybrid["latency_ms_mean"] / cloud["latency_ms_mean"],
        f"hybrid.energy_over_cloud.{budget}": hybrid["joules_per_frame"] / cloud["joules_per_frame"],
        f"hybrid.bytes_over_cloud.{budget}": hybrid["bytes_per_frame"] / cloud["bytes_per_frame"],
        f"hybrid.streaming_over_cloud.{budget}": hybrid["streaming_ap"] / max(cloud["streaming_ap"], 1e-9),
    }


def asking(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """How many frames were asked about, and the first answers."""
    return {
        "asked_pct": 100 * float(np.mean([each.is_asked for each in outcomes])),
        "forwarded_pct": 100 * float(np.mean([each.is_forwarded for each in outcomes])),
        "first_ms_mean": _first_ms(outcomes, None),
    }


def times_figures(times: TierTimes) -> dict[str, float]:
    """What was measured of each step."""
    return {
        "times.camera_ms": 1000 * float(np.mean(times.camera_s)),
        "times.encode_ms": 1000 * float(np.mean(times.encode_s)),
        "times.edge_ms": 1000 * float(np.mean(times.edge_s)),
        "times.cloud_ms": 1000 * float(np.mean(times.cloud_s)),
        "times.camera_cpu_ms": 1000 * times.camera_cpu_s,
        "times.edge_cpu_ms": 1000 * times.edge_cpu_s,
        "times.cloud_cpu_ms": 1000 * times.cloud_cpu_s,
    }


def _outage(name: str, planned: Sequence[ReplayFrame]) -> Outage | None:
    if name != OUTAGE:
        return None
    begin_s, end_s = planned[0].captured_s, planned[-1].captured_s
    third_s = (end_s - begin_s) / 3
    return Outage(begin_s + third_s, end_s - third_s)


def _first_ms(outcomes: Sequence[Outcome], within: Outage | None) -> float:
    """Mean time to the first answer, of frames captured in the outage where one is given."""
    return 1000 * float(
        np.mean(
            [
                each.first_s
                for each in outcomes
                if each.first_s is not None
                and (within is None or within.begin_s <= each.captured_s < within.end_s)
            ]
        )
    )
