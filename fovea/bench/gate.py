"""How well gates choose what to ask, against published rules: on the street, and on real photographs.

On the street everything about a gate is fixed before the test clips are looked at: it is fitted on training clips
that no model was trained on, its price is found on validation clips, and the figures are of the test clips. Gates
that bundles carry are measured as they are; a model without one gets one fitted on the spot.

On photographs only 128 images are there to fit on, and the models have been trained on those very images. So the gate
of the photographs is mostly a prior: see `fit_few`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from calibration.gain_share import Verdict
from calibration.gate_rules import OTHERS, LinearRule
from fovea.bench.cascade_recording import Trio
from fovea.bench.gate_coco import coco_asks
from fovea.bench.gate_figures import PCTS, GateEvidence, decide_cpu_ms, evidence
from fovea.bench.gate_fit import (
    CAMERA_ASKS,
    EDGE_ASKS,
    FittedGate,
    GateSample,
    Step,
    fit_and_price,
    fit_few,
    recorded,
    samples_of,
)
from fovea.bench.gate_plots import curves_png
from fovea.bench.gate_set import AskSet
from fovea.bench.result import BenchResult, Setting
from fovea.core.learned_gate import gate_from_json
from fovea.runtime.bundle import Bundle


@dataclass(frozen=True, slots=True)
class GateBenchSettings:
    """What is recorded, how many resamples of the clips are drawn, and where the photographs are (None: left out)."""

    sample: GateSample = field(default_factory=GateSample)
    resamples: int = 1000
    data: Path | None = None


def run(
    settings: GateBenchSettings,
    trio: Trio,
    folder: Path,
    step: Step,
    note: Callable[[str], None] = lambda text: None,
    plots: Path | None = None,
) -> BenchResult:
    """Records what is not in `folder` yet, measures, and puts the plots into `plots` if it is given.

    Figures are named SET.gain_share.RULE.PCT and so on (`fovea.bench.gate_figures`); SET is street (camera asks
    edge), street2 (edge asks cloud), coco (strong instead of weak) and coco_merged. Raises NotFound without the
    photographs' files.
    """
    frames = {
        split: recorded(settings.sample, split, trio, folder, step) for split in ("train", "val", "test")
    }
    lasts_s = {split: settings.sample.spans(split)[0].lasts_s for split in frames}
    figures: dict[str, float] = {}
    said: dict[str, Setting] = {
        "fit_frames": len(frames["train"]),
        "val_frames": len(frames["val"]),
        "test_frames": len(frames["test"]),
        "resamples": settings.resamples,
    }
    for name, pair, bundle in (("street", CAMERA_ASKS, trio.camera), ("street2", EDGE_ASKS, trio.edge)):
        note(f"{name}: rewards")
        fit, val, test = (pair.ask_set(frames[split], lasts_s[split]) for split in ("train", "val", "test"))
        note(f"{name}: rules")
        fitted, source = _fitted(bundle, fit, val)
        said[f"{name}.gate"] = source
        found = evidence(name, test, val, fitted.gate, fitted.linear, settings.resamples)
        _add(name, found, figures, said, plots)
        if name == "street":
            figures["decide_cpu_ms_p99"] = float(np.quantile(decide_cpu_ms(fitted.gate, test), 0.99))
    if settings.data is not None:
        note("photographs")
        for name, each in _photographs(settings.data, settings.resamples).items():
            _add(name, each, figures, said, plots)
    return BenchResult.now("gate", said, figures)


def _fitted(bundle: Path, fit: AskSet, val: AskSet) -> tuple[FittedGate, str]:
    carried = Bundle.open(bundle).find_gate()
    if carried is None:
        return fit_and_price(fit, val), "fitted here"
    return FittedGate(gate_from_json(carried), LinearRule.fit(samples_of(fit)), ()), "of the bundle"


def _photographs(data: Path, resamples: int) -> dict[str, GateEvidence]:
    fit_on, judged_on = coco_asks(data, "train"), coco_asks(data, "val")
    sets = {
        "coco": (fit_on.replaced, judged_on.replaced),
        "coco_merged": (fit_on.merged, judged_on.merged),
    }
    found = {}
    for name, (fit_frames, test_frames) in sets.items():
        fit, test = AskSet.of(fit_frames, fit_on.class_ids), AskSet.of(test_frames, judged_on.class_ids)
        gate = fit_few(fit)
        found[name] = evidence(name, test, fit, gate, LinearRule.fit(samples_of(fit)), resamples)
    return found


def _add(
    name: str, found: GateEvidence, figures: dict[str, float], said: dict[str, Setting], plots: Path | None
) -> None:
    figures |= {f"{name}.{key}": value for key, value in found.figures.items()}
    said |= {f"{name}.verdicts": _verdicts(found)}
    if plots is not None:
        plots.mkdir(parents=True, exist_ok=True)
        for kind, png in curves_png(found.curves).items():
            (plots / f"gate-{name}-{kind}.png").write_bytes(png)


def _verdicts(found: GateEvidence) -> str:
    """Against whom ours is above, ties or is below, at each percentage."""
    parts = []
    for pct in PCTS:
        by_verdict = {
            verdict: [rule for rule in OTHERS if found.verdicts[rule][pct].verdict is verdict]
            for verdict in Verdict
        }
        told: Sequence[str] = [
            f"{verdict} {', '.join(rules)}" for verdict, rules in by_verdict.items() if rules
        ]
        parts.append(f"{pct} %: {'; '.join(told)}")
    return " | ".join(parts)
