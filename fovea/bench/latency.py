"""Which predictor foretells the latency of an edge server under load better: a running mean, or an LSTM?"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from calibration.fit_latency import LatencyFit, fit_latency
from fovea.bench.latency_traces import LoadPlan, Recording, edge_process, jpegs_of, record
from fovea.bench.result import BenchResult, Setting
from fovea.core.arrays import ImageArray
from fovea.sim.conditions import CONDITIONS
from fovea.sim.suite import load_suite

SUITE = "street-v1"
BUNDLE = "zoo:street-student-int8"


@dataclass(frozen=True, slots=True)
class LatencySettings:
    """bundle: what the server runs, a path or zoo:NAME. judged_share: of the questions, the newest, that the two are
    compared on; the older ones are fitted on."""

    bundle: str = BUNDLE
    plan: LoadPlan = field(default_factory=LoadPlan)
    judged_share: float = 0.3


def run(
    settings: LatencySettings,
    progress: Callable[[int, int], None] = lambda done, every: None,
    predictor_file: Path | None = None,
) -> BenchResult:
    """Records a trace, fits both on its older part and compares them on its newer one; the better one is written to
    `predictor_file` as JSON where that is wanted.

    Raises Malformed when too few answers came to fit anything, and what `edge_process` raises.
    """
    images = jpegs_of(_frames())
    with edge_process(settings.bundle) as ask:
        recording = record(ask, images, settings.plan, progress)
    fit = fit_latency(recording.samples, settings.judged_share)
    if predictor_file is not None:
        predictor_file.parent.mkdir(parents=True, exist_ok=True)
        predictor_file.write_text(json.dumps(fit.to_json(), allow_nan=False) + "\n", encoding="utf-8")
    given: dict[str, Setting] = {
        "bundle": settings.bundle,
        "better": fit.better,
        "judged_share": settings.judged_share,
        "longest_s": settings.plan.longest_s,
        "seed": settings.plan.seed,
    }
    return BenchResult.now("latency", given, figures_of(fit, recording))


def figures_of(fit: LatencyFit, recording: Recording) -> dict[str, float]:
    """mae_ms.* on the newer part; within_p95.* is the share of answers that came within the 95 % forecast."""
    latencies_ms = sorted(sample.latency_ms for sample in recording.samples)
    return {
        "mae_ms.lstm": round(fit.lstm.mae_ms, 4),
        "mae_ms.ewma": round(fit.ewma.mae_ms, 4),
        "within_p95.lstm": round(fit.lstm.within_p95, 4),
        "within_p95.ewma": round(fit.ewma.within_p95, 4),
        "ewma_alpha": fit.alpha,
        "answers": len(recording.samples),
        "judged_on": fit.lstm.questions,
        "left_out": recording.left_out,
        "unanswered": recording.unanswered,
        "recorded_s": round(recording.took_s, 2),
        "alone_per_s": round(recording.alone_per_s, 2),
        "latency_ms_median": round(latencies_ms[len(latencies_ms) // 2], 3),
        "latency_ms_p95": round(latencies_ms[int(0.95 * (len(latencies_ms) - 1))], 3),
    }


def _frames() -> list[ImageArray]:
    """One street frame of each condition."""
    suite = load_suite(SUITE)
    return [suite.clip("val", condition, 0).frame(5).pixels for condition in CONDITIONS]
